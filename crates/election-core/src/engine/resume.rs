//! A member that continues in another process, on the same session: what crosses, and how the next engine begins with it.
//!
//! The next engine begins as this one would continue after a lost connection: the session is paused, and its lease is the
//! one that was proved. So it does nothing until the session is resumed, reads the leader znodes, the decision and its own
//! record again, and stops its work if the session is over or the lease nears its end. What was read does not cross.
//!
//! Only an engine at rest can be continued: nothing is under way whose outcome only this process would learn, and it leads
//! or does not, with nothing in between.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    Engine,
    candidacy::CandidacyAtRest,
    config::Config,
    core::session::Session,
    io::{EnteredLeadership, Epoch, Unrest},
    leader::HeldLeadership,
    own::{Leaving, Reachability, Reports},
    reading::memory::Memory,
};
use crate::{
    record::{Current, GaveUp, Health},
    time::{Now, Time},
};

/// What another process needs to continue as this member, on this member's session. It is valid during one boot of the
/// machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resumption {
    session_id: i64,
    number: u32,
    granted: Duration,
    /// The time of the handover.
    at: Time,
    /// The end of the lease.
    lease: Option<Time>,
    standing: CandidacyAtRest,
    joined_ms: u64,
    health: Health,
    reports: Reports,
    gave_up: Option<GaveUp>,
    withdrawn: Option<String>,
    memory: Memory,
    /// The leaders that the application knows.
    leaders: Vec<Option<Current>>,
    led: Option<HeldLeadership>,
}

impl Resumption {
    /// The id of its session.
    pub fn session_id(&self) -> i64 {
        self.session_id
    }

    /// The number of the incarnation that continues.
    #[cfg(feature = "runtime")]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The term and the fencing token of the leadership that continues, if there is one.
    pub fn leadership(&self) -> Option<(u64, u64)> {
        self.led.as_ref().map(|led| (led.term(), led.fencing_token))
    }

    /// The timeout that its session was granted.
    pub fn granted(&self) -> Duration {
        self.granted
    }

    /// The end of the lease that it was proved to have, as the time since the clock's origin.
    pub fn lease(&self) -> Option<Duration> {
        self.lease.map(Time::since_origin)
    }
}

impl Engine {
    /// What another process needs to continue as this member. This engine must take no further event then, unless the other
    /// process does not begin.
    ///
    /// # Errors
    /// If it is not at rest.
    pub fn resumption(&self) -> Result<Resumption, Unrest> {
        let (core, own) = (&self.core, &self.core.own);
        let Some(session) = core.session.as_ref().filter(|_| core.session_is_active()) else {
            return Err(Unrest::Now("its session is not active"));
        };
        if core.ended || own.leaving != Leaving::No || own.wishes.deadline.is_some() {
            return Err(Unrest::Now("this member is leaving or resigning"));
        }
        let Some(standing) = self.candidacy.at_rest(core) else {
            return Err(Unrest::Now("this member is joining"));
        };
        let led = self.leader.at_rest(core)?;
        if !core.ops.is_idle() || !self.history.is_idle() {
            return Err(Unrest::Now("an operation is under way"));
        }
        let mut memory = core.reading.memory.clone();
        memory.keep(&core.reading.view.elected);
        Ok(Resumption {
            session_id: session.id,
            number: core.number,
            granted: session.granted,
            at: core.now.time,
            lease: session.lease,
            standing,
            joined_ms: own.joined_ms,
            health: own.health.clone(),
            reports: Reports { reach: Reachability::default(), ..own.reports.clone() },
            gave_up: own.gave_up.as_deref().cloned(),
            withdrawn: own.wishes.withdrawn.clone(),
            memory,
            leaders: core.out.leaders.iter().map(|leader| leader.as_deref().cloned()).collect(),
            led,
        })
    }

    /// The engine that continues as the member that `from` describes, with the leadership that continues. Its session has
    /// this number in the new process, and is paused: report that it is resumed, or that it is over.
    ///
    /// # Errors
    /// If the recipe is another one.
    pub fn resume(
        config: Config,
        from: Resumption,
        epoch: Epoch,
        now: Now,
    ) -> Result<(Self, Option<EnteredLeadership>), Unrest> {
        let mut engine = Self::new(config, from.number, now);
        let Self { core, candidacy, leader, .. } = &mut engine;
        core.session = Some(Session {
            epoch,
            id: from.session_id,
            granted: from.granted,
            paused_since: Some(from.at),
            lease: from.lease,
            ..Session::default()
        });
        if !candidacy.resume(core, from.standing) {
            return Err(Unrest::Recipe);
        }
        let own = &mut core.own;
        (own.joined_ms, own.health, own.reports) = (from.joined_ms, from.health, from.reports);
        own.gave_up = from.gave_up.map(Box::new);
        own.wishes.withdrawn = from.withdrawn;
        core.reading.memory = from.memory;
        core.out.leaders = from.leaders.into_iter().map(|leader| leader.map(Arc::new)).collect();
        let entered = from.led.map(|led| leader.resume(core, led, epoch));
        Ok((engine, entered))
    }
}
