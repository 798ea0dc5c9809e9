//! Between the contest and the leader's side: handing over the own znode, overseeing the leader, and what follows
//! once it has released leadership.

use std::borrow::Cow;

use super::{AfterSeek, ContestCandidacy, ContestStep, FIRST_PAUSE};
use crate::{
    engine::{
        appointment::{By, Claim, tokens_raised},
        core::Core,
        io::{Appointment, Level, NoteKind, StopReason},
        leader::{OwnLeadership, Stage},
        ops::{Part, Pending},
        recipe::Recipe,
        transaction::ZnodeWrite,
    },
    record::{Cause, Record as _, TokenBase},
};

impl ContestCandidacy {
    /// No candidate is before this one: it may lead.
    /// Its token is above this base.
    pub(super) fn hand_over(&mut self, core: &mut Core, leader: &mut OwnLeadership, base: u64) {
        let Some(own) = &mut core.own.contest.znode else { return };
        own.base = base;
        let own = own.clone();
        self.step = ContestStep::Leading;
        self.before = None;
        let waited = self.has_waited;
        let sentence: Cow<'static, str> = match (&core.config.recipe, waited, &self.previous) {
            (Recipe::Single, false, _) => "no member held the leader znode".into(),
            (Recipe::Single, true, _) => {
                "the leader znode became free, and this member was the first to create it".into()
            }
            (_, false, _) => "no member was before it in the queue".into(),
            (_, true, Some(previous)) => format!("{} has gone, and it was next", previous.member).into(),
            (_, true, None) => "no member is before it in the queue any more".into(),
        };
        let appointment = Appointment {
            slot: 0,
            term: own.term(),
            cause: if waited { Cause::LeaderLost } else { Cause::Startup },
            sentence,
            previous: self.previous.take(),
        };
        // An earlier report of a watch does not count for this znode.
        core.see_leader_znode(0, Some(&own.node));
        if let Some(own) = &mut core.own.contest.znode {
            // Its content is in the view from now on.
            own.node.data = Vec::new();
        }
        let appointment = appointment.into();
        leader.claim(core, Claim { appointment, ballot: own.ballot, by: By::Contest }, None);
    }

    /// The leader oversees itself.
    pub(super) fn oversee(&mut self, core: &mut Core, leader: &mut OwnLeadership) {
        let stage = leader.state().stage();
        if stage != self.stage.map(|(stage, _)| stage) {
            self.stage = stage.map(|stage| (stage, core.now.time));
        }
        if let Some((stage, since)) = self.stage
            && core.now.time.since(since) >= core.config.policy.takeover_timeout
        {
            let what = match stage {
                Stage::Preparing => "preparing",
                Stage::TakingOver => "taking over",
            };
            let why = format!("{what} took longer than {:?}", core.config.policy.takeover_timeout);
            self.stage = None;
            leader.fail(core, why.clone(), why);
        }
        if leader.held().is_some_and(|held| held.leads()) {
            self.serving_since.get_or_insert(core.now.time);
        }
        if let Some(why) = core.own.ill_health() {
            leader.end(core, StopReason::NotNamed(why));
        }
        let base = core.contest_base().map_or(0, |(base, _)| base);
        if leader.held().is_some_and(|held| held.fencing_token <= base) {
            leader.end(core, StopReason::NotNamed(tokens_raised(base)));
        }
        self.end_former_life(core, leader);
    }

    /// The next token would not be above one that this member has seen: raises the base. The leader that has such a token
    /// ends, and rejoins with a new znode.
    pub(super) fn raise_tokens(&self, core: &mut Core) {
        let Some((base, version)) = core.contest_base().filter(|_| core.config.recipe.is_native()) else {
            return;
        };
        let is_free = core.session_is_active() && core.ops.is_free(Part::Tokens, core.now.time);
        if !is_free || !core.reading.memory.is_behind(base) {
            return;
        }
        let paths = &core.config.paths;
        let (path, there) = (paths.tokens(), core.leader_znode_path(0));
        let tokens =
            TokenBase::new(core.reading.memory.token(), core.config.member.member.as_str(), core.now.unix_ms);
        let data = match tokens.encode(&path) {
            Ok(data) => data,
            Err(error) => return core.trouble(error),
        };
        let text = format!("raises the tokens above {}, which it has seen", tokens.token_base);
        core.note(Level::Info, NoteKind::Decided, text);
        // Versions begin at 0 again if the whole tree was deleted.
        let write = ZnodeWrite::replace(path, data, version).only_while(there, None);
        core.perform(write, Pending::Tokens);
    }

    /// A leader that has led on after the end of its session (`keep`) leads until another member does, or until it
    /// can take over again: its token ended with its znode.
    fn end_former_life(&self, core: &mut Core, leader: &mut OwnLeadership) {
        let epoch = core.session_epoch();
        if epoch.is_none() || leader.held().is_none_or(|held| Some(held.epoch) == epoch) {
            return;
        }
        let known = core.reading.view.leader(0);
        let is_held = known.meta().is_some() && !core.is_own_leader_znode(known);
        let why = match self.step {
            ContestStep::First => "it takes over anew, for its znode went with its session",
            ContestStep::Waiting if is_held || core.queue_format().is_some() => {
                "another one leads since its session ended"
            }
            _ => return,
        };
        leader.stop(core, StopReason::NotNamed(why.to_owned()));
    }

    /// The leader znode has been released.
    pub(super) fn released(&mut self, core: &mut Core) {
        let served = self.serving_since.take().map(|since| core.now.time.since(since));
        core.own.contest = Default::default();
        self.before = None;
        self.has_waited = false;
        if core.queue_format().is_some() {
            core.see_leader_znode(0, None);
            core.forget_rereading();
        }
        let served_long = served.is_some_and(|served| served >= core.config.policy.min_tenure);
        let failed = self.pause_after_failure(core, served_long);
        self.step = ContestStep::Seek(if failed { AfterSeek::Pause } else { AfterSeek::Join });
    }

    /// After a failure this member pauses, so that others can lead.
    pub(super) fn pause_after_failure(&mut self, core: &mut Core, served_long: bool) -> bool {
        if served_long {
            self.failures = 0;
        }
        let Some(gave_up) = core.own.gave_up.take() else {
            self.failures = 0;
            return false;
        };
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(20)).min(core.config.policy.exclusion);
        let (level, what) = match gave_up.cause.is_failure() {
            true => (Level::Warn, "has failed"),
            false => (Level::Info, "gave up"),
        };
        self.failures += u32::from(level == Level::Warn);
        self.join_at = Some(core.now.time + pause);
        let text = format!("rejoins in {pause:?}, because it {what}: {}", gave_up.reason);
        core.note(level, NoteKind::Registration, text);
        true
    }
}
