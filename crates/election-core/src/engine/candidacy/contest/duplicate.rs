//! Another incarnation of this member that is before this one: a former process whose session has not expired yet, or a
//! living process with the same id.
//!
//! The second incarnation waits as long as a session needs to expire, reads again, and gives way. A member that has left
//! without a connection deletes its znodes when the connection returns; no other incarnation does while the session lives.

use super::{super::other::OtherIncarnation, ContestCandidacy, ContestStep};
use crate::{
    engine::{
        core::Core,
        io::{Level, Node, NoteKind},
        own::Leaving,
    },
    record::{Contender, Record},
    time::{FAR, Time},
};

/// What may be another incarnation's znode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Duplicate {
    pub(super) path: String,
    since: Time,
    /// Once its record was read: the creation of the znode, and when its session has had time to expire.
    read: Option<(i64, Time)>,
}

impl ContestCandidacy {
    /// The znode at this path, if there is one, may be another incarnation's.
    pub(super) fn suspect(&mut self, core: &Core, path: Option<String>) {
        if self.suspected.as_ref().map(|suspected| &suspected.path) != path.as_ref() {
            self.suspected = path.map(|path| Box::new(Duplicate { path, since: core.now.time, read: None }));
        }
    }

    /// Single: the leader znode is another incarnation's, if its record has this member's id.
    pub(super) fn suspect_holder(&mut self, core: &Core) {
        let known = core.reading.view.leader(0);
        let is_duplicate = known.record().is_some_and(|leader| leader.member == core.config.member.member);
        self.suspect(core, is_duplicate.then(|| core.config.paths.leader_znode(0)));
    }

    /// The ensemble's leader may have changed: then the clock of every session has restarted.
    pub(super) fn wait_anew_for_duplicate(&mut self, core: &Core) {
        if let Some(suspected) = &mut self.suspected {
            (suspected.since, suspected.read) = (core.now.time, None);
        }
    }

    /// Whether the other incarnation's znode must be read: for the first time, and again before it counts as a duplicate. A
    /// process that was frozen has not been told of a deletion meanwhile.
    pub(super) fn looks_at_duplicate(&self, core: &Core) -> bool {
        self.suspected
            .as_ref()
            .is_some_and(|suspected| suspected.read.is_none_or(|(_, due)| due <= core.now.time))
    }

    /// When it must be read again.
    pub(super) fn duplicate_due(&self) -> Option<Time> {
        self.suspected.as_ref()?.read.map(|(_, due)| due)
    }

    pub(super) fn looked_at_duplicate(&mut self, core: &mut Core, node: Option<&Node>) {
        self.step = ContestStep::Waiting;
        self.saw_suspected(core, node);
        let Some(suspected) = &mut self.suspected else { return };
        let contender =
            node.and_then(|node| Some((Contender::decode(&suspected.path, &node.data).ok()?, node.czxid)));
        let contender = contender.filter(|(contender, _)| contender.member == core.config.member.member);
        let Some((contender, czxid)) = contender else {
            suspected.read = Some((0, Time::ZERO + FAR));
            return;
        };
        let other = OtherIncarnation::new(contender.session_timeout_ms, contender.address, contender.http);
        match suspected.read {
            Some((known, due)) if known == czxid && due <= core.now.time => {
                let text = format!("{} is held by another living member with this id", suspected.path);
                core.note(Level::Warn, NoteKind::Registration, text);
                self.duplicate_of = Some((std::mem::take(&mut suspected.path), other.address));
                // Its own znode is deleted first.
                core.own.leaving = Leaving::AtOnce;
            }
            Some((known, _)) if known == czxid => {}
            former => {
                let since = if former.is_some() { core.now.time } else { suspected.since };
                suspected.read = Some((czxid, since + other.patience(core)));
                other.is_awaited(core, &suspected.path);
            }
        }
    }

    /// The znode that this member waits for may be the same: what was read is news.
    fn saw_suspected(&mut self, core: &mut Core, node: Option<&Node>) {
        if core.queue_format().is_none() {
            core.see_leader_znode(0, node);
        } else if self.before.as_ref().map(|before| &before.path) == self.suspected.as_ref().map(|s| &s.path)
        {
            self.saw_before(core, node);
        }
    }
}
