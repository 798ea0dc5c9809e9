//! A line of ephemeral sequential znodes, in which this member has one at most: the ballots of an election, and the
//! znodes of a queue. How the own znode is created, found again, distinguished from strays, and ranked.
//!
//! The name of a znode ends in the number of children that its parent has had. Number 0 proves that no znode was before it in
//! the life of that parent, so the member need not list them. Only for the first attempt of a session: an earlier one could
//! have left a stray.

use crate::{
    engine::{
        core::Core,
        io::ZkOp,
        recipe::{Incarnation, QueueFormat},
        transaction::ZnodeWrite,
    },
    ids::Ballot,
};

/// The name of no znode. Its deletion is a write that changes nothing.
pub(super) const NEVER_CREATED: &str = "-";

/// A line of ephemeral sequential znodes, seen by one incarnation of a member.
pub(super) struct Line {
    pub(super) parent: String,
    format: QueueFormat,
    own: Incarnation,
}

/// The position of the own znode in its line.
pub(super) enum Rank<'n> {
    /// It does not exist.
    Gone,
    /// Another znode of this incarnation exists as well: a creation that was given up for lost.
    Stray(&'n str),
    /// No znode is before it.
    First,
    /// This znode is right before it, and this number are before it altogether.
    Behind(&'n str, usize),
}

impl Line {
    /// The ballots. Their names have the format of a queue's znodes.
    pub(super) fn ballots(core: &Core) -> Self {
        let parent = core.config.paths.election();
        Self { parent, format: QueueFormat::Native, own: core.incarnation() }
    }

    /// The queue, if the recipe has one.
    pub(super) fn queue(core: &Core) -> Option<Self> {
        let format = core.queue_format()?;
        let parent = format.parent(&core.config.paths);
        Some(Self { parent, format, own: core.incarnation() })
    }

    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.parent)
    }

    pub(super) fn list(&self) -> ZkOp {
        ZkOp::Children(self.parent.clone())
    }

    pub(super) fn drop(&self, name: &str) -> ZkOp {
        ZnodeWrite::delete(self.path(name), None).into()
    }

    /// Creates the own znode, named after the attempt, so that a lost reply for one attempt is never mistaken for
    /// another's.
    pub(super) fn create(&self, attempt: u32, data: Vec<u8>) -> ZkOp {
        let prefix = self.path(&self.format.stem(self.own, attempt));
        ZkOp::CreateSequential { prefix, data, ephemeral: true }
    }

    /// Whether this name belongs to the attempt.
    pub(super) fn is_of_attempt(&self, name: &str, attempt: u32) -> bool {
        name.starts_with(&self.format.stem(self.own, attempt))
    }

    /// Whether this is the name of the first child that its parent has ever had: a parent numbers all of its children.
    /// No znode can be before it then, and the line need not be read. Only of the first attempt: a former one could have
    /// left a stray.
    pub(super) fn is_first_of_all(name: &str) -> bool {
        Ballot::new(name).is_ok_and(|ballot| ballot.sequence() == 0)
    }

    /// The names that this incarnation has created.
    pub(super) fn own<'n>(&self, names: &'n [String]) -> impl Iterator<Item = &'n str> + Clone {
        let stem = self.format.incarnation_stem(self.own);
        names.iter().map(String::as_str).filter(move |name| name.starts_with(&stem))
    }

    /// The names that others have created.
    pub(super) fn others(&self, names: &[String]) -> Vec<String> {
        let stem = self.format.incarnation_stem(self.own);
        names.iter().filter(|name| !name.starts_with(&stem)).cloned().collect()
    }

    /// A name before `own` that may be of another incarnation of this member.
    pub(super) fn duplicate<'n>(&self, names: &'n [String], own: &str) -> Option<&'n str> {
        let before = self.format.order(names).into_iter().take_while(|name| *name != own);
        before.filter(|_| self.format == QueueFormat::Native).find(|name| self.own.may_be_same_member(name))
    }

    /// Whether no name is before `own`.
    pub(super) fn is_first(&self, names: &[String], own: &str) -> bool {
        self.format.order(names).first() == Some(&own)
    }

    /// The position of `own` among `names`.
    pub(super) fn rank<'n>(&self, names: &'n [String], own: &str) -> Rank<'n> {
        let order = self.format.order(names);
        let Some(place) = order.iter().position(|name| *name == own) else { return Rank::Gone };
        // Only seen now: its creation was applied after that of the own znode.
        if let Some(stray) = self.own(names).find(|name| *name != own) {
            return Rank::Stray(stray);
        }
        match place.checked_sub(1) {
            None => Rank::First,
            Some(before) => Rank::Behind(order[before], place),
        }
    }
}
