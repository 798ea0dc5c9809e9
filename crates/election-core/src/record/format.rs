//! What all records have in common.

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

/// The largest record that is read or written, in bytes.
///
/// It is far below ZooKeeper's limit of 1 MiB for a packet. A member's record has a few hundred bytes.
pub const MAX_RECORD: usize = 64 * 1024;

/// The format of all written records, except for standing orders that older programs must not overlook: see
/// [`Control::format`](super::Control::format).
pub const VERSION: u32 = 1;

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
pub(super) const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A record that can't be used. Its znode is ignored; no process stops for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error, Hash)]
#[error("the record at {path} can't be used: {why}")]
pub struct RecordError {
    /// The znode.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
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

    /// Reads a record.
    ///
    /// # Errors
    /// When it is too large, not valid JSON for this record, of another format, or one that [`encode`](Self::encode)
    /// refuses.
    fn decode(path: &str, data: &[u8]) -> Result<Self, RecordError> {
        let error =
            |why: String| RecordError { path: path.to_owned(), why: format!("{why}; {}", Self::MENDED_BY) };
        if data.len() > MAX_RECORD {
            return Err(error(format!("it has {} bytes, more than {MAX_RECORD}", data.len())));
        }
        let record: Self = serde_json::from_slice(data).map_err(|e| error(e.to_string()))?;
        if !(VERSION..=Self::NEWEST).contains(&record.version()) {
            let (version, newest) = (record.version(), Self::NEWEST);
            let why = format!(
                "its format is version {version}, and this program reads version {newest}: it is older than the one that wrote it"
            );
            return Err(RecordError { path: path.to_owned(), why });
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
        let error = |why: String| RecordError { path: path.to_owned(), why };
        self.check().map_err(error)?;
        let mut data = serde_json::to_vec(self).map_err(|e| error(e.to_string()))?;
        data.shrink_to_fit();
        if data.len() > MAX_RECORD {
            return Err(error(format!("it would have {} bytes, more than {MAX_RECORD}", data.len())));
        }
        Ok(data)
    }
}

/// Shortens a text to this many bytes. Characters that would take more bytes in JSON are omitted.
pub(crate) fn shorten(text: &mut String, most: usize) {
    text.retain(|c| !c.is_control());
    if text.len() > most {
        let end = (0..=most - '…'.len_utf8()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
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

/// The first slot is the only one of most elections, so it is not written.
#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
pub(super) fn is_first(slot: &usize) -> bool {
    *slot == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
pub(super) const fn is_false(flag: &bool) -> bool {
    !*flag
}
