//! The own record under `nodes/<member>`: what it is to contain, and what ZooKeeper has of it.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use crate::{
    engine::{
        core::Core,
        io::{Node, ZkOp},
        ops::Part,
        transaction::ZnodeWrite,
    },
    ids::Ballot,
    record::{Control, MemberRecord, Record, VERSION, limits},
};

/// The own record. Where the texts are the same, as they mostly are, they are shared.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct OwnRecord {
    /// As it is in ZooKeeper, with its version.
    pub(super) published: Option<(Arc<[u8]>, i32)>,
    /// As it should be, and a fingerprint of its input.
    encoded: Option<(u64, Arc<[u8]>)>,
    /// The content of a write that is under way.
    written: Option<Arc<[u8]>>,
}

impl OwnRecord {
    /// It is in ZooKeeper in this version.
    pub(super) fn published(data: impl Into<Arc<[u8]>>, version: i32) -> Self {
        Self { published: Some((data.into(), version)), ..Self::default() }
    }

    /// What it is to contain with this ballot.
    pub(super) fn data(&mut self, core: &mut Core, ballot: &Ballot) -> Option<Arc<[u8]>> {
        let fingerprint = fingerprint(core, ballot);
        if let Some((_, data)) = self.encoded.as_ref().filter(|(of, _)| *of == fingerprint) {
            return Some(Arc::clone(data));
        }
        let (profile, own) = (&core.config.member, &core.own);
        let record = MemberRecord {
            v: VERSION,
            member: profile.member.clone(),
            site: profile.site.clone(),
            ballot: ballot.clone(),
            address: profile.address.clone(),
            http: profile.http.clone(),
            priority: profile.priority,
            attributes: core.attributes(),
            measured: own.reports.measured.keys().cloned().collect(),
            health: own.health.clone(),
            site_health: own.reports.site_health.clone(),
            policy: profile.policy.clone(),
            config: profile.overlay.clone(),
            software: profile.software.clone(),
            orders_format: Control::NEWEST,
            session_timeout_ms: limits::millis(core.granted()),
            stop_budget_ms: limits::millis(core.stop_budget()),
            joined_ms: own.joined_ms,
            gave_up: own.gave_up.as_deref().cloned(),
            called_off: own.called_off.as_deref().cloned(),
            withdrawn: own.wishes.withdrawn.clone(),
            leaving: own.leaving.is_asked(),
            prepared: own.reports.prepared_for,
            holds: own.wishes.holds.clone(),
            unreached: own.reports.reach.published(),
            round_trips: own.reports.round_trips.clone(),
            remembers: core.remembers(),
        };
        match record.encode(&core.own_node()) {
            Ok(data) => {
                let (_, data) = self.encoded.insert((fingerprint, data.into()));
                Some(Arc::clone(data))
            }
            Err(error) => {
                core.delayed(Part::Candidacy, &error);
                None
            }
        }
    }

    /// The write that brings it up to date, if it differs from what ZooKeeper has.
    pub(super) fn outdated(&mut self, core: &mut Core) -> Option<ZkOp> {
        let ballot = core.own.ballot.name.clone()?;
        let data = self.data(core, &ballot)?;
        let (published, version) = self.published.as_ref()?;
        if *published == data {
            return None;
        }
        let write = ZnodeWrite::set(core.own_node(), &*data, *version);
        self.written = Some(data);
        Some(write.into())
    }

    /// The write has ended with this version.
    pub(super) fn was_written(&mut self, version: i32) {
        // A watch may have been quicker, and have reported a later state already.
        if let (Some((_, known)), Some(written)) = (&self.published, self.written.take())
            && *known < version
        {
            self.published = Some((written, version));
        }
    }

    /// It was read.
    pub(super) fn seen(&mut self, node: &Node) {
        if self.published.as_ref().is_none_or(|(_, version)| node.version >= *version) {
            let encoded = self.encoded.as_ref().map(|(_, data)| data).filter(|data| ***data == *node.data);
            let data = encoded.map_or_else(|| node.data.as_slice().into(), Arc::clone);
            self.published = Some((data, node.version));
        }
    }
}

/// A fingerprint of everything that can change in the own record.
fn fingerprint(core: &Core, ballot: &Ballot) -> u64 {
    let (own, mut hasher) = (&core.own, DefaultHasher::new());
    (ballot, core.granted(), core.stop_budget(), &own.health, &own.reports, &own.wishes).hash(&mut hasher);
    (own.joined_ms, &own.gave_up, &own.called_off, own.leaving, core.remembers()).hash(&mut hasher);
    let profile = &core.config.member;
    (&profile.attributes, profile.priority, &profile.policy, &profile.overlay).hash(&mut hasher);
    (&profile.address, &profile.http).hash(&mut hasher);
    hasher.finish()
}
