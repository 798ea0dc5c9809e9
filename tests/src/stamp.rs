//! A line of the journal: the member, the time, the token.

use std::fmt;
use std::time::Duration;

use zk_session::BootTime;

/// The rest of a process between two acts: a longer overlap is detected.
pub const PACE: Duration = Duration::from_millis(4);

/// The kind of a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The job has begun to act.
    Begin,
    /// It acts.
    Act,
    /// It was asked to stop.
    Asked,
    /// It has ended by itself.
    End,
}

const EVENTS: [(Event, &str); 4] =
    [(Event::Begin, "begin"), (Event::Act, "act"), (Event::Asked, "asked"), (Event::End, "end")];

/// One act of a job's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The time on the boot clock.
    pub at: BootTime,
    /// The kind.
    pub event: Event,
    /// The process: the job's main process or its offspring.
    pub pid: u32,
    /// Whether it is the job's main process.
    pub is_main: bool,
    /// `DR_JOB`.
    pub job: String,
    /// `DR_SLOT`.
    pub slot: usize,
    /// `DR_MEMBER`.
    pub member: String,
    /// `DR_TERM`.
    pub term: u64,
    /// `DR_FENCING_TOKEN`.
    pub token: u64,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = EVENTS.iter().find(|(event, _)| *event == self.event).map_or("?", |(_, word)| word);
        let role = if self.is_main { "main" } else { "offspring" };
        let Self { pid, job, slot, member, term, token, .. } = self;
        let at = self.at.as_duration().as_nanos();
        write!(f, "{at} {event} {pid} {role} {job} {slot} {member} {term} {token}")
    }
}

impl Stamp {
    /// Reads what `Display` wrote.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let nanos = words.next()?.parse().ok()?;
        let word = words.next()?;
        let (event, _) = EVENTS.into_iter().find(|(_, known)| *known == word)?;
        let stamp = Self {
            at: BootTime::from_duration(Duration::from_nanos(nanos)),
            event,
            pid: words.next()?.parse().ok()?,
            is_main: words.next()? == "main",
            job: words.next()?.to_owned(),
            slot: words.next()?.parse().ok()?,
            member: words.next()?.to_owned(),
            term: words.next()?.parse().ok()?,
            token: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(stamp)
    }
}
