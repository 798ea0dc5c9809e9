//! The world of the engines: an agenda of due events, and nothing between two entries.
//!
//! Its simplifications, which permit a year in a second:
//!
//! - A message takes [`LATENCY`], to the ensemble and back. Only a cut loses messages.
//! - A connected member sends a quorum heartbeat in each quarter of its session's timeout, and the heartbeats prove its
//!   lease. The lease is computed only when the member is cut off. Until then it has no end.
//! - All clocks have the same rate. The simulation in `election-core/tests` covers clocks, lost replies and lagging
//!   servers.

mod host;
mod job;
mod network;

use std::collections::BTreeMap;

use election_core::{
    Paths,
    config::{Leftovers, MemberId, Profile, Recipe, SiteId},
    internals::{
        Action, Config, EndReason, Engine, Event, Forgotten, NoteKind, Now, Time, acknowledge,
        record::{AdminRequest, Elected, Health, Record as _, RequestKind, Target},
    },
    status::Reason,
};

use crate::{
    Millis, SECOND,
    account::Account,
    incident::{Incident, Where},
    policy::Rules,
    zookeeper::Ensemble,
};
use host::{Host, Link};
pub(crate) use job::words;

/// The one-way time between a member and the ensemble.
pub const LATENCY: Millis = 5;
/// The timeout of the sessions: a worker's default.
pub const TIMEOUT: Millis = 10 * SECOND;
/// The tick of the servers, which expire sessions at multiples of it.
const TICK: Millis = 2 * SECOND;
/// The time between two heartbeats.
const HEARTBEAT: Millis = TIMEOUT / 4;
/// How long a dead worker stays down.
const RESTART: Millis = 5 * SECOND;
/// Monday, 5 January 2026, 00:00 UTC: the start of every world.
const EPOCH_MS: u64 = 1_767_571_200_000;
/// A lease or a deadline beyond this is none.
const ENDLESS: Millis = 1000 * crate::DAY * 365;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The time.
    pub at: Millis,
    /// The member.
    pub who: String,
    /// The text.
    pub text: String,
}

/// A due event.
#[derive(Clone, Debug)]
enum Due {
    Wake(usize),
    /// For a process, if it is still the same process.
    Process(usize, u64, ToProcess),
    Expires(i64),
    /// The guard of a dead worker closes its session.
    Closes(i64),
    Start(usize),
    Happens(Incident),
}

/// An event for a process.
#[derive(Clone, Debug)]
enum ToProcess {
    Client(network::ToClient),
    Job(u64, job::Step),
}

/// A deployment in virtual time.
#[derive(Debug)]
pub struct World {
    rules: Rules,
    paths: Paths,
    now: Millis,
    next: u64,
    agenda: BTreeMap<(Millis, u64), Due>,
    zk: Ensemble,
    outage: bool,
    hosts: Vec<Host>,
    /// The latest leader, and whether it could not lead on.
    former: Option<(usize, bool)>,
    account: Account,
    lines: Option<Vec<Line>>,
}

impl World {
    /// A deployment with these members, none of which has started. `logs`: whether it collects [lines](Self::lines).
    ///
    /// # Errors
    /// If an id is invalid.
    pub fn new(rules: Rules, members: &[&str], logs: bool) -> Result<Self, String> {
        let host = |name: &&str| {
            let site = name.split('-').next().unwrap_or(name);
            let member = MemberId::new(*name).map_err(|e| e.to_string())?;
            Ok::<_, String>(Host::new(member, SiteId::new(site).map_err(|e| e.to_string())?))
        };
        Ok(Self {
            rules,
            paths: Paths::new("/dr", "orders").map_err(|wrong| wrong.to_string())?,
            now: 0,
            next: 0,
            agenda: BTreeMap::new(),
            zk: Ensemble::new(),
            outage: false,
            hosts: members.iter().map(host).collect::<Result<_, _>>()?,
            former: None,
            account: Account::default(),
            lines: logs.then(Vec::new),
        })
    }

    /// Adds an incident to the agenda.
    pub fn plan(&mut self, at: Millis, incident: Incident) {
        self.at(at, Due::Happens(incident));
    }

    /// Runs all events that are due until `end`.
    pub fn run_until(&mut self, end: Millis) {
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((at, _), due) = entry.remove_entry();
            self.pass(at);
            self.dispatch(due);
        }
        self.pass(end);
    }

    fn pass(&mut self, now: Millis) {
        let one_could = self.one_is_fit();
        self.account.pass(now, one_could);
        self.now = now;
    }

    fn one_is_fit(&self) -> bool {
        self.hosts.iter().any(Host::is_fit)
    }

    /// Drops states of znodes that no read can request any more.
    pub fn forget_history(&mut self) {
        self.zk.forget_history();
    }

    /// The lines since the last call.
    pub fn lines(&mut self) -> Vec<Line> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The totals.
    pub fn account(&self) -> &Account {
        &self.account
    }

    // ---- the agenda ----

    fn at(&mut self, at: Millis, due: Due) {
        self.next += 1;
        self.agenda.insert((at.max(self.now), self.next), due);
    }

    fn later(&mut self, host: usize, delay: Millis, what: ToProcess) {
        let life = self.hosts[host].life;
        self.at(self.now + delay, Due::Process(host, life, what));
    }

    fn dispatch(&mut self, due: Due) {
        match due {
            Due::Wake(host) => {
                if self.hosts[host].wakes_at == Some(self.now) {
                    self.hosts[host].wakes_at = None;
                    self.feed(host, Event::Tick);
                }
            }
            Due::Process(host, life, what) => {
                if self.hosts[host].life == life && self.hosts[host].engine.is_some() {
                    match what {
                        ToProcess::Client(what) => self.client(host, what),
                        ToProcess::Job(run, step) => self.job_step(host, run, step),
                    }
                }
            }
            Due::Expires(session) => self.expires(session),
            Due::Closes(session) => self.close(session),
            Due::Start(host) => self.start(host),
            Due::Happens(incident) => self.happens(incident),
        }
    }

    fn say(&mut self, who: &str, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(Line { at: self.now, who: who.to_owned(), text: text() });
        }
    }

    fn say_of(&mut self, host: usize, text: impl FnOnce() -> String) {
        if self.lines.is_some() {
            let who = self.hosts[host].member.to_string();
            self.say(&who, text);
        }
    }

    // ---- engines ----

    fn feed(&mut self, host: usize, event: Event) {
        let now = Now::new(Time::from_millis(self.now), EPOCH_MS + self.now);
        let Some(engine) = &mut self.hosts[host].engine else { return };
        engine.handle(now, event);
        let life = self.hosts[host].life;
        loop {
            let target = &mut self.hosts[host];
            let Some(action) =
                target.engine.as_mut().filter(|_| target.life == life).and_then(Engine::poll_action)
            else {
                break;
            };
            self.act(host, action);
        }
        let target = &mut self.hosts[host];
        let due = target.engine.as_ref().and_then(Engine::wakeup).map(millis_up);
        if let Some(at) = due.filter(|at| *at < ENDLESS && target.wakes_at != Some(*at)) {
            // A time that is due already would be no progress.
            let at = at.max(self.now + 1);
            target.wakes_at = Some(at);
            self.at(at, Due::Wake(host));
        }
    }

    fn act(&mut self, host: usize, action: Action) {
        match action {
            Action::Perform { op, epoch, request } => self.perform(host, op, epoch, request),
            Action::Watch { epoch, set } => self.watch(host, epoch, set),
            Action::Prepare(_) => self.prepare(host),
            Action::TakeOver(entered) => self.take_over(host, &entered),
            Action::WorkUntil(until) => self.work_until(host, until),
            Action::Stop(reason) => self.stop(host, &reason),
            Action::Note(note) => {
                let said = match note.kind {
                    NoteKind::Decided => true,
                    NoteKind::Skipped(reason) => matches!(reason, Reason::Held | Reason::Backoff),
                    _ => false,
                };
                if said {
                    self.say_of(host, || note.text.to_string());
                }
            }
            Action::End(EndReason::Left) => {
                let session = self.hosts[host].session;
                let back = self.hosts[host].back_after;
                self.hosts[host].dies();
                self.close(session);
                self.at(self.now + back, Due::Start(host));
            }
            Action::End(EndReason::DuplicateMember { .. } | EndReason::OtherRecipe(_)) => {
                self.hosts[host].dies();
                self.at(self.now + RESTART, Due::Start(host));
            }
            Action::KeepLease(_)
            | Action::Suspend(_)
            | Action::AskBeforeMove(_)
            | Action::Lead
            | Action::LeaderChanged(..) => {}
        }
    }

    fn start(&mut self, host: usize) {
        let target = &mut self.hosts[host];
        if target.engine.is_some() || !target.powered {
            return;
        }
        let mut member = Profile::new(target.member.clone()).in_site(target.site.clone());
        member.attributes = target.measured.clone();
        let config = Config {
            paths: self.paths.clone(),
            member: member.into(),
            policy: self.rules.policy.clone().into(),
            // The lock in its state directory proves that no former process lives.
            leftovers: Leftovers::Remove,
            recipe: Recipe::Elector(self.rules.strategy.clone()),
        };
        let now = Now::new(Time::from_millis(self.now), EPOCH_MS + self.now);
        let number = u32::try_from(target.life).unwrap_or(u32::MAX);
        target.engine = Some(Engine::new(config, number, now));
        if let Some(reason) = target.unwell.clone() {
            self.feed(host, Event::Health(Health::Unhealthy { reason }));
        }
        self.connect(host);
    }

    // ---- incidents ----

    fn happens(&mut self, incident: Incident) {
        match incident {
            Incident::Start(at) => self.each(&at, |world, host| {
                world.hosts[host].powered = true;
                // One after the other, which fixes the order of their ballots.
                world.at(world.now + 100 * host as Millis, Due::Start(host));
            }),
            Incident::Crash(at) => self.each(&at, Self::crash),
            Incident::PowerOff(at) => self.each(&at, |world, host| {
                world.silence(host);
                world.lost(host, true);
                world.hosts[host].powered = false;
            }),
            Incident::PowerOn(at) => self.each(&at, |world, host| {
                world.hosts[host].powered = true;
                world.at(world.now + RESTART, Due::Start(host));
            }),
            Incident::Cut(at) => self.each(&at, |world, host| world.cut(host)),
            Incident::Mend(at) => self.each(&at, |world, host| world.mend(host)),
            Incident::End(at, back_after) => self.each(&at, |world, host| {
                world.hosts[host].back_after = back_after;
                world.feed(host, Event::Leave { hand_over: true });
            }),
            Incident::Deploy(at, task) => self.each(&at, |world, host| world.deploy(host, task.clone())),
            Incident::Unwell(at, reason) => self.each(&at, |world, host| {
                world.hosts[host].unwell = Some(reason.clone());
                world.feed(host, Event::Health(Health::Unhealthy { reason: reason.clone() }));
            }),
            Incident::Well(at) => self.each(&at, |world, host| {
                world.hosts[host].unwell = None;
                world.feed(host, Event::Health(Health::Healthy));
            }),
            Incident::Measure(at, name, value) => self.each(&at, |world, host| {
                world.hosts[host].measured.insert(name.clone(), value.clone());
                let measured = world.hosts[host].measured.clone();
                world.feed(host, Event::Measured(measured));
            }),
            Incident::Outage => {
                self.outage = true;
                self.each(&Where("all".to_owned()), |world, host| world.cut(host));
            }
            Incident::OutageEnds => {
                self.outage = false;
                self.zk.elect_leader(self.now);
                self.each(&Where("all".to_owned()), |world, host| world.mend(host));
            }
            Incident::Switchover(site) => self.switchover(&site),
            Incident::Ack => self.acknowledge(),
            Incident::JobFails(why) => {
                if let Some(host) = self.hosts.iter().position(Host::serves) {
                    self.fails(host, why);
                }
            }
            Incident::Round => self.round(),
        }
    }

    fn each(&mut self, at: &Where, mut what: impl FnMut(&mut Self, usize)) {
        for host in 0..self.hosts.len() {
            if at.is(self.hosts[host].member.as_str(), self.hosts[host].site.as_str()) {
                what(self, host);
            }
        }
    }

    fn crash(&mut self, host: usize) {
        if self.hosts[host].engine.is_none() {
            return;
        }
        let (session, cut) = (self.hosts[host].session, self.hosts[host].is_cut());
        self.silence(host);
        self.lost(host, true);
        if !cut {
            self.at(self.now + job::STOPS, Due::Closes(session));
        }
        self.at(self.now + RESTART, Due::Start(host));
    }

    /// The process of a host has ended, and with it its leadership.
    fn lost(&mut self, host: usize, failed: bool) {
        self.no_longer_leads(host, failed);
        self.hosts[host].dies();
    }

    fn switchover(&mut self, site: &str) {
        let Ok(site) = SiteId::new(site) else { return };
        let prefix = self.paths.request_prefix();
        let (id, created_ms) = (self.now.to_string(), EPOCH_MS + self.now);
        let target = Target::Site(site);
        let request =
            AdminRequest::new(id, RequestKind::Switchover, target, "operator".to_owned(), created_ms);
        if let Ok(data) = request.encode(&prefix) {
            let mut changed = self.zk.make_parents(self.now, &prefix);
            changed.push(self.zk.create_sequential(self.now, &prefix, data, 0).0);
            self.changed(&changed);
        }
    }

    fn round(&mut self) {
        let Some(first) = self.rules.sites.first().cloned() else { return };
        let mut there = self.hosts.iter().filter(|host| host.site == first);
        let leads_elsewhere = self.hosts.iter().any(|host| host.serves() && host.site != first);
        if leads_elsewhere && there.all(Host::is_fit) {
            self.switchover(first.as_str());
        }
    }

    fn acknowledge(&mut self) {
        let path = self.paths.elected();
        let elected = self.zk.get(&path).and_then(|node| Elected::decode(&path, &node.data).ok());
        let next = elected.as_ref().and_then(|elected| acknowledge(elected, Forgotten::ALL));
        let next = next.and_then(|(next, _)| next.encode(&path).ok());
        if let Some(data) = next {
            let changed = self.zk.set(self.now, &path, data, None).changed;
            self.changed(&changed);
        }
    }
}

fn millis_up(time: Time) -> Millis {
    let nanos = time.since_origin().as_nanos();
    u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
