//! The requests by which a session is checked and proved to be alive, and when each is sent.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Fuse, FusedFuture as _};
use zk_proto::Request;

use crate::driver::{self, Along, BoxFuture, DriverError, answered};
use crate::lease::{Answered, LeaseHistory};
use crate::session::incarnation::Incarnation;
use crate::time::{BootTime, Moment, NEVER};

/// The minimum pause before a failed heartbeat is repeated.
const MIN_PAUSE: Duration = Duration::from_millis(20);

/// How a heartbeat or a probe has ended.
pub(crate) struct HeartbeatAnswer {
    pub(crate) times: Answered,
    /// Whether it was a quorum heartbeat.
    pub(crate) quorum: bool,
    pub(crate) result: Result<(), DriverError>,
}

/// Decides when to send what, one at a time. A *heartbeat* is a quorum round trip, sent while a lease is kept and while the
/// session is paused. A *probe* is a read, sent at other times: it shows whether the server answers, and the first heartbeat
/// of a lease can prove it.
pub(crate) struct Heartbeats {
    pub(crate) wanted: bool,
    history: LeaseHistory,
    /// Ready when it is answered, or has failed.
    pub(crate) under_way: Fuse<BoxFuture<'static, HeartbeatAnswer>>,
    next: BootTime,
}

impl Heartbeats {
    /// Of a session on which a quorum has answered a request that was sent at `last_sent`.
    pub(crate) fn new(incarnation: &Incarnation, alive: Moment, last_sent: BootTime) -> Self {
        let timing = incarnation.lease_timing();
        Self {
            wanted: false,
            history: LeaseHistory::new(timing, alive),
            under_way: Fuse::terminated(),
            next: last_sent + timing.heartbeat_interval(),
        }
    }

    pub(crate) fn set_wanted(&mut self, wanted: bool, now: BootTime) {
        if wanted && !self.wanted {
            // A probe that is under way is answered before a heartbeat would be, and can be proved by it.
            self.next = now;
        }
        self.wanted = wanted;
    }

    /// The lease if one is kept, unless it has run out.
    pub(crate) fn lease(&mut self, now: Moment) -> Option<BootTime> {
        if !self.wanted {
            return None;
        }
        self.history.compare(now);
        Some(self.history.valid_until(now)).filter(|until| now.boot < *until)
    }

    /// Abandons the request under way, which may belong to a lost connection.
    pub(crate) fn restart(&mut self, now: BootTime) {
        self.under_way = Fuse::terminated();
        self.next = now;
    }

    pub(crate) fn wake(&self) -> BootTime {
        let heartbeat = self.under_way.is_terminated().then_some(self.next);
        let clocks = self.wanted.then(|| self.history.comparison_due());
        heartbeat.into_iter().chain(clocks).min().unwrap_or(NEVER)
    }

    pub(crate) fn begin_if_due(&mut self, incarnation: &Incarnation, now: BootTime, active: bool) {
        if !self.under_way.is_terminated() || now < self.next {
            return;
        }
        let quorum = self.wanted || !active;
        let driver = incarnation.inner.driver.clone();
        let attached = driver.attached();
        let sent = Moment::now();
        let deadline = sent.boot + self.history.timing.session_timeout / 3;
        let asking = async move {
            let result = if quorum {
                driver::barrier(&*driver, deadline).await
            } else {
                let probe = Request::Exists { path: "/".into(), watch: false };
                let answer = driver.send(&probe, Along { heartbeat: true, ..Along::default() });
                answered(answer, deadline).await.map(drop)
            };
            let moved = driver.attached() != attached;
            HeartbeatAnswer { times: Answered { sent, at: BootTime::now(), attached, moved }, quorum, result }
        };
        self.under_way = asking.boxed().fuse();
    }

    /// A heartbeat or a probe was answered.
    pub(crate) fn answered(&mut self, answered: Answered, quorum: bool) {
        let (sent, now) = (answered.sent.boot, answered.at);
        match quorum {
            true => self.history.heartbeat(answered),
            false => self.history.probe(answered),
        }
        self.next = match self.wanted {
            true => self.history.next_heartbeat(sent, Moment::now()).max(now),
            false => sent + self.history.timing.heartbeat_interval(),
        };
    }

    pub(crate) fn failed(&mut self, now: BootTime) {
        let pause = (self.history.timing.heartbeat_interval() / 5).max(MIN_PAUSE);
        self.next = now + pause.mul_f64(0.5 + fastrand::f64() / 2.0);
    }
}
