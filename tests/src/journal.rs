//! The acts of the jobs, by their own stamps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use zk_session::BootTime;

use crate::setup::JOB;
use crate::stamp::{Event, Stamp};

/// The file to which every `e2e-job` of a cluster appends its stamps.
#[derive(Clone, Debug)]
pub struct Journal {
    path: PathBuf,
}

/// The acts of one leadership of a job, of all its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acting {
    /// The slot.
    pub slot: usize,
    /// The leader.
    pub member: String,
    /// Its term.
    pub term: u64,
    /// Its token.
    pub token: u64,
    /// The first stamp.
    pub from: BootTime,
    /// The last stamp so far.
    pub to: BootTime,
    /// Whether the job's main process was asked to stop.
    pub was_asked: bool,
    /// The main processes: more than one if the job was restarted.
    pub mains: Vec<u32>,
    /// All processes with stamps.
    pub pids: BTreeSet<u32>,
}

/// Two leaderships that acted at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The one with the older token.
    pub older: Acting,
    /// The one with the newer token.
    pub newer: Acting,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (token {}) acted until {:?}, which is {:?} after {} (token {}) had begun",
            self.older.member,
            self.older.token,
            self.older.to,
            self.older.to.duration_since(self.newer.from),
            self.newer.member,
            self.newer.token,
        )
    }
}

impl Journal {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All stamps so far.
    pub fn stamps(&self) -> Vec<Stamp> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        // A line may be incomplete while it is written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |line| Stamp::parse(line).unwrap_or_else(|| panic!("{}: {line:?}", self.path.display()));
        whole.lines().map(parse).collect()
    }

    /// The leaderships of the cluster's usual job, oldest token first.
    pub fn actings(&self) -> Vec<Acting> {
        self.actings_of(JOB)
    }

    /// The leaderships of a job, oldest token first.
    pub fn actings_of(&self, job: &str) -> Vec<Acting> {
        actings(self.stamps().into_iter().filter(|stamp| stamp.job == job))
    }

    /// The leadership with this token.
    pub fn acting(&self, token: u64) -> Option<Acting> {
        self.actings().into_iter().find(|acting| acting.token == token)
    }

    /// Asserts that no two leaderships of a slot of a job ever acted at once, and that each token is that of one member in one
    /// term.
    ///
    /// # Panics
    /// If two did, or a token is that of two; or if no leadership of a slot has followed another, because that would prove
    /// nothing.
    pub fn assert_one_at_a_time(&self) {
        let jobs = self.by_job();
        let followed = jobs.values().any(|actings| slots(actings).values().any(|count| *count > 1));
        assert!(followed, "no leadership has followed another in {}: {jobs:?}", self.path.display());
        for (job, actings) in jobs {
            for two in actings.windows(2) {
                assert!(two[0].token != two[1].token, "two leaderships of {job} have one token: {two:?}");
            }
            let overlaps = overlaps(&actings);
            let words: Vec<String> = overlaps.iter().map(ToString::to_string).collect();
            assert!(words.is_empty(), "two leaderships of {job} acted at once:\n{}", words.join("\n"));
        }
    }

    /// Asserts that each slot of each job has had one leadership only.
    ///
    /// # Panics
    /// If one has had more, or none has acted.
    pub fn assert_never_moved(&self) {
        let jobs = self.by_job();
        let stayed = jobs.values().all(|actings| slots(actings).values().all(|count| *count == 1));
        assert!(stayed && !jobs.is_empty(), "more than one leadership, or none: {jobs:?}");
    }

    /// The leaderships of each job.
    fn by_job(&self) -> BTreeMap<String, Vec<Acting>> {
        let mut jobs: BTreeMap<_, Vec<Stamp>> = BTreeMap::new();
        for stamp in self.stamps() {
            jobs.entry(stamp.job.clone()).or_default().push(stamp);
        }
        jobs.into_iter().map(|(job, stamps)| (job, actings(stamps.into_iter()))).collect()
    }
}

/// How many leaderships each slot has had.
fn slots(actings: &[Acting]) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for acting in actings {
        *counts.entry(acting.slot).or_default() += 1;
    }
    counts
}

fn actings(stamps: impl Iterator<Item = Stamp>) -> Vec<Acting> {
    let mut by_token: BTreeMap<(u64, usize, String, u64), Acting> = BTreeMap::new();
    for stamp in stamps {
        let key = (stamp.token, stamp.slot, stamp.member.clone(), stamp.term);
        let acting = by_token.entry(key).or_insert_with(|| Acting {
            slot: stamp.slot,
            member: stamp.member.clone(),
            term: stamp.term,
            token: stamp.token,
            from: stamp.at,
            to: stamp.at,
            was_asked: false,
            mains: Vec::new(),
            pids: BTreeSet::new(),
        });
        acting.from = acting.from.min(stamp.at);
        acting.to = acting.to.max(stamp.at);
        acting.pids.insert(stamp.pid);
        match stamp.event {
            Event::Begin if stamp.is_main => acting.mains.push(stamp.pid),
            Event::Asked if stamp.is_main => acting.was_asked = true,
            _ => {}
        }
    }
    by_token.into_values().collect()
}

fn overlaps(actings: &[Acting]) -> Vec<Overlap> {
    let mut found = Vec::new();
    for (index, newer) in actings.iter().enumerate() {
        for older in
            actings[..index].iter().filter(|older| older.slot == newer.slot && older.to >= newer.from)
        {
            found.push(Overlap { older: older.clone(), newer: newer.clone() });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(lines: &str) -> (tempfile::TempDir, Journal) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        std::fs::write(&path, lines).unwrap();
        (dir, Journal::new(path))
    }

    #[test]
    fn leaderships_that_follow_each_other_pass() {
        let (_dir, journal) = journal(
            "10 begin 1 main orders 0 east-1 1 7\n20 act 1 main orders 0 east-1 1 7\n\
             15 begin 9 main other 0 west-1 1 8\n16 begin 4 main orders 1 west-2 1 8\n\
             30 begin 2 main orders 0 west-1 2 9\n40 act 2 main or",
        );
        journal.assert_one_at_a_time();
        assert_eq!(journal.actings().len(), 3);
    }

    #[test]
    #[should_panic(expected = "east-1 (token 7) acted until")]
    fn an_act_after_the_next_one_has_begun_is_found() {
        let (_dir, journal) = journal(
            "10 begin 1 main orders 0 east-1 1 7\n30 begin 2 main orders 0 west-1 2 9\n\
             31 act 3 offspring orders 0 east-1 1 7\n",
        );
        journal.assert_one_at_a_time();
    }

    #[test]
    #[should_panic(expected = "have one token")]
    fn a_token_that_two_members_use_in_turn_is_found() {
        let (_dir, journal) =
            journal("10 begin 1 main orders 0 east-1 1 7\n30 begin 2 main orders 0 west-1 1 7\n");
        journal.assert_one_at_a_time();
    }

    #[test]
    #[should_panic(expected = "have one token")]
    fn a_token_of_two_terms_is_found() {
        let (_dir, journal) =
            journal("10 begin 1 main orders 0 east-1 1 7\n30 begin 2 main orders 0 east-1 2 7\n");
        journal.assert_one_at_a_time();
    }

    #[test]
    #[should_panic(expected = "no leadership has followed another")]
    fn one_leadership_of_each_slot_and_job_shows_nothing() {
        let (_dir, journal) = journal(
            "10 begin 1 main orders 0 east-1 1 7\n15 begin 9 main other 0 west-1 1 8\n\
             16 begin 4 main orders 1 west-2 1 9\n20 act 1 main orders 0 east-1 1 7\n",
        );
        journal.assert_never_moved();
        journal.assert_one_at_a_time();
    }

    #[test]
    #[should_panic(expected = "more than one leadership, or none")]
    fn a_move_is_found() {
        let (_dir, journal) =
            journal("10 begin 1 main orders 0 east-1 1 7\n30 begin 2 main orders 0 west-1 2 9\n");
        journal.assert_never_moved();
    }
}
