//! Members that are fit only with a ready standby.

use std::mem::replace;

use election_core::internals::{Event, Transaction, Watched, record::Health};

use crate::{
    invariants::fit_when_named,
    model::{server::children, settings::Setting, world::World},
};

impl World {
    /// The standby of a member is ready or the leader's program, or another one must be started.
    pub(crate) fn standby(&mut self, setting: &Setting, m: usize, is_ready: bool) {
        let Some(process) = &mut self.member(m).process else { return };
        if replace(&mut process.unfit, !is_ready) == is_ready {
            let reason = "its standby is starting".to_owned();
            let health = if is_ready { Health::Healthy } else { Health::Unhealthy { reason } };
            self.feed(setting, m, Event::Health(health));
        }
    }

    /// A successor is fit when it steps in.
    pub(crate) fn check_successor(&mut self, setting: &Setting, m: usize, note: &str) {
        let process = self.members[m].process.as_ref().filter(|_| note.contains(fit_when_named::STEPS_IN));
        if let Some(process) = process {
            let verdict = fit_when_named::leads(setting.members[m].0, process.engine.health());
            self.require(verdict);
        }
    }

    /// A decision of a new term names no member that its author has read to be unfit.
    pub(crate) fn check_fit(&mut self, setting: &Setting, m: usize, asked: &Transaction) {
        let Some(process) = self.members[m].process.as_ref().filter(|_| setting.standbys) else { return };
        let next = fit_when_named::decision(asked, &setting.paths().elected());
        let is_new = |term| process.engine.elected().is_none_or(|known| known.term < term);
        let Some(next) = next.filter(|next| is_new(next.term)) else { return };
        let nodes = setting.paths().nodes();
        let watch = Watched::tree(nodes.clone());
        let client = process.client.iter().filter(|client| !client.is_late(&watch));
        let told = client.flat_map(|client| &client.watched).find(|(watched, _)| *watched == watch);
        let told = told.and_then(|(_, told)| told.as_ref());
        let is_read = |name: &str, at| told.is_some_and(|told| told.get(name) == Some(&at));
        let records = children(&self.server.tree, &nodes)
            .filter(|(name, node)| is_read(name, (node.czxid, node.mzxid)));
        let unfit = fit_when_named::unfit(records.map(|(_, node)| &node.data));
        let verdict = fit_when_named::names(&next, &unfit);
        self.require(verdict);
    }
}
