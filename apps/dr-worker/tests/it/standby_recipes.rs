//! Standbys without an elector, and with several leaders; what members of a queue are told of their leader.

use nix::sys::signal::Signal;

use crate::{
    standbys::{change, is_alive, standby_of},
    support::{
        Running,
        stage::{Stage, leads},
        until,
    },
};

/// Promote and follow are commands that write what they are told.
fn settings() -> [String; 2] {
    let promote =
        format!("job.orders.standby.promote={}", change("promote", "$DR_ROLE $DR_TERM $DR_FENCING_TOKEN"));
    let follow = format!("job.orders.standby.follow={}", change("follow", "$DR_LEADER $DR_TERM"));
    [promote, follow]
}

fn is_standby(worker: &Running) -> bool {
    standby_of(worker)["state"] == "running"
}

/// The standby of a recipe is promoted in place, and the former leader becomes one that is told who leads.
fn promoted_by(root: &'static str, recipe: &str) {
    let stage = Stage::new(root);
    let [promote, follow] = settings();
    let recipe = format!("job.orders.recipe={recipe}");
    let settings = [recipe.as_str(), &promote, &follow];
    let mut east = stage.standby_worker("east-1", "east", &settings);
    until("the first leads", || leads(&east));
    let mut west = stage.standby_worker("west-1", "west", &settings);
    until("the standby is ready", || is_standby(&west));
    let standby = stage.standby_pid("west-1");
    assert!(!leads(&west));

    east.signal(Signal::SIGKILL);
    east.ended();
    until("the second leads", || leads(&west));
    let lines = stage.written("west-1");
    assert!(lines.iter().any(|line| line.starts_with("promote leader ")), "{lines:?}");
    assert!(
        !lines.iter().any(|line| line.starts_with("leader")) && is_alive(standby),
        "the same process: {lines:?}"
    );

    let east = stage.standby_worker("east-1", "east", &settings);
    until("the former leader is a standby", || is_standby(&east));
    until("it is told who leads, at its start or later", || {
        let knows = |line: &String| line.ends_with("standby west-1") || line.starts_with("follow west-1 ");
        stage.written("east-1").iter().any(knows)
    });
    let (former, third) = (stage.standby_pid("east-1"), stage.standby_worker("east-2", "east", &settings));
    until("the third is a standby", || is_standby(&third));
    // Without an elector leadership moves when its worker ends.
    west.signal(Signal::SIGTERM);
    west.ended();
    until("another leads", || leads(&east) || leads(&third));
    let (leader, other) = if leads(&east) { ("east-1", "east-2") } else { ("east-2", "east-1") };
    until("the one behind it is told", || {
        stage.written(other).iter().any(|line| line.starts_with(&format!("follow {leader} ")))
    });
    assert!(!is_alive(standby) && is_alive(former), "promoted in place, or still a standby");
}

#[test]
fn a_standby_is_promoted_in_place_by_the_queue() {
    promoted_by("/standbys-queue", "queue");
}

/// Without a standby. A member of a queue knows only the one before it, so it has to follow the leaders for the hook.
#[test]
fn all_members_of_a_queue_run_the_hook_when_the_leader_changes() {
    let stage = Stage::new("/queue-leader-changed");
    let script = format!("echo $DR_LEADER $DR_LEADER_SITE >> {}/$DR_MEMBER", stage.dir.path().display());
    let hook = serde_json::json!(["/bin/sh", "-c", script]);
    let hook = format!("job.orders.hooks.on_leader_changed.command={hook}");
    let settings = ["job.orders.recipe=queue", &hook];
    let is_told = |id: &str, leader: &str| stage.written(id).iter().any(|line| line == leader);
    let mut east = stage.worker("east-1", "east", &settings);
    until("the first leads", || leads(&east));
    let west = ["west-1", "west-2"].map(|id| stage.worker(id, "west", &settings));
    until("those that do not lead are told who does", || {
        ["west-1", "west-2"].iter().all(|id| is_told(id, "east-1 east"))
    });
    assert!(!west.iter().any(leads));

    east.signal(Signal::SIGTERM);
    east.ended();
    until("another leads", || west.iter().any(leads));
    let leader = if leads(&west[0]) { "west-1 west" } else { "west-2 west" };
    until("both are told its name", || ["west-1", "west-2"].iter().all(|id| is_told(id, leader)));
    assert!(!west.iter().all(leads));
}

#[test]
fn a_standby_is_promoted_in_place_by_the_single_recipe() {
    promoted_by("/standbys-single", "single");
}

#[test]
fn a_member_leads_one_slot_or_runs_the_standby() {
    let stage = Stage::new("/standbys-slots");
    let [promote, follow] = settings();
    let settings = ["policy.slots=2", &promote, &follow];
    let start = |id: &str, site: &str| stage.standby_worker(id, site, &settings);
    let mut leaders = vec![start("east-1", "east"), start("west-1", "west")];
    until("both lead", || leaders.iter().all(leads));
    let third = start("east-2", "east");
    until("the standby is ready", || is_standby(&third));
    let standby = stage.standby_pid("east-2");
    // It began as the leader, or was promoted.
    let kept = stage.last_pid("west-1", "leader").unwrap_or_else(|| stage.standby_pid("west-1"));
    assert!(!leads(&third));

    let mut lost = leaders.remove(0);
    lost.signal(Signal::SIGKILL);
    lost.ended();
    until("the standby leads", || leads(&third));
    let lines = stage.written("east-2");
    assert!(lines.iter().any(|line| line.starts_with("promote leader ")), "{lines:?}");
    assert!(is_alive(standby) && !lines.iter().any(|line| line.starts_with("leader")), "{lines:?}");
    assert!(leads(&leaders[0]) && is_alive(kept), "the other slot is not disturbed");

    let former = start("east-1", "east");
    until("the former leader is a standby", || is_standby(&former));
    // The READY leader with the newest term.
    until("it is told who leads, at its start or later", || {
        let knows = |line: &String| line.ends_with("standby east-2") || line.starts_with("follow east-2 ");
        stage.written("east-1").iter().any(knows)
    });
    assert!(leads(&third) && leads(&leaders[0]) && !leads(&former));
}
