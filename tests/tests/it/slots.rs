//! Several leaders of one job, and spares.

use std::collections::BTreeMap;

use e2e::{Cluster, Driver, JOB, SOON, Setup, Wait, wait_for};

e2e::with_both_drivers!(a_killed_leaders_slot_goes_to_a_spare);

/// A leadership, by the status of its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    member: String,
    site: String,
    term: u64,
    token: u64,
    pid: u64,
}

/// The leaders by slot, once there are that many.
async fn leaders(cluster: &mut Cluster, slots: usize) -> Wait<BTreeMap<u64, Held>> {
    let mut held = BTreeMap::new();
    let statuses = cluster.statuses().await;
    for (id, status) in &statuses {
        let job = &status["jobs"][JOB];
        let numbers = [&job["slot"], &job["term"], &job["fencing_token"], &job["process"]["pid"]];
        let [Some(slot), Some(term), Some(token), Some(pid)] = numbers.map(|n| n.as_u64()) else { continue };
        if job["role"] == "leader" {
            let site = status["site"].as_str().unwrap().to_owned();
            held.insert(slot, Held { member: id.clone(), site, term, token, pid });
        }
    }
    if held.len() == slots { Ok(held) } else { Err(format!("{held:?} of {statuses:?}")) }
}

/// Three of five lead, in both sites. One is killed with its job: a spare takes its slot, and the jobs of the two
/// others continue under their tokens.
async fn a_killed_leaders_slot_goes_to_a_spare(driver: Driver) {
    let workers =
        [("east-1", "east"), ("east-2", "east"), ("east-3", "east"), ("west-1", "west"), ("west-2", "west")];
    // The first decision waits for a member of the first site. If that were the site of three, they could have all slots
    // before anybody of the other one has joined.
    let setup = Setup::new(driver)
        .workers(&workers)
        .set("policy.sites", vec!["west", "east"])
        .set("policy.slots", 3)
        .set("policy.spread", "sites");
    let mut cluster = Cluster::of(setup).await;
    let before = wait_for("three leaders", SOON, async || leaders(&mut cluster, 3).await).await;
    cluster.standing_by(2).await;
    assert_eq!(before.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    let west = before.values().filter(|held| held.site == "west").count();
    assert!((1..3).contains(&west), "spread over both sites: {before:?}");
    for held in before.values() {
        assert_eq!(cluster.worker(&held.member).code("/leader").await, Some(200), "/leader of {held:?}");
        assert_eq!(cluster.acts(held.token).await.member, held.member);
    }

    // The output for operators.
    let list = cluster.operator().json(&["list", "--job", JOB]).await;
    let slots = list["slots"].as_array().expect("the slots");
    assert_eq!(slots.len(), 3, "{list:#}");
    for (slot, held) in &before {
        let shown = &slots[usize::try_from(*slot).unwrap()];
        assert_eq!(
            (&shown["slot"], &shown["decision"]["named"]["member"]),
            (&(*slot).into(), &held.member.as_str().into())
        );
        assert_eq!(shown["leader"]["member"], held.member.as_str(), "{list:#}");
        assert_eq!(shown["leader"]["fencing_token"], held.token, "{list:#}");
        assert_eq!(shown["leader"]["status"], "READY", "{list:#}");
    }

    let lost = before[&1].clone();
    cluster.worker(&lost.member).kill();
    let after = wait_for("a spare in slot 1", SOON, async || {
        let held = leaders(&mut cluster, 3).await?;
        if held[&1].token > lost.token { Ok(held) } else { Err(format!("{held:?}")) }
    })
    .await;
    assert_eq!((&after[&0], &after[&2]), (&before[&0], &before[&2]), "the others are not disturbed");
    assert_ne!(after[&1].member, lost.member);
    assert_eq!(cluster.acts(after[&1].token).await.member, after[&1].member);
    // Each leadership except the lost one is one run of its job.
    for held in after.values() {
        let runs = cluster.journal().actings().iter().filter(|acting| acting.member == held.member).count();
        assert_eq!(runs, 1, "{held:?}");
    }
    cluster.end().await;
}
