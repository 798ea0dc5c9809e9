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
    ahead: u64,
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
    /// The lines of a job's election below `root`. A wall clock shows `ahead` nanoseconds more than the clock of the history.
    #[must_use]
    pub fn lines(root: &str, job: &str, ahead: u64, txns: impl IntoIterator<Item = Txn>) -> Vec<Line> {
        let (prefix, job) = (format!("{root}/{job}/"), job.to_owned());
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
                let Ok(record) = serde_json::from_slice::<Value>(data) else { return };
                if name == "leader/elected" {
                    self.decision(txn, &record);
                } else if is_leader {
                    self.acquired(txn, path, &record);
                } else if let Some(request) = name.strip_prefix("requests/")
                    && let Ok(state) = serde_json::from_value::<RequestState>(record["state"].clone())
                {
                    self.push(txn, Event::Request { request: request.to_owned(), state });
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
        let leadership = Leadership {
            job: self.job.clone(),
            slot: number(&record["slot"]),
            member: text(&record["member"]).unwrap_or_default(),
            term: number(&record["term"]),
            token: czxid + self.token_base,
        };
        self.leaders.insert(path.to_owned(), (session, leadership.clone()));
        self.push(txn, Event::Acquired(leadership));
    }

    fn decision(&mut self, txn: &Txn, record: &Value) {
        self.token_base = number(&record["token_base"]);
        for (slot, decision) in (0..).zip(record["slots"].as_array().into_iter().flatten()) {
            let term = number(&decision["given"]["term"]);
            if self.decided.insert(slot, term) == Some(term) {
                continue; // About another slot, or the line of succession alone.
            }
            let (job, member) = (self.job.clone(), text(&decision["named"]["member"]));
            let cause = text(&decision["given"]["cause"]).unwrap_or_default();
            self.push(txn, Event::Decided { job, slot, term, member, cause });
        }
    }

    fn push(&mut self, txn: &Txn, event: Event) {
        let at = (txn.at_ms * 1_000_000).saturating_sub(self.ahead);
        self.lines.push(Line { at, by: format!("zookeeper {:#x}", txn.zxid), event });
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
