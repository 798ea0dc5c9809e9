//! Jute, ZooKeeper's encoding: big-endian integers; buffers, strings and lists with their length in front, where -1
//! means null; frames with their length in front.

use std::borrow::Cow;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::numbers::{ErrorCode, EventKind, OpCode};

/// The bytes violate the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a ZooKeeper message: {0}")]
pub struct Malformed(pub &'static str);

const TRUNCATED: Malformed = Malformed("it ends within a field");
const NULL: Malformed = Malformed("a string is null");

/// The length of a frame by its first four bytes, without those. `None` while they have not all arrived.
///
/// # Errors
/// A negative length, or one beyond `limit`.
pub fn frame_length(bytes: &[u8], limit: usize) -> Result<Option<usize>, Malformed> {
    let Some(prefix) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length =
        usize::try_from(i32::from_be_bytes(*prefix)).map_err(|_| Malformed("a negative frame length"))?;
    if length > limit {
        return Err(Malformed("a frame that is longer than the limit"));
    }
    Ok(Some(length))
}

/// Takes the next whole frame out of `input`, without its length; `None` until it has arrived. Memory for the rest of a
/// frame is not reserved here: a claimed length costs nothing.
///
/// # Errors
/// A negative length, or one beyond `limit`.
pub fn cut_frame(input: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, Malformed> {
    let Some(length) = frame_length(input, limit)? else { return Ok(None) };
    if input.len() - 4 < length {
        return Ok(None);
    }
    input.advance(4);
    Ok(Some(input.split_to(length).freeze()))
}

/// Reads the fields of a message in their order.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a>(&'a [u8], Option<&'a Bytes>);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes, None)
    }

    /// Behind the first `skipped` bytes of a frame, of which data is to be a part.
    pub(super) fn of_frame(frame: &'a Bytes, skipped: usize) -> Result<Self, Malformed> {
        Ok(Self(frame.get(skipped..).ok_or(TRUNCATED)?, Some(frame)))
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next field, by its type.
    pub(super) fn next<T: Field<'a>>(&mut self) -> Result<T, Malformed> {
        T::read(self)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(*array)
    }

    /// `None` for null.
    pub(super) fn buffer(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let length: i32 = self.next()?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| Malformed("a negative length"))?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(Some(taken))
    }
}

/// Writes the fields of a message.
#[derive(Debug)]
pub(super) struct Writer<'a>(&'a mut BytesMut);

impl Writer<'_> {
    /// Appends a frame with what `write` writes, and its length in front.
    pub(super) fn frame(out: &mut BytesMut, write: impl FnOnce(&mut Writer<'_>)) {
        let at = out.len();
        out.put_i32(0);
        write(&mut Writer(out));
        let length = length(out.len() - at - 4).to_be_bytes();
        out[at..at + 4].copy_from_slice(&length);
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn buffer(&mut self, value: Option<&[u8]>) {
        self.0.put_i32(value.map_or(-1, |bytes| length(bytes.len())));
        self.raw(value.unwrap_or_default());
    }
}

/// A type that is always encoded in the same way.
pub(super) trait Field<'a>: Sized {
    /// Whether a list of these may be null, which means an empty one.
    const NULL_LIST: Result<(), Malformed> = Ok(());

    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed>;

    fn write(&self, writer: &mut Writer<'_>);
}

/// `Type: by what it is read, by what it is written;`
macro_rules! fields {
    ($($type:ty: |$reader:ident| $read:expr, |$value:ident, $writer:ident| $write:expr
        $(, null list: $null:expr)?;)*) => {
        $(impl<'a> Field<'a> for $type {
            $(const NULL_LIST: Result<(), Malformed> = $null;)?

            fn read($reader: &mut Reader<'a>) -> Result<Self, Malformed> {
                $read
            }

            fn write(&self, $writer: &mut Writer<'_>) {
                let $value = self;
                $write
            }
        })*
    };
}

fields! {
    bool: |reader| Ok(reader.array::<1>()? != [0]), |value, writer| writer.0.put_u8(u8::from(*value));
    i32: |reader| reader.array().map(i32::from_be_bytes), |value, writer| writer.0.put_i32(*value);
    i64: |reader| reader.array().map(i64::from_be_bytes), |value, writer| writer.0.put_i64(*value);
    OpCode: |reader| reader.next().map(OpCode), |value, writer| value.0.write(writer);
    ErrorCode: |reader| reader.next().map(ErrorCode), |value, writer| value.0.write(writer);
    EventKind: |reader| reader.next().map(EventKind), |value, writer| value.0.write(writer);
    // Borrowed: as a client has written it, and as Java reads it.
    Cow<'a, str>:
        |reader| reader.next::<Option<_>>()?.ok_or(NULL),
        |value, writer| writer.buffer(Some(value.as_bytes())),
        null list: Err(Malformed("a list is null"));
    Option<Cow<'a, str>>:
        |reader| Ok(reader.buffer()?.map(|bytes| text(bytes, false))),
        |value, writer| writer.buffer(value.as_deref().map(str::as_bytes));
    Option<Cow<'a, [u8]>>: |reader| Ok(reader.buffer()?.map(Cow::Borrowed)), |value, writer| writer.buffer(value.as_deref());
    // Owned: as a server has written it, with surrogates.
    String:
        |reader| Ok(text(reader.buffer()?.ok_or(NULL)?, true).into_owned()),
        |value, writer| writer.buffer(Some(&java_text(value)));
    Option<Bytes>:
        |reader| Ok(reader.buffer()?.map(|bytes| match reader.1 {
            Some(frame) => frame.slice_ref(bytes),
            None => Bytes::copy_from_slice(bytes),
        })),
        |value, writer| writer.buffer(value.as_deref());
}

impl<'a, T: Field<'a>> Field<'a> for Vec<T> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count: i32 = reader.next()?;
        if count == -1 {
            return T::NULL_LIST.map(|()| Vec::new());
        }
        // A count below that is an empty list, as for Java.
        let count = usize::try_from(count).unwrap_or(0);
        // The smallest element there is takes four bytes.
        if count > reader.0.len() / 4 {
            return Err(Malformed("a list that is longer than its message"));
        }
        (0..count).map(|_| reader.next()).collect()
    }

    fn write(&self, writer: &mut Writer<'_>) {
        length(self.len()).write(writer);
        for element in self {
            element.write(writer);
        }
    }
}

/// A struct, and its encoding: its fields in their order.
macro_rules! record {
    ($(#[$about:meta])* $vis:vis struct $name:ident $(<$life:lifetime>)? {
        $($(#[$what:meta])* $open:vis $field:ident: $type:ty,)*
    }) => {
        $(#[$about])*
        $vis struct $name $(<$life>)? {
            $($(#[$what])* $open $field: $type,)*
        }

        impl<'a> $crate::codec::wire::Field<'a> for record!(@type $name $(<$life>)?) {
            fn read(reader: &mut $crate::codec::wire::Reader<'a>) -> Result<Self, $crate::Malformed> {
                Ok(Self { $($field: reader.next()?,)* })
            }

            fn write(&self, writer: &mut $crate::codec::wire::Writer<'_>) {
                $($crate::codec::wire::Field::write(&self.$field, writer);)*
            }
        }
    };
    (@type $name:ident) => { $name };
    (@type $name:ident <$life:lifetime>) => { $name<'a> };
}
pub(super) use record;

/// As Java writes it: a character beyond the first plane becomes two surrogates of three bytes, which is no UTF-8.
fn java_text(text: &str) -> Cow<'_, [u8]> {
    if text.bytes().all(|byte| byte < 0xf0) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::new();
    for character in text.chars() {
        let mut units = [0; 2];
        match character.encode_utf16(&mut units) {
            [high, low] => bytes.extend([*high, *low].into_iter().flat_map(surrogate)),
            _ => bytes.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

fn surrogate(unit: u16) -> [u8; 3] {
    let [high, low] = unit.to_be_bytes();
    [0xe0 | high >> 4, 0x80 | (high & 0x0f) << 2 | low >> 6, 0x80 | low & 0x3f]
}

/// Invalid UTF-8 is replaced as Java does it: a surrogate becomes one replacement character, not one for each byte.
/// With `pairs`, two surrogates become the character that they encode, which Java itself does not do.
fn text(bytes: &[u8], pairs: bool) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let unit = |bytes: &[u8]| match *bytes {
        [0xed, second @ 0xa0..=0xbf, third @ 0x80..=0xbf, ..] => {
            Some(0xd000 | u16::from(second & 0x3f) << 6 | u16::from(third & 0x3f))
        }
        _ => None,
    };
    let mut text = String::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let taken = match (unit(rest), rest) {
            (Some(high), _) => {
                let low = rest.get(3..).and_then(unit).filter(|_| pairs);
                let pair = char::decode_utf16([high].into_iter().chain(low)).next().and_then(Result::ok);
                text.push(pair.unwrap_or(char::REPLACEMENT_CHARACTER));
                if pair.is_some() { 6 } else { 3 }
            }
            (None, [0xed, 0xa0..=0xbf, ..]) => {
                text.push(char::REPLACEMENT_CHARACTER);
                2
            }
            _ => {
                // Up to where the next surrogate may begin.
                let end = rest.iter().skip(1).position(|byte| *byte == 0xed).map_or(rest.len(), |at| at + 1);
                text.push_str(&String::from_utf8_lossy(&rest[..end]));
                end
            }
        };
        rest = &rest[taken..];
    }
    Cow::Owned(text)
}

/// Far more than any message that is sent.
fn length(of: usize) -> i32 {
    i32::try_from(of).unwrap_or(i32::MAX)
}
