//! The acts of the demo, in order.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::ledger::Progress;
use super::narrator::{Narrator, Seen, seconds, until};
use super::stage::{Leader, Stage};
use super::summary::Summary;

/// The limit for what takes some seconds on an idle machine.
const SOON: Duration = Duration::from_secs(60);
/// How long the demo checks that leadership stays.
const WATCHED: Duration = Duration::from_secs(4);
/// Without a booked order for this time, the ledger has stopped.
const STANDSTILL: Duration = Duration::from_secs(30);
/// The number of orders that prove a leader's work.
const SOME_ORDERS: u64 = 150;

/// # Errors
/// The first check that failed.
pub(crate) async fn play(stage: &mut Stage, narrator: &mut Narrator) -> anyhow::Result<Summary> {
    let mut summary = Summary::default();
    let first = first_election(stage, narrator, &mut summary).await?;
    let second = leading_worker_dies(stage, narrator, &mut summary, &first).await?;
    let third = site_dies(stage, narrator, &mut summary, &second).await?;
    site_returns(stage, narrator, &mut summary, &third, &second.site).await?;
    let fourth = moved(stage, narrator, &mut summary, &third, Move::Switchover).await?;
    let fifth = moved(stage, narrator, &mut summary, &fourth, Move::Failover).await?;
    late_write(stage, narrator, &fourth, &fifth).await?;
    everything_is_booked(stage, narrator, &mut summary).await?;
    Ok(summary)
}

async fn first_election(
    stage: &mut Stage,
    narrator: &Narrator,
    summary: &mut Summary,
) -> anyhow::Result<Leader> {
    narrator.headline("Two sites, two workers each");
    let orders = stage.ledger.orders()?;
    narrator.say(format!(
        "starting east-1, east-2, west-1 and west-2 with config/base.toml and config/east.toml or west.toml;\n\
         their job books {orders} orders, each exactly once; the preferred site is east"
    ));
    let event = Instant::now();
    for site in ["east", "west"] {
        stage.start_site(site)?;
    }
    let (leader, progress) = new_leadership(stage, 0, 0).await?;
    tell_leader(stage, narrator, &leader).await?;
    narrator
        .say(format!("the job has booked the first orders, {} after the start", seconds(event.elapsed())));
    ensure!(leader.site == "east", "the preferred site is east, and {} leads", leader.id);
    summary.add("four workers start", &leader.id, Some(event.elapsed()));
    some_orders(stage, narrator, &progress).await?;
    members_stand_by(stage, 3).await?;
    only_it_answers(stage, &leader).await?;
    narrator
        .say(format!("GET /leader, as a load balancer does: 200 from {}, 503 from the others", leader.id));
    Ok(leader)
}

async fn leading_worker_dies(
    stage: &mut Stage,
    narrator: &Narrator,
    summary: &mut Summary,
    old: &Leader,
) -> anyhow::Result<Leader> {
    narrator.headline("The leading worker is killed");
    let before = stage.ledger.progress().await?;
    let worker = stage.worker(&old.id)?;
    narrator.say(format!("SIGKILL to {}, pid {}", old.id, worker.pid().unwrap_or_default()));
    let event = Instant::now();
    worker.kill()?;
    if let Some(job) = old.job {
        job_is_gone(narrator, job, event).await?;
    }
    let (leader, progress) = new_leadership(stage, old.token, before.booked).await?;
    tell_takeover(stage, narrator, &leader, event).await?;
    ensure!(leader.site == old.site, "the other worker of {} runs, and {} leads", old.site, leader.id);
    summary.add(&format!("{} was killed", old.id), &leader.id, Some(event.elapsed()));
    some_orders(stage, narrator, &progress).await?;
    Ok(leader)
}

async fn site_dies(
    stage: &mut Stage,
    narrator: &Narrator,
    summary: &mut Summary,
    old: &Leader,
) -> anyhow::Result<Leader> {
    narrator.headline(&format!("The whole site {} fails", old.site));
    let before = stage.ledger.progress().await?;
    let event = Instant::now();
    let killed = stage.kill_site(&old.site)?;
    narrator.say(format!("SIGKILL to the remaining workers of the site: {}", killed.join(", ")));
    let (leader, progress) = new_leadership(stage, old.token, before.booked).await?;
    tell_takeover(stage, narrator, &leader, event).await?;
    ensure!(leader.site != old.site, "{} reports that it leads, in a site that is lost", leader.id);
    summary.add(&format!("site {} was lost", old.site), &leader.id, Some(event.elapsed()));
    some_orders(stage, narrator, &progress).await?;
    Ok(leader)
}

async fn site_returns(
    stage: &mut Stage,
    narrator: &Narrator,
    summary: &mut Summary,
    leader: &Leader,
    site: &str,
) -> anyhow::Result<()> {
    narrator.headline(&format!("The site {site} returns"));
    stage.start_site(site)?;
    narrator.say(format!("the workers of {site} are restarted"));
    members_stand_by(stage, 3).await?;
    let watched = Instant::now();
    while watched.elapsed() < WATCHED {
        let now = stage.leader().await?;
        let stays = now.as_ref().is_some_and(|now| now.token == leader.token);
        ensure!(stays, "leadership must stay with {}, but is: {now:?}", leader.id);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    narrator.say(format!(
        "they are on standby; leadership has stayed with {1} for {0}: by default an operator decides about the return",
        seconds(watched.elapsed()),
        leader.id
    ));
    summary.add(&format!("site {site} returned"), &leader.id, None);
    Ok(())
}

/// An operator's command that moves leadership.
#[derive(Clone, Copy)]
enum Move {
    Switchover,
    Failover,
}

async fn moved(
    stage: &mut Stage,
    narrator: &Narrator,
    summary: &mut Summary,
    old: &Leader,
    how: Move,
) -> anyhow::Result<Leader> {
    let (verb, target, headline, what) = match how {
        Move::Switchover => {
            ("switchover", "east", "An operator moves the job back, as planned", "planned switchover to east")
        }
        Move::Failover => {
            ("failover", "west", "An operator forces the job to the backup site", "forced failover to west")
        }
    };
    narrator.headline(headline);
    let before = stage.ledger.progress().await?;
    let command = [verb, "--to-site", target, "--reason", "shown in the demo", "--wait"];
    narrator.say(format!("dr-worker {verb} --to-site {target} --reason 'shown in the demo' --wait"));
    let event = Instant::now();
    let said = stage.operator.run(&command).await?;
    let answered = event.elapsed();
    if !said.is_empty() {
        narrator.say(&said);
    }
    narrator.say(format!("exit code 0 after {}", seconds(answered)));
    let (leader, progress) = new_leadership(stage, old.token, before.booked).await?;
    tell_takeover(stage, narrator, &leader, event).await?;
    ensure!(leader.site == target, "{target} was requested, and {} leads", leader.id);
    summary.add(what, &leader.id, Some(event.elapsed()));
    some_orders(stage, narrator, &progress).await?;
    Ok(leader)
}

/// A deposed leader that has not noticed continues to write.
async fn late_write(stage: &Stage, narrator: &Narrator, old: &Leader, new: &Leader) -> anyhow::Result<()> {
    narrator.headline("A deposed leader that has not noticed");
    narrator.say(format!("{} continues to book under its old token {}", old.id, old.token));
    let refusal = stage.ledger.book_late(old.token, &old.id).await?;
    narrator.say(format!("the store refuses, because it knows token {}: {refusal}", new.token));
    Ok(())
}

async fn everything_is_booked(
    stage: &mut Stage,
    narrator: &Narrator,
    summary: &mut Summary,
) -> anyhow::Result<()> {
    narrator.headline("The count");
    let orders = stage.ledger.orders()?;
    let mut seen = stage.ledger.progress().await?;
    // Otherwise the last acts would have proved nothing.
    ensure!(seen.booked < orders, "all orders were booked before the end of the demo");
    narrator.say(format!("{} of {orders} orders are booked; waiting for the rest", seen.booked));
    while seen.booked < orders {
        let what = format!("another order being booked, after {} of {orders}", seen.booked);
        seen = until(&what, STANDSTILL, || more_booked(stage, seen.booked)).await?;
        stage.statuses().await?;
    }
    narrator.say(format!(
        "all {orders} are booked; `ledger check` verifies the orders, every balance and every token"
    ));
    let verdict = stage.ledger.check().await?;
    if !verdict.sound {
        bail!("the ledger is wrong:\n{}", verdict.words);
    }
    narrator.say("`dr-worker history`:");
    narrator.say(stage.operator.run(&["history"]).await?);
    summary.conclude(&verdict.words);
    Ok(())
}

async fn more_booked(stage: &Stage, than: u64) -> anyhow::Result<Seen<Progress>> {
    let progress = stage.ledger.progress().await?;
    if progress.booked > than {
        return Ok(Seen::There(progress));
    }
    Ok(Seen::NotYet(format!("{} are", progress.booked)))
}

/// Waits until a job books under a newer token than `token`, and its worker reports that it leads.
async fn new_leadership(stage: &mut Stage, token: u64, booked: u64) -> anyhow::Result<(Leader, Progress)> {
    let what = format!("an order being booked under a newer token than {token}");
    let deadline = Instant::now() + SOON;
    let progress = loop {
        // A worker that has ended would never lead.
        stage.statuses().await?;
        match stage.ledger.booked_under_newer(token, booked).await? {
            Seen::There(progress) => break progress,
            Seen::NotYet(instead) if Instant::now() >= deadline => {
                bail!("waited {} for {what}; last state: {instead}", seconds(SOON))
            }
            Seen::NotYet(_) => tokio::time::sleep(Duration::from_millis(25)).await,
        }
    };
    let deadline = Instant::now() + SOON;
    loop {
        let leader = stage.leader().await?;
        match leader {
            Some(leader) if leader.token >= progress.token => {
                ensure!(
                    leader.token == progress.token && leader.id == progress.member,
                    "{} claimed token {} at the store, and {} leads with token {}",
                    progress.member,
                    progress.token,
                    leader.id,
                    leader.token
                );
                return Ok((leader, progress));
            }
            instead if Instant::now() >= deadline => {
                let member = &progress.member;
                bail!("{member} books but does not report that it leads; reported leader: {instead:?}");
            }
            _ => tokio::time::sleep(Duration::from_millis(25)).await,
        }
    }
}

/// Waits until that many workers are on standby and fit.
async fn members_stand_by(stage: &mut Stage, count: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + SOON;
    loop {
        stage.statuses().await?;
        let mut standing_by = Vec::new();
        for worker in stage.workers.iter().filter(|worker| worker.pid().is_some()) {
            if worker.answers("/standby").await == Some(200) {
                standing_by.push(worker.id.as_str());
            }
        }
        if standing_by.len() == count {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("waited {} for {count} workers on standby; on standby: {standing_by:?}", seconds(SOON));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The answers of `/leader`, on which a load balancer relies.
async fn only_it_answers(stage: &Stage, leader: &Leader) -> anyhow::Result<()> {
    for worker in &stage.workers {
        let expected = if worker.id == leader.id { 200 } else { 503 };
        let code = worker.answers("/leader").await;
        ensure!(code == Some(expected), "/leader of {} answers {code:?}, not {expected}", worker.id);
    }
    Ok(())
}

/// Waits until the leader's job has booked orders.
async fn some_orders(stage: &mut Stage, narrator: &Narrator, since: &Progress) -> anyhow::Result<()> {
    let mut seen = since.clone();
    while seen.booked < since.booked + SOME_ORDERS {
        seen = until("another order being booked", STANDSTILL, || more_booked(stage, seen.booked)).await?;
        stage.statuses().await?;
    }
    narrator
        .say(format!("{} orders are booked, the latest by {} in {}", seen.booked, seen.member, seen.site));
    Ok(())
}

/// Without its worker the job must not continue: its guard ends it.
async fn job_is_gone(narrator: &Narrator, job: u32, event: Instant) -> anyhow::Result<()> {
    let look = || async move {
        let stat = std::fs::read_to_string(format!("/proc/{job}/stat"));
        // A zombie has ended.
        let runs = stat.is_ok_and(|stat| !stat.contains(") Z "));
        Ok(if runs { Seen::NotYet("it runs".to_owned()) } else { Seen::There(()) })
    };
    until(&format!("the end of the job, pid {job}, after its worker"), SOON, look).await?;
    narrator.say(format!("its guard has ended the job, pid {job}, within {}", seconds(event.elapsed())));
    Ok(())
}

async fn tell_takeover(
    stage: &Stage,
    narrator: &Narrator,
    leader: &Leader,
    event: Instant,
) -> anyhow::Result<()> {
    narrator.say(format!("the job books again, {} later", seconds(event.elapsed())));
    tell_leader(stage, narrator, leader).await
}

async fn tell_leader(stage: &Stage, narrator: &Narrator, leader: &Leader) -> anyhow::Result<()> {
    let list = stage.operator.json(&["list"]).await?;
    let because = find_text(&list, "sentence").context("the decision has no sentence")?;
    narrator
        .say(format!("{} leads, in term {}, with fencing token {}", leader.id, leader.term, leader.token));
    narrator.say(format!("why: {because}"));
    Ok(())
}

/// The first text under that key, at any depth.
fn find_text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    match value {
        Value::Object(fields) => {
            let here = fields.get(key).and_then(Value::as_str);
            here.or_else(|| fields.values().find_map(|field| find_text(field, key)))
        }
        Value::Array(items) => items.iter().find_map(|item| find_text(item, key)),
        _ => None,
    }
}
