//! The leaders over time, the time without a leader, and the moves that were not needed.

use election_core::internals::record::Cause;

use crate::{HOUR, Millis};

/// The minimum stay in the preferred site for which a return counts as needed.
const SETTLED: Millis = HOUR;

/// A change of leader: a member begins to take over.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) at: Millis,
    pub(crate) cause: Cause,
    /// By position in the order of sites.
    pub(crate) from_site: usize,
    pub(crate) to_site: usize,
    /// The former leader could not lead on.
    pub(crate) former_failed: bool,
    /// The new leader can't do the work, and another member could.
    pub(crate) in_vain: bool,
}

impl Move {
    /// Whether it was not needed; `next` is the move after it.
    ///
    /// A move is not needed if the new leader could not do the work and another member could. It is not needed if the
    /// former leader could have led on and neither an operator nor a restart requested it, unless it brought leadership
    /// to a preferred site for an hour or more.
    fn is_needless(&self, next: Option<&Self>, end: Millis) -> bool {
        let asked = matches!(
            self.cause,
            Cause::Switchover | Cause::Failover | Cause::StandingOrder | Cause::LeaderShutdown
        );
        let settled = next.map_or(end, |next| next.at) >= self.at + SETTLED;
        let returned = self.to_site < self.from_site && settled;
        self.in_vain || !(self.former_failed || asked || returned)
    }
}

/// The account of one world.
#[derive(Clone, Debug, Default)]
pub struct Account {
    pub(crate) moves: Vec<Move>,
    /// The site in which a job serves, by position in the order of sites.
    serving: Option<usize>,
    /// The time since which no job serves; the time before the first leader does not count.
    vacant_since: Option<Millis>,
    /// The time up to which everything is counted.
    passed: Millis,
    sum: Sum,
}

/// The totals of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The time without a ready job, after the first one, in milliseconds.
    pub vacant_ms: Millis,
    /// The part of it in which a member could have led that was connected and healthy, and whose job works.
    pub idle_ms: Millis,
    /// The time in which the leader was not in the first site, in milliseconds.
    pub away_ms: Millis,
    /// The number of takeovers, without the first.
    pub moves: usize,
    /// The number of these that were not needed.
    pub needless: usize,
    /// How often a member began to act while another one acted.
    pub doubles: u32,
}

impl Account {
    /// Time passes until `now`, while a member could lead or none could.
    pub(crate) fn pass(&mut self, now: Millis, one_could: bool) {
        let span = now - std::mem::replace(&mut self.passed, now);
        match self.serving {
            Some(0) => {}
            Some(_) => self.sum.away_ms += span,
            None if self.vacant_since.is_none() => {}
            None => {
                self.sum.vacant_ms += span;
                self.sum.idle_ms += if one_could { span } else { 0 };
            }
        }
    }

    /// A job is ready, in the site at this position. Returns the time without one.
    pub(crate) fn ready(&mut self, site: usize) -> Option<Millis> {
        self.serving = Some(site);
        self.vacant_since.take().map(|since| self.passed - since)
    }

    /// The ready job has stopped.
    pub(crate) fn vacant(&mut self) {
        self.serving = None;
        self.vacant_since = Some(self.passed);
    }

    /// A member acts beside another one.
    pub(crate) fn double(&mut self) {
        self.sum.doubles += 1;
    }

    /// The totals until now.
    pub fn sum(&self) -> Sum {
        let next = |index: usize| self.moves.get(index + 1);
        let needless = |(index, one): &(usize, &Move)| one.is_needless(next(*index), self.passed);
        let needless = self.moves.iter().enumerate().filter(needless).count();
        Sum { moves: self.moves.len(), needless, ..self.sum }
    }
}
