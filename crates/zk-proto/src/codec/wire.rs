//! Jute, ZooKeeper's encoding: big-endian integers; buffers, strings and lists with their length in front, where -1
//! means null; frames with their length in front.

use std::borrow::Cow;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::numbers::ErrorCode;

/// The bytes are not what the protocol says they must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a ZooKeeper message: {0}")]
pub struct Malformed(pub &'static str);

const TRUNCATED: Malformed = Malformed("it ends within a field");

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

/// Takes the next whole frame out of `input`, without its length; `None` until it has arrived. Room for the rest of a
/// frame is not reserved here: a length that is only claimed costs nothing.
///
/// # Errors
/// As [`frame_length`].
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

    pub(super) fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.array::<1>()? != [0])
    }

    pub(super) fn int(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    /// `None` for null.
    pub(super) fn buffer(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let length = self.int()?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| Malformed("a negative length"))?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(Some(taken))
    }

    /// As Java reads it: what is no UTF-8 is replaced.
    pub(super) fn nullable_string(&mut self) -> Result<Option<Cow<'a, str>>, Malformed> {
        Ok(self.buffer()?.map(|bytes| text(bytes, false)))
    }

    /// As [`nullable_string`](Self::nullable_string), and never null.
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>, Malformed> {
        self.nullable_string()?.ok_or(Malformed("a string is null"))
    }

    /// A string that Java has written: see [`Writer::java_string`].
    pub(super) fn java_string(&mut self) -> Result<String, Malformed> {
        let bytes = self.buffer()?.ok_or(Malformed("a string is null"))?;
        Ok(text(bytes, true).into_owned())
    }

    /// `None` for null. A count below that is an empty list, as for Java.
    pub(super) fn list<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<Vec<T>>, Malformed> {
        let count = self.int()?;
        if count == -1 {
            return Ok(None);
        }
        let count = usize::try_from(count).unwrap_or(0);
        // The smallest element there is takes four bytes.
        if count > self.0.len() / 4 {
            return Err(Malformed("a list that is longer than its message"));
        }
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(element(self)?);
        }
        Ok(Some(list))
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

    pub(super) fn bool(&mut self, value: bool) {
        self.0.put_u8(u8::from(value));
    }

    pub(super) fn int(&mut self, value: i32) {
        self.0.put_i32(value);
    }

    pub(super) fn long(&mut self, value: i64) {
        self.0.put_i64(value);
    }

    pub(super) fn buffer(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.int(-1),
            Some(bytes) => {
                self.int(length(bytes.len()));
                self.raw(bytes);
            }
        }
    }

    pub(super) fn string(&mut self, value: &str) {
        self.buffer(Some(value.as_bytes()));
    }

    pub(super) fn nullable_string(&mut self, value: Option<&str>) {
        self.buffer(value.map(str::as_bytes));
    }

    /// As Java writes it: a character beyond the first plane becomes two surrogates of three bytes, which is no UTF-8.
    pub(super) fn java_string(&mut self, value: &str) {
        if value.bytes().all(|byte| byte < 0xf0) {
            self.string(value);
            return;
        }
        let mut bytes = Vec::new();
        for character in value.chars() {
            let mut units = [0; 2];
            match character.encode_utf16(&mut units) {
                [high, low] => bytes.extend([*high, *low].into_iter().flat_map(surrogate)),
                _ => bytes.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        self.buffer(Some(&bytes));
    }

    pub(super) fn list<T>(&mut self, values: &[T], mut element: impl FnMut(&mut Self, &T)) {
        self.int(length(values.len()));
        for value in values {
            element(self, value);
        }
    }
}

/// A type that is always encoded in the same way.
pub(super) trait Field<'a>: Sized {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed>;

    fn write(&self, writer: &mut Writer<'_>);
}

/// `Type: by what it is read, by what it is written;`
macro_rules! fields {
    ($($type:ty: |$reader:ident| $read:expr, |$value:ident, $writer:ident| $write:expr;)*) => {
        $(impl<'a> Field<'a> for $type {
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
    bool: |reader| reader.bool(), |value, writer| writer.bool(*value);
    i32: |reader| reader.int(), |value, writer| writer.int(*value);
    i64: |reader| reader.long(), |value, writer| writer.long(*value);
    ErrorCode: |reader| reader.int().map(ErrorCode), |value, writer| writer.int(value.0);
    // Borrowed: what a client has written.
    Cow<'a, str>: |reader| reader.string(), |value, writer| writer.string(value);
    Option<Cow<'a, str>>: |reader| reader.nullable_string(), |value, writer| writer.nullable_string(value.as_deref());
    Option<Cow<'a, [u8]>>: |reader| Ok(reader.buffer()?.map(Cow::Borrowed)), |value, writer| writer.buffer(value.as_deref());
    Vec<Cow<'a, str>>:
        |reader| reader.list(Reader::string)?.ok_or(Malformed("a list is null")),
        |value, writer| writer.list(value, |writer, text| writer.string(text));
    // Owned: what a server has written.
    String: |reader| reader.java_string(), |value, writer| writer.java_string(value);
    Vec<String>:
        |reader| Ok(reader.list(Reader::java_string)?.unwrap_or_default()),
        |value, writer| writer.list(value, |writer, text| writer.java_string(text));
    Option<Bytes>:
        |reader| Ok(reader.buffer()?.map(|bytes| match reader.1 {
            Some(frame) => frame.slice_ref(bytes),
            None => Bytes::copy_from_slice(bytes),
        })),
        |value, writer| writer.buffer(value.as_deref());
}

/// A struct, and its encoding: its fields in their order.
macro_rules! record {
    ($(#[$about:meta])* pub struct $name:ident $(<$life:lifetime>)? {
        $($(#[$what:meta])* pub $field:ident: $type:ty,)*
    }) => {
        $(#[$about])*
        pub struct $name $(<$life>)? {
            $($(#[$what])* pub $field: $type,)*
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

/// A list of records; a missing list is as good as an empty one.
macro_rules! list_of {
    ($($type:ty),*) => {
        $(impl<'a> $crate::codec::wire::Field<'a> for Vec<$type> {
            fn read(reader: &mut $crate::codec::wire::Reader<'a>) -> Result<Self, $crate::Malformed> {
                Ok(reader.list($crate::codec::wire::Reader::next)?.unwrap_or_default())
            }

            fn write(&self, writer: &mut $crate::codec::wire::Writer<'_>) {
                writer.list(self, |writer, element| $crate::codec::wire::Field::write(element, writer));
            }
        })*
    };
}
pub(super) use list_of;

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

/// No message that is sent comes near this.
fn length(of: usize) -> i32 {
    i32::try_from(of).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut frame = BytesMut::new();
        Writer::frame(&mut frame, |writer| {
            writer.bool(true);
            writer.int(-7);
            writer.long(i64::MIN);
            writer.string("ä");
            writer.buffer(None);
            writer.list(&[1, 2], |writer, value| writer.int(*value));
        });
        let frame = cut_frame(&mut frame, 1024).unwrap().unwrap();
        let mut reader = Reader::new(&frame);
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.int(), Ok(-7));
        assert_eq!(reader.long(), Ok(i64::MIN));
        assert_eq!(reader.string().as_deref(), Ok("ä"));
        assert_eq!(reader.buffer(), Ok(None));
        assert_eq!(reader.list(Reader::int), Ok(Some(vec![1, 2])));
        assert_eq!(reader.bool(), Err(TRUNCATED));
    }

    #[test]
    fn lengths_are_not_believed() {
        let huge = i32::MAX.to_be_bytes();
        assert_eq!(Reader::new(&huge).buffer(), Err(TRUNCATED));
        assert!(Reader::new(&huge).list(Reader::bool).is_err());
        let negative = (-2_i32).to_be_bytes();
        assert!(Reader::new(&negative).buffer().is_err());
        assert_eq!(Reader::new(&negative).list(Reader::bool), Ok(Some(Vec::new())));
        for claimed in [-1, i32::MIN, 1025, i32::MAX] {
            let mut input = BytesMut::from(&claimed.to_be_bytes()[..]);
            assert!(cut_frame(&mut input, 1024).is_err(), "{claimed}");
        }
    }

    #[test]
    fn a_frame_is_cut_wherever_its_bytes_break() {
        let mut whole = BytesMut::new();
        Writer::frame(&mut whole, |writer| writer.string("one"));
        Writer::frame(&mut whole, |_| {});
        for at in 0..whole.len() {
            let mut input = BytesMut::from(&whole[..at]);
            let mut cut = Vec::new();
            while let Some(frame) = cut_frame(&mut input, 1024).unwrap() {
                cut.push(frame);
            }
            input.extend_from_slice(&whole[at..]);
            while let Some(frame) = cut_frame(&mut input, 1024).unwrap() {
                cut.push(frame);
            }
            assert_eq!(cut, [&b"\0\0\0\x03one"[..], b""], "{at}");
        }
    }

    #[test]
    fn a_character_beyond_the_first_plane_survives_java() {
        for text in ["plain", "ä", "a😀b", "😀😀", "\u{d7ff}\u{e000}😀"] {
            let mut frame = BytesMut::new();
            Writer::frame(&mut frame, |writer| writer.java_string(text));
            let frame = cut_frame(&mut frame, 1024).unwrap().unwrap();
            assert_eq!(Reader::new(&frame).java_string().as_deref(), Ok(text));
        }
    }

    #[test]
    fn invalid_utf_8_is_replaced_as_java_does_it() {
        let pair = b"\xed\xa0\xbd\xed\xb8\x80";
        assert_eq!((text(pair, true), text(pair, false)), ("😀".into(), "\u{fffd}\u{fffd}".into()));
        for (bytes, replaced) in [
            // Surrogates without their other half, or the wrong way round.
            (&b"\xed\xa0\xbd"[..], "\u{fffd}"),
            (b"\xed\xb8\x80x\xed\xa0\xbd", "\u{fffd}x\u{fffd}"),
            (b"\xed\xb8\x80\xed\xa0\xbd", "\u{fffd}\u{fffd}"),
            // What only begins like one.
            (b"\xed\xa0A\xed\xb0B", "\u{fffd}A\u{fffd}B"),
            (b"a\xed", "a\u{fffd}"),
            (b"\xff\xfe", "\u{fffd}\u{fffd}"),
        ] {
            for pairs in [true, false] {
                assert_eq!(text(bytes, pairs), replaced, "{bytes:x?}");
            }
        }
    }
}
