//! A line of ephemeral sequential znodes, in which this member has one at most: the ballots of an election, and the
//! znodes of a queue. How its own is made, found again, told from strays, and ranked.

use crate::engine::{core::Core, io::Request, recipe::QueueFormat, rules::Rule};

/// A line of ephemeral sequential znodes, seen by one session.
pub(super) struct Line {
    parent: String,
    format: QueueFormat,
    session: i64,
    /// Whether what this session has left behind is looked for.
    sweeps: bool,
}

/// Where the own znode is in its line.
pub(super) enum Rank<'n> {
    /// It is not there.
    Gone,
    /// Another one of this session is there as well: a creation that was given up for lost.
    Stray(&'n str),
    /// None is before it.
    First,
    /// This one is right before it, and so many are altogether.
    Behind(&'n str, usize),
}

impl Line {
    /// The ballots. They are named as the znodes of a queue are.
    pub(super) fn ballots(core: &Core) -> Self {
        let sweeps = core.rules.keep(Rule::SweepBallots);
        let parent = core.config.paths.election();
        Self { parent, format: QueueFormat::Native, session: core.session_id(), sweeps }
    }

    /// The queue, where the recipe is one.
    pub(super) fn queue(core: &Core) -> Option<Self> {
        let format = core.queue_format()?;
        let parent = format.parent(&core.config.paths);
        Some(Self { parent, format, session: core.session_id(), sweeps: true })
    }

    pub(super) fn parent(&self) -> &str {
        &self.parent
    }

    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.parent)
    }

    pub(super) fn list(&self) -> Request {
        Request::Children { path: self.parent.clone() }
    }

    pub(super) fn drop(&self, name: &str) -> Request {
        Request::Delete { path: self.path(name), version: None }
    }

    /// Makes the own one, named after the attempt: a reply that was lost for one is never taken for another's.
    pub(super) fn create(&self, attempt: u32, data: Vec<u8>) -> Request {
        let prefix = self.path(&self.format.stem(self.session, attempt));
        Request::CreateSequential { prefix, data, ephemeral: true, unique_prefix: true }
    }

    /// Whether this name is of the attempt.
    pub(super) fn is_of_attempt(&self, name: &str, attempt: u32) -> bool {
        name.starts_with(&self.format.stem(self.session, attempt))
    }

    /// Those of `names` that this very session has made.
    pub(super) fn own<'n>(&self, names: &'n [String]) -> impl Iterator<Item = &'n str> + Clone {
        let stem = self.format.session_stem(self.session);
        let sweeps = self.sweeps;
        names.iter().map(String::as_str).filter(move |name| sweeps && name.starts_with(&stem))
    }

    /// Those of `names` that other sessions have made.
    pub(super) fn others(&self, names: &[String]) -> Vec<String> {
        let stem = self.format.session_stem(self.session);
        names.iter().filter(|name| !name.starts_with(&stem)).cloned().collect()
    }

    /// Whether none of `names` is before `own`.
    pub(super) fn is_first(&self, names: &[String], own: &str) -> bool {
        self.format.order(names).first() == Some(&own)
    }

    /// Where `own` is among `names`.
    pub(super) fn rank<'n>(&self, names: &'n [String], own: &str) -> Rank<'n> {
        let order = self.format.order(names);
        let Some(place) = order.iter().position(|name| *name == own) else { return Rank::Gone };
        // Seen only now: the creation of the own one came after theirs.
        if let Some(stray) = self.own(names).find(|name| *name != own) {
            return Rank::Stray(stray);
        }
        match place.checked_sub(1) {
            None => Rank::First,
            Some(before) => Rank::Behind(order[before], place),
        }
    }
}
