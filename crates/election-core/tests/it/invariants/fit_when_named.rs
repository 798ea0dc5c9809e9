//! A member that reports itself as unfit, for example without a ready standby, is not named by an elector that has read
//! that report, and does not step in for a lost leader. Without an elector it does not begin to lead.
//!
//! The failure: a replica that is still being copied is promoted, because it was first in line before.

use std::collections::BTreeSet;

use election_core::{
    internals::{
        Transaction, WriteKind,
        record::{Cause, Elected, Health, MemberRecord, Record},
    },
    status::Ballot,
};

use super::Verdict;

/// The decision that this transaction writes to `path`.
pub(crate) fn decision(asked: &Transaction, path: &str) -> Option<Elected> {
    match &asked.writes().find(|write| write.path == path)?.kind {
        WriteKind::Set { data, .. } | WriteKind::Create { data, .. } => Elected::decode(path, data).ok(),
        WriteKind::Delete { .. } => None,
    }
}

/// The members that are not fit by these records.
pub(crate) fn unfit<'a>(records: impl Iterator<Item = &'a Vec<u8>>) -> BTreeSet<Ballot> {
    let members = records.filter_map(|data| MemberRecord::decode("", data).ok());
    members
        .filter(|member| matches!(member.health, Health::Unhealthy { .. }))
        .map(|member| member.ballot)
        .collect()
}

/// A member writes a decision of a new term. It has read that the members with the ballots `unfit` are not fit.
pub(crate) fn names(elected: &Elected, unfit: &BTreeSet<Ballot>) -> Verdict {
    let (term, sentence) = (elected.term, elected.sentence());
    // The leaders that there are acquire leadership again. A successor names itself, and knows more of itself than it has read.
    if elected.cause() == Cause::TokensRaised || sentence.contains("being first in line") {
        return Ok(());
    }
    let new = elected.slots.iter().filter(|slot| slot.given.term == term);
    match new.filter_map(|slot| slot.named.as_ref()).find(|named| unfit.contains(&named.ballot)) {
        Some(named) => {
            Err(format!("fit when named: term {term} names {}, which is not fit: {sentence}", named.member))
        }
        None => Ok(()),
    }
}

/// What the note of a member contains that steps in.
pub(crate) const STEPS_IN: &str = "steps in for term";

/// A member steps in, or leads without an elector.
pub(crate) fn leads(member: &str, health: &Health) -> Verdict {
    match health {
        Health::Unhealthy { reason } => {
            Err(format!("fit when named: {member} is to lead, and knows that {reason}"))
        }
        _ => Ok(()),
    }
}
