//! What all records have in common.

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

use crate::text;

/// The largest record that is read or written, in bytes.
///
/// It is far below ZooKeeper's limit of 1 MiB for a packet. A member's record has a few hundred bytes.
pub const MAX_RECORD: usize = 64 * 1024;

/// The format of all written records, except for standing orders that older programs must not overlook: see
/// [`Control::format`](super::Control::format).
pub const VERSION: u32 = 1;

/// A record that can't be used. Its znode is ignored; no process stops for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error, Hash)]
#[error("the record at {} can't be used: {why}", text::shown(path))]
#[non_exhaustive]
pub struct RecordError {
    /// The znode.
    pub path: String,
    /// What is wrong with it, with the beginning of what is quoted of it.
    pub why: String,
}

impl RecordError {
    /// How much of a reason is kept, in bytes: it may quote the whole record.
    const WHY: usize = 300;

    pub(crate) fn new(path: &str, why: &str) -> Self {
        let mut why = text::shown(why).into_owned();
        text::cut(&mut why, Self::WHY);
        Self { path: path.to_owned(), why }
    }
}

/// A record in a znode.
pub trait Record: Serialize + DeserializeOwned {
    /// The newest format that this program reads.
    const NEWEST: u32 = VERSION;

    /// What mends a record that can't be used.
    const MENDED_BY: &str = "delete it";

    /// The format version in the record.
    fn version(&self) -> u32;

    /// Checks what its fields mean together: what no program writes, none reads.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Checks the name of its znode, which operators see and type.
    ///
    /// # Errors
    /// What is wrong.
    fn check_name(_name: &str) -> Result<(), String> {
        Ok(())
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When its znode has no name of such a record, it is too large, not valid JSON for this record, of another format, or one that [`encode`](Self::encode)
    /// refuses.
    fn decode(path: &str, data: &[u8]) -> Result<Self, RecordError> {
        let error = |why: String| {
            let error = RecordError::new(path, &why);
            RecordError { why: format!("{}; {}", error.why, Self::MENDED_BY), ..error }
        };
        Self::check_name(path.rsplit('/').next().unwrap_or_default()).map_err(error)?;
        if data.len() > MAX_RECORD {
            return Err(error(format!("it has {} bytes, more than {MAX_RECORD}", data.len())));
        }
        let record: Self = serde_json::from_slice(data).map_err(|e| error(e.to_string()))?;
        if !(VERSION..=Self::NEWEST).contains(&record.version()) {
            let (version, newest) = (record.version(), Self::NEWEST);
            let why = format!(
                "its format is version {version}, and this program reads version {newest}: it is older than the one that wrote it"
            );
            return Err(RecordError::new(path, &why));
        }
        record.check().map_err(error)?;
        // What is missing in it is written in full.
        if data.len() > MAX_RECORD / 8 {
            record.encode(path)?;
        }
        Ok(record)
    }

    /// Writes a record.
    ///
    /// # Errors
    /// When it would be too large, or when a number in it is above its [limit](super::limits).
    fn encode(&self, path: &str) -> Result<Vec<u8>, RecordError> {
        let error = |why: String| RecordError::new(path, &why);
        self.check().map_err(error)?;
        let mut data = serde_json::to_vec(self).map_err(|e| error(e.to_string()))?;
        data.shrink_to_fit();
        if data.len() > MAX_RECORD {
            return Err(error(format!("it would have {} bytes, more than {MAX_RECORD}", data.len())));
        }
        Ok(data)
    }
}

/// Reads a list without room for more entries: decisions are kept in memory, and most have one slot.
pub(super) fn exact<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let mut list = Vec::deserialize(from)?;
    list.shrink_to_fit();
    Ok(list)
}

pub(super) fn version() -> u32 {
    VERSION
}

/// Whether a field has its default, so that it need not be written: the first slot is the only one of most elections.
pub fn is_default<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}
