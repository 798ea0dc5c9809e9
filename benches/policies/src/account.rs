//! Who led when, what it cost, and which moves were not needed.

use election_core::record::Cause;

use crate::{HOUR, Millis};

/// How long leadership must stay in the preferred site for a return to have been worth it.
const SETTLED: Millis = HOUR;

/// A change of leader: a member begins to take over.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) at: Millis,
    pub(crate) cause: Cause,
    /// By position in the order of sites.
    pub(crate) from_site: usize,
    pub(crate) to_site: usize,
    /// The one that led before could not lead on.
    pub(crate) former_failed: bool,
    /// The new one can't do the work, and another one could.
    pub(crate) in_vain: bool,
}

impl Move {
    /// Whether it could have been left out, `next` being the move after it.
    ///
    /// It could if the new leader could not do the work, and another member could. It could if the former one could have led on, and neither an
    /// operator nor a restart asked for it; unless it brought leadership to a site that goes before the former one's,
    /// for an hour or more.
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
    /// In which site a job serves, by position in the order of sites.
    serving: Option<usize>,
    /// Since when no job serves; the time before the first leader is not counted.
    vacant_since: Option<Millis>,
    /// Up to when everything is counted.
    passed: Millis,
    sum: Sum,
}

/// What an account comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How long no job was ready, since the first one was, in milliseconds.
    pub vacant_ms: Millis,
    /// How long of that a member could have led that was connected and healthy, and whose job works.
    pub idle_ms: Millis,
    /// How long the leader was not in the first site, in milliseconds.
    pub away_ms: Millis,
    /// How often leadership was taken over, the first time excepted.
    pub moves: usize,
    /// How many of these could have been left out.
    pub needless: usize,
    /// How often a member began to act while another one still did.
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

    /// A job is ready, in the site at this position. Answers how long none was.
    pub(crate) fn ready(&mut self, site: usize) -> Option<Millis> {
        self.serving = Some(site);
        self.vacant_since.take().map(|since| self.passed - since)
    }

    /// The one that was ready is not any more.
    pub(crate) fn vacant(&mut self) {
        self.serving = None;
        self.vacant_since = Some(self.passed);
    }

    /// A member acts beside another one.
    pub(crate) fn double(&mut self) {
        self.sum.doubles += 1;
    }

    /// What it comes to until now.
    pub fn sum(&self) -> Sum {
        let next = |index: usize| self.moves.get(index + 1);
        let needless = |(index, one): &(usize, &Move)| one.is_needless(next(*index), self.passed);
        let needless = self.moves.iter().enumerate().filter(needless).count();
        Sum { moves: self.moves.len(), needless, ..self.sum }
    }
}
