//! One node: its clocks, its network, the worker process with its engine, the
//! client of its session, and the job under its guard.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use election_core::{
    config::{MemberId, Policy, Recipe, SiteId},
    internals::{Config, Engine, Epoch, Now, OpId, Time, Watched, record::RequestRef},
    status::Ballot,
};

use super::{Due, job::Job};
use crate::zookeeper::Millis;

/// A clock that starts anywhere and runs a little too fast or too slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) origin_us: u64,
    /// Since when it runs at this rate.
    pub(crate) since: Millis,
    pub(crate) drift_ppm: i64,
    /// The error of the wall clock, in milliseconds.
    pub(crate) wall_error: i64,
}

/// The wall clock when a simulation begins.
pub(crate) const EPOCH_MS: u64 = 1_700_000_000_000;

impl Clock {
    pub(crate) fn time(&self, real: Millis) -> Time {
        let us = real.saturating_sub(self.since) * self.rate() / 1000;
        Time::from_origin(Duration::from_micros(self.origin_us + us))
    }

    pub(crate) fn now(&self, real: Millis) -> Now {
        Now::new(self.time(real), (EPOCH_MS + real).saturating_add_signed(self.wall_error))
    }

    /// The first millisecond of true time at which this clock shows `time`.
    pub(crate) fn reaches(&self, time: Time) -> Millis {
        let us = u64::try_from(time.since_origin().as_micros()).unwrap_or(u64::MAX);
        let us = us.saturating_sub(self.origin_us).min(u64::MAX / 2000);
        self.since + us.saturating_mul(1000).div_ceil(self.rate())
    }

    /// From now on it runs at another rate.
    pub(crate) fn runs(&mut self, now: Millis, drift_ppm: i64) {
        let shown = self.time(now).since_origin().as_micros();
        self.origin_us = u64::try_from(shown).unwrap_or(u64::MAX);
        (self.since, self.drift_ppm) = (now, drift_ppm);
    }

    fn rate(&self) -> u64 {
        1_000_000u64.saturating_add_signed(self.drift_ppm)
    }
}

/// How this node reaches the ensemble.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// No message gets through.
    pub(crate) cut: bool,
    /// Its server is cut off from the others, and has applied this much. Reads are answered, writes are stuck, and the
    /// other servers do not hear from the session.
    pub(crate) minority: Option<i64>,
    /// Who of its peers can't reach it, though ZooKeeper can.
    pub(crate) unseen: Unseen,
    /// How long a message takes at most, one way.
    pub(crate) latency: Millis,
    /// How far its server lags behind.
    pub(crate) lag: Millis,
    /// How far it lags on a good day.
    pub(crate) usual_lag: Millis,
    /// Its server answers a write only after it has applied it. Otherwise it answers at once, and has caught up.
    pub(crate) answers_late: bool,
    /// How long a watch's reading takes at most.
    pub(crate) watch_delay: Millis,
    /// How likely an operation is refused, or its request or reply is lost.
    pub(crate) loss: f64,
    /// Every write is refused.
    pub(crate) refuses: bool,
}

impl Network {
    /// The delay of the answer to a write.
    pub(crate) fn late(&self) -> Millis {
        if self.answers_late { self.lag } else { 0 }
    }
}

/// Who of its peers can't reach a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unseen {
    Nobody,
    All,
    Site(SiteId),
}

/// One node.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) member: MemberId,
    pub(crate) site: SiteId,
    pub(crate) policy: Policy,
    pub(crate) recipe: Recipe,
    pub(crate) clock: Clock,
    pub(crate) net: Network,
    /// Counts processes: events for a dead process are not delivered.
    pub(crate) life: u64,
    pub(crate) process: Option<Process>,
    pub(crate) frozen: Option<Frozen>,
    pub(crate) backlog: VecDeque<Due>,
    /// Whether it reads who leads while it is passive.
    pub(crate) follows_leaders: bool,
    /// Whether a restart is under way.
    pub(crate) restarting: bool,
    /// What a dead worker has left to its guard.
    pub(crate) guarded: Option<Guarded>,
    /// It never starts again.
    pub(crate) retired: bool,
}

/// The job of a dead worker, until its guard has ended it.
#[derive(Clone, Debug)]
pub(crate) struct Guarded {
    pub(crate) job: Job,
    pub(crate) session: Option<i64>,
    /// How long the worker is down after that.
    pub(crate) restart_after: Millis,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Frozen {
    pub(crate) since: Millis,
    /// The job and its guard are frozen, too.
    pub(crate) whole: bool,
}

/// The worker.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) engine: Engine,
    pub(crate) config: Config,
    pub(crate) epochs: Epoch,
    pub(crate) client: Option<Client>,
    pub(crate) keeps_lease: bool,
    pub(crate) wake_at: Option<Millis>,
    pub(crate) job: Job,
    /// Whether it was asked to leave.
    pub(crate) leaving: bool,
    /// Since when a new session could be made, were it not for what still runs.
    pub(crate) blocked_since: Option<Millis>,
    pub(crate) thawed_at: Millis,
    /// The requests that it has read, and when first, by its own clock.
    pub(crate) requests: BTreeMap<RequestRef, Time>,
    /// The members that are not fit, as it has read last.
    pub(crate) unfit: BTreeSet<Ballot>,
    /// Counts the standbys of this member, and their promotions.
    pub(crate) standby: u64,
}

/// The client side of one session.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) epoch: Epoch,
    pub(crate) session: i64,
    pub(crate) link: Link,
    /// Whether the engine knows of it.
    pub(crate) started: bool,
    /// Counts connections: messages of an earlier one are lost.
    pub(crate) connection: u64,
    pub(crate) ops: BTreeSet<OpId>,
    /// The newest transaction that it has seen the effect of.
    pub(crate) seen: i64,
    pub(crate) arrives_at: Millis,
    pub(crate) replies_at: Millis,
    pub(crate) watched: BTreeMap<Watched, Told>,
    pub(crate) watches: u64,
    /// Over the present connection.
    pub(crate) answered: Vec<Answered>,
    /// When the connection was made.
    pub(crate) attached: Time,
    /// The latest moment at which the session is proved to have been alive.
    pub(crate) alive: Time,
    pub(crate) heartbeat_pending: bool,
    /// When it last heard from the ensemble, on its own clock.
    pub(crate) heard: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Connected,
    Paused,
    Over,
}

/// The last report of a watch, and when it is delivered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Which watch of this path it is: a removed watch no longer reports.
    pub(crate) watch: u64,
    pub(crate) value: Option<BTreeMap<String, (i64, i64)>>,
    /// It has fired, and could not be read without a connection.
    pub(crate) missed: bool,
    /// It has fired, and is not read while the member is passive.
    pub(crate) unread: bool,
    pub(crate) delivered_at: Millis,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) sent: Time,
    pub(crate) at: Time,
}

impl Client {
    pub(crate) fn new(epoch: Epoch, session: i64, heard: Time) -> Self {
        Self {
            epoch,
            session,
            link: Link::Connected,
            started: false,
            connection: 0,
            ops: BTreeSet::new(),
            seen: 0,
            arrives_at: 0,
            replies_at: 0,
            watched: BTreeMap::new(),
            watches: 0,
            answered: Vec::new(),
            attached: heard,
            alive: heard,
            heartbeat_pending: false,
            heard,
        }
    }

    /// A heartbeat was acknowledged over this connection. See `zk-session` for the rules.
    pub(crate) fn acknowledged(&mut self, sent: Time, acknowledged: Time, tick: Millis) {
        let tick = Duration::from_millis(tick);
        let proved = self.answered.iter().filter(|b| b.at + tick <= sent).map(|b| b.sent).max();
        self.alive = self.alive.max(self.attached).max(proved.unwrap_or(Time::ZERO));
        self.answered(sent, acknowledged);
    }

    /// A heartbeat or a ping was answered over this connection.
    pub(crate) fn answered(&mut self, sent: Time, at: Time) {
        self.answered.push(Answered { sent, at });
        if self.answered.len() > 16 {
            self.answered.remove(0);
        }
    }

    /// Another connection: nothing that was answered over the last one is proved any more.
    pub(crate) fn attach(&mut self, now: Time) {
        self.attached = now;
        self.answered.clear();
    }

    /// The margin is what clocks may differ by, and nothing more: with the shortest one that `zk-session` has, no timeout here
    /// would need it.
    pub(crate) fn valid_until(&self, timeout: Millis) -> Time {
        self.alive + Duration::from_millis(timeout - timeout / 100)
    }
}
