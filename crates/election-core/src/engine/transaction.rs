//! Writes that ZooKeeper applies together, or not at all.

use crate::{
    paths::Paths,
    record::{Elected, Named, Record as _, RecordError},
};

/// A write, with what it rests on and what is written with it, in one transaction.
///
/// One of the writes is the answer: the outcome is its outcome. `Missing` and a version that differs are reported as such
/// for it alone, and as `Stale` for every other write and for the checks. `Exists` is reported for any znode that is to
/// be created.
///
/// A znode that is created as the answer of more than one write begins at version 1: servers before 3.9 do not answer in
/// which transaction a group has created it, so its data is set in that transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transaction {
    /// The znodes that must exist, and the version that each must have, or `None` for any.
    pub checks: Vec<(String, Option<i32>)>,
    /// What is written before the answer.
    pub before: Vec<ZnodeWrite>,
    /// What the outcome is about.
    pub answer: ZnodeWrite,
    /// What is written after it. Watches report the writes in their order.
    pub after: Vec<ZnodeWrite>,
}

/// A write to one znode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ZnodeWrite {
    /// Its path.
    pub path: String,
    /// What is done to it.
    pub kind: WriteKind,
}

/// What a write does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WriteKind {
    /// Create the znode. If it is the only write, the missing persistent znodes above it are created as well.
    Create {
        /// Its data.
        data: Vec<u8>,
        /// Whether it is ephemeral.
        ephemeral: bool,
    },
    /// Set its data.
    Set {
        /// The data.
        data: Vec<u8>,
        /// The version that it must have, or `None` for any.
        version: Option<i32>,
    },
    /// Delete it.
    Delete {
        /// The version that it must have, or `None` for any.
        version: Option<i32>,
    },
}

impl ZnodeWrite {
    /// Creates a persistent znode.
    pub fn create(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), kind: WriteKind::Create { data: data.into(), ephemeral: false } }
    }

    /// Creates an ephemeral znode.
    pub fn create_ephemeral(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), kind: WriteKind::Create { data: data.into(), ephemeral: true } }
    }

    /// Sets the data of this version, or of any.
    pub fn set(path: impl Into<String>, data: impl Into<Vec<u8>>, version: impl Into<Option<i32>>) -> Self {
        Self { path: path.into(), kind: WriteKind::Set { data: data.into(), version: version.into() } }
    }

    /// Sets the data of this version, or creates a persistent znode if there is none to replace.
    pub fn replace(path: impl Into<String>, data: impl Into<Vec<u8>>, over: Option<i32>) -> Self {
        match over {
            Some(version) => Self::set(path, data, version),
            None => Self::create(path, data),
        }
    }

    /// Deletes this version, or any.
    pub fn delete(path: impl Into<String>, version: impl Into<Option<i32>>) -> Self {
        Self { path: path.into(), kind: WriteKind::Delete { version: version.into() } }
    }

    /// Sets the ballot of this member to the data that it has: its watch reports that.
    pub fn call(named: &Named, paths: &Paths) -> Self {
        Self::set(paths.ballot(&named.ballot), named.member.as_str(), None)
    }

    /// Writes a decision over this version, or as the first one. `generation` is what is known of the version of the ballots'
    /// parent: a decision that replaces another one requires it, and one that replaces none counts it up. It becomes the
    /// decision's [`generation`](Elected::generation).
    ///
    /// # Errors
    /// A record that has no room.
    pub fn decision(
        paths: &Paths,
        elected: &mut Elected,
        over: Option<i32>,
        generation: i32,
    ) -> Result<Transaction, RecordError> {
        let path = paths.elected();
        elected.generation = generation.saturating_add(i32::from(over.is_none()));
        let data = elected.encode(&path)?;
        Ok(match over {
            Some(version) => Self::set(path, data, version).only_while(paths.election(), generation),
            None => {
                Transaction::from(Self::create(path, data)).and(Self::set(paths.election(), "", generation))
            }
        })
    }

    /// Creates an ephemeral znode, and counts the creation in the version of another one, which is set to no data. That
    /// version is the answer.
    pub fn counted_by(self, counter: impl Into<String>) -> Transaction {
        Transaction { after: vec![self], ..Self::set(counter, "", None).into() }
    }

    /// Applies it only while this znode exists, in this version or in any. The versions of every znode begin at 0, so a
    /// late write could otherwise find its version in the next znode at its path.
    pub fn only_while(self, path: impl Into<String>, version: impl Into<Option<i32>>) -> Transaction {
        Transaction::from(self).only_while(path, version)
    }

    /// Whether it creates its znode.
    pub const fn creates(&self) -> bool {
        matches!(self.kind, WriteKind::Create { .. })
    }
}

impl From<ZnodeWrite> for Transaction {
    fn from(answer: ZnodeWrite) -> Self {
        Self { checks: Vec::new(), before: Vec::new(), answer, after: Vec::new() }
    }
}

impl Transaction {
    /// Applies it only while this znode exists, in this version or in any.
    #[must_use]
    pub fn only_while(mut self, path: impl Into<String>, version: impl Into<Option<i32>>) -> Self {
        self.checks.push((path.into(), version.into()));
        self
    }

    /// Applies it only while the decision has this version, and its znode was not deleted and created again since.
    #[must_use]
    pub fn only_while_decided(self, paths: &Paths, version: impl Into<Option<i32>>, generation: i32) -> Self {
        self.only_while(paths.elected(), version).only_while(paths.election(), generation)
    }

    /// The same writes, and this one, about which the outcome is.
    #[must_use]
    pub fn answered_by(mut self, answer: ZnodeWrite) -> Self {
        self.before.push(std::mem::replace(&mut self.answer, answer));
        self
    }

    /// Writes this as well, before the answer.
    #[must_use]
    pub fn and(mut self, other: ZnodeWrite) -> Self {
        self.before.push(other);
        self
    }

    /// Writes this as well, after the answer.
    #[must_use]
    pub fn then(mut self, other: ZnodeWrite) -> Self {
        self.after.push(other);
        self
    }

    /// Sets the ballots of these members to the data that they have: their watches report it.
    #[must_use]
    pub fn and_call(mut self, called: &[&Named], paths: &Paths) -> Self {
        self.before.extend(called.iter().map(|named| ZnodeWrite::call(named, paths)));
        self
    }

    /// Deletes these as well, in any version. Watches report them after the answer.
    #[must_use]
    pub fn then_delete(mut self, others: impl IntoIterator<Item = String>) -> Self {
        self.after.extend(others.into_iter().map(|path| ZnodeWrite::delete(path, None)));
        self
    }

    /// Whether it is a single write without a check.
    pub fn is_single(&self) -> bool {
        self.checks.is_empty() && self.before.is_empty() && self.after.is_empty()
    }

    /// All writes, in their order.
    pub fn writes(&self) -> impl Iterator<Item = &ZnodeWrite> {
        self.before.iter().chain([&self.answer]).chain(&self.after)
    }

    /// The znode whose creation the answer counts, if it counts one.
    pub fn counted(&self) -> Option<&ZnodeWrite> {
        self.after.first().filter(|write| write.creates())
    }

    /// What it is for: the znode that it counts, or the answer.
    pub fn subject(&self) -> &ZnodeWrite {
        self.counted().unwrap_or(&self.answer)
    }
}
