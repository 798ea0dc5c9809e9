//! The second witness: what the servers' transaction log says about one election.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::line::{Event, Leadership, Line, RequestState};
use super::txn_log::{Change, Txn};

/// Reads the transactions of an election.
#[derive(Debug)]
pub struct Witness {
    /// `/ROOT/JOB/`.
    prefix: String,
    job: String,
    /// What a wall clock shows more than the clock of the history, in nanoseconds.
    ahead: i64,
    token_base: u64,
    /// The leader znodes that were created and have no data yet, by path: the session, and the transaction.
    created: BTreeMap<String, (i64, u64)>,
    /// The leader znodes that exist, by path, and their sessions.
    leaders: BTreeMap<String, (i64, Leadership)>,
    /// By slot, the term of the latest decision.
    decided: BTreeMap<u64, u64>,
    lines: Vec<Line>,
}

impl Witness {
    /// The lines of a job's election below `root`, with or without a `/` at its end. A wall clock shows `ahead` nanoseconds more
    /// than the clock of the history.
    #[must_use]
    pub fn lines(root: &str, job: &str, ahead: i64, txns: impl IntoIterator<Item = Txn>) -> Vec<Line> {
        let (prefix, job) = (format!("{}/{job}/", root.trim_end_matches('/')), job.to_owned());
        let (created, leaders, decided) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut witness =
            Self { prefix, job, ahead, token_base: 0, created, leaders, decided, lines: Vec::new() };
        // Each server has its own log of the same transactions.
        let mut seen = BTreeSet::new();
        let mut txns: Vec<Txn> = txns.into_iter().filter(|txn| seen.insert(txn.zxid)).collect();
        txns.sort_by_key(|txn| txn.zxid);
        for txn in &txns {
            for change in &txn.changes {
                witness.look(txn, change);
            }
        }
        witness.lines
    }

    fn look(&mut self, txn: &Txn, change: &Change) {
        match change {
            Change::Created { path, data } | Change::Written { path, data } => {
                let Some(name) = path.strip_prefix(&self.prefix) else { return };
                let is_leader = name.starts_with("leader/current");
                if is_leader && matches!(change, Change::Created { .. }) {
                    self.created.insert(path.to_owned(), (txn.session, txn.zxid));
                }
                let request = name.strip_prefix("requests/");
                let is_read = is_leader || request.is_some() || matches!(name, "leader/elected" | "tokens");
                // A leader znode is created without data, and written then.
                if !is_read || data.is_empty() {
                    return;
                }
                let Ok(record) = serde_json::from_slice::<Value>(data) else {
                    return self.push(txn, Event::Unread { path: path.to_owned() });
                };
                match request {
                    Some(request) => self.request(txn, path, request, &record),
                    None if name == "leader/elected" => self.decision(txn, path, &record),
                    None if name == "tokens" => self.token_base = number(&record["token_base"]),
                    None => self.acquired(txn, path, &record),
                }
            }
            Change::Deleted { path } => {
                if let Some((_, leadership)) = self.leaders.remove(path) {
                    self.push(txn, Event::Released(leadership));
                }
            }
            Change::SessionEnded => {
                let (ended, leaders) = std::mem::take(&mut self.leaders)
                    .into_iter()
                    .partition(|(_, (session, _))| *session == txn.session);
                self.leaders = leaders;
                for (_, leadership) in BTreeMap::into_values(ended) {
                    self.push(txn, Event::Released(leadership));
                }
            }
        }
    }

    /// By the first data of a leader znode, which need not be that of its creation.
    fn acquired(&mut self, txn: &Txn, path: &str, record: &Value) {
        let Some((session, czxid)) = self.created.remove(path) else { return };
        let Some(member) = text(&record["member"]) else {
            return self.push(txn, Event::Unread { path: path.to_owned() });
        };
        // A contender knows the base that it uses; a leader znode has none.
        self.token_base = self.token_base.max(number(&record["token_base"]));
        let token = czxid + self.token_base;
        let leadership = Leadership {
            job: self.job.clone(),
            slot: number(&record["slot"]),
            member,
            // Without an elector there are no terms but the tokens.
            term: record["term"].as_u64().unwrap_or(token),
            token,
        };
        self.leaders.insert(path.to_owned(), (session, leadership.clone()));
        self.push(txn, Event::Acquired(leadership));
    }

    fn request(&mut self, txn: &Txn, path: &str, request: &str, record: &Value) {
        let event = match serde_json::from_value::<RequestState>(record["state"].clone()) {
            Ok(state) => Event::Request { request: request.to_owned(), kind: text(&record["kind"]), state },
            Err(_) => Event::Unread { path: path.to_owned() },
        };
        self.push(txn, event);
    }

    fn decision(&mut self, txn: &Txn, path: &str, record: &Value) {
        self.token_base = number(&record["token_base"]);
        let Some(slots) = record["slots"].as_array() else {
            return self.push(txn, Event::Unread { path: path.to_owned() });
        };
        for (slot, decision) in (0..).zip(slots) {
            let Some(term) = decision["given"]["term"].as_u64() else {
                self.push(txn, Event::Unread { path: path.to_owned() });
                continue;
            };
            if self.decided.insert(slot, term) == Some(term) {
                continue; // About another slot, or the line of succession alone.
            }
            let (job, member) = (self.job.clone(), text(&decision["named"]["member"]));
            let cause = text(&decision["given"]["cause"]).unwrap_or_default();
            self.push(txn, Event::Decided { job, slot, term, member, cause });
        }
    }

    fn push(&mut self, txn: &Txn, event: Event) {
        let at = (txn.at_ms * 1_000_000).saturating_add_signed(self.ahead.saturating_neg());
        // Each server that led the others had its own clock, and the order is that of the transactions.
        let at = at.max(self.lines.last().map_or(0, |last| last.at));
        self.lines.push(Line { at, by: format!("zookeeper {:#x}", txn.zxid), event });
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
