//! The messages of each member, counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use election_bench::{Message, Watched};
use tokio::time::sleep;

/// The time until members have no more to send.
const PATIENCE: Duration = Duration::from_secs(120);

/// The messages of one session, without pings, probes and heartbeats, which depend on time and not on a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) requests: u64,
    pub(crate) events: u64,
    pub(crate) to_server: u64,
    pub(crate) to_client: u64,
}

/// Counts what passes the proxies.
pub(crate) struct Counter {
    watched: Watched,
    sessions: BTreeMap<i64, Passed>,
    /// A client that seeks a server may begin more sessions than it keeps.
    closed: BTreeSet<i64>,
}

impl Counter {
    pub(crate) fn new(watched: Watched) -> Self {
        Self { watched, sessions: BTreeMap::new(), closed: BTreeSet::new() }
    }

    /// Waits until there was no message for this long. Returns the messages of each session since the last call.
    pub(crate) async fn quiet(&mut self, quiet: Duration) -> Result<Vec<Passed>, String> {
        let begun = Instant::now();
        let mut since = begun;
        while since.elapsed() < quiet {
            if begun.elapsed() > PATIENCE {
                return Err(format!("something has passed all the time for {PATIENCE:?}"));
            }
            sleep(Duration::from_millis(50)).await;
            if self.count() {
                since = Instant::now();
            }
        }
        self.sessions.retain(|session, _| !self.closed.contains(session));
        Ok(self.sessions.values_mut().map(std::mem::take).collect())
    }

    /// Whether anything was to be counted.
    fn count(&mut self) -> bool {
        let mut any = false;
        for message in self.watched.take() {
            let passed = self.sessions.entry(message.session()).or_default();
            match &message {
                Message::Exchange(exchange) if exchange.what.is_upkeep() => continue,
                Message::Exchange(exchange) => {
                    passed.requests += 1;
                    passed.to_server += exchange.sent_bytes as u64;
                    passed.to_client += exchange.answered_bytes as u64;
                    if exchange.what.name == "close" {
                        self.closed.insert(exchange.session);
                    }
                }
                Message::Event(event) => {
                    passed.events += 1;
                    passed.to_client += event.bytes as u64;
                }
            }
            any = true;
        }
        any
    }
}
