//! A whole election in virtual time: members, their networks and jobs, an ensemble,
//! operators, and faults, all from one seed.
//!
//! All events are on one agenda. Only the engine is under test. The rest behaves as badly as the real world may.

mod application;
mod deposed;
mod ending;
mod faults;
mod guarded;
mod host;
mod job;
mod network;
pub(crate) mod noise;
mod operator;
mod probing;
mod resource;
mod restoring;
mod settings;
mod standby;
mod trace;
mod watching;
mod written;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use election_core::{
    Paths,
    config::{MemberId, Profile},
    internals::{Action, Config, EndReason, Engine, Event, Watched, Wish, ZkOp, record::Health},
};
use fastrand::Rng;

use crate::{
    invariants::{
        Verdict, a_successor_follows_a_leader::Tenures, elective_moves_confirmed::ConfirmedMoves,
        fencing::Fencing, fit_when_named, never_back::NeverBack, no_livelock::Pace,
        one_decision_per_term::Decisions, one_leader_in_the_end::Calm, others_undisturbed::Slots,
        requests_once::Requests, standing_orders::Obeyed, tokens_above_their_base::Raised,
    },
    zookeeper::{Ensemble, Millis},
};
use deposed::Deposed;
use host::{Clock, Host, Network, Process, Unseen};
use job::{Job, JobDue};
use probing::Probing;
use resource::Resource;
use restoring::{Deleted, Lost, Restoring};
pub(crate) use settings::{Kind, Settings};
use trace::Trace;

/// Something on the agenda.
#[derive(Clone, Debug)]
pub(crate) enum Due {
    /// For a worker, if it still lives this life.
    Worker(usize, u64, ToWorker),
    /// For the job and its guard.
    Job(usize, u64, u64, JobDue),
    /// For the job of a dead worker, and its guard.
    Guarded(usize, guarded::ToGuarded),
    /// The guard of a dead worker closes its session.
    Closes(usize, i64),
    /// A message reaches the server.
    Arrives(network::Message),
    /// A write reaches the ensemble whose connection was lost.
    Stray {
        session: i64,
        request: ZkOp,
        since: Millis,
    },
    /// The ensemble's leader learns that a session was heard of.
    Touch {
        session: i64,
        at: Millis,
    },
    /// A session may have expired.
    Expires(i64),
    /// The ensemble has a quorum again.
    OutageEnds,
    Heal(usize, faults::Healed),
    Thaw(usize),
    Restart(usize),
    Operator(operator::Errand),
    Fault,
    Calm,
    Look,
    /// The members probe each other.
    Probe(usize),
    /// A host pauses, or is not reached, for a moment.
    Noise(usize),
    /// The ensemble is stopped, to be restored from this copy; briefly, if it is one of moments ago.
    Restore(Box<Ensemble>, bool),
    /// The session of a member that has left is looked at, and closed.
    Leftovers {
        host: usize,
        session: i64,
    },
}

/// Something for a worker; a frozen one gets it when it wakes.
#[derive(Clone, Debug)]
pub(crate) enum ToWorker {
    Event(Event),
    Wake(Millis),
    Client(network::ToClient),
    /// The standby with this number is ready.
    StandbyReady(u64),
}

/// How a run went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) virtual_ms: u64,
    pub(crate) terms: usize,
    pub(crate) leaderships: u64,
    pub(crate) other_slots: u64,
    pub(crate) resized: u64,
    pub(crate) successions: u64,
    pub(crate) sessions: u64,
    pub(crate) resumed: u64,
    pub(crate) acts: u64,
    pub(crate) refused: u64,
    pub(crate) requests_done: usize,
    pub(crate) requests_expired: usize,
    pub(crate) requests_cancelled: usize,
    pub(crate) vacated: u64,
    pub(crate) excluded: u64,
    pub(crate) held: u64,
    pub(crate) called_off: u64,
    pub(crate) duplicates: u64,
    pub(crate) left: u64,
    pub(crate) unknown: u64,
    pub(crate) strays: u64,
    pub(crate) drifts: u64,
    pub(crate) lost_tails: u64,
    pub(crate) failed_over: u64,
    pub(crate) guard_kills: u64,
    pub(crate) closed_by_guards: u64,
    pub(crate) suspected: u64,
    pub(crate) stand_ins: u64,
    pub(crate) raised: u64,
    pub(crate) obeyed: u64,
    pub(crate) penalties: u64,
    pub(crate) acknowledged: u64,
    pub(crate) site_failed: u64,
    pub(crate) remembered: u64,
    pub(crate) barred: u64,
    pub(crate) deleted: u64,
    pub(crate) forgotten: u64,
    pub(crate) restored: u64,
    pub(crate) better: u64,
    pub(crate) upgrades: u64,
    pub(crate) led_on: u64,
    pub(crate) operations: u64,
    pub(crate) noises: u64,
    pub(crate) lost_probes: u64,
    pub(crate) standbys: u64,
    pub(crate) long_stops: u64,
    pub(crate) overdue: u64,
    pub(crate) nobody: u64,
}

/// What went wrong, and when.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) at: Millis,
    pub(crate) what: String,
}

#[derive(Debug)]
struct Checks {
    /// By slot.
    fencing: BTreeMap<usize, Fencing>,
    slots: Slots,
    raised: Raised,
    decisions: Decisions,
    /// When each slot was first decided in each term.
    decided_at: BTreeMap<(usize, u64), Millis>,
    requests: Requests,
    tenures: Tenures,
    obeyed: Obeyed,
    confirmed: ConfirmedMoves,
    never_back: NeverBack,
    paces: Vec<Pace>,
    calm: Option<Calm>,
}

impl Checks {
    fn fencing(&mut self, slot: usize) -> &mut Fencing {
        self.fencing.entry(slot).or_default()
    }
}

/// The world.
#[derive(Debug)]
pub(crate) struct Sim {
    rng: Rng,
    now: Millis,
    next: u64,
    agenda: BTreeMap<(Millis, u64), Due>,
    zk: Ensemble,
    /// When the last write of each session came.
    written: BTreeMap<i64, Millis>,
    /// The ensemble has no quorum.
    outage: bool,
    hosts: Vec<Host>,
    settings: Settings,
    paths: Paths,
    resource: Resource,
    checks: Checks,
    probing: Probing,
    deposed: Deposed,
    violation: Option<Violation>,
    settled: bool,
    last_good_elected: Option<Vec<u8>>,
    /// A clock was wrong by days, and so are the timestamps from it.
    wall_clocks_were_wrong: bool,
    /// The decision was deleted and not written again yet.
    deleted: Option<Deleted>,
    /// Term and base of the tokens of the last decision.
    newest: (u64, u64),
    restoring: Option<Restoring>,
    /// What was lost when the ensemble was restored from a copy.
    lost: Option<Lost>,
    summary: Summary,
    trace: Trace,
}

/// Runs one seed.
pub(crate) fn run(kind: Kind, seed: u64, trace: bool) -> Result<Summary, Violation> {
    let mut rng = Rng::with_seed(seed);
    let settings = Settings::draw(kind, &mut rng);
    Sim::with(settings, rng, trace).run_until(Millis::MAX)
}

impl Sim {
    fn with(settings: Settings, mut rng: Rng, trace: bool) -> Self {
        let mut hosts: Vec<_> =
            (0..settings.members).map(|number| new_host(number, &settings, &mut rng)).collect();
        if settings.twin {
            // Another machine, configured with the first one's id.
            let mut twin = new_host(settings.members, &settings, &mut rng);
            twin.member = hosts[0].member.clone();
            twin.site = hosts[0].site.clone();
            hosts.push(twin);
        }
        let checks = Checks {
            fencing: BTreeMap::new(),
            slots: Slots::default(),
            raised: Raised::default(),
            decisions: Decisions::default(),
            decided_at: BTreeMap::new(),
            requests: Requests::default(),
            tenures: Tenures::default(),
            obeyed: Obeyed::default(),
            confirmed: ConfirmedMoves::default(),
            never_back: NeverBack::default(),
            paces: hosts.iter().map(|_| Pace::default()).collect(),
            calm: None,
        };
        let mut sim = Self {
            rng,
            now: 0,
            next: 0,
            agenda: BTreeMap::new(),
            zk: Ensemble::new(),
            written: BTreeMap::new(),
            outage: false,
            hosts,
            paths: Paths::new("/dr", "orders").expect("paths"),
            resource: Resource::default(),
            probing: Probing::default(),
            deposed: Deposed::default(),
            checks,
            violation: None,
            settled: false,
            last_good_elected: None,
            wall_clocks_were_wrong: false,
            deleted: None,
            newest: (0, 0),
            restoring: None,
            lost: None,
            summary: Summary::default(),
            trace: Trace::new(trace),
            settings,
        };
        sim.trace.line(0, || format!("settings {:?}", sim.settings));
        for host in 0..sim.hosts.len() {
            let at = sim.rng.u64(0..3000);
            sim.hosts[host].restarting = true;
            sim.at(at, Due::Restart(host));
            if let Some(every) = sim.settings.probe_every {
                sim.at(at + every, Due::Probe(host));
            }
        }
        let first = sim.rng.u64(1000..8000);
        sim.at(first, Due::Fault);
        sim.at(sim.settings.fault_time, Due::Calm);
        sim
    }

    /// Runs until the election has settled after its faults, or until this time.
    fn run_until(mut self, end: Millis) -> Result<Summary, Violation> {
        while let Some(((at, _), due)) = self.agenda.pop_first().filter(|((at, _), _)| *at < end) {
            self.now = at;
            self.dispatch(due);
            if let Some(violation) = self.violation {
                return Err(violation);
            }
            if self.settled {
                break;
            }
        }
        self.summary.virtual_ms = self.now;
        self.summary.terms = self.checks.decisions.count();
        self.summary.requests_done = self.checks.requests.done();
        self.summary.requests_expired = self.checks.requests.expired();
        self.summary.requests_cancelled = self.checks.requests.cancelled();
        self.summary.acts = self.resource.accepted;
        self.summary.raised = self.checks.raised.len();
        self.summary.obeyed = self.checks.obeyed.len();
        self.summary.refused = self.resource.refused;
        Ok(self.summary)
    }

    // ---- the agenda ----

    fn at(&mut self, at: Millis, due: Due) {
        self.next += 1;
        self.agenda.insert((at.max(self.now), self.next), due);
    }

    fn after(&mut self, delay: Millis, due: Due) {
        self.at(self.now + delay, due);
    }

    fn tell_worker(&mut self, host: usize, delay: Millis, what: ToWorker) {
        let life = self.hosts[host].life;
        self.after(delay, Due::Worker(host, life, what));
    }

    fn dispatch(&mut self, due: Due) {
        if let Due::Worker(host, ..) = &due
            && self.hosts[*host].frozen.is_some()
        {
            let host = *host;
            self.hosts[host].backlog.push_back(due);
            return;
        }
        if let Due::Job(host, ..) = &due
            && self.hosts[*host].frozen.is_some_and(|f| f.whole)
        {
            let host = *host;
            self.hosts[host].backlog.push_back(due);
            return;
        }
        match due {
            Due::Worker(host, life, what) => {
                if self.hosts[host].life == life && self.hosts[host].process.is_some() {
                    match what {
                        ToWorker::Event(event) => self.feed(host, event),
                        ToWorker::Wake(at) => self.wake(host, at),
                        ToWorker::Client(what) => self.client(host, what),
                        ToWorker::StandbyReady(standby) => self.standby_ready(host, standby),
                    }
                }
            }
            Due::Job(host, life, run, what) => {
                if self.hosts[host].life == life {
                    self.job_due(host, run, what);
                }
            }
            Due::Guarded(host, what) => self.guarded(host, what),
            Due::Closes(host, session) => self.closes(host, session),
            Due::Arrives(message) => self.arrives(message),
            Due::Stray { session, request, since } => self.lands(session, &request, since),
            Due::Touch { session, at } => self.zk.touch(session, at),
            Due::Expires(session) => self.expires(session),
            Due::OutageEnds => self.outage_ends(),
            Due::Heal(host, what) => self.heal(host, what),
            Due::Thaw(host) => self.thaw(host),
            Due::Restart(host) => self.start(host),
            Due::Operator(errand) => self.run_errand(errand),
            Due::Fault => self.fault(),
            Due::Calm => self.calm(),
            Due::Look => self.look(),
            Due::Probe(host) => self.probe(host),
            Due::Noise(host) => self.noise(host),
            Due::Restore(copy, briefly) => self.stop_to_restore(copy, briefly),
            Due::Leftovers { host, session } => self.look_for_leftovers(host, session),
        }
    }

    fn require(&mut self, verdict: Verdict) {
        if let (Err(what), None) = (verdict, &self.violation) {
            self.trace.line(self.now, || format!("VIOLATED: {what}"));
            self.violation = Some(Violation { at: self.now, what });
        }
    }

    fn name(&self, host: usize) -> String {
        self.hosts[host].member.to_string()
    }

    // ---- processes ----

    fn start(&mut self, host: usize) {
        self.hosts[host].restarting = false;
        if self.hosts[host].process.is_some() || self.hosts[host].retired {
            return;
        }
        // The guard has the lock, and starts it.
        if self.hosts[host].guarded.is_some() {
            return;
        }
        let target = &self.hosts[host];
        let mut profile = Profile::new(target.member.clone()).in_site(target.site.clone());
        if self.rng.bool() {
            profile.attributes = faults::attributes(&mut self.rng);
        }
        if self.settings.app.standby.is_some() {
            profile.health = Health::Unknown;
        }
        profile.address = Some(format!("{}.example", target.member));
        let config = Config {
            paths: self.paths.clone(),
            member: profile.into(),
            policy: target.policy.clone().with(|policy| policy.slots = self.settings.policy.slots).into(),
            leftovers: self.settings.leftovers,
            recipe: target.recipe.clone(),
        };
        let now = target.clock.now(self.now);
        self.trace.line(self.now, || format!("{}: starts", target.member));
        let target = &mut self.hosts[host];
        target.life += 1;
        // Another host can have the same member.
        let number = u32::try_from(target.life << 8 | host as u64).unwrap_or(u32::MAX);
        let mut engine = Engine::new(config.clone(), number, now);
        if self.settings.app.is_asked {
            engine.handle(now, Event::Wish(Wish::AskBeforeMoves));
        }
        target.process = Some(Process {
            engine,
            config,
            epochs: 0,
            client: None,
            keeps_lease: false,
            wake_at: None,
            job: Job::default(),
            leaving: false,
            blocked_since: None,
            thawed_at: self.now,
            requests: BTreeMap::new(),
            unfit: BTreeSet::new(),
            standby: 0,
        });
        self.start_standby(host);
        self.tell_worker(host, 1, ToWorker::Client(network::ToClient::Connect));
    }

    /// The process dies, and its job with it; the session lives on until it expires.
    fn crash(&mut self, host: usize) {
        let target = &mut self.hosts[host];
        if target.process.take().is_none() {
            return;
        }
        target.life += 1;
        target.frozen = None;
        target.backlog = VecDeque::new();
        self.trace.line(self.now, || format!("{}: CRASHES", self.hosts[host].member));
    }

    /// The worker continues in another process, if it is at rest, and its job does not notice. The connection is lost by that.
    fn upgrade(&mut self, host: usize) {
        let now = self.hosts[host].clock.now(self.now);
        let target = &mut self.hosts[host];
        let Some(process) = target.process.as_mut().filter(|_| target.frozen.is_none()) else { return };
        let Some(client) = process.client.as_mut().filter(|client| client.started) else { return };
        let Ok(from) = process.engine.resumption() else { return };
        // As it crosses.
        let text = serde_json::to_string(&from).expect("JSON");
        let from = serde_json::from_str(&text).expect("what was written");
        let (engine, entered) =
            Engine::resume(process.config.clone(), from, client.epoch, now).expect("an elector");
        process.engine = engine;
        if let Some(entered) = &entered {
            process.job.work_until = Some(entered.work_until);
        }
        (process.keeps_lease, process.wake_at) = (false, None);
        client.watched.clear();
        self.summary.upgrades += 1;
        self.summary.led_on += u64::from(entered.is_some());
        self.trace.line(self.now, || format!("{}: UPGRADED", self.hosts[host].member));
        self.pause(host);
    }

    fn restart_later(&mut self, host: usize, delay: Millis) {
        if !self.hosts[host].restarting {
            self.hosts[host].restarting = true;
            self.after(delay, Due::Restart(host));
        }
    }

    // ---- the engine ----

    fn feed(&mut self, host: usize, event: Event) {
        let now = self.hosts[host].clock.now(self.now);
        self.note_read(host, &event);
        let target = &mut self.hosts[host];
        let member = &target.member;
        let Some(process) = &mut target.process else {
            return;
        };
        self.trace.event(self.now, member, &event);
        process.engine.handle(now, event);
        let mut actions = Vec::new();
        while let Some(action) = process.engine.poll_action() {
            actions.push(action);
        }
        let wakeup = process.engine.wakeup();
        if let Some(at) = wakeup
            && at <= now.time
        {
            let what = format!("no livelock: {member} asks to be woken at {at:?}, and it is {:?}", now.time);
            return self.require(Err(what));
        }
        self.wake_later(host);
        for action in actions {
            self.trace.action(self.now, &self.hosts[host].member, &action);
            self.act(host, action);
        }
        self.read_what_was_left(host);
    }

    fn wake_later(&mut self, host: usize) {
        let target = &mut self.hosts[host];
        let Some(process) = &mut target.process else { return };
        let wake_at = process.engine.wakeup().map(|at| target.clock.reaches(at));
        if let Some(at) = wake_at.filter(|_| process.wake_at != wake_at) {
            process.wake_at = wake_at;
            let life = target.life;
            self.at(at, Due::Worker(host, life, ToWorker::Wake(at)));
        }
    }

    fn wake(&mut self, host: usize, at: Millis) {
        if self.hosts[host].process.as_ref().is_some_and(|p| p.wake_at == Some(at)) {
            if let Some(process) = &mut self.hosts[host].process {
                process.wake_at = None;
            }
            self.feed(host, Event::Tick);
        }
    }

    fn act(&mut self, host: usize, action: Action) {
        match action {
            Action::Perform { op, epoch, request } => {
                self.summary.operations += 1;
                let engine = self.hosts[host].process.as_ref().map(|p| &p.engine);
                let slots = engine.map_or(1, |engine| engine.leaders().count());
                let verdict = self.checks.paces[host].operation(self.now, host, slots);
                self.require(verdict);
                self.check_begun(host, &request);
                self.check_named(host, &request);
                self.perform(host, op, epoch, request);
            }
            Action::Watch { epoch, set } => self.watch(host, epoch, set),
            Action::KeepLease(keeps) => {
                if let Some(process) = &mut self.hosts[host].process {
                    process.keeps_lease = keeps;
                }
                if keeps {
                    self.tell_lease(host);
                }
                self.heartbeat_if_due(host);
            }
            Action::Prepare(_) => self.prepare(host),
            Action::TakeOver(entered) => self.take_over(host, &entered),
            Action::WorkUntil(until) => self.work_until(host, until),
            Action::Suspend(suspended) => self.suspend(host, suspended),
            Action::AskBeforeMove(_) => self.ask_before_move(host),
            Action::Stop(reason) => self.stop(host, &reason),
            Action::LeaderChanged(_, leader) => self.follow(host, leader.as_deref()),
            Action::Note(note) => self.noted(host, &note.text),
            Action::Lead => {}
            Action::End(reason) => self.ended(host, &reason),
        }
    }

    fn noted(&mut self, host: usize, text: &str) {
        self.summary.held += u64::from(text.contains("on hold until"));
        self.summary.nobody += u64::from(text.contains("no member may lead"));
        let member = &self.hosts[host].member;
        let process = self.hosts[host].process.as_ref().filter(|_| text.contains(fit_when_named::STEPS_IN));
        if let Some(process) = process {
            let verdict = fit_when_named::leads(member.as_str(), process.engine.health());
            self.require(verdict);
        }
        if text.contains("has not let go for more than") {
            self.check_overdue(host, text);
        }
    }

    fn ended(&mut self, host: usize, reason: &EndReason) {
        let Some(process) = self.hosts[host].process.take() else {
            return;
        };
        self.hosts[host].life += 1;
        if process.job.token.is_some() {
            self.require(Err(format!("one life: host {host} ends ({reason:?}) while its job runs")));
        }
        match reason {
            EndReason::Left => {
                self.summary.left += 1;
                // A session that it gave up expires by itself.
                if let Some(client) = process.client.filter(|c| c.link != host::Link::Over) {
                    self.after(2000, Due::Leftovers { host, session: client.session });
                }
            }
            EndReason::DuplicateMember { .. } | EndReason::OtherRecipe(_) => {
                self.summary.duplicates += 1;
                if let Some(client) = process.client {
                    self.close(client.session);
                }
            }
        }
        let delay = self.rng.u64(1000..6000);
        self.restart_later(host, delay);
    }

    fn look_for_leftovers(&mut self, host: usize, session: i64) {
        if self.zk.lives(session) {
            let mut owned = self.zk.owned_by(session);
            // It can't find out from a spoiled leader znode whether that is what it created without an answer.
            owned.retain(|path| self.zk.get(path).is_none_or(|node| node.data != faults::GARBAGE));
            let verdict = crate::invariants::nothing_left_behind::check(host, &owned);
            self.require(verdict);
            self.close(session);
        }
    }

    // ---- what has been committed ----

    /// These paths have changed. Their watchers are notified, and the invariants of their content are checked.
    fn changed(&mut self, paths: &[String]) {
        for path in paths {
            self.check_written(path);
        }
        if paths.contains(&self.paths.tokens()) {
            self.know_raised();
        }
        for host in 0..self.hosts.len() {
            let Some(client) = self.hosts[host].process.as_ref().and_then(|p| p.client.as_ref()) else {
                continue;
            };
            let touched = |watched: &&Watched| match watched {
                Watched::Node(path) => paths.iter().any(|p| **p == **path),
                Watched::Tree(parent) => paths.iter().any(|p| crate::zookeeper::parent_of(p) == &**parent),
            };
            let hit: Vec<_> = client.watched.keys().filter(touched).cloned().collect();
            for watched in hit {
                self.read_watch_later(host, watched);
            }
        }
    }
}

fn new_host(number: usize, settings: &Settings, rng: &mut Rng) -> Host {
    let site = settings.sites[number % settings.sites.len()].clone();
    let lag = if settings.lag == 0 { 0 } else { rng.u64(0..settings.lag) };
    Host {
        member: MemberId::new(format!("{site}-{}", number / settings.sites.len() + 1)).expect("a member id"),
        site,
        policy: settings.policy_of_one(rng),
        recipe: settings.recipe_of_one(number, rng),
        clock: Clock {
            origin_us: rng.u64(1_000_000_000..1_000_000_000_000),
            since: 0,
            drift_ppm: drift(rng),
            wall_error: rng.i64(-(faults::WALL_ERROR as i64)..faults::WALL_ERROR as i64),
        },
        net: Network {
            cut: false,
            minority: None,
            unseen: Unseen::Nobody,
            latency: settings.latency,
            lag,
            usual_lag: lag,
            answers_late: false,
            watch_delay: settings.latency,
            loss: settings.loss,
            refuses: false,
        },
        life: 0,
        process: None,
        frozen: None,
        backlog: VecDeque::new(),
        follows_leaders: rng.bool(),
        restarting: false,
        guarded: None,
        retired: false,
    }
}

/// How much faster or slower than the ensemble's a clock may run, in millionths: what a lease allows for.
fn drift(rng: &mut Rng) -> i64 {
    rng.i64(-10_000..=10_000)
}

/// Whether a member of these settings may lead on through a pause.
fn keeps(settings: &Settings) -> bool {
    matches!(settings.policy.on_pause, election_core::config::OnPause::Keep { .. })
}
