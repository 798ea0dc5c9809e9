//! What is broken at present, and what the documents do not promise for that.

use std::collections::BTreeMap;

use robustness::history::Excuse;
use robustness::schedule::{MEMBERS, SERVERS};

/// What can be broken by one fault at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The processes of a member.
    Processes(String),
    /// The network of a member's host.
    Network(String),
    /// A server.
    Server(usize),
    /// Which members may lead, by order of an operator.
    Order,
}

/// All that is broken.
#[derive(Debug, Default)]
pub(crate) struct Disturbed {
    parts: BTreeMap<Part, u64>,
    /// The members that an operator has taken out.
    ordered_out: Vec<String>,
}

impl Disturbed {
    /// Marks these as broken by a fault; false if one of them is broken already.
    pub(crate) fn take(&mut self, parts: &[Part], fault: u64) -> bool {
        let is_free = parts.iter().all(|part| !self.parts.contains_key(part));
        if is_free {
            self.parts.extend(parts.iter().map(|part| (part.clone(), fault)));
        }
        is_free
    }

    /// Marks what this fault has broken as whole.
    pub(crate) fn release(&mut self, fault: u64) {
        if self.parts.get(&Part::Order) == Some(&fault) {
            self.ordered_out.clear();
        }
        self.parts.retain(|_, by| *by != fault);
    }

    pub(crate) fn order_out(&mut self, members: Vec<String>) {
        self.ordered_out = members;
    }

    /// Whether nobody can be expected to lead: the servers have no quorum, or no member is whole.
    pub(crate) fn nobody_can_lead(&self) -> Option<Excuse> {
        let servers = self.parts.keys().filter(|part| matches!(part, Part::Server(_))).count();
        let is_whole = |member: &str| {
            let parts = [Part::Processes(member.to_owned()), Part::Network(member.to_owned())];
            !parts.iter().any(|part| self.parts.contains_key(part))
                && !self.ordered_out.iter().any(|out| out == member)
        };
        let is_out = servers * 2 > SERVERS || !MEMBERS.iter().any(|(member, _)| is_whole(member));
        is_out.then_some(Excuse::NoLeader)
    }
}
