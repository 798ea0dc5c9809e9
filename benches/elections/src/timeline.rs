//! One change of leadership, request by request.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    time::Duration,
};

use zk_proto::{ErrorCode, EventKind};

use crate::{
    contestant::Line,
    moment::Moment,
    party::Party,
    wire::{Event, Exchange, Message, What},
};

/// The longest part of a path that is printed whole: a GUID is longer.
const LONG_PART: usize = 24;
/// So many of its last characters are printed.
const END_OF_PART: usize = 10;
/// The width of the last column but two.
const PATH: usize = 50;
/// More bystanders than that are summed up.
const SHOWN_BYSTANDERS: usize = 3;

/// Before the time from which a timeline counts, what it shows.
const BEFORE: Duration = Duration::from_millis(5);

/// A step of a member that is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Moment,
    /// The member.
    pub who: String,
    /// What it did.
    pub text: String,
}

/// What a timeline shows.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The time from which it counts.
    pub zero: Moment,
    /// W.
    pub unit: Duration,
    /// The path of the election, which is left out of each path.
    pub base: String,
    /// The member of each session.
    pub names: BTreeMap<i64, String>,
    /// The sessions that are shown, whatever they did: those of the old and of the new leader.
    pub leading: BTreeSet<i64>,
    /// In the order of their times.
    pub marks: Vec<Mark>,
    /// In the order of their times.
    pub messages: Vec<Message>,
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>8}{:>7}{:>7}  {:9}{:16} {:PATH$}{:>9}{:>7}",
            "ms", "W", "idle", "who", "what", "which", "answered", "took W"
        )?;
        let bystanders = self.bystanders();
        let received = self.received();
        let mut marks = self.marks.iter().peekable();
        for message in self.messages.iter().filter(|message| !bystanders.contains(&message.session())) {
            while let Some(mark) = marks.next_if(|mark| mark.at <= message.at()) {
                self.mark(f, mark)?;
            }
            match message {
                Message::Event(event) => self.event(f, event)?,
                Message::Exchange(exchange) => {
                    let times = received.get(&exchange.session).map_or(&[][..], Vec::as_slice);
                    let last = times[..times.partition_point(|at| *at <= exchange.sent)].last();
                    self.exchange(f, exchange, last.copied())?;
                }
            }
        }
        for mark in marks {
            self.mark(f, mark)?;
        }
        self.sum(f, &bystanders)
    }
}

impl Timeline {
    /// One change of leadership of a party, with W: what its members have printed, and the messages from just before `zero` on.
    #[must_use]
    pub fn of_change(
        party: &Party,
        [old, new]: [usize; 2],
        (zero, unit): (Moment, Duration),
        lines: &[Line],
        messages: Vec<Message>,
    ) -> Self {
        let who = |member: usize| match member {
            member if member == old => format!("c{member} old"),
            member if member == new => format!("c{member} new"),
            member => format!("c{member}"),
        };
        let members = party.members();
        let begin = Moment(zero.0 - i64::try_from(BEFORE.as_nanos()).unwrap_or(0));
        Self {
            zero,
            unit,
            base: party.paths().base().to_owned(),
            names: members.iter().map(|(session, member)| (*session, who(*member))).collect(),
            leading: [old, new]
                .iter()
                .filter_map(|wanted| members.iter().find(|(_, member)| *member == wanted))
                .map(|(session, _)| *session)
                .collect(),
            marks: lines
                .iter()
                .filter_map(|line| {
                    Some(Mark { at: line.at, who: who(line.candidate?), text: line.word.clone() })
                })
                .collect(),
            messages: messages
                .into_iter()
                .filter(|message| members.contains_key(&message.session()) && message.at() >= begin)
                .collect(),
        }
    }

    fn begin(
        &self,
        f: &mut fmt::Formatter<'_>,
        at: Moment,
        idle: Option<Duration>,
        who: &str,
    ) -> fmt::Result {
        let idle = idle.map_or_else(String::new, |idle| format!("{:.2}", idle.as_secs_f64() * 1e3));
        let ms = at.ms_after(self.zero);
        write!(f, "{ms:>8.2}{:>7.2}{idle:>7}  {who:9}", self.in_units(ms))
    }

    fn mark(&self, f: &mut fmt::Formatter<'_>, mark: &Mark) -> fmt::Result {
        self.begin(f, mark.at, None, &mark.who)?;
        writeln!(f, "== {}", mark.text)
    }

    fn event(&self, f: &mut fmt::Formatter<'_>, event: &Event) -> fmt::Result {
        self.begin(f, event.at, None, self.name(event.session))?;
        let what = match event.kind {
            EventKind::CREATED => "<- created",
            EventKind::DELETED => "<- deleted",
            EventKind::DATA_CHANGED => "<- changed",
            EventKind::CHILDREN_CHANGED => "<- children",
            _ => "<- event",
        };
        writeln!(f, "{what:16} {}", cell(&self.short(&event.path)).trim_end())
    }

    fn exchange(&self, f: &mut fmt::Formatter<'_>, exchange: &Exchange, last: Option<Moment>) -> fmt::Result {
        let Exchange { session, sent, what, answered, .. } = exchange;
        self.begin(f, *sent, last.map(|last| sent.since(last)), self.name(*session))?;
        let error = match answered {
            Some((_, ErrorCode::OK)) => String::new(),
            // The answer that is wanted.
            Some((_, ErrorCode::NO_NODE)) if what.is_upkeep() => String::new(),
            Some((_, error)) => format!("-> {error}"),
            None => "-> no answer".to_owned(),
        };
        let which = [self.short(&what.path), what.detail.clone(), error];
        let which: Vec<_> = which.into_iter().filter(|part| !part.is_empty()).collect();
        write!(f, "{:16} {}", what.name, cell(&which.join(" ")))?;
        if let Some((at, _)) = answered {
            let took = self.in_units(at.since(*sent).as_secs_f64() * 1e3);
            write!(f, "{:>9.2}{took:>7.2}", at.ms_after(self.zero))?;
        }
        writeln!(f)?;
        for What { name, path, detail, .. } in &what.parts {
            let which = format!("{} {detail}", self.short(path));
            writeln!(f, "{:33}+ {name:13} {}", "", cell(&which).trim_end())?;
        }
        Ok(())
    }

    fn sum(&self, f: &mut fmt::Formatter<'_>, bystanders: &BTreeSet<i64>) -> fmt::Result {
        let sum = |of: &dyn Fn(i64) -> bool| {
            let (mut writes, mut reads, mut events) = (0, 0, 0);
            for message in self.messages.iter().filter(|message| of(message.session())) {
                match message {
                    Message::Exchange(exchange) if exchange.what.is_upkeep() => {}
                    Message::Exchange(exchange) if exchange.what.is_write => writes += 1,
                    Message::Exchange(_) => reads += 1,
                    Message::Event(_) => events += 1,
                }
            }
            format!("{writes} writes, {reads} reads, {events} events")
        };
        if !bystanders.is_empty() {
            let count = bystanders.len();
            writeln!(
                f,
                "{count} others, which wrote nothing: {}",
                sum(&|session| bystanders.contains(&session))
            )?;
        }
        write!(f, "all: {}", sum(&|_| true))
    }

    /// The sessions that wrote nothing, if they are many.
    fn bystanders(&self) -> BTreeSet<i64> {
        let mut bystanders: BTreeSet<i64> = self.messages.iter().map(Message::session).collect();
        for message in &self.messages {
            if let Message::Exchange(Exchange { session, what, .. }) = message
                && what.is_write
                && !what.is_upkeep()
            {
                bystanders.remove(session);
            }
        }
        bystanders.retain(|session| !self.leading.contains(session));
        if bystanders.len() > SHOWN_BYSTANDERS { bystanders } else { BTreeSet::new() }
    }

    /// When each session has received something, in order.
    fn received(&self) -> BTreeMap<i64, Vec<Moment>> {
        let mut received: BTreeMap<i64, Vec<Moment>> = BTreeMap::new();
        for message in &self.messages {
            let at = match message {
                Message::Event(event) => Some(event.at),
                Message::Exchange(exchange) => exchange.answered.map(|(at, _)| at),
            };
            if let Some(at) = at {
                received.entry(message.session()).or_default().push(at);
            }
        }
        for times in received.values_mut() {
            times.sort_unstable();
        }
        received
    }

    fn in_units(&self, ms: f64) -> f64 {
        ms / (self.unit.as_secs_f64() * 1e3).max(f64::MIN_POSITIVE)
    }

    fn name(&self, session: i64) -> &str {
        self.names.get(&session).map_or("?", String::as_str)
    }

    /// The path below the election, with the ends of long names.
    fn short(&self, path: &str) -> String {
        let below = path.strip_prefix(&self.base).map(|rest| rest.trim_start_matches('/'));
        let path = match below {
            Some("") => ".",
            Some(below) => below,
            None => path,
        };
        let mut short = String::new();
        for (at, part) in path.split('/').enumerate() {
            let length = part.chars().count();
            let _ = if length <= LONG_PART {
                write!(short, "{}{part}", if at > 0 { "/" } else { "" })
            } else {
                let end: String = part.chars().skip(length - END_OF_PART).collect();
                write!(short, "{}..{end}", if at > 0 { "/" } else { "" })
            };
        }
        short
    }
}

/// A text of exactly the column's width.
fn cell(text: &str) -> String {
    let mut text = text.trim_end().to_owned();
    if text.chars().count() > PATH {
        text = text.chars().take(PATH - 2).chain("..".chars()).collect();
    }
    format!("{text:PATH$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: &str = "
      ms      W   idle  who      what             which                                              answered took W
    0.00   0.00         c0 old   == RELEASE
    1.00   0.50         c0 old   delete           leader/current                                         3.00   1.00
    3.00   1.50         c1 new   <- deleted       leader/current
    3.50   1.75   0.50  c1 new   multi            -> znode exists                                        5.00   0.75
                                 + create        leader/current
                                 + set           leader/elected
    6.00   3.00   3.00  c0 old   get              /elsewhere -> no answer
all: 2 writes, 1 reads, 1 events
";

    #[test]
    fn long_names_are_shortened_and_many_bystanders_summed_up() {
        let ballot = "/dr/e/election/0123456789abcdef0123456789abcdef-0000000017";
        let far = format!("/dr/e/{}", ["part"; 30].join("/"));
        let mut messages = vec![
            exchange(1, 11 * MS, what("delete", ballot), Some((12 * MS, ErrorCode::NOT_EMPTY))),
            exchange(2, 11 * MS, what("create", &far), Some((12 * MS, ErrorCode::NO_NODE))),
        ];
        for bystander in 10..14 {
            messages.push(event(bystander, 13 * MS));
            messages.push(exchange(bystander, 14 * MS, what("get", ballot), Some((15 * MS, ErrorCode::OK))));
        }
        let text = timeline(messages.clone()).to_string();
        assert!(text.contains("election/..0000000017 -> znode has children "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        assert!(text.contains("4 others, which wrote nothing: 0 writes, 4 reads, 4 events"), "{text}");
        assert!(text.ends_with("all: 2 writes, 4 reads, 4 events"), "{text}");
        // One that writes is no bystander, and the other three are few.
        messages.push(exchange(13, 16 * MS, what("set", ballot), None));
        let text = timeline(messages).to_string();
        assert!(!text.contains("others"), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains("<- deleted")).count(), 4, "{text}");
    }

    const MS: i64 = 1_000_000;

    fn what(name: &'static str, path: &str) -> What {
        let is_write = !matches!(name, "get" | "exists" | "list");
        What { name, path: path.to_owned(), detail: String::new(), parts: Vec::new(), is_write }
    }

    fn exchange(session: i64, sent: i64, what: What, answered: Option<(i64, ErrorCode)>) -> Message {
        let answered = answered.map(|(at, error)| (Moment(at), error));
        let sent = Moment(sent);
        Message::Exchange(Exchange { session, sent, what, answered, sent_bytes: 0, answered_bytes: 0 })
    }

    fn event(session: i64, at: i64) -> Message {
        let path = "/dr/e/leader/current".to_owned();
        Message::Event(Event { session, at: Moment(at), kind: EventKind::DELETED, path, bytes: 0 })
    }

    fn timeline(messages: Vec<Message>) -> Timeline {
        Timeline {
            zero: Moment(10 * MS),
            unit: Duration::from_millis(2),
            base: "/dr/e".to_owned(),
            names: [(1, "c0 old".to_owned()), (2, "c1 new".to_owned())].into(),
            leading: [1, 2].into(),
            marks: vec![Mark { at: Moment(10 * MS), who: "c0 old".to_owned(), text: "RELEASE".to_owned() }],
            messages,
        }
    }

    fn multi() -> What {
        let mut multi = what("multi", "");
        multi.parts = vec![what("create", "/dr/e/leader/current"), what("set", "/dr/e/leader/elected")];
        multi
    }

    #[test]
    fn shows_who_asked_what_when_and_how_long_it_thought() {
        let text = timeline(vec![
            exchange(1, 11 * MS, what("delete", "/dr/e/leader/current"), Some((13 * MS, ErrorCode::OK))),
            event(2, 13 * MS),
            exchange(2, 13 * MS + MS / 2, multi(), Some((15 * MS, ErrorCode::NODE_EXISTS))),
            exchange(1, 16 * MS, what("get", "/elsewhere"), None),
        ])
        .to_string();
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines, EXPECTED.trim_matches('\n').lines().collect::<Vec<_>>(), "{text}");
    }
}
