//! What a run did, in lines that can be read.

use election_core::{
    config::MemberId,
    internals::{
        Action, Event, Transaction, WriteKind, ZkOp, ZnodeWrite,
        record::{Elected, Named},
    },
};

use crate::zookeeper::Millis;

/// Prints while a single seed is replayed.
#[derive(Debug)]
pub(crate) struct Trace {
    on: bool,
}

impl Trace {
    pub(crate) fn new(on: bool) -> Self {
        Self { on }
    }

    pub(crate) fn line(&self, now: Millis, text: impl FnOnce() -> String) {
        if self.on {
            println!("{:>9.3} {}", now as f64 / 1000.0, text());
        }
    }

    pub(crate) fn event(&self, now: Millis, member: &MemberId, event: &Event) {
        if !matches!(event, Event::Tick) {
            self.line(now, || format!("{member} <- {}", short(&format!("{event:?}"))));
        }
    }

    pub(crate) fn action(&self, now: Millis, member: &MemberId, action: &Action) {
        self.line(now, || match action {
            Action::Perform { op, request, .. } => format!("{member} -> {op:?} {}", describe(request)),
            Action::Note(note) => format!("{member}    \"{}\"", note.text),
            action => format!("{member} -> {}", short(&format!("{action:?}"))),
        });
    }
}

/// A decision in one line.
pub(crate) fn elected(elected: &Elected) -> String {
    let name = |n: &Named| format!("{}/{}", n.member, n.ballot.sequence());
    let slot = |slot: usize| {
        let line: Vec<_> = elected.line_of(slot).iter().map(name).collect();
        let named = elected.named(slot).map_or("nobody".to_owned(), name);
        format!("{named} since {} line [{}]", elected.term_of(slot), line.join(" "))
    };
    let slots: Vec<_> = (0..elected.slots.len()).map(slot).collect();
    let out: Vec<_> =
        elected.exclusions.iter().map(|e| format!("{}/{}", e.member, e.ballot.sequence())).collect();
    format!(
        "term {} names {} excluded [{}] request {:?} by {}: {}",
        elected.term,
        slots.join(", "),
        out.join(" "),
        elected.latest().and_then(|given| given.request.as_ref()),
        elected.decided_by,
        elected.sentence()
    )
}

fn describe(request: &ZkOp) -> String {
    let transaction = match request {
        ZkOp::Multi(transaction) => transaction,
        ZkOp::CreateSequential { prefix, .. } => return format!("create {prefix}#"),
        request => return short(&format!("{request:?}")),
    };
    let Transaction { checks, before, answer, after } = transaction;
    let others = before.iter().chain(after).map(|write| format!(", and {}", written(write)));
    let checks = checks.iter().map(|(path, version)| match version {
        Some(version) => format!(", while {path} v{version}"),
        None => format!(", while {path}"),
    });
    [written(answer)].into_iter().chain(others).chain(checks).collect()
}

fn written(write: &ZnodeWrite) -> String {
    let path = &write.path;
    match &write.kind {
        WriteKind::Create { data, .. } => format!("create {path} {}", text(data)),
        WriteKind::Set { data, version: Some(version) } => format!("set {path} v{version} {}", text(data)),
        WriteKind::Set { version: None, .. } => format!("set {path}"),
        WriteKind::Delete { version } => format!("delete {path} {version:?}"),
    }
}

fn text(data: &[u8]) -> String {
    short(&String::from_utf8_lossy(data))
}

fn short(text: &str) -> String {
    // Bytes as a list of numbers are unreadable.
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("data: [") {
        let end = rest[at..].find(']').map_or(rest.len(), |end| at + end + 1);
        out.push_str(&rest[..at]);
        out.push_str("data");
        rest = &rest[end..];
    }
    out.push_str(rest);
    out.chars().take(400).collect()
}
