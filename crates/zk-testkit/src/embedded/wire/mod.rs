//! ZooKeeper's wire format (jute): big-endian integers, strings and buffers with
//! their length in front, lists with their count in front; a length of -1 is null.

mod handshake;
mod reply;
mod request;

pub(crate) use handshake::{ConnectRequest, ConnectResponse};
pub(crate) use reply::{Answer, MultiAnswer, event_frame, reply_frame};
pub(crate) use request::{Create, CreateKind, MultiOp, Request, op};

/// Bytes that are not what they should be. What to do about it depends on where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads the fields of a record in their order.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.array::<1>()? != [0])
    }

    pub(crate) fn int(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn long(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(crate) fn buffer(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        match self.int()? {
            -1 => Ok(None),
            length => Ok(Some(self.take(usize::try_from(length).map_err(|_| Malformed)?)?.to_vec())),
        }
    }

    /// Bytes that are no UTF-8 are replaced, as Java does.
    pub(crate) fn nullable_string(&mut self) -> Result<Option<String>, Malformed> {
        Ok(self.buffer()?.map(|bytes| match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }))
    }

    pub(crate) fn string(&mut self) -> Result<String, Malformed> {
        self.nullable_string()?.ok_or(Malformed)
    }

    /// `None` for null; a count below zero is an empty list.
    pub(crate) fn list<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<Vec<T>>, Malformed> {
        let count = self.int()?;
        if count == -1 {
            return Ok(None);
        }
        // The count is not believed: room is made as the elements come.
        let mut list = Vec::new();
        for _ in 0..count.max(0) {
            list.push(element(self)?);
        }
        Ok(Some(list))
    }
}

/// Writes the fields of a frame; the frame's own length comes first.
#[derive(Debug)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn frame() -> Self {
        Self(vec![0; 4])
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let length = length(self.0.len() - 4).to_be_bytes();
        self.0[..4].copy_from_slice(&length);
        self.0
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.0.push(u8::from(value));
    }

    pub(crate) fn int(&mut self, value: i32) {
        self.0.extend(value.to_be_bytes());
    }

    pub(crate) fn long(&mut self, value: i64) {
        self.0.extend(value.to_be_bytes());
    }

    pub(crate) fn buffer(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.int(-1),
            Some(bytes) => {
                self.int(length(bytes.len()));
                self.0.extend(bytes);
            }
        }
    }

    /// Apache ZooKeeper writes what is beyond the first plane as two surrogates, which
    /// is no UTF-8; a client is to see the same here.
    pub(crate) fn string(&mut self, value: &str) {
        if value.bytes().all(|byte| byte < 0xf0) {
            self.buffer(Some(value.as_bytes()));
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

    pub(crate) fn list<T>(&mut self, values: &[T], mut element: impl FnMut(&mut Self, &T)) {
        self.int(length(values.len()));
        for value in values {
            element(self, value);
        }
    }
}

fn surrogate(unit: u16) -> [u8; 3] {
    let [high, low] = unit.to_be_bytes();
    [0xe0 | high >> 4, 0x80 | (high & 0x0f) << 2 | low >> 6, 0x80 | low & 0x3f]
}

/// Nothing here grows beyond what came in as frames, which are far smaller.
fn length(of: usize) -> i32 {
    i32::try_from(of).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::frame();
        writer.bool(true);
        writer.int(-7);
        writer.long(i64::MIN);
        writer.string("ä");
        writer.buffer(None);
        writer.list(&[1, 2], |writer, value| writer.int(*value));
        let frame = writer.finish();
        let mut reader = Reader::new(&frame);
        assert_eq!(reader.int(), Ok(i32::try_from(frame.len()).unwrap() - 4));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.int(), Ok(-7));
        assert_eq!(reader.long(), Ok(i64::MIN));
        assert_eq!(reader.string().as_deref(), Ok("ä"));
        assert_eq!(reader.buffer(), Ok(None));
        assert_eq!(reader.list(Reader::int), Ok(Some(vec![1, 2])));
        assert_eq!(reader.bool(), Err(Malformed));
    }

    #[test]
    fn lengths_are_not_believed() {
        let huge = i32::MAX.to_be_bytes();
        assert_eq!(Reader::new(&huge).buffer(), Err(Malformed));
        assert_eq!(Reader::new(&huge).list(Reader::bool), Err(Malformed));
        assert_eq!(Reader::new(&(-2_i32).to_be_bytes()).buffer(), Err(Malformed));
        assert_eq!(Reader::new(&(-2_i32).to_be_bytes()).list(Reader::bool), Ok(Some(Vec::new())));
    }
}
