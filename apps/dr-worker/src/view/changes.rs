use std::collections::BTreeMap;

use election_core::{
    config::MemberId,
    internals::record::{Current, Named, Slot},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Cluster,
    cluster::{Member, SlotRow},
};

/// One change of an election.
///
/// The fields are in the order of the JSON, where those of `data` follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What changed: `leader`, `decision`, `succession`, `elector`, `member-joined`, `member-left`, `health`, `orders` or
    /// `request`; and of those who watch, `history`, `gone` and `session`.
    pub event: &'static str,
    /// The details: an object.
    #[serde(flatten)]
    pub data: Value,
}

impl Change {
    /// A change with its details, which must be an object.
    pub fn new(event: &'static str, data: Value) -> Self {
        Self { event, data }
    }

    /// What differs between two looks at an election. Without an earlier look, its whole state.
    ///
    /// Causes come before their effects where one look shows both: orders and requests, then members, the decision, and
    /// leaders.
    pub fn between(before: Option<&Cluster>, after: &Cluster) -> Vec<Self> {
        let mut changes = Vec::new();
        let mut compare = |event, before: Option<Value>, after: Value| {
            if before.as_ref() != Some(&after) {
                changes.push(Self::new(event, after));
            }
        };
        compare("orders", before.map(orders), orders(after));
        for request in &after.requests {
            let known = before.and_then(|b| b.requests.iter().find(|known| known.id == request.id));
            compare("request", known.map(|known| json!({ "request": known })), json!({ "request": request }));
        }
        let members = |cluster: &Cluster| -> BTreeMap<_, _> {
            cluster.members.iter().map(|m| (m.ballot.clone(), m.clone())).collect()
        };
        let (were, are) = (before.map(members).unwrap_or_default(), members(after));
        for (_, member) in were.iter().filter(|(ballot, _)| !are.contains_key(ballot)) {
            compare("member-left", None, of(member));
        }
        for (ballot, member) in &are {
            let known = were.get(ballot);
            compare("member-joined", known.map(of), of(member));
            compare("health", known.map(health), health(member));
        }
        compare("elector", before.map(elector), elector(after));
        let slots = before.map_or(0, |b| b.slots.len()).max(after.slots.len());
        for (event, data) in
            [("decision", decision as fn(usize, &SlotRow) -> Value), ("succession", line), ("leader", leader)]
        {
            for slot in 0..slots {
                // A slot that has gone is one without a decision.
                let empty = SlotRow { slot, decision: None, leader: None };
                let of = |cluster: &Cluster| data(slot, cluster.slots.get(slot).unwrap_or(&empty));
                compare(event, before.map(of), of(after));
            }
        }
        changes
    }
}

fn orders(cluster: &Cluster) -> Value {
    json!({
        "mode": cluster.mode, "stopped": cluster.stopped, "stopped_standbys": cluster.stopped_standbys,
        "maintenance": cluster.maintenance, "drained": cluster.drained, "closed": cluster.closed,
        "failed_sites": cluster.failed_sites, "preferred_site": cluster.preferred_site,
        "site_order": cluster.site_order, "stay": cluster.stay, "confirmed": cluster.confirmed,
    })
}

fn elector(cluster: &Cluster) -> Value {
    json!({ "elector": cluster.elector })
}

fn of(member: &Member) -> Value {
    json!({ "member": member.member, "site": member.site, "ballot": member.ballot })
}

fn health(member: &Member) -> Value {
    json!({ "member": member.member, "health": member.health.to_string() })
}

fn decision(slot: usize, row: &SlotRow) -> Value {
    let Some(Slot { named, given, .. }) = &row.decision else {
        return json!({ "slot": slot, "named": null });
    };
    let (named, site) = named.as_ref().map(|n| (&n.member, &n.site)).unzip();
    json!({
        "slot": slot, "named": named, "site": site, "term": given.term, "cause": given.cause,
        "sentence": given.sentence,
    })
}

fn line(slot: usize, row: &SlotRow) -> Value {
    let line: Vec<&MemberId> =
        row.decision.iter().flat_map(|d| &d.succession).map(|Named { member, .. }| member).collect();
    json!({ "slot": slot, "successors": line })
}

fn leader(slot: usize, row: &SlotRow) -> Value {
    let Some(Current { member, site, status, term, fencing_token, .. }) = &row.leader else {
        return json!({ "slot": slot, "leader": null });
    };
    json!({
        "slot": slot, "leader": member, "site": site, "status": status, "term": term,
        "fencing_token": fencing_token,
    })
}

#[cfg(test)]
mod tests {
    use election_admin::Snapshot;

    use super::*;

    /// An election with these members, and this leader.
    fn cluster(members: &[&str], leader: Option<(&str, u64, &str)>) -> Cluster {
        let mut snapshot = Snapshot::default();
        for (number, member) in members.iter().enumerate() {
            let record = json!({ "v": 1, "member": member, "site": "east", "ballot": format!("{member}-000000000{number}") });
            snapshot.members.push(serde_json::from_value(record).unwrap());
        }
        let mut cluster = Cluster::new("/dr", "orders", snapshot, 0);
        let leader = leader.map(|(member, term, status)| {
            serde_json::from_value(json!({
                "v": 1, "member": member, "ballot": format!("{member}-0000000000"), "site": "east", "term": term,
                "status": status, "since_ms": 0, "fencing_token": term * 100,
            }))
            .unwrap()
        });
        cluster.slots = vec![SlotRow { slot: 0, decision: None, leader }];
        cluster
    }

    fn events(before: Option<&Cluster>, after: &Cluster) -> Vec<(&'static str, Value)> {
        Change::between(before, after).into_iter().map(|change| (change.event, change.data)).collect()
    }

    #[test]
    fn the_first_look_reports_the_whole_state() {
        let all = events(None, &cluster(&["a", "b"], Some(("a", 1, "READY"))));
        let names: Vec<_> = all.iter().map(|(event, _)| *event).collect();
        assert_eq!(
            names,
            [
                "orders",
                "member-joined",
                "health",
                "member-joined",
                "health",
                "elector",
                "decision",
                "succession",
                "leader"
            ]
        );
        let leader = json!({
            "slot": 0, "leader": "a", "site": "east", "status": "READY", "term": 1, "fencing_token": 100,
        });
        assert_eq!(all.last(), Some(&("leader", leader)));
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let before = cluster(&["a", "b"], Some(("a", 1, "READY")));
        assert_eq!(events(Some(&before), &before), []);
        let after = cluster(&["a"], None);
        let left = json!({ "member": "b", "site": "east", "ballot": "b-0000000001" });
        assert_eq!(
            events(Some(&before), &after),
            [("member-left", left), ("leader", json!({ "slot": 0, "leader": null }))]
        );
        let mut paused = after.clone();
        paused.mode = election_core::internals::record::Mode::Manual;
        let all = events(Some(&after), &paused);
        assert_eq!((all.len(), all[0].0, &all[0].1["mode"]), (1, "orders", &json!("manual")));
    }

    #[test]
    fn a_slot_that_has_gone_has_no_leader() {
        let mut before = cluster(&["a"], Some(("a", 1, "READY")));
        before.slots.push(SlotRow { slot: 1, ..before.slots[0].clone() });
        let after = cluster(&["a"], Some(("a", 1, "READY")));
        assert_eq!(events(Some(&before), &after), [("leader", json!({ "slot": 1, "leader": null }))]);
    }
}
