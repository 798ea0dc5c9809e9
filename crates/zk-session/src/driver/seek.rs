//! Which servers are tried, in which order, side by side, and how long each attempt and each pause lasts.
//! # How the session timeout is divided
//! A session that sends a request every tenth of its timeout has nine tenths left when its link dies. Silence is noticed
//! after three tenths at the latest ([`zk_proto::Connection`]). The server that has just been lost is the last to be tried,
//! and a silent one is not waited for: after a head start the next one is tried beside it.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tracing::{debug, info, warn};
use zk_proto::{Purpose, Ticket};

use super::answers::Answers;
use super::contract::ConnectSpec;
use super::dial::{Attached, Patience, attach};
use super::refusal::Refusal;
use crate::backoff::Backoff;
use crate::error::{ConnectError, InactiveReason};
use crate::lease::SHORTEST;
use crate::lock::lock;
use crate::servers::hosts::Host;
use crate::servers::known::Known;
use crate::servers::resolve::Resolver;
use crate::settings::Settings;
use crate::time::{BootTime, sleep_until};

/// Between rounds while the present connection works.
const LEAVING: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Between attempts to return to a better server, which may stay away for long.
const RETURNING: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// The clients of a server lose it at the same time: each waits for a random part of this before it tries another one.
fn stagger(suspect_after: Option<Duration>, session_timeout: Duration) -> Duration {
    let usual = (session_timeout / 20).min(Duration::from_millis(200));
    suspect_after.map_or(usual, |after| usual.min(after / 8))
}

/// Between rounds over all servers.
fn between_rounds(suspect_after: Option<Duration>) -> Backoff {
    let most = Duration::from_secs(1);
    Backoff::new(Duration::from_millis(100), suspect_after.map_or(most, |after| most.min(after)))
}

/// How long a server is waited for before the next one is tried beside it. Long enough for a healthy one to answer: the
/// session goes to the one that was asked last. Of many addresses most may be of no use.
fn head_start(session_timeout: Duration, addresses: usize) -> Duration {
    let parts = u32::try_from(addresses * 3).unwrap_or(u32::MAX).max(16);
    (session_timeout / parts).clamp(Duration::from_millis(100), Duration::from_millis(500))
}

fn patience(session_timeout: Duration) -> Patience {
    Patience {
        connect: (session_timeout / 10).clamp(Duration::from_millis(150), Duration::from_secs(3)),
        // As long as a connection may be silent.
        handshake: (session_timeout * 3 / 10).clamp(Duration::from_millis(200), Duration::from_secs(6)),
    }
}

/// Up to a quarter less, at random: sessions that wait for the same silent server must not continue in step.
fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(1.0 - fastrand::f64() / 4.0)
}

/// The host that accepts the session; `None` when all have been tried, or a quorum has decided. Hosts are begun in this order,
/// the next one after a head start or as soon as one has failed, until one has answered. `answers` gets the refusals.
/// `known` gets who answers and who has let its head start pass.
///
/// Without `linger` each makes a session of its own, and the first one counts. With it all are asked for the same session,
/// and the one that was asked last has it. Where all are so slow that several were asked before the first has answered,
/// those that were asked after it are waited for, as long as this after each answer: the session would be taken from it at
/// once.
async fn race<T, F>(
    hosts: &[Host],
    head_start: Duration,
    linger: Option<Duration>,
    attempt: impl Fn(Host) -> F,
    answers: &mut Answers,
    known: &Mutex<Known>,
) -> Option<T>
where
    F: Future<Output = Result<T, Refusal>>,
{
    let mut waiting = hosts.iter().enumerate();
    let mut running = FuturesUnordered::new();
    // The last of those that have answered, and those that were begun after it and may still.
    let mut best: Option<(usize, T)> = None;
    let mut open = BTreeSet::new();
    loop {
        if best.is_none()
            && let Some((number, host)) = waiting.next()
        {
            open.insert(number);
            let attempt = attempt(host.clone());
            running.push(async move {
                let ended = attempt.await;
                if ended.as_ref().err().is_none_or(Refusal::is_verdict) {
                    lock(known).answered(host.address);
                }
                (number, host, ended)
            });
        }
        let pause = linger.filter(|_| best.is_some()).unwrap_or_else(|| jittered(head_start));
        let next = BootTime::now() + pause;
        loop {
            if let Some((number, _)) = &best
                && open.range(number..).next().is_none()
            {
                return best.map(|(_, found)| found);
            }
            tokio::select! {
                biased;
                ended = running.next() => match ended {
                    None => return best.map(|(_, found)| found),
                    Some((number, host, ended)) => {
                        open.remove(&number);
                        match ended {
                            Ok(found) if linger.is_none() => return Some(found),
                            Ok(found) => {
                                if best.as_ref().is_none_or(|(before, _)| *before < number) {
                                    best = Some((number, found));
                                }
                                break;
                            }
                            Err(refusal) => {
                                log(host, &refusal);
                                answers.note(host, refusal);
                                if best.is_none() && answers.are_decisive() {
                                    return None;
                                }
                                if best.is_none() && waiting.len() > 0 {
                                    break;
                                }
                            }
                        }
                    }
                },
                () = sleep_until(next), if best.is_some() || waiting.len() > 0 => {
                    let mut known = lock(known);
                    open.iter().for_each(|number| known.silent(hosts[*number].address, BootTime::now()));
                    drop(known);
                    if best.is_some() {
                        return best.map(|(_, found)| found);
                    }
                    break;
                }
            }
        }
    }
}

/// A server with another configuration is for an operator to correct, though the session is made with another one.
fn log(host: &Host, refusal: &Refusal) {
    let (server, reason) = (host.address, refusal.to_string());
    match refusal {
        Refusal::Unavailable(_) | Refusal::Expired | Refusal::Less(_) => {
            debug!(%server, reason, "this server made no session")
        }
        Refusal::Shorter(_) => warn!(reason, "the session is over"),
        _ => {
            warn!(%server, reason, "this server refuses this client: compare its configuration with the other servers'")
        }
    }
}

/// The purpose of the attempts.
#[derive(Clone)]
pub(super) struct Tickets {
    pub(super) timeout: Duration,
    /// As the session is right before a server is asked: while another connection is in use, the session sees newer changes
    /// all the time, and a server that is behind them must not accept it.
    pub(super) now: Arc<dyn Fn() -> Ticket + Send + Sync>,
}

/// Finds servers for a session.
#[derive(Clone)]
pub(super) struct Seeker {
    pub(super) resolver: Arc<Resolver>,
    pub(super) settings: Arc<Settings>,
}

/// A server that has the session now; why the session is over, if it is.
pub(super) type Found = Result<Option<Attached>, InactiveReason>;

impl Seeker {
    /// One round over all servers, for a new session or one of another process. Their answers are in `answers`, also if the
    /// future is dropped.
    pub(super) async fn first(
        &self,
        spec: &ConnectSpec,
        answers: &mut Answers,
    ) -> Result<Option<Attached>, ConnectError> {
        let ConnectSpec { purpose, deadline, closes, .. } = spec;
        let (hosts, nameless) = self.resolver.hosts(deadline.duration_since(BootTime::now())).await;
        *answers = Answers::awaited(&hosts, nameless);
        let timeout = match purpose {
            Purpose::New(timeout) => *timeout,
            Purpose::Resume(ticket) => ticket.timeout,
        };
        // A quorum may need time to make a session. The rest of the time is for reporting the errors.
        let share = deadline.duration_since(BootTime::now()).mul_f64(0.9);
        let patience = Patience { connect: share.min(Duration::from_secs(2)), handshake: share };
        // Each session that a server makes too late stays for its timeout.
        let head_start = head_start(timeout, hosts.len()) * 2;
        let (with_keeper, with_less, is_with_less) = (Mutex::new(None), Mutex::new(None), Notify::new());
        let attempt = |host: Host| {
            let (with_keeper, with_less, is_with_less) = (&with_keeper, &with_less, &is_with_less);
            async move {
                let attached = attach(&self.settings, &host, || purpose.clone(), patience).await;
                match (attached, purpose) {
                    (Ok(attached), Purpose::New(_)) if attached.ticket.timeout < SHORTEST => {
                        Err(Refusal::TooShort(attached.ticket.timeout))
                    }
                    (Ok(attached), Purpose::New(_)) if !attached.ticket.outlives_its_connection() => {
                        *lock(with_keeper) = Some(attached);
                        Err(Refusal::Keeper)
                    }
                    (Ok(attached), Purpose::New(asked)) if attached.ticket.timeout < *asked => {
                        let granted = attached.ticket.timeout;
                        lock(&self.resolver.known).grants(host.address, Some(granted));
                        let mut best = lock(with_less);
                        if best.as_ref().is_none_or(|best: &Attached| best.ticket.timeout < granted) {
                            *best = Some(attached);
                        }
                        is_with_less.notify_one();
                        Err(Refusal::Less(granted))
                    }
                    // This server's answer about a new session does not apply to the others.
                    (Err(Refusal::Expired), Purpose::New(_)) => {
                        Err(Refusal::Unavailable("it granted no session".to_owned()))
                    }
                    (Ok(attached), Purpose::Resume(ticket)) if !closes => self
                        .judge_grant(&attached, ticket.timeout)
                        .map(|()| attached)
                        .map_err(Refusal::Shorter),
                    (attached, _) => {
                        if attached.is_ok() {
                            lock(&self.resolver.known).grants(host.address, None);
                        }
                        attached
                    }
                }
            }
        };
        let linger = matches!(purpose, Purpose::Resume(_)).then_some(head_start * 2);
        // What one server grants is less than it could be only if another one grants more, which has this long to do so.
        let no_more = async {
            is_with_less.notified().await;
            // No ping keeps the session alive that is put aside.
            let part = lock(&with_less).as_ref().map_or(Duration::ZERO, |less| less.ticket.timeout / 4);
            let all = head_start.saturating_mul(u32::try_from(hosts.len()).unwrap_or(u32::MAX));
            sleep_until(BootTime::now() + all.min(part)).await;
        };
        let found = tokio::select! {
            biased;
            found = race(&hosts, head_start, linger, attempt, answers, &self.resolver.known) => found,
            () = no_more => None,
        };
        let with_less = lock(&with_less).take();
        match found {
            // Also with one that has accepted it beside a server that grants less.
            _ if answers.is_expired() => Err(ConnectError::Expired),
            None if answers.is_keeper() => Ok(lock(&with_keeper).take()),
            None => Ok(with_less),
            Some(found) => {
                if let Some(less) = with_less {
                    warn!(
                        server = %less.link.address, granted = ?less.ticket.timeout, other = ?found.ticket.timeout,
                        "this server grants a shorter session timeout than another one: \
                         set the same minSessionTimeout and maxSessionTimeout on all servers"
                    );
                }
                Ok(Some(found))
            }
        }
    }

    /// Tries the servers until one accepts the session or a quorum reports that it is over. A server that refuses it for
    /// another reason may be the only one that does: the session ends by its clock. Names are resolved again in each round;
    /// while that takes long, the last addresses are tried.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn seek(self, lost: SocketAddr, tickets: Tickets) -> Result<Attached, InactiveReason> {
        let timeout = tickets.timeout;
        let mut backoff = between_rounds(self.settings.suspect_after);
        self.stagger(timeout).await;
        loop {
            let (mut hosts, nameless) = self.resolver.hosts(timeout / 50).await;
            let answers = Answers::awaited(&hosts, nameless);
            // The sort is stable: the others stay in their order, those that were silent after the one that was lost.
            {
                let (known, now) = (lock(&self.resolver.known), BootTime::now());
                let is_silent = |address| known.is_silent(address, now);
                hosts.sort_by_key(|host| {
                    let address = host.address;
                    (known.grants_less(address, timeout), is_silent(address), address == lost)
                });
            }
            if let Some(found) = self.race(&hosts, &tickets, answers).await? {
                return Ok(found);
            }
            sleep_until(BootTime::now() + backoff.next()).await;
        }
    }

    /// One round over the servers other than `present`, whose connection stays in use, and which has not answered a check
    /// that was sent at `since`. One that is as slow is no better, and every move costs the requests that are under way:
    /// another server is asked once the check has waited for twice as long as that server takes.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn beside(self, present: SocketAddr, since: BootTime, tickets: Tickets) -> Found {
        let timeout = tickets.timeout;
        self.stagger(timeout).await;
        let (mut hosts, nameless) = self.resolver.hosts(timeout / 50).await;
        let answers = Answers::awaited(&hosts, nameless);
        hosts.retain(|host| {
            host.address != present && !lock(&self.resolver.known).grants_less(host.address, timeout)
        });
        let began = BootTime::now();
        let faster_from = |host: &Host| {
            let takes = lock(&self.resolver.known).takes(host.address, began, timeout * 4);
            since + takes.unwrap_or_default() * 2
        };
        if let Some(first) = hosts.iter().map(faster_from).min() {
            sleep_until(first).await;
            let now = BootTime::now();
            hosts.retain(|host| faster_from(host) <= now);
        }
        let found = self.race(&hosts, &tickets, answers).await?;
        if found.is_some() {
            // So long at least: it has not answered before the other one.
            let now = BootTime::now();
            lock(&self.resolver.known).took(present, now.duration_since(since), now);
        }
        Ok(found)
    }

    /// Rounds over the servers that are better than the present one, repeated as long as there are any. The present server
    /// is worse than all of the list if it is not in it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn improve(self, present: SocketAddr, tickets: Tickets) -> Found {
        let (mut leaving, mut returning) = (LEAVING, RETURNING);
        loop {
            let (hosts, nameless) = self.resolver.hosts(tickets.timeout / 4).await;
            let answers = Answers::awaited(&hosts, nameless);
            let is_listed = hosts.iter().any(|host| host.address == present);
            let mut better = self.resolver.preference().better_than(present, hosts);
            better.retain(|host| !lock(&self.resolver.known).grants_less(host.address, tickets.timeout));
            if better.is_empty() {
                return Ok(None);
            }
            self.stagger(tickets.timeout).await;
            if let Some(found) = self.race(&better, &tickets, answers).await? {
                return Ok(Some(found));
            }
            let backoff = if is_listed { &mut returning } else { &mut leaving };
            sleep_until(BootTime::now() + backoff.next()).await;
        }
    }

    /// Sessions that leave the same server must not move to another one at the same time.
    async fn stagger(&self, timeout: Duration) {
        let most = stagger(self.settings.suspect_after, timeout);
        sleep_until(BootTime::now() + most.mul_f64(fastrand::f64())).await;
    }

    async fn race(&self, hosts: &[Host], tickets: &Tickets, mut answers: Answers) -> Found {
        let timeout = tickets.timeout;
        let attempt = |host: Host| {
            let Patience { connect, handshake } = patience(timeout);
            let patience = Patience { connect: jittered(connect), handshake: jittered(handshake) };
            let purpose = || Purpose::Resume((tickets.now)());
            async move {
                let attached = attach(&self.settings, &host, purpose, patience).await?;
                let now = BootTime::now();
                lock(&self.resolver.known).took(host.address, now.duration_since(attached.sent.boot), now);
                Ok(attached)
            }
        };
        let head_start = head_start(timeout, hosts.len());
        let linger = Some(head_start * 2);
        match race(hosts, head_start, linger, attempt, &mut answers, &self.resolver.known).await {
            None if answers.is_expired() => Err(InactiveReason::Expired),
            None => Ok(None),
            Some(found) => match self.judge_grant(&found, timeout) {
                Ok(()) => Ok(Some(found)),
                Err(reason) => Err(InactiveReason::DriverFailed { reason }),
            },
        }
    }

    /// See [`judge_grant`]. It is asked last from now on if it grants less.
    fn judge_grant(&self, attached: &Attached, before: Duration) -> Result<(), String> {
        let (address, now) = (attached.link.address, attached.ticket.timeout);
        lock(&self.resolver.known).grants(address, (now < before).then_some(now));
        judge_grant(address, before, now)
    }
}

/// A server has accepted the session and granted it a timeout, perhaps another one than before.
///
/// A shorter one ends the session. That is no verdict of one server which others could contradict: with its acceptance the
/// ensemble's leader ends the session by the shorter timeout, while leases may have been given by the longer one. Nor does
/// another server help at once: the last touch by this one may reach the leader after the first by that. A longer one changes nothing: what was
/// computed from the shorter one stays valid. A session that is resumed has had leases in another process.
fn judge_grant(server: SocketAddr, before: Duration, now: Duration) -> Result<(), String> {
    if now < before {
        return Err(format!(
            "{server} granted a session timeout of {now:?}, although {before:?} had been granted before: \
             set the same minSessionTimeout and maxSessionTimeout on all servers"
        ));
    }
    if now > before {
        info!(%server, ?before, ?now, "this server granted a longer session timeout; the session keeps its former one");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::servers::hosts::Server;
    use crate::servers::preference::Preference;

    fn host(port: u16) -> Host {
        let server = Server { name: "127.0.0.1".to_owned(), port };
        Host { server, address: SocketAddr::from(([127, 0, 0, 1], port)) }
    }

    const SOON: Duration = Duration::from_millis(5);

    #[tokio::test]
    async fn a_silent_server_is_not_waited_for_and_the_first_that_answers_wins() {
        let hosts = [1, 2, 3].map(host);
        let begun = Mutex::new(Vec::new());
        let attempt = |host: Host| {
            begun.lock().unwrap().push(host.address.port());
            async move {
                match host.address.port() {
                    1 => std::future::pending().await,
                    2 => Err(Refusal::Unavailable("closed".to_owned())),
                    port => Ok(port),
                }
            }
        };
        let mut answers = Answers::awaited(&hosts, Vec::new());
        let found = race(&hosts, SOON, None, attempt, &mut answers, &Mutex::default()).await;
        assert_eq!((found, &begun.lock().unwrap()[..]), (Some(3), &[1, 2, 3][..]));
        let said = hosts.map(|host| answers.reason(&host.server).unwrap());
        assert_eq!(said, ["no session in time", "closed", "no session in time"]);
    }

    #[tokio::test]
    async fn of_slow_servers_the_one_that_was_asked_last_has_the_session() {
        let hosts = [1, 2, 3].map(host);
        let begun = AtomicUsize::new(0);
        // None answers before so many have been asked, and those from `mute` on never.
        let slow = |asked: usize, mute: u16| {
            let begun = &begun;
            move |host: Host| {
                begun.fetch_add(1, Ordering::Relaxed);
                async move {
                    while begun.load(Ordering::Relaxed) < asked || host.address.port() >= mute {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    Ok(host.address.port())
                }
            }
        };
        let linger = Some(Duration::from_secs(10));
        let answers = &mut Answers::default();
        assert_eq!(race(&hosts, SOON, linger, slow(3, 4), answers, &Mutex::default()).await, Some(3));
        // One that never answers is not waited for any longer than that, nor is another server asked.
        begun.store(0, Ordering::Relaxed);
        let long = Duration::from_millis(500);
        assert_eq!(race(&hosts, long, Some(SOON), slow(2, 2), answers, &Mutex::default()).await, Some(1));
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }

    /// Which hosts of five were asked, where the first ones of them answer so, and whether the last one was found.
    async fn asked(said: &[Refusal]) -> (Vec<u16>, Option<u16>) {
        let hosts = [1, 2, 3, 4, 5].map(host);
        let begun = Mutex::new(Vec::new());
        let attempt = |host: Host| {
            let port = host.address.port();
            begun.lock().unwrap().push(port);
            let said = said.get(usize::from(port) - 1).cloned();
            async move { said.map_or(Ok(port), Err) }
        };
        let mut answers = Answers::awaited(&hosts, Vec::new());
        let found = race(&hosts, SOON, None, attempt, &mut answers, &Mutex::default()).await;
        (begun.into_inner().unwrap(), found)
    }

    #[tokio::test]
    async fn no_server_speaks_for_the_others_and_a_majority_does() {
        let refusals = [
            Refusal::Unavailable("closed".to_owned()),
            Refusal::Expired,
            Refusal::AuthFailed("no".to_owned()),
            Refusal::Tls("no".to_owned()),
            Refusal::TooShort(SOON),
            Refusal::Keeper,
        ];
        for refusal in refusals {
            for refused in 1..=5 {
                let is_decided = matches!(refusal, Refusal::Expired | Refusal::Keeper) && refused >= 3;
                let last = if is_decided { 3 } else { (refused + 1).min(5) };
                let found = (!is_decided && refused < 5).then_some(last);
                let said = vec![refusal.clone(); usize::from(refused)];
                assert_eq!(asked(&said).await, ((1..=last).collect(), found), "{refused} of {refusal:?}");
            }
        }
        let attempt = |_| async { Err::<(), _>(Refusal::Expired) };
        assert_eq!(race(&[], SOON, None, attempt, &mut Answers::default(), &Mutex::default()).await, None);
    }

    #[tokio::test]
    async fn addresses_that_were_silent_are_asked_after_all_others() {
        let hosts = (1..=13).map(host).collect::<Vec<_>>();
        let (begun, known) = (Mutex::new(Vec::new()), Mutex::<Known>::default());
        let attempt = |host: Host| {
            begun.lock().unwrap().push(host.address.port());
            async move {
                if host.address.port() < 12 {
                    std::future::pending::<()>().await;
                }
                Ok(host.address.port())
            }
        };
        let mut answers = Answers::awaited(&hosts, Vec::new());
        for asked in [12, 1, 1] {
            let mut hosts = hosts.clone();
            lock(&known).sort(&mut hosts, &Preference::default(), BootTime::now());
            let found = race(&hosts, SOON, None, attempt, &mut answers, &known).await;
            assert!(found >= Some(12));
            assert_eq!(std::mem::take(&mut *begun.lock().unwrap()).len(), asked);
        }
    }

    #[test]
    fn many_dead_addresses_leave_time_for_a_server() {
        for seconds in [2, 4, 10, 30, 60] {
            let timeout = Duration::from_secs(seconds);
            // Silence is noticed by a timer; two of fifteen addresses answer, and not the one that was lost.
            let used = timeout * 3 / 10 + stagger(None, timeout) + head_start(timeout, 15) * 12;
            assert!(
                used < timeout.mul_f64(0.75) || timeout < Duration::from_secs(4),
                "{timeout:?}: {used:?}"
            );
            assert_eq!(head_start(timeout, 5), head_start(timeout, 1));
        }
    }

    #[test]
    fn only_a_shorter_grant_ends_a_session() {
        let (short, long) = (Duration::from_secs(4), Duration::from_secs(10));
        let server = host(2181).address;
        assert_eq!(judge_grant(server, short, short), Ok(()));
        assert_eq!(judge_grant(server, short, long), Ok(()));
        let reason = judge_grant(server, long, short).unwrap_err();
        assert!(reason.contains("4s") && reason.contains("10s"), "{reason}");
    }

    #[test]
    fn two_silent_servers_leave_time_for_a_third() {
        for seconds in [2, 4, 10, 30, 60] {
            let timeout = Duration::from_secs(seconds);
            let patience = patience(timeout);
            // Silence is noticed by a timer, and two head starts pass.
            let noticed = timeout * 3 / 10;
            let used = noticed + stagger(None, timeout) + head_start(timeout, 3) * 2;
            let answered = used + patience.connect + patience.handshake;
            assert!(answered < timeout.mul_f64(0.9), "{timeout:?}: {answered:?}");
        }
    }
}
