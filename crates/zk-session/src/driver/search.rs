//! When another server is searched: beside the present connection, and after its loss.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::BoxFuture;
use super::dial::{Attached, Refusal};
use super::seek::{Seeker, Tickets};
use crate::time::{BootTime, within};

/// The search for a better server, beside the present connection, and after its loss.
pub(super) struct Search {
    seeker: Seeker,
    tickets: Tickets,
    under_way: Option<(Why, BoxFuture<'static, Found>)>,
    /// Whether the search has asked a server to take the session.
    asked: Arc<AtomicBool>,
    /// Not before this, after a search: when all servers are slow, another one does not help.
    not_before: BootTime,
    pause: Duration,
}

pub(super) type Found = Result<Option<Attached>, Refusal>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Suspicion,
    /// The list of servers has changed.
    Change,
}

impl Search {
    pub(super) fn new(seeker: Seeker, tickets: Tickets) -> Self {
        let not_before = BootTime::from_duration(Duration::ZERO);
        Self { seeker, tickets, under_way: None, asked: Arc::default(), not_before, pause: Duration::ZERO }
    }

    /// Begins or cancels a search. Returns when to check again.
    pub(super) fn update(&mut self, present: SocketAddr, suspects: bool, servers_changed: bool) -> BootTime {
        let now = BootTime::now();
        if servers_changed {
            let leaving = self.seeker.clone().leave(present, self.tickets());
            self.under_way = Some((Why::Change, Box::pin(leaving)));
        }
        match &self.under_way {
            // It has answered. Once another server has been asked, the session may be there.
            Some((Why::Suspicion, _)) if !suspects && !self.has_asked() => self.under_way = None,
            None if suspects && now >= self.not_before => {
                let timeout = self.tickets.timeout;
                // Each consecutive search makes the pause longer; a quiet time resets it.
                let rested = now.duration_since(self.not_before) > timeout * 2;
                self.pause = if rested { timeout / 10 } else { (self.pause * 2).min(timeout) };
                self.not_before = now + self.pause.mul_f64(0.5 + fastrand::f64());
                let search = self.seeker.clone().beside(present, self.tickets());
                self.under_way = Some((Why::Suspicion, Box::pin(search)));
            }
            None if suspects => return self.not_before,
            _ => {}
        }
        BootTime::from_duration(Duration::MAX)
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
    pub(super) fn after_loss(&mut self, lost: SocketAddr) -> BoxFuture<'static, Result<Attached, Refusal>> {
        // A server that has been asked may have the session; that may be why the connection was lost.
        let asked = self.under_way.take().filter(|_| self.has_asked());
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
                    Some(Err(Refusal::Expired)) => return Err(Refusal::Expired),
                    Some(Ok(_) | Err(_)) | None => {}
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
