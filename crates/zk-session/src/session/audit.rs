//! Whether the server of the connection agrees with the quorum.
//!
//! A server answers reads from its own znodes, which may differ from those of the others for ever: servers are known to
//! have kept ephemerals that the others had deleted (ZOOKEEPER-4837). Whoever waits for such a znode to go waits for ever,
//! and no event and no read at that server shows it. So **no wait for another session's znode rests on one server's
//! reading alone**. A group that only checks versions goes through the ensemble's log, and the ensemble's leader decides it
//! on its own znodes. The server of the connection answers it after it has carried out all that is before it in the log.
//! So if the check is refused, and the server then still shows the znode as it was before the check was sent, the two
//! disagree; nothing else explains it, no lag, no race.
//!
//! - **What is checked**: ephemerals of other sessions that a watch of this session has read, or that the caller
//!   [relies on](crate::Incarnation::rely_on): each wait for another member is one of these. And a path at which operations
//!   were refused repeatedly: that exists although it is read as absent, or is absent although it is read as present.
//!   There, a znode that the quorum has, and the server does not show, is a disagreement if nothing under its parent has
//!   changed between two reads around the check.
//!   And a znode of another session where a group of this session has created its own: one that is older than that.
//! - **By whom**: each session for its own server, for all its elections together: 128 znodes by one request. No member
//!   polls, and nothing is sent for a session that relies on nothing.
//! - **When**: about one session timeout after something is relied on anew, then at pauses that double, up to four session
//!   timeouts while a lease is kept, and eight otherwise. A session that keeps a lease sends sixteen quorum heartbeats in
//!   that time. After repeated refusals: within a quarter of a session timeout.
//! - **What follows**: the session moves to another server, and returns to that one within ten minutes only if no other
//!   answers. The log names the server and the znode. Where no other server answers, the session stays and checks again.
//!
//! Not covered: a znode that a server lacks and at which this session does not write, such as another member's znode in a
//! queue. A version check must name the znode, and only a server that has it shows its name: the number of children, and the
//! versions of a list of children, can't be checked by a request that goes through the log. It takes a look at another
//! server, with a session of its own for each look. `dr-worker doctor` does that, on request.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Fuse, FusedFuture as _};
use zk_proto::{ErrorCode, Reply, Request, Stat};

use crate::driver::{Along, BoxFuture, DriverError, DriverResult, answered};
use crate::session::incarnation::{Incarnation, Inner};
use crate::session::reliance::{Shown, Suspects};
use crate::time::{BootTime, NEVER, within};

/// How many znodes are checked by one request at most.
const BATCH: usize = 128;
/// How long a server is avoided.
pub(crate) const DISTRUSTED_FOR: Duration = Duration::from_secs(600);

/// A server that shows another state than the quorum has.
pub(crate) struct Disagreement {
    pub(crate) server: SocketAddr,
    pub(crate) path: String,
    pub(crate) kind: Kind,
}

/// How a server disagrees.
type Kind = &'static str;
const DELETED: Kind = "it shows a znode that the quorum has deleted";
/// An old version of a znode, or one that the quorum has replaced.
const CHANGED: Kind = "it shows a znode in a version that the quorum does not have";
const MISSING: Kind = "it does not show a znode that the quorum has";

/// When the next audit is due. Without clock and randomness.
struct Pace {
    timeout: Duration,
    pause: Duration,
    due: BootTime,
    /// How many readings had been relied on.
    known: u64,
    is_doubting: bool,
}

impl Pace {
    fn new(timeout: Duration, now: BootTime) -> Self {
        Self { timeout, pause: timeout, due: now + timeout, known: 0, is_doubting: false }
    }

    /// `jitter` is between 0 and 1: sessions of many processes must not check at the same time.
    fn note(&mut self, now: BootTime, (begun, doubts): (u64, bool), jitter: f64) {
        let early = |pause: Duration| now + pause.mul_f64(0.75 + jitter / 4.0);
        if begun != self.known {
            (self.known, self.pause) = (begun, self.timeout);
            self.due = self.due.min(early(self.timeout));
        }
        if doubts && !self.is_doubting {
            self.due = self.due.min(early(self.timeout / 4));
        }
        self.is_doubting = doubts;
    }

    /// An audit has ended.
    fn ended(&mut self, now: BootTime, keeps_lease: bool, jitter: f64) {
        self.pause = (self.pause * 2).min(self.timeout * if keeps_lease { 4 } else { 8 });
        self.due = now + self.pause.mul_f64(0.75 + jitter / 4.0);
        self.is_doubting = false;
    }
}

/// The audits of one session.
pub(crate) struct Audits {
    pace: Pace,
    /// Ready with what it has found.
    pub(crate) under_way: Fuse<BoxFuture<'static, Option<Disagreement>>>,
}

impl Audits {
    pub(crate) fn new(timeout: Duration, now: BootTime) -> Self {
        Self { pace: Pace::new(timeout, now), under_way: Fuse::terminated() }
    }

    pub(crate) fn wake(&self) -> BootTime {
        if self.under_way.is_terminated() { self.pace.due } else { NEVER }
    }

    /// Begins an audit that is due.
    pub(crate) fn begin_if_due(
        &mut self,
        incarnation: &Incarnation,
        now: BootTime,
        active: bool,
        keeps_lease: bool,
    ) {
        self.pace.note(now, incarnation.inner.reliance.state(), fastrand::f64());
        if !self.under_way.is_terminated() || now < self.pace.due {
            return;
        }
        self.pace.ended(now, keeps_lease, fastrand::f64());
        if !active {
            return;
        }
        let suspects = incarnation.inner.reliance.take();
        if suspects.shown.is_empty() && suspects.refused.is_empty() {
            return;
        }
        let (inner, deadline) = (Arc::clone(&incarnation.inner), now + self.pace.timeout);
        // Without an answer nothing is known, and the next one is not far.
        let auditing = async move {
            let audit = Audit { inner: &inner, deadline };
            within(deadline, audit.of_all(suspects)).await.and_then(Result::ok).flatten()
        };
        self.under_way = auditing.boxed().fuse();
    }
}

/// How many of them are checked by one request. Half of it has room for what is not a path.
fn batch(shown: &[Shown], max_request: usize) -> usize {
    let longest = shown.iter().map(|shown| shown.path.len()).max().unwrap_or(0);
    (max_request / 2 / longest.max(1)).clamp(1, BATCH)
}

struct Audit<'a> {
    inner: &'a Inner,
    deadline: BootTime,
}

impl Audit<'_> {
    async fn of_all(&self, suspects: Suspects) -> DriverResult<Option<Disagreement>> {
        let driver = &self.inner.driver;
        let (server, attached) = (driver.server(), driver.attached());
        let mut found = None;
        for (path, after) in suspects.replaced {
            let shown = self.exists(&path).await?;
            if found.is_none() && shown.is_some_and(|shown| shown.czxid <= after) {
                found = Some((path, CHANGED));
            }
        }
        for path in suspects.refused {
            if found.is_none() {
                found = self.of_refused(path).await?;
            }
        }
        for batch in suspects.shown.chunks(batch(&suspects.shown, self.inner.settings.max_request)) {
            if found.is_none() {
                found = self.of_shown(batch.iter().cloned().collect()).await?;
            }
        }
        // Over one connection, or nothing is proved.
        let found = found.filter(|_| driver.attached() == attached);
        Ok(found.map(|(path, kind)| Disagreement { server, path, kind }))
    }

    /// Znodes that the server has shown.
    async fn of_shown(&self, mut shown: VecDeque<Shown>) -> DriverResult<Option<(String, Kind)>> {
        while !shown.is_empty() {
            let before = self.inner.driver.ticket().last_zxid;
            let Some((at, code)) = self.check(&shown).await? else { return Ok(None) };
            let Some(suspect) = shown.remove(at) else { return Ok(None) };
            let kind = match code {
                ErrorCode::NO_NODE => DELETED,
                ErrorCode::BAD_VERSION => CHANGED,
                // For an access list, for example: nothing is known of this one.
                _ => continue,
            };
            let now = self.exists(&suspect.path).await?;
            // As it was before the check, which the server has carried out: nothing has changed it since.
            let is_same = now.is_some_and(|now| now.version == suspect.version && now.mzxid <= before);
            if is_same {
                return Ok(Some((suspect.path.to_string(), kind)));
            }
        }
        Ok(None)
    }

    /// A path at which operations were refused.
    async fn of_refused(&self, path: String) -> DriverResult<Option<(String, Kind)>> {
        let parent = zk_proto::ancestors(&path).next().unwrap_or("/");
        let Some(above) = self.exists(parent).await? else { return Ok(None) };
        let shown = self.exists(&path).await?;
        let version = shown.map_or(-1, |stat| stat.version);
        let one = VecDeque::from([Shown { path: path.as_str().into(), version }]);
        if shown.is_some() {
            return self.of_shown(one).await;
        }
        if self.check(&one).await?.is_some() {
            return Ok(None);
        }
        let still = self.exists(&path).await?.is_none();
        let unchanged = self.exists(parent).await?.is_some_and(|now| now.pzxid == above.pzxid);
        Ok((still && unchanged).then_some((path, MISSING)))
    }

    /// The one for which the quorum refuses the group, and its code; `None` only if it has each of them in that version.
    async fn check(&self, shown: &VecDeque<Shown>) -> DriverResult<Option<(usize, ErrorCode)>> {
        let checks =
            shown.iter().map(|shown| Request::Check { path: (&*shown.path).into(), version: shown.version });
        let reply = self.send(&Request::Multi(checks.collect())).await?;
        let Reply::Multi(parts) = reply else {
            return Err(DriverError::Invalid(format!("{reply:?}")));
        };
        let errors = parts.into_iter().enumerate().filter_map(|(at, (_, part))| Some((at, part.err()?)));
        let errors: Vec<_> = errors.collect();
        // The other parts of a refused group have these.
        let is_reason = |code| !matches!(code, ErrorCode::OK | ErrorCode::RUNTIME_INCONSISTENCY);
        match errors.iter().find(|(_, code)| is_reason(*code)) {
            None if errors.is_empty() => Ok(None),
            None => Err(DriverError::Invalid(format!("{errors:?}"))),
            Some(reason) => Ok(Some(*reason)),
        }
    }

    async fn exists(&self, absolute: &str) -> DriverResult<Option<Stat>> {
        match self.send(&Request::Exists { path: absolute.into(), watch: false }).await {
            Ok(Reply::Stat(stat)) => Ok(Some(stat)),
            Err(DriverError::Refused(ErrorCode::NO_NODE)) => Ok(None),
            Ok(other) => Err(DriverError::Invalid(format!("{other:?}"))),
            Err(error) => Err(error),
        }
    }

    async fn send(&self, request: &Request<'_>) -> DriverResult<Reply> {
        answered(self.inner.driver.send(request, Along::default()), self.deadline).await
    }
}

#[cfg(test)]
mod tests {
    use zk_proto::OpCode;

    use super::*;
    use crate::driver::tests::fake::Fake;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn there() -> DriverResult<Reply> {
        Ok(Reply::Stat(Stat::default()))
    }

    fn absent() -> DriverResult<Reply> {
        Err(DriverError::Refused(ErrorCode::NO_NODE))
    }

    /// A group that was refused: the codes of its parts.
    fn refused<const N: usize>(codes: [ErrorCode; N]) -> DriverResult<Reply> {
        Ok(Reply::Multi(codes.map(|code| (OpCode::ERROR, Err(code))).into()))
    }

    fn session(script: impl IntoIterator<Item = DriverResult<Reply>>) -> Incarnation {
        Fake::new(TIMEOUT, script).incarnation(TIMEOUT, BootTime::now())
    }

    fn audit_of(session: &Incarnation) -> Audit<'_> {
        Audit { inner: &session.inner, deadline: BootTime::now() + TIMEOUT }
    }

    fn at(seconds: u64) -> BootTime {
        BootTime::from_duration(Duration::from_secs(1000 + seconds))
    }

    #[test]
    fn a_wait_is_checked_soon_and_then_rarely() {
        for (keeps_lease, most) in [(true, 40), (false, 80)] {
            let mut pace = Pace::new(TIMEOUT, at(0));
            let mut pauses = Vec::new();
            let mut last = at(0);
            for _ in 0..6 {
                pace.note(last, (1, false), 1.0);
                let due = pace.due;
                pauses.push(due.duration_since(last).as_secs());
                pace.ended(due, keeps_lease, 1.0);
                last = due;
            }
            assert_eq!((pauses[0], pauses[1], pauses[5]), (10, 20, most), "{pauses:?}");
            // Something is relied on anew.
            pace.note(last, (2, false), 0.0);
            assert_eq!(pace.due.duration_since(last), TIMEOUT.mul_f64(0.75));
        }
    }

    #[test]
    fn repeated_refusals_are_checked_at_once_but_not_again_and_again() {
        let mut pace = Pace::new(TIMEOUT, at(0));
        pace.note(at(1), (0, true), 0.0);
        assert_eq!(pace.due.duration_since(at(1)), TIMEOUT.mul_f64(0.1875));
        pace.note(at(2), (0, true), 0.0);
        assert_eq!(pace.due.duration_since(at(1)), TIMEOUT.mul_f64(0.1875), "it is not put off");
        pace.ended(at(3), false, 0.0);
        assert!(pace.due.duration_since(at(3)) >= TIMEOUT);
    }

    #[test]
    fn a_request_is_no_longer_than_the_servers_accept() {
        let shown = ["/a", "/b"].map(|path| Shown { path: path.repeat(500).into(), version: 0 });
        assert_eq!(batch(&shown, 64 << 10), 32);
        assert_eq!(batch(&shown, 1 << 20), BATCH);
        assert_eq!(batch(&shown, 1), 1);
    }

    #[tokio::test]
    async fn a_check_that_is_refused_for_another_reason_does_not_show_that_the_quorum_has_the_znode() {
        let done = Ok(Reply::Multi(vec![(OpCode::CHECK, Ok(Reply::Empty))]));
        for (checked, found) in [
            (refused([ErrorCode::NO_NODE]), None),
            (refused([ErrorCode::BAD_ARGUMENTS]), None),
            (refused([ErrorCode::NO_AUTH]), None),
            (done, Some(("/queue/".to_owned(), MISSING))),
        ] {
            let session = session([there(), absent(), checked, absent(), there()]);
            assert_eq!(audit_of(&session).of_refused("/queue/".to_owned()).await, Ok(found));
        }
        let session =
            session([there(), absent(), refused([ErrorCode::RUNTIME_INCONSISTENCY]), absent(), there()]);
        assert!(audit_of(&session).of_refused("/a".to_owned()).await.is_err(), "it was refused");
    }

    #[tokio::test]
    async fn a_znode_that_may_not_be_checked_hides_no_other() {
        let shown = ["/a", "/secret", "/b"].map(|path| Shown { path: path.into(), version: 0 });
        let script = [
            refused([ErrorCode::OK, ErrorCode::NO_AUTH, ErrorCode::RUNTIME_INCONSISTENCY]),
            refused([ErrorCode::OK, ErrorCode::NO_NODE]),
            there(),
        ];
        let session = session(script);
        let found = audit_of(&session).of_shown(shown.into()).await;
        assert_eq!(found, Ok(Some(("/b".to_owned(), DELETED))));
    }
}
