//! When another server is searched: beside the present connection, and after its loss.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::BoxFuture;
use super::dial::Attached;
use super::seek::{Found, Seeker, Tickets};
use crate::error::InactiveReason;
use crate::time::{BootTime, NEVER, within};

/// The search for a better server, beside the present connection, and after its loss.
pub(super) struct Search {
    pub(super) seeker: Seeker,
    tickets: Tickets,
    under_way: Option<(Why, BoxFuture<'static, Found>)>,
    /// Whether the search has asked a server to take the session.
    asked: Arc<AtomicBool>,
    pauses: Pauses,
    home: HomeSearch,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Suspicion,
    /// There may be a better server than the present one, which answers.
    Improvement,
}

/// The pauses between searches for suspicion: when all servers are slow, another one does not help.
struct Pauses {
    /// No search before this.
    until: BootTime,
    last: Duration,
    first: Duration,
    most: Duration,
    /// Of a time without suspicion, after which the first pause is due again.
    quiet: Duration,
}

impl Pauses {
    fn new(session_timeout: Duration, suspect_after: Option<Duration>) -> Self {
        let usual = session_timeout / 10;
        let first = suspect_after.map_or(usual, |after| usual.min(after));
        let quiet = suspect_after.map_or(session_timeout * 2, |after| (session_timeout * 2).min(after * 4));
        let until = BootTime::from_duration(Duration::ZERO);
        Self { until, last: Duration::ZERO, first, most: session_timeout, quiet }
    }

    /// A search begins. `random` is from 0 to 1.
    fn begin(&mut self, now: BootTime, random: f64) {
        let rested = now.duration_since(self.until) > self.quiet;
        // Each consecutive search makes the pause longer.
        self.last = if rested { self.first } else { (self.last * 2).clamp(self.first, self.most) };
        self.until = now + self.last.mul_f64(0.5 + random);
    }
}

/// When a server is searched that is better than the present one.
#[derive(Default)]
struct HomeSearch {
    present: Option<SocketAddr>,
    /// Since when it is the present one.
    since: Option<BootTime>,
    due: Option<BootTime>,
    pause: Duration,
}

impl HomeSearch {
    /// The session has moved, perhaps because a better server was silent: it returns later, and later again each time that
    /// it does not stay.
    fn moved(&mut self, present: SocketAddr, now: BootTime, session_timeout: Duration) {
        let stayed = self.since.map_or(Duration::MAX, |since| now.duration_since(since));
        let rested = stayed > self.pause * 4;
        self.pause = if rested { session_timeout } else { (self.pause * 2).min(session_timeout * 32) };
        self.due = Some(now + self.pause.mul_f64(1.0 + fastrand::f64()));
        (self.present, self.since) = (Some(present), Some(now));
    }
}

impl Search {
    pub(super) fn new(seeker: Seeker, tickets: Tickets) -> Self {
        let pauses = Pauses::new(tickets.timeout, seeker.settings.suspect_after);
        Self { seeker, tickets, under_way: None, asked: Arc::default(), pauses, home: HomeSearch::default() }
    }

    /// Begins or cancels a search. `suspected` is when the check was sent that makes the present server suspicious. Returns
    /// when to check again.
    pub(super) fn update(
        &mut self,
        present: SocketAddr,
        suspected: Option<BootTime>,
        servers_changed: bool,
    ) -> BootTime {
        let now = BootTime::now();
        if self.home.present != Some(present) && !self.seeker.resolver.preference().is_empty() {
            self.home.moved(present, now, self.tickets.timeout);
        }
        if servers_changed {
            // One that is under way has begun with the former list.
            self.under_way.take_if(|(why, _)| *why == Why::Improvement);
            self.home.due = Some(now);
        }
        match (&self.under_way, suspected) {
            // It has answered. Once another server has been asked, the session may be there.
            (Some((Why::Suspicion, _)), None) if !self.has_asked() => self.under_way = None,
            // It is too soon after the last one.
            (None | Some((Why::Improvement, _)), Some(_)) if now < self.pauses.until => {
                return self.pauses.until;
            }
            (None | Some((Why::Improvement, _)), Some(since)) => {
                // A better server may be silent for as long as it takes to find another one.
                self.under_way.take().inspect(|_| self.home.due = Some(now + self.tickets.timeout));
                self.pauses.begin(now, fastrand::f64());
                let search = self.seeker.clone().beside(present, since, self.tickets());
                self.under_way = Some((Why::Suspicion, Box::pin(search)));
            }
            (None, None) if self.home.due.is_some_and(|due| now >= due) => {
                self.home.due = None;
                let search = self.seeker.clone().improve(present, self.tickets());
                self.under_way = Some((Why::Improvement, Box::pin(search)));
            }
            (None, None) => return self.home.due.unwrap_or(NEVER),
            (Some(_), _) => {}
        }
        NEVER
    }

    /// For a new search, which has asked no server yet.
    fn tickets(&mut self) -> Tickets {
        self.asked = Arc::default();
        let (asked, now) = (Arc::clone(&self.asked), Arc::clone(&self.tickets.now));
        let now = Arc::new(move || {
            asked.store(true, Ordering::Relaxed);
            now()
        });
        Tickets { now, ..self.tickets }
    }

    fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Finds a server after the loss of the connection.
    pub(super) fn after_loss(
        &mut self,
        lost: SocketAddr,
    ) -> BoxFuture<'static, Result<Attached, InactiveReason>> {
        // A server that has been asked may have the session; that may be why the connection was lost.
        let asked = self.under_way.take().filter(|_| self.has_asked());
        // Whichever server is next, there may be a better one.
        self.home.present = None;
        let (seeker, tickets) = (self.seeker.clone(), self.tickets.clone());
        // On the heap: every session has the task that waits for this, which would be as large permanently.
        Box::pin(async move {
            if let Some((_, search)) = asked {
                // No longer than an answer takes that comes at all. One that was asked before more was seen on the
                // connection that was lost has to be asked again.
                match within(BootTime::now() + tickets.timeout / 4, search).await {
                    Some(Ok(Some(found))) if found.ticket.last_zxid >= (tickets.now)().last_zxid => {
                        return Ok(found);
                    }
                    Some(Err(over)) => return Err(over),
                    Some(Ok(_)) | None => {}
                }
            }
            seeker.seek(lost, tickets).await
        })
    }

    /// The result of the search; never ready if none is under way.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn found(&mut self) -> Found {
        match &mut self.under_way {
            Some((_, search)) => {
                let found = search.await;
                self.under_way = None;
                found
            }
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);
    const SOON: Duration = Duration::from_millis(300);

    fn at(ms: u64) -> BootTime {
        BootTime::from_duration(Duration::from_secs(1000) + Duration::from_millis(ms))
    }

    #[test]
    fn while_all_servers_are_suspicious_searches_become_rare() {
        let mut random = fastrand::Rng::with_seed(7);
        for (suspect_after, most) in [(None, 12), (Some(SOON), 14)] {
            let mut pauses = Pauses::new(TIMEOUT, suspect_after);
            let (mut now, mut searches) = (at(0), 0);
            while now < at(60_000) {
                pauses.begin(now, random.f64());
                searches += 1;
                now = pauses.until;
            }
            assert!(searches <= most, "{suspect_after:?}: {searches}");
        }
    }

    #[test]
    fn a_server_that_is_lost_a_while_after_a_move_is_left_as_fast() {
        for (suspect_after, quiet) in [(None, 21_000), (Some(SOON), 1_300)] {
            let mut pauses = Pauses::new(TIMEOUT, suspect_after);
            pauses.begin(at(0), 0.5);
            let first = pauses.until.duration_since(at(0));
            let next = pauses.until + Duration::from_millis(quiet);
            pauses.begin(next, 0.5);
            assert_eq!(pauses.until.duration_since(next), first, "{suspect_after:?}");
            let next = pauses.until;
            pauses.begin(next, 0.5);
            assert_eq!(pauses.until.duration_since(next), first * 2, "{suspect_after:?}");
        }
    }
}
