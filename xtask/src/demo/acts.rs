//! The acts of the demo, in order.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::ledger::{Ledger, Progress};
use super::narrator::{Narrator, Seen, seconds, until};
use super::stage::Stage;
use super::summary::Summary;
use super::worker::Leader;

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
pub(crate) async fn play(stage: &mut Stage, narrator: &Narrator) -> anyhow::Result<Summary> {
    let mut play = Play { stage, narrator, summary: Summary::default() };
    let first = play.first_election().await?;
    let second = play.leading_worker_dies(&first).await?;
    let third = play.site_dies(&second).await?;
    play.site_returns(&third, &second.site).await?;
    narrator.headline("An operator moves the job back, as planned");
    let fourth = play.moved(&third, "planned", "switchover", "east").await?;
    narrator.headline("An operator forces the job to the backup site");
    let fifth = play.moved(&fourth, "forced", "failover", "west").await?;
    play.late_write(&fourth, &fifth).await?;
    play.everything_is_booked().await?;
    Ok(play.summary)
}

struct Play<'a> {
    stage: &'a mut Stage,
    narrator: &'a Narrator,
    summary: Summary,
}

impl Play<'_> {
    async fn first_election(&mut self) -> anyhow::Result<Leader> {
        self.narrator.headline("Two sites, two workers each");
        let orders = self.stage.ledger.orders()?;
        self.narrator.say(format!(
            "starting east-1, east-2, west-1 and west-2 with config/base.toml and config/east.toml or west.toml;\n\
             their job books {orders} orders, each exactly once; the preferred site is east"
        ));
        let event = Instant::now();
        for site in ["east", "west"] {
            self.stage.start_site(site)?;
        }
        let (leader, progress) = self.new_leadership(0, 0).await?;
        self.tell_leader(&leader).await?;
        let elapsed = seconds(event.elapsed());
        self.narrator.say(format!("the job has booked the first orders, {elapsed} after the start"));
        ensure!(leader.site == "east", "the preferred site is east, and {} leads", leader.id);
        self.summary.add("four workers start", &leader.id, Some(event.elapsed()));
        self.some_orders(&progress).await?;
        self.members_stand_by(3).await?;
        self.only_it_answers(&leader).await?;
        self.narrator.say(format!(
            "GET /leader, as a load balancer does: 200 from {}, 503 from the others",
            leader.id
        ));
        Ok(leader)
    }

    async fn leading_worker_dies(&mut self, old: &Leader) -> anyhow::Result<Leader> {
        self.narrator.headline("The leading worker is killed");
        let before = self.stage.ledger.progress().await?;
        let worker = self.stage.worker(&old.id)?;
        self.narrator.say(format!("SIGKILL to {}, pid {}", old.id, worker.pid().unwrap_or_default()));
        let event = Instant::now();
        worker.kill()?;
        if let Some(job) = old.job {
            self.job_is_gone(job, event).await?;
        }
        let (leader, progress) = self.new_leadership(old.token, before.booked).await?;
        self.tell_takeover(&leader, event).await?;
        ensure!(leader.site == old.site, "the other worker of {} runs, and {} leads", old.site, leader.id);
        self.summary.add(&format!("{} was killed", old.id), &leader.id, Some(event.elapsed()));
        self.some_orders(&progress).await?;
        Ok(leader)
    }

    async fn site_dies(&mut self, old: &Leader) -> anyhow::Result<Leader> {
        self.narrator.headline(&format!("The whole site {} fails", old.site));
        let before = self.stage.ledger.progress().await?;
        let event = Instant::now();
        let killed = self.stage.kill_site(&old.site)?;
        self.narrator.say(format!("SIGKILL to the remaining workers of the site: {}", killed.join(", ")));
        let (leader, progress) = self.new_leadership(old.token, before.booked).await?;
        self.tell_takeover(&leader, event).await?;
        ensure!(leader.site != old.site, "{} reports that it leads, in a site that is lost", leader.id);
        self.summary.add(&format!("site {} was lost", old.site), &leader.id, Some(event.elapsed()));
        self.some_orders(&progress).await?;
        Ok(leader)
    }

    async fn site_returns(&mut self, leader: &Leader, site: &str) -> anyhow::Result<()> {
        self.narrator.headline(&format!("The site {site} returns"));
        self.stage.start_site(site)?;
        self.narrator.say(format!("the workers of {site} are restarted"));
        self.members_stand_by(3).await?;
        let watched = Instant::now();
        while watched.elapsed() < WATCHED {
            let now = self.stage.leader().await?;
            let stays = now.as_ref().is_some_and(|now| now.token == leader.token);
            ensure!(stays, "leadership must stay with {}, but is: {now:?}", leader.id);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.narrator.say(format!(
            "they are on standby; leadership has stayed with {1} for {0}: by default an operator decides about the return",
            seconds(watched.elapsed()),
            leader.id
        ));
        self.summary.add(&format!("site {site} returned"), &leader.id, None);
        Ok(())
    }

    /// An operator moves leadership by a command.
    async fn moved(&mut self, old: &Leader, how: &str, verb: &str, target: &str) -> anyhow::Result<Leader> {
        let before = self.stage.ledger.progress().await?;
        let command = [verb, "--to-site", target, "--reason", "shown in the demo", "--wait"];
        self.narrator.say(format!("dr-worker {verb} --to-site {target} --reason 'shown in the demo' --wait"));
        let event = Instant::now();
        let said = self.stage.operator.run(&command).await?;
        let answered = event.elapsed();
        if !said.is_empty() {
            self.narrator.say(&said);
        }
        self.narrator.say(format!("exit code 0 after {}", seconds(answered)));
        let (leader, progress) = self.new_leadership(old.token, before.booked).await?;
        self.tell_takeover(&leader, event).await?;
        ensure!(leader.site == target, "{target} was requested, and {} leads", leader.id);
        self.summary.add(&format!("{how} {verb} to {target}"), &leader.id, Some(event.elapsed()));
        self.some_orders(&progress).await?;
        Ok(leader)
    }

    /// A deposed leader that has not noticed continues to write.
    async fn late_write(&self, old: &Leader, new: &Leader) -> anyhow::Result<()> {
        self.narrator.headline("A deposed leader that has not noticed");
        self.narrator.say(format!("{} continues to book under its old token {}", old.id, old.token));
        let refusal = self.stage.ledger.book_late(old.token, &old.id).await?;
        self.narrator.say(format!("the store refuses, because it knows token {}: {refusal}", new.token));
        Ok(())
    }

    async fn everything_is_booked(&mut self) -> anyhow::Result<()> {
        self.narrator.headline("The count");
        let orders = self.stage.ledger.orders()?;
        let mut seen = self.stage.ledger.progress().await?;
        // Otherwise the last acts would have proved nothing.
        ensure!(seen.booked < orders, "all orders were booked before the end of the demo");
        self.narrator.say(format!("{} of {orders} orders are booked; waiting for the rest", seen.booked));
        while seen.booked < orders {
            let what = format!("another order being booked, after {} of {orders}", seen.booked);
            let ledger = &self.stage.ledger;
            seen = until(&what, STANDSTILL, || more_booked(ledger, seen.booked)).await?;
            self.stage.check_alive()?;
        }
        self.narrator.say(format!(
            "all {orders} are booked; `ledger check` verifies the orders, every balance and every token"
        ));
        let verdict = self.stage.ledger.check().await?;
        self.narrator.say("`dr-worker history`:");
        self.narrator.say(self.stage.operator.run(&["history"]).await?);
        self.summary.conclude(&verdict);
        Ok(())
    }

    /// Waits until a job books under a newer token than `token`, and its worker reports that it leads.
    async fn new_leadership(&mut self, token: u64, booked: u64) -> anyhow::Result<(Leader, Progress)> {
        let what = format!("an order being booked under a newer token than {token}");
        let deadline = Instant::now() + SOON;
        let progress = loop {
            // A worker that has ended would never lead.
            self.stage.check_alive()?;
            match self.stage.ledger.booked_under_newer(token, booked).await? {
                Seen::There(progress) => break progress,
                Seen::NotYet(instead) if Instant::now() >= deadline => {
                    bail!("waited {} for {what}; last state: {instead}", seconds(SOON))
                }
                Seen::NotYet(_) => tokio::time::sleep(Duration::from_millis(25)).await,
            }
        };
        let deadline = Instant::now() + SOON;
        loop {
            match self.stage.leader().await? {
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
    async fn members_stand_by(&mut self, count: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + SOON;
        loop {
            self.stage.check_alive()?;
            let mut standing_by = Vec::new();
            for worker in self.stage.workers.iter().filter(|worker| worker.pid().is_some()) {
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
    async fn only_it_answers(&self, leader: &Leader) -> anyhow::Result<()> {
        for worker in &self.stage.workers {
            let expected = if worker.id == leader.id { 200 } else { 503 };
            let code = worker.answers("/leader").await;
            ensure!(code == Some(expected), "/leader of {} answers {code:?}, not {expected}", worker.id);
        }
        Ok(())
    }

    /// Waits until the leader's job has booked orders.
    async fn some_orders(&mut self, since: &Progress) -> anyhow::Result<()> {
        let mut seen = since.clone();
        while seen.booked < since.booked + SOME_ORDERS {
            let ledger = &self.stage.ledger;
            let more = || more_booked(ledger, seen.booked);
            seen = until("another order being booked", STANDSTILL, more).await?;
            self.stage.check_alive()?;
        }
        let Progress { booked, member, site, .. } = seen;
        self.narrator.say(format!("{booked} orders are booked, the latest by {member} in {site}"));
        Ok(())
    }

    /// Without its worker the job must not continue: its guard ends it.
    async fn job_is_gone(&self, job: u32, event: Instant) -> anyhow::Result<()> {
        let look = || async move {
            let stat = std::fs::read_to_string(format!("/proc/{job}/stat"));
            // A zombie has ended.
            let runs = stat.is_ok_and(|stat| !stat.contains(") Z "));
            Ok(if runs { Seen::NotYet("it runs".to_owned()) } else { Seen::There(()) })
        };
        until(&format!("the end of the job, pid {job}, after its worker"), SOON, look).await?;
        let elapsed = seconds(event.elapsed());
        self.narrator.say(format!("its guard has ended the job, pid {job}, within {elapsed}"));
        Ok(())
    }

    async fn tell_takeover(&self, leader: &Leader, event: Instant) -> anyhow::Result<()> {
        self.narrator.say(format!("the job books again, {} later", seconds(event.elapsed())));
        self.tell_leader(leader).await
    }

    async fn tell_leader(&self, leader: &Leader) -> anyhow::Result<()> {
        let list = self.stage.operator.json(&["list"]).await?;
        let because = find_text(&list, "sentence").context("the decision has no sentence")?;
        let Leader { id, term, token, .. } = leader;
        self.narrator.say(format!("{id} leads, in term {term}, with fencing token {token}"));
        self.narrator.say(format!("why: {because}"));
        Ok(())
    }
}

async fn more_booked(ledger: &Ledger, than: u64) -> anyhow::Result<Seen<Progress>> {
    let progress = ledger.progress().await?;
    if progress.booked > than {
        return Ok(Seen::There(progress));
    }
    Ok(Seen::NotYet(format!("{} are", progress.booked)))
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
