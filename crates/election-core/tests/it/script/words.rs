//! The readable text of what is recorded.

use std::{collections::BTreeSet, fmt::Write as _};

use election_core::{
    config::Recipe,
    internals::{
        Outcome, WriteKind, ZkOp, ZnodeWrite,
        calendar::utc,
        record::{
            AdminRequest, Contender, Current, Elected, Health, HistoryEntry, MemberRecord, Record,
            RequestState, TokenBase,
        },
    },
};

use super::Stage;
use crate::zookeeper::parent_of;

impl Stage {
    fn is_single(&self) -> bool {
        matches!(self.recipe, Recipe::Single)
    }

    pub(super) fn operation_in_words(&self, request: &ZkOp) -> String {
        let transaction = match request {
            ZkOp::Get(path) => return format!("read {path}"),
            ZkOp::Children(path) => return format!("list {path}"),
            ZkOp::CreateSequential { prefix, data, ephemeral } => {
                let what =
                    if *ephemeral { String::new() } else { format!(": {}", self.content(prefix, data)) };
                return format!("create {}{what}", prefix.trim_end_matches(|c: char| c != '/'));
            }
            ZkOp::Multi(transaction) => transaction,
        };
        let subject = transaction.subject();
        let path = &subject.path;
        let mut words = match &subject.kind {
            WriteKind::Create { data, .. } => format!("create {}", self.written(path, data)),
            WriteKind::Set { data, version } => {
                let over = version.map_or_else(|| "any version".to_owned(), |v| format!("version {v}"));
                format!("set {} over {over}", self.written(path, data))
            }
            WriteKind::Delete { version: Some(version) } => format!("delete {path} in version {version}"),
            WriteKind::Delete { version: None } => format!("delete {path}"),
        };
        let mut called = Vec::new();
        for write in &transaction.before {
            let (data, over) = match &write.kind {
                WriteKind::Set { version: None, .. } | WriteKind::Delete { .. } => {
                    called.push(write.path.as_str());
                    continue;
                }
                WriteKind::Set { data, version: Some(version) } => (data, format!(" over version {version}")),
                WriteKind::Create { data, .. } => (data, String::new()),
            };
            let _ = write!(words, ", and with it {}{over}", self.written(&write.path, data));
        }
        // A deletion always rests on another znode.
        for (there, version) in transaction.checks.iter().filter(|_| !is_deletion(subject)) {
            if let Some(version) = version {
                let _ = write!(words, " while {there} has version {version}");
            }
        }
        if !called.is_empty() {
            let _ = write!(words, ", and with it {} as they are", called.join(", "));
        }
        let deleted: Vec<_> = transaction.after.iter().filter(|write| is_deletion(write)).collect();
        if !deleted.is_empty() {
            let paths: Vec<_> = deleted.iter().map(|write| write.path.as_str()).collect();
            let _ = write!(words, ", and with it {}", paths.join(", "));
        }
        words
    }

    pub(super) fn written(&self, path: &str, data: &[u8]) -> String {
        match self.content(path, data) {
            content if content.is_empty() => path.to_owned(),
            content => format!("{path}: {content}"),
        }
    }

    fn content(&self, path: &str, data: &[u8]) -> String {
        let paths = &self.paths;
        let readable = if path == paths.elected() {
            Elected::decode(path, data).ok().map(|e| decision(&e))
        } else if path == paths.tokens() {
            TokenBase::decode(path, data).ok().map(|tokens| format!("above {}", tokens.token_base))
        } else if parent_of(path) == paths.queue() || (path == paths.leader_znode(0) && self.is_single()) {
            Contender::decode(path, data).ok().map(|c| format!("{} {:?}", c.member, c.status))
        } else if paths.slot_of(path).is_some() {
            Current::decode(path, data)
                .ok()
                .map(|c| format!("{} {:?} in term {}", c.member, c.status, c.term))
        } else if parent_of(path) == paths.nodes() {
            MemberRecord::decode(path, data).ok().map(|m| member_in_words(&m))
        } else if parent_of(path) == paths.requests() {
            AdminRequest::decode(path, data).ok().map(|r| request_in_words(&r))
        } else if parent_of(path) == paths.history() {
            HistoryEntry::decode(path, data)
                .ok()
                .map(|h| tokens(&format!("term {}, {}, {}", h.term, h.member, h.cause)))
        } else {
            Some(String::new())
        };
        readable.unwrap_or_else(|| "can't be read".to_owned())
    }
}
fn decision(elected: &Elected) -> String {
    let mut text = format!("term {} names ", elected.term);
    for slot in 0..elected.slots.len() {
        if slot > 0 {
            text.push_str("; ");
        }
        if elected.slots.len() > 1 {
            let _ = write!(text, "for {slot} ");
        }
        match elected.named(slot) {
            Some(named) => {
                let _ = write!(text, "{} {}", named.member, named.ballot);
            }
            None => text.push_str("nobody"),
        }
        if elected.term_of(slot) != elected.term {
            let _ = write!(text, " since term {}", elected.term_of(slot));
        }
        let line: Vec<_> = elected.line_of(slot).iter().map(|n| n.member.as_str()).collect();
        if !line.is_empty() {
            let _ = write!(text, ", then {}", line.join(", "));
        }
    }
    if !elected.exclusions.is_empty() {
        let out: Vec<_> = elected.exclusions.iter().map(|e| e.member.as_str()).collect();
        let _ = write!(text, "; excluded: {}", out.join(", "));
    }
    let count = |member: &_| elected.failures.iter().filter(|f| f.member == *member).count();
    let again: BTreeSet<_> = elected.failures.iter().map(|f| &f.member).filter(|m| count(m) > 1).collect();
    for member in again {
        let _ = write!(text, "; {member} failed {} times", count(member));
    }
    if let Some(request) = elected.latest().and_then(|given| given.request.as_ref()) {
        let _ = write!(text, "; for {}", request.name);
    }
    if elected.token_base > 0 {
        let _ = write!(text, "; tokens above {}", elected.token_base);
    }
    text
}

fn member_in_words(member: &MemberRecord) -> String {
    let mut text = member.ballot.to_string();
    match &member.health {
        Health::Unhealthy { reason } => {
            let _ = write!(text, ", unwell ({reason})");
        }
        Health::Unknown => text.push_str(", health not known yet"),
        Health::Unchecked | Health::Healthy => {}
    }
    if !member.unreached.is_empty() {
        let lost: Vec<_> = member.unreached.iter().map(|u| u.ballot.to_string()).collect();
        let _ = write!(text, ", does not reach {}", lost.join(", "));
    }
    if let Some(why) = &member.withdrawn {
        let _ = write!(text, ", withdrawn ({why})");
    }
    if member.leaving {
        text.push_str(", leaves");
    }
    if let Some(term) = member.prepared {
        let _ = write!(text, ", has prepared for term {term}");
    }
    if let Some(called_off) = &member.called_off {
        let _ = write!(text, ", calls off the move of term {} ({})", called_off.term, called_off.reason);
    }
    if let Some(why) = &member.holds {
        let _ = write!(text, ", does not hand over ({why})");
    }
    if let Some(remembered) = &member.remembers {
        let _ = write!(text, ", remembers term {} and token {}", remembered.term, remembered.token);
    }
    if let Some(gave_up) = &member.gave_up {
        let _ = write!(text, ", gave up term {} ({})", gave_up.term, gave_up.reason);
    }
    text
}

fn request_in_words(request: &AdminRequest) -> String {
    let what = request.kind.as_str();
    match &request.state {
        RequestState::Planned { at_ms } => format!("{what}, planned for {}", utc(*at_ms)),
        RequestState::Pending => format!("{what}, pending"),
        RequestState::Accepted { term } => format!("{what}, accepted in term {term}"),
        RequestState::Done { term, leader, .. } => format!("{what}, done: {leader} leads in term {term}"),
        RequestState::Failed { reason, .. } => format!("{what}, failed: {reason}"),
        RequestState::Expired { reason, .. } => format!("{what}, expired: {reason}"),
        RequestState::Cancelled { reason, .. } => format!("{what}, cancelled {reason}"),
    }
}

pub(super) fn outcome_in_words(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Created { .. } | Outcome::Changed { .. } | Outcome::Ok | Outcome::Names(_) => "",
        Outcome::Got(None) => ": absent",
        Outcome::Got(Some(_)) => "",
        Outcome::Exists => ": exists",
        Outcome::Missing => ": missing",
        Outcome::Stale => ": another version",
        Outcome::NotApplied(_) => ": not applied",
        Outcome::Unknown(_) => ": unknown",
        Outcome::OtherRecipe(_) => ": another recipe",
    }
}

fn is_deletion(write: &ZnodeWrite) -> bool {
    matches!(write.kind, WriteKind::Delete { .. })
}

pub(super) fn verb(request: &ZkOp) -> &'static str {
    match request {
        ZkOp::Get(_) => "read",
        ZkOp::Children(_) => "list",
        ZkOp::CreateSequential { .. } => "create",
        ZkOp::Multi(transaction) => match transaction.subject().kind {
            WriteKind::Create { .. } => "create",
            WriteKind::Set { .. } => "set",
            WriteKind::Delete { .. } => "delete",
        },
    }
}

/// A ballot's name is long, and its number is sufficient.
pub(super) fn shorten(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("s00000000") {
        let Some(end) = rest[at..].find('-').map(|dash| at + dash + 11).filter(|end| *end <= rest.len())
        else {
            break;
        };
        let number = &rest[end - 10..end];
        let _ = write!(out, "{}#{}", &rest[..at], number.trim_start_matches('0').parse::<u32>().unwrap_or(0));
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// An entry of the history is named by its token.
pub(super) fn entries(line: &str) -> String {
    match line.contains("history/h-") {
        true => tokens(&line.replace("history/h-0000000000", "history/#")),
        false => line.to_owned(),
    }
}

/// Tokens are large numbers, and only their order matters.
pub(super) fn tokens(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("42949") {
        let end = rest[at..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |e| at + e);
        let token: u64 = rest[at..end].parse().unwrap_or(0);
        let _ = write!(out, "{}{}", &rest[..at], token.saturating_sub(0x1_0000_0000));
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}
