//! Between the contest and the office: handing over the place, watching over the one
//! who leads, and what follows once it has let go.

use super::{Engine, FIRST_PAUSE, Step, Then};
use crate::{
    engine::{
        io::{Level, Node, Nomination, NoteKind, StopReason},
        office::{Claim, Claiming, Stage},
        recipe::{QueueFormat, Recipe},
        view::Known,
    },
    record::{Cause, Contender, Current, Record, Status, VERSION},
};

impl Engine {
    /// The znode whose holder leads.
    pub(in crate::engine) fn place_path(&self) -> String {
        match (&self.config.recipe, &self.contest.own) {
            (Recipe::Queue(_), Some(own)) => own.path.clone(),
            // Nothing is held then, and nobody asks.
            (Recipe::Queue(format), None) => format.parent(&self.config.paths),
            _ => self.config.paths.place(self.office.slot),
        }
    }

    /// Single: which creation of the place the own one is.
    pub(in crate::engine) fn place_count(&self) -> Option<i32> {
        self.contest.own.as_ref().and_then(|own| own.count)
    }

    /// What stands in the place.
    pub(in crate::engine) fn read_place(&self, path: &str, node: Option<&Node>) -> Known<Current> {
        let Some(node) = node.filter(|_| self.is_contest()) else {
            return Known::read(path, node);
        };
        if !self.config.recipe.is_native() {
            return match self.own_in_office(path, node) {
                Some(current) => Known::Present(current, node.into()),
                None => Known::Unread,
            };
        }
        match (Contender::decode(path, &node.data), self.ballot_at(path, node.owner)) {
            (Ok(record), Some(ballot)) => Known::Present(record.in_office(ballot, node.czxid), node.into()),
            (Err(error), _) => Known::Unreadable(error, node.into()),
            (Ok(_), None) => Known::Unread,
        }
    }

    /// In somebody else's format a place says nothing but a name, so this member says
    /// the rest of its own.
    fn own_in_office(&self, path: &str, node: &Node) -> Option<Current> {
        let member = &self.config.member;
        let ready_ms = self.office.ready_ms();
        Some(Current {
            v: VERSION,
            member: member.member.clone(),
            ballot: self.ballot_at(path, node.owner)?,
            site: member.site.clone(),
            slot: 0,
            term: u64::try_from(node.czxid).unwrap_or(0),
            status: if ready_ms.is_some() { Status::Ready } else { Status::Progress },
            endpoint: member.address.clone(),
            fencing_token: u64::try_from(node.czxid).ok(),
            since_ms: self.office.held().map_or(self.now.unix_ms, |held| held.created_ms()),
            ready_ms,
        })
    }

    /// Nobody is before this one: the office takes over from here.
    pub(super) fn enter_office(&mut self) {
        let Some(own) = self.contest.own.clone() else { return };
        let Some(ballot) = self.ballot_at(&own.path, own.node.owner) else { return };
        self.contest.step = Step::InOffice;
        self.contest.before = None;
        let waited = self.contest.has_waited;
        let sentence = match (&self.config.recipe, waited, &self.contest.previous) {
            (Recipe::Single, false, _) => "nobody held the place".to_owned(),
            (Recipe::Single, true, _) => "whoever held the place has gone, and it was quickest".to_owned(),
            (_, false, _) => "nobody stood before it in the queue".to_owned(),
            (_, true, Some(previous)) => format!("{} has gone, and it was next", previous.member),
            (_, true, None) => "nobody stands before it in the queue any more".to_owned(),
        };
        let nomination = Nomination {
            slot: 0,
            term: u64::try_from(own.node.czxid).unwrap_or(0),
            cause: if waited { Cause::LeaderLost } else { Cause::Startup },
            sentence,
            previous: self.contest.previous.take(),
        };
        // What a watch may have told of it before does not count as its word on this.
        self.see_place(0, Some(&own.node));
        let place = self.place(own.node.czxid, own.node.version, nomination.term);
        let text = format!("may lead: {}", nomination.sentence);
        self.claim(nomination, ballot, Claim::Entitled(place), None, text);
    }

    /// Whether a claim in a contest still stands; `None` under an elector.
    pub(in crate::engine) fn contest_carries(&self, claiming: &Claiming) -> Option<Result<(), String>> {
        if !self.is_contest() {
            return None;
        }
        let own = self.contest.own.as_ref().map(|own| u64::try_from(own.node.czxid).unwrap_or(0));
        Some(if let Some(why) = self.ill_health() {
            Err(why)
        } else if own == Some(claiming.nomination.term) {
            Ok(())
        } else {
            Err("its znode is gone".to_owned())
        })
    }

    /// Whether it was read once more since the connection was lost who is first.
    pub(in crate::engine) fn contest_is_sure(&self) -> bool {
        !self.contest.ranks_again
    }

    /// The place was read anew, for a watch had told something else.
    pub(in crate::engine) fn contest_looked(&mut self, node: Option<&Node>) {
        self.see_place(0, node);
        let own = self.contest.own.as_ref().map(|own| (own.node.czxid, own.node.owner));
        match node.filter(|n| Some((n.czxid, n.owner)) == own) {
            Some(node) => {
                let place = self.place(node.czxid, node.version, u64::try_from(node.czxid).unwrap_or(0));
                self.set_claim(Claim::Entitled(place));
                self.advance_office();
            }
            None => self.give_up_claim(StopReason::PlaceLost),
        }
    }

    /// Nobody oversees a leader here but itself.
    pub(super) fn watch_over_office(&mut self) {
        let stage = self.office.stage();
        if stage != self.contest.stage.map(|(stage, _)| stage) {
            self.contest.stage = stage.map(|stage| (stage, self.now.time));
        }
        if let Some((stage, since)) = self.contest.stage
            && self.now.time.since(since) >= self.config.policy.takeover_timeout
        {
            let what = match stage {
                Stage::Preparing => "preparing",
                Stage::TakingOver => "taking over",
            };
            let why = format!("{what} took longer than {:?}", self.config.policy.takeover_timeout);
            self.record_giving_up(Cause::TakeoverFailed, &why);
            self.note(Level::Warn, NoteKind::TakeoverFailed, why.clone());
            self.contest.stage = None;
            self.give_up(StopReason::TakeoverFailed(why));
        }
        if self.office.ready_ms().is_some() {
            self.contest.serving_since.get_or_insert(self.now.time);
        }
        if let Some(why) = self.ill_health() {
            self.give_up(StopReason::NotNamed(why));
        }
        self.end_former_life();
    }

    fn give_up(&mut self, reason: StopReason) {
        if self.office.held().is_some() {
            self.stop(reason);
        } else {
            self.give_up_claim(reason);
        }
    }

    /// A leader that has led on over the end of its session (`keep`) leads until another one does,
    /// or until it can take over anew: its token went with its znode.
    fn end_former_life(&mut self) {
        let epoch = self.session_epoch();
        if epoch.is_none() || self.office.held().is_none_or(|held| Some(held.epoch()) == epoch) {
            return;
        }
        let another = match self.config.recipe {
            Recipe::Queue(_) => true,
            _ => self.view.place(0).meta().is_some_and(|m| m.owner != self.session_id()),
        };
        match self.contest.step {
            Step::First => {
                let why = "it takes over anew, for its znode went with its session".to_owned();
                self.stop(StopReason::NotNamed(why));
            }
            Step::Waiting if another => {
                self.stop(StopReason::NotNamed("another one leads since its session ended".to_owned()));
            }
            _ => {}
        }
    }

    /// The office has let go of the place.
    pub(super) fn left_office(&mut self) {
        let served = self.contest.serving_since.take().map(|since| self.now.time.since(since));
        self.contest.own = None;
        self.contest.before = None;
        self.contest.has_waited = false;
        self.contest.ranks_again = false;
        if self.queue_format().is_some() {
            self.see_place(0, None);
            self.verification = Default::default();
        }
        let served_long = served.is_some_and(|served| served >= self.config.policy.min_tenure);
        let failed = self.pause_after_failure(served_long);
        self.contest.step = Step::Seek(if failed { Then::Pause } else { Then::Stand });
    }

    /// After a failure others get their chance, and this one a rest.
    pub(super) fn pause_after_failure(&mut self, served_long: bool) -> bool {
        if served_long {
            self.contest.failures = 0;
        }
        let Some(gave_up) = self.gave_up.take() else {
            self.contest.failures = 0;
            return false;
        };
        let pause =
            FIRST_PAUSE.saturating_mul(1 << self.contest.failures.min(20)).min(self.config.policy.exclusion);
        let (level, what) = match gave_up.cause.is_failure() {
            true => (Level::Warn, "has failed"),
            false => (Level::Info, "gave up"),
        };
        self.contest.failures += u32::from(level == Level::Warn);
        self.contest.stand_at = Some(self.now.time + pause);
        let text = format!("stands again in {pause:?}, for it {what}: {}", gave_up.reason);
        self.note(level, NoteKind::Registration, text);
        true
    }

    /// Where nothing may be written into the place, READY is known to this member alone.
    pub(in crate::engine) fn announces(&self) -> bool {
        self.config.recipe.is_native()
    }

    /// What others would have read.
    pub(in crate::engine) fn know_own_ready(&mut self) {
        let Some(own) = self.contest.own.clone() else { return };
        let known = self.read_place(&own.path, Some(&own.node));
        if let Known::Present(current, _) = known {
            let known = Known::Present(current.clone(), (&own.node).into());
            self.view.see_place(0, known, Some(&own.node));
            self.tell_leader(0, Some(current));
        }
    }
}

impl QueueFormat {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::LeaderLatch => "leader-latch",
            Self::KazooElection => "kazoo-election",
        }
    }
}
