//! The incidents of a deployment, and their text in a script.

use std::fmt;

use crate::{HOUR, MINUTE, Millis, SECOND};

/// An incident. `at` is a member, a site, or `all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incident {
    /// The workers start.
    Start(Where),
    /// The worker dies, its guard ends the job and closes the session, and it is started again.
    Crash(Where),
    /// The host is down, with everything on it.
    PowerOff(Where),
    /// The host is up, and runs only the worker.
    PowerOn(Where),
    /// The host can't reach any server of ZooKeeper.
    Cut(Where),
    /// The host can reach the servers again.
    Mend(Where),
    /// The worker is asked to end (SIGTERM), and returns after a while.
    End(Where, Millis),
    /// The behaviour of the job there, from now on; a running job is restarted with it.
    Deploy(Where, Job),
    /// The job that serves fails once, for this reason.
    JobFails(String),
    /// The member becomes unhealthy.
    Unwell(Where, String),
    /// It is healthy.
    Well(Where),
    /// The member measures an attribute of itself.
    Measure(Where, String, String),
    /// All servers of ZooKeeper are down.
    Outage,
    /// They are up.
    OutageEnds,
    /// `dr-worker switchover --to-site`.
    Switchover(String),
    /// `dr-worker ack`.
    Ack,
    /// An operator checks: if all members of the first site are healthy and it does not lead, `switchover` to it.
    Round,
}

/// A member, a site, or every member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Where(pub String);

impl Where {
    /// Whether this member belongs to it.
    pub fn is(&self, member: &str, site: &str) -> bool {
        self.0 == "all" || self.0 == member || self.0 == site
    }
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The behaviour of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Job {
    /// It becomes ready, and works.
    #[default]
    Works,
    /// It never becomes ready, for this reason.
    FailsAtStart(String),
    /// It becomes ready, and fails after a while.
    FailsAfter(Millis, String),
    /// It needs this time to be ready.
    Slow(Millis),
}

impl Incident {
    /// Reads an incident.
    ///
    /// # Errors
    /// If the text is no incident.
    pub fn read(text: &str) -> Result<Self, String> {
        let (head, reason) = text.split_once(": ").unwrap_or((text, ""));
        let words: Vec<_> = head.split(' ').collect();
        let at = |word: &str| Where(word.to_owned());
        Ok(match words[..] {
            ["start", who] => Self::Start(at(who)),
            ["crash", who] => Self::Crash(at(who)),
            ["power", "off", who] => Self::PowerOff(at(who)),
            ["power", "on", who] => Self::PowerOn(at(who)),
            ["cut", "off", who] => Self::Cut(at(who)),
            ["reconnect", who] => Self::Mend(at(who)),
            ["end", who, "for", span] => Self::End(at(who), span_of(span)?),
            ["job", "of", who, "works"] => Self::Deploy(at(who), Job::Works),
            ["job", "of", who, "fails", "at", "start"] => {
                Self::Deploy(at(who), Job::FailsAtStart(reason.to_owned()))
            }
            ["job", "of", who, "fails", "after", span] => {
                Self::Deploy(at(who), Job::FailsAfter(span_of(span)?, reason.to_owned()))
            }
            ["job", "of", who, "takes", span] => Self::Deploy(at(who), Job::Slow(span_of(span)?)),
            ["job", "fails"] => Self::JobFails(reason.to_owned()),
            ["unhealthy", who] => Self::Unwell(at(who), reason.to_owned()),
            ["healthy", who] => Self::Well(at(who)),
            ["measure", who, measured] => {
                let (name, value) = measured.split_once('=').ok_or("measure WHO NAME=VALUE")?;
                Self::Measure(at(who), name.to_owned(), value.to_owned())
            }
            ["outage"] => Self::Outage,
            ["outage", "ends"] => Self::OutageEnds,
            ["switchover", "to", site] => Self::Switchover(site.to_owned()),
            ["ack"] => Self::Ack,
            ["operator", "round"] => Self::Round,
            _ => return Err(format!("no such incident: {text}")),
        })
    }
}

impl Incident {
    /// The incident that ends it, if it has a duration.
    pub fn end(&self) -> Option<Self> {
        match self {
            Self::PowerOff(at) => Some(Self::PowerOn(at.clone())),
            Self::Cut(at) => Some(Self::Mend(at.clone())),
            Self::Unwell(at, _) => Some(Self::Well(at.clone())),
            Self::Deploy(at, _) => Some(Self::Deploy(at.clone(), Job::Works)),
            Self::Outage => Some(Self::OutageEnds),
            _ => None,
        }
    }
}

/// Reads `12s`, `5m` or `2h`.
///
/// # Errors
/// If it is neither.
pub fn span_of(text: &str) -> Result<Millis, String> {
    let wrong = || format!("{text:?} is no span such as 12s, 5m or 2h");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let unit_ms = match unit {
        's' => SECOND,
        'm' => MINUTE,
        'h' => HOUR,
        _ => return Err(wrong()),
    };
    let number: u64 = text.trim_end_matches(unit).parse().map_err(|_| wrong())?;
    Ok(number * unit_ms)
}
