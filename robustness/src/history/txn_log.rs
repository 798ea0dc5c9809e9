//! ZooKeeper's transaction log, as Apache ZooKeeper 3.6 and later write it: what the servers have done, by their own word.

/// The first bytes of a file.
const MAGIC: &[u8] = b"ZKLG";
/// The version and the database's id follow.
const HEADER: usize = 16;
/// The last byte of each entry.
const END: u8 = b'B';

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    /// Its number, by which the servers order all of them.
    pub zxid: u64,
    /// The session that asked for it.
    pub session: i64,
    /// When the server that leads the others proposed it, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What it has changed.
    pub changes: Vec<Change>,
}

/// One change of a transaction. Access lists, containers without data and so on are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A znode was created.
    Created {
        /// Its path.
        path: String,
        /// Its data.
        data: Vec<u8>,
    },
    /// A znode was deleted.
    Deleted {
        /// Its path.
        path: String,
    },
    /// The data of a znode was replaced.
    Written {
        /// Its path.
        path: String,
        /// The new data.
        data: Vec<u8>,
    },
    /// The session has ended, and its ephemeral znodes with it.
    SessionEnded,
}

/// Bytes that are no transaction log.
#[derive(Debug, thiserror::Error)]
#[error("no transaction log of ZooKeeper: {0}")]
pub struct BadLog(&'static str);

/// Reads a file of a transaction log, up to its end or to an entry that a killed server has not completed.
///
/// # Errors
/// If it does not begin as one, or an entry can't be read.
pub fn read_log(bytes: &[u8]) -> Result<Vec<Txn>, BadLog> {
    if !bytes.starts_with(MAGIC) {
        return Err(BadLog("it does not begin with ZKLG"));
    }
    let mut rest = Input(bytes.get(HEADER..).ok_or(BadLog("it ends within its header"))?);
    let mut all = Vec::new();
    while let Some(entry) = next_entry(&mut rest) {
        all.push(txn(&mut Input(entry)).ok_or(BadLog("an entry ends within its fields"))?);
    }
    Ok(all)
}

/// The rest of a file is preallocated, and zero.
fn next_entry<'a>(rest: &mut Input<'a>) -> Option<&'a [u8]> {
    let _checksum = rest.long()?;
    let entry = rest.buffer().filter(|entry| !entry.is_empty())?;
    (rest.take(1)? == [END]).then_some(entry)
}

fn txn(input: &mut Input<'_>) -> Option<Txn> {
    let session = input.long()?;
    let _cxid = input.int()?;
    let (zxid, at_ms) = (input.long()?.cast_unsigned(), input.long()?.cast_unsigned());
    let kind = input.int()?;
    let mut changes = Vec::new();
    if kind == MULTI {
        for _ in 0..input.int()? {
            let kind = input.int()?;
            changes.extend(change(kind, &mut Input(input.buffer()?)));
        }
    } else {
        changes.extend(change(kind, input));
    }
    Some(Txn { zxid, session, at_ms, changes })
}

const MULTI: i32 = 14;

fn change(kind: i32, input: &mut Input<'_>) -> Option<Change> {
    match kind {
        // Plain, with a statistic, a container, with a time to live.
        1 | 15 | 19 | 21 => Some(Change::Created { path: input.text()?, data: input.buffer()?.to_vec() }),
        2 | 20 => Some(Change::Deleted { path: input.text()? }),
        5 => Some(Change::Written { path: input.text()?, data: input.buffer()?.to_vec() }),
        -11 => Some(Change::SessionEnded),
        _ => None,
    }
}

/// Bytes in the encoding of ZooKeeper's records.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// One without a length is empty.
    fn buffer(&mut self) -> Option<&'a [u8]> {
        let length = self.int()?;
        self.take(usize::try_from(length.max(0)).ok()?)
    }

    fn text(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.buffer()?).into_owned())
    }
}
