//! A member: a session, a part in the election, and a job that acts.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boot_time::BootTime;
use election_core::config::{Policy, TakeoverLimit};
use election_core::errors::Ended;
use election_core::handler::{Failure, StopOrder};
use election_core::strategy::{Ranked, Ranking, Refused, Round, Strategy};
use election_core::{Election, ElectionConfig, Handler, Leadership};
use robustness::history::{self, Event};
use zk_session::Session;

use crate::network::Network;
use crate::plan::Plan;
use crate::trace::Trace;

pub(crate) const TICK: Duration = Duration::from_millis(500);
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(4);
const STOP_BUDGET: Duration = Duration::from_millis(500);
/// Between two acts of a job.
const PACE: Duration = Duration::from_millis(50);
const JOB: &str = "/elections/orders";
/// Before another attempt to connect.
const AGAIN: Duration = Duration::from_millis(500);

/// One incarnation of a member.
pub(crate) struct Member {
    /// Its name and its number among the incarnations.
    pub(crate) life: String,
    pub(crate) session: Session,
    pub(crate) election: Election,
    dead: Arc<AtomicBool>,
}

impl Member {
    /// Joins. Tries until it has a session.
    pub(crate) async fn join(
        plan: Arc<Plan>,
        network: Arc<Network>,
        trace: Arc<Trace>,
        name: String,
        number: usize,
    ) -> Self {
        let life = format!("{name}#{number}");
        let session = loop {
            let (to, who) = (Arc::clone(&network), life.clone());
            let dial = move |address: SocketAddr| Arc::clone(&to).connect(who.clone(), address);
            let builder = Session::builder(network.servers.connect_string()).name(&life);
            let builder = builder.session_timeout(SESSION_TIMEOUT).tick_time(TICK).dial_by(dial);
            match builder.auth("digest", "member:secret").connect().await {
                Ok(session) => break session,
                Err(error) => trace.said(&format!("{life}: {error}")),
            }
            tokio::time::sleep(AGAIN).await;
        };
        let dead = Arc::<AtomicBool>::default();
        let job = Job {
            name: name.clone(),
            life: life.clone(),
            stop_ms: plan.stop_ms,
            trace: Arc::clone(&trace),
            dead: Arc::clone(&dead),
            leads: Mutex::default(),
        };
        let config = config(plan.recipe, &name).unwrap_or_else(|error| panic!("{error}"));
        let election = Election::join(session.clone(), config, job);
        tokio::spawn(watch(election.clone(), trace, life.clone(), Arc::clone(&dead)));
        Self { life, session, election, dead }
    }

    /// Its process is killed: its job acts no more, and nothing that it sends arrives.
    pub(crate) fn die(self, network: &Network) {
        self.dead.store(true, Ordering::Relaxed);
        network.broken.send_modify(|broken| {
            broken.deaf.insert(self.life.clone());
            broken.mute.insert(self.life.clone());
            broken.resets += 1;
            broken.reset.clone_from(&self.life);
        });
        tokio::spawn(async move { self.leave().await });
    }

    pub(crate) async fn leave(self) {
        let _ = self.election.leave().await;
        let _ = self.session.close(Duration::from_secs(5)).await;
    }
}

fn config(recipe: &str, name: &str) -> Result<ElectionConfig, Box<dyn std::error::Error>> {
    let config = match recipe {
        "elector" => ElectionConfig::elector(JOB, name, ByName)?,
        "queue" => ElectionConfig::queue(JOB, name)?,
        _ => ElectionConfig::single(JOB, name)?,
    };
    Ok(config.policy(Policy::default().with(|policy| {
        policy.stop_budget = Some(STOP_BUDGET);
        policy.takeover_timeout = Duration::from_secs(4);
        policy.release_timeout = Duration::from_secs(5);
        policy.acquire_timeout = Duration::from_secs(5);
        policy.startup_wait = Duration::from_secs(2);
        policy.exclusion = Duration::from_secs(4);
        policy.max_takeovers = TakeoverLimit { count: 1000, within: Duration::from_secs(60) };
    })))
}

/// An election ends only because its member leaves.
async fn watch(election: Election, trace: Arc<Trace>, life: String, dead: Arc<AtomicBool>) {
    let ended = election.ended().await;
    if !dead.load(Ordering::Relaxed) && ended != Ended::Left {
        trace.problem(format!("{life} has ended: {ended}"));
    }
}

/// Acts, and says so.
struct Job {
    name: String,
    life: String,
    stop_ms: u64,
    trace: Arc<Trace>,
    dead: Arc<AtomicBool>,
    leads: Mutex<Option<history::Leadership>>,
}

impl Job {
    fn record(&self, event: Event) {
        if !self.dead.load(Ordering::Relaxed) {
            self.trace.record(&self.life, event);
        }
    }

    fn leads(&self) -> MutexGuard<'_, Option<history::Leadership>> {
        self.leads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unless it has not taken over.
    fn act(&self) {
        if let Some(led) = self.leads().clone() {
            self.record(Event::Act(led));
        }
    }

    fn led(&self, slot: usize, term: u64, token: u64) -> history::Leadership {
        let (job, member) = (JOB.to_owned(), self.name.clone());
        history::Leadership { job, slot: u64::try_from(slot).unwrap_or(0), member, term, token }
    }
}

impl Handler for Job {
    async fn takeover(&self, leadership: &Leadership) -> Result<(), Failure> {
        let led = self.led(leadership.slot(), leadership.term(), leadership.fencing_token());
        *self.leads() = Some(led.clone());
        self.record(Event::Lead(led));
        Ok(())
    }

    async fn lead(&self, _: &Leadership) -> Result<(), Failure> {
        loop {
            self.act();
            tokio::time::sleep(PACE).await;
        }
    }

    /// It takes a while, at most as long as it may.
    async fn stop(&self, order: &StopOrder) {
        let until = BootTime::now() + Duration::from_millis(fastrand::u64(0..=self.stop_ms));
        while BootTime::now() < until.min(order.by()) {
            self.act();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if let Some(led) = self.leads().take() {
            self.record(Event::End(led));
        }
    }
}

/// Whoever is not excluded, the incumbent first.
#[derive(Debug)]
struct ByName;

impl Strategy for ByName {
    fn rank(&self, round: &Round<'_>) -> Ranking {
        let mut ranking = Ranking::default();
        for member in round.candidates {
            let named = member.named();
            if round.exclusions.iter().any(|excluded| excluded.ballot == member.ballot) {
                ranking.refused.push(Refused::new(named, "not-excluded", "it is excluded".to_owned()));
            } else {
                ranking.order.push(Ranked::new(named, vec!["it stands".to_owned()]));
            }
        }
        ranking.order.sort_by_key(|ranked| {
            (round.incumbent != Some(&ranked.named.ballot), ranked.named.ballot.clone())
        });
        ranking
    }
}
