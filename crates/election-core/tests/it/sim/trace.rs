//! What a run did, in lines that can be read.

use election_core::{
    MemberId,
    internals::{Action, Event, ZkOp},
    record::{Elected, Named},
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
    match request {
        ZkOp::Create { path, data, .. } | ZkOp::CreateCounted { path, data, .. } => {
            format!("create {path} {}", text(data))
        }
        ZkOp::Set { path, data, version } => format!("set {path} v{version} {}", text(data)),
        ZkOp::CreateSequential { prefix, .. } => format!("create {prefix}#"),
        ZkOp::DeleteWhile { path, version, .. } => format!("delete {path} {version} unless decided anew"),
        ZkOp::Delete { path, version } => format!("delete {path} {version:?}"),
        ZkOp::Together { request, path, data, version } => {
            let other = version.map_or_else(|| format!("create {path}"), |v| format!("set {path} v{v}"));
            format!("{}, and {other} {}", describe(request), text(data))
        }
        ZkOp::Notifying { request, others } => {
            let others: Vec<_> = others.iter().map(|(path, _)| path.as_str()).collect();
            format!("{}, and calls {}", describe(request), others.join(", "))
        }
        ZkOp::Clearing { request, others } => format!("{}, with {}", describe(request), others.join(", ")),
        ZkOp::While { there, version, request } => {
            let version = version.map_or_else(String::new, |version| format!(" v{version}"));
            format!("while {there}{version}: {}", describe(request))
        }
        request => short(&format!("{request:?}")),
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
