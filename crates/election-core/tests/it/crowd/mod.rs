//! What a crowd of members costs the servers: engines of one election in virtual time, every message of which is counted.
//! `docs/scale.md` has the tables, and what follows from them.
//!
//! `CROWD=5000 cargo test --release -p election-core --no-default-features --test it crowd -- --nocapture` is the long form.
//! Each test measures so many members and half of them, and compares the two: no bound is a time, or was measured.
//!
//! Many members of one election in virtual time, each with its engine and a session of its own. What they send to the
//! servers, and what those report to them, is counted. Nothing fails but whole members.
//!
//! A member counts as the runtime would: `lease` has its heartbeats, `watching` its watches.

mod counts;
mod lease;
mod server;
mod tests;
mod watching;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use election_core::{
    Paths,
    config::{Leftovers, MemberId, Profile, QueueFormat, Recipe, SiteId},
    internals::{Action, AppEvent, Config, EndReason, Engine, Epoch, Event, Now, Time},
};
use fastrand::Rng;

pub(crate) use counts::{Counts, Group};
pub(crate) use watching::COALESCED;

use crate::{
    strategy::SiteOrder,
    zookeeper::{Ensemble, Millis},
};
use lease::Lease;
use server::{Answer, Message};
use watching::Watching;

/// The session timeout, and the servers' tickTime.
const TIMEOUT: Millis = 10_000;
const TICK: Millis = 1000;

/// How long a message takes at most.
const LATENCY: Millis = 4;

/// How long the application takes for each order.
const WORK: Millis = 3;

/// So many members start one after the other, so that it is known which of them decides, and which leads.
const FIRST: usize = 3;
const APART: Millis = 300;

/// Within this time all others start.
const STARTS: Millis = 2000;

/// After this time without a message nothing follows: longer than any part waits for another one.
const QUIET: Millis = 5000;
const PATIENCE: Millis = 120_000;

/// How long a crowd at rest is watched.
const REST: Millis = 60_000;

/// What a passive member reads of a change of leadership: the decision and the leader znode, once each.
const PASSIVE_READS: u64 = 2;

/// Each member has one session.
const EPOCH: Epoch = 1;

/// The wall clock when a crowd begins.
const UNIX_MS: u64 = 1_700_000_000_000;

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The recipe `elector`: the first leader is the elector.
    Elector,
    /// The recipe `elector`: the first leader is another member.
    ElectorStays,
    /// The same, and each member follows who leads while it is passive.
    AllFollow,
    Queue,
    Single,
}

/// Which member is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Leader,
    /// The elector; it may lead as well.
    Elector,
    /// A member that is neither, and in no line.
    Onlooker,
}

/// How a member is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It leaves the election.
    Leaves,
    /// It dies, and the servers have ended its session.
    Crashes,
}

/// What happens to a member.
#[derive(Debug)]
enum Due {
    Starts,
    /// Its message reaches its server.
    Arrives(Message),
    /// A message of its server reaches it.
    Receives(Answer),
    Wakes(Millis),
    Heartbeat(u64),
    Leased,
    /// It reads a change that it did not read at once.
    Reads(String, u64),
    /// The changes of own writes should have come by now.
    Late,
    App(u64, AppEvent),
}

#[derive(Debug)]
struct Member {
    engine: Engine,
    session: i64,
    counts: Counts,
    watching: Watching,
    lease: Lease,
    wakes_at: Option<Millis>,
    /// Counts orders to stop: the application does not answer an earlier order any more.
    run: u64,
    /// When the last message arrives in each direction: a connection keeps their order.
    arrives_at: Millis,
    receives_at: Millis,
    is_enrolled: bool,
    is_gone: bool,
}

/// The cost of one change of leadership, by part. A member that has several parts has the first of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub(crate) old: Group,
    pub(crate) successor: Group,
    pub(crate) elector: Group,
    /// In a line of succession before it, or after it.
    pub(crate) in_line: Group,
    pub(crate) others: Group,
    /// Requests of all others than the old and the next leader; if all follow who leads, beyond what each of them reads as a
    /// passive one.
    pub(crate) beyond: u64,
    /// How long it took until the next leader led, if the leader was lost.
    pub(crate) takes: Millis,
}

impl Change {
    pub(crate) fn total(&self) -> Counts {
        let mut total = Counts::default();
        for group in [self.old, self.successor, self.elector, self.in_line, self.others] {
            total += group.total;
        }
        total
    }
}

/// A crowd while nothing happens.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    pub(crate) seconds: u64,
    pub(crate) total: Counts,
    /// The members that have sent heartbeats.
    pub(crate) leases: BTreeSet<usize>,
    /// The leader, the elector and those in line.
    pub(crate) involved: BTreeSet<usize>,
}

/// The world.
pub(crate) struct Crowd {
    kind: Kind,
    recipe: Recipe,
    sites: Vec<SiteId>,
    paths: Paths,
    rng: Rng,
    now: Millis,
    /// When the last message was sent that was no heartbeat.
    busy: Millis,
    next: u64,
    agenda: BTreeMap<(Millis, u64), (usize, Due)>,
    zk: Ensemble,
    /// Who is notified once when a znode changes.
    watched: BTreeMap<String, BTreeSet<usize>>,
    /// Who is notified of each change in the election.
    whole: BTreeSet<usize>,
    members: Vec<Member>,
    enrolled: usize,
    /// The members that have led, one after the other, each with the time when it began.
    led: Vec<(Millis, usize)>,
}

impl Crowd {
    /// Starts so many members in so many sites, and returns when all have joined, one leads and all is quiet.
    pub(crate) fn gather(kind: Kind, members: usize, sites: usize) -> Self {
        let site = |number| SiteId::new(format!("site-{number}")).expect("a site");
        let sites: Vec<_> = (1..=sites).map(site).collect();
        let recipe = match kind {
            Kind::Elector | Kind::ElectorStays | Kind::AllFollow => {
                Recipe::Elector(Arc::new(SiteOrder(sites.clone())))
            }
            Kind::Queue => Recipe::Queue(QueueFormat::Native),
            Kind::Single => Recipe::Single,
        };
        let mut crowd = Self {
            kind,
            recipe,
            sites,
            paths: Paths::new("/crowd", "election").expect("paths"),
            rng: Rng::with_seed(members as u64),
            now: 1000,
            busy: 1000,
            next: 0,
            agenda: BTreeMap::new(),
            zk: Ensemble::new(),
            watched: BTreeMap::new(),
            whole: BTreeSet::new(),
            members: Vec::new(),
            enrolled: 0,
            led: Vec::new(),
        };
        for number in 0..members {
            let member = crowd.add(number, Leftovers::Wait);
            let late = if number < FIRST { 0 } else { crowd.rng.u64(..STARTS) };
            let delay = APART * number.min(FIRST) as u64 + late;
            crowd.after(delay, member, Due::Starts);
        }
        while crowd.enrolled < members || crowd.led.is_empty() {
            assert!(crowd.now < PATIENCE, "{} of {members} members have joined", crowd.enrolled);
            crowd.run_to(crowd.now + 100);
        }
        crowd.settle();
        crowd
    }

    // ---- what is done with it ----

    /// What all members have cost so far.
    pub(crate) fn all(&self) -> Group {
        let mut all = Group::default();
        for member in &self.members {
            all.add(member.counts);
        }
        all
    }

    /// Lets time pass.
    pub(crate) fn rest(&mut self) -> Rest {
        let before = self.counts();
        self.run_to(self.now + REST);
        let mut rest = Rest {
            seconds: REST / 1000,
            total: Counts::default(),
            leases: BTreeSet::new(),
            involved: self.involved(),
        };
        for (number, (member, before)) in self.members.iter().zip(before).enumerate() {
            let cost = member.counts - before;
            rest.total += cost;
            if cost.heartbeats > 0 {
                rest.leases.insert(number);
            }
        }
        rest
    }

    /// A member is lost. If it has led, another one leads.
    pub(crate) fn change(&mut self, who: Who, loss: Loss) -> Change {
        let old = match who {
            Who::Leader => self.leader(),
            Who::Elector => self.elector().expect("an elector"),
            Who::Onlooker => self.onlooker(),
        };
        let (was_leader, before, led) = (old == self.leader(), self.counts(), self.led.len());
        let mut in_line = self.in_line();
        let lost_at = self.now;
        self.busy = lost_at;
        match loss {
            Loss::Leaves => self.feed(old, Event::Leave { hand_over: true }),
            Loss::Crashes => self.end_session(old),
        }
        self.settle();
        let (new, elector) = (self.leader(), self.elector());
        assert!(!was_leader || old != new, "no other member leads");
        assert_eq!(self.led.len() - led, usize::from(was_leader), "one change of leadership is one takeover");
        in_line.extend(self.in_line());
        let takes = self.led.get(led).map_or(0, |(at, _)| at - lost_at);
        let mut change = Change { takes, ..Change::default() };
        for (number, (member, before)) in self.members.iter().zip(before).enumerate() {
            let group = if number == old {
                &mut change.old
            } else if member.is_gone {
                continue;
            } else if number == new {
                &mut change.successor
            } else if Some(number) == elector {
                &mut change.elector
            } else if in_line.contains(&number) {
                &mut change.in_line
            } else {
                &mut change.others
            };
            let cost = member.counts - before;
            group.add(cost);
            let reads = if self.kind == Kind::AllFollow { PASSIVE_READS } else { 0 };
            let is_other = number != old && number != new;
            change.beyond += if is_other { cost.requests().saturating_sub(reads) } else { 0 };
        }
        change
    }

    /// A member that was not involved dies and starts again. Its former session lives on, and it may remove what is
    /// left of it. Returns the cost of the new process, and that of all others.
    pub(crate) fn restart(&mut self) -> (Group, Group) {
        let killed = self.onlooker();
        self.members[killed].is_gone = true;
        let before = self.counts();
        let again = self.add(killed, Leftovers::Remove);
        self.busy = self.now;
        self.after(1, again, Due::Starts);
        self.settle();
        assert!(self.members[again].is_enrolled, "member {killed} has not joined again");
        let (mut own, mut others) = (Group::default(), Group::default());
        own.add(self.members[again].counts);
        for (member, before) in self.members.iter().zip(before) {
            if !member.is_gone {
                others.add(member.counts - before);
            }
        }
        (own, others)
    }

    // ---- who is who ----

    fn leader(&self) -> usize {
        self.led.last().expect("a leader").1
    }

    fn elector(&self) -> Option<usize> {
        self.members.iter().position(|member| !member.is_gone && member.engine.is_elector())
    }

    fn in_line(&self) -> BTreeSet<usize> {
        let Some(elector) = self.elector() else { return BTreeSet::new() };
        let Some(elected) = self.members[elector].engine.elected() else { return BTreeSet::new() };
        let is_in_line = |member: &Member| {
            let ballot = member.engine.ballot().filter(|_| !member.is_gone);
            ballot.is_some_and(|ballot| elected.place_in_line(0, &ballot).is_some())
        };
        let members = self.members.iter().enumerate();
        members.filter(|(_, member)| is_in_line(member)).map(|(number, _)| number).collect()
    }

    /// The last member that is neither.
    fn onlooker(&self) -> usize {
        let involved = self.involved();
        let is_passive = |number: &usize| !involved.contains(number) && !self.members[*number].is_gone;
        (0..self.members.len()).rev().find(is_passive).expect("a passive member")
    }

    /// The leader, the elector and those in line.
    fn involved(&self) -> BTreeSet<usize> {
        self.in_line().into_iter().chain(self.elector()).chain([self.leader()]).collect()
    }

    fn counts(&self) -> Vec<Counts> {
        self.members.iter().map(|member| member.counts).collect()
    }

    /// The first member is in the first site and leads, or in the last one and does not. The others are spread over all
    /// sites, the last sites first: so the second lowest ballot is not in the site that follows the leader's.
    fn site_of(&self, number: usize) -> &SiteId {
        let sites = self.sites.len();
        let stays = matches!(self.kind, Kind::ElectorStays | Kind::AllFollow);
        let first = if stays { sites - 1 } else { 0 };
        &self.sites[(first + number * (sites - 1)) % sites]
    }

    // ---- time ----

    fn clock(&self) -> Now {
        Now::new(Time::from_millis(self.now), UNIX_MS + self.now)
    }

    fn after(&mut self, delay: Millis, member: usize, due: Due) {
        self.at(self.now + delay, member, due);
    }

    fn at(&mut self, at: Millis, member: usize, due: Due) {
        self.next += 1;
        self.agenda.insert((at, self.next), (member, due));
    }

    fn run_to(&mut self, until: Millis) {
        while let Some(first) = self.agenda.first_entry().filter(|first| first.key().0 <= until) {
            let ((at, _), (member, due)) = first.remove_entry();
            self.now = at;
            if !self.members[member].is_gone {
                self.dispatch(member, due);
            }
        }
        self.now = until;
    }

    /// Runs until all is quiet.
    fn settle(&mut self) {
        let begun = self.now;
        while self.now < self.busy + QUIET {
            assert!(self.now < begun + PATIENCE, "the members send messages without end");
            self.run_to(self.busy + QUIET);
        }
        self.zk.forget_history();
    }

    // ---- the members ----

    /// Adds a process of this member, which has not started yet.
    fn add(&mut self, number: usize, leftovers: Leftovers) -> usize {
        let id = MemberId::new(format!("member-{number}")).expect("a member id");
        let mut profile = Profile::new(id).in_site(self.site_of(number).clone());
        profile.address = Some(format!("host-{number}.example"));
        let config = Config {
            paths: self.paths.clone(),
            member: profile.into(),
            policy: Arc::default(),
            leftovers,
            recipe: self.recipe.clone(),
        };
        self.members.push(Member {
            engine: Engine::new(config, self.members.len() as u32, self.clock()),
            session: 0,
            counts: Counts::default(),
            watching: Watching::default(),
            lease: Lease::default(),
            wakes_at: None,
            run: 0,
            arrives_at: 0,
            receives_at: 0,
            is_enrolled: false,
            is_gone: false,
        });
        self.members.len() - 1
    }

    fn dispatch(&mut self, member: usize, due: Due) {
        match due {
            Due::Starts => self.start(member),
            Due::Arrives(message) => self.arrives(member, message),
            Due::Receives(answer) => self.receives(member, answer),
            Due::Wakes(at) => {
                if self.members[member].wakes_at == Some(at) {
                    self.members[member].wakes_at = None;
                    self.feed(member, Event::Tick);
                }
            }
            Due::Heartbeat(turn) => self.heartbeat_due(member, turn),
            Due::Leased => self.leased(member),
            Due::Reads(path, number) => self.read_late(member, &path, number),
            Due::Late => self.stops_awaiting(member),
            Due::App(run, event) => {
                if self.members[member].run == run {
                    self.feed(member, Event::App(event));
                }
            }
        }
    }

    /// Makes a session, which is a write.
    fn start(&mut self, member: usize) {
        let session_id = self.zk.open(self.now, TIMEOUT);
        let now = self.clock().time;
        let it = &mut self.members[member];
        it.session = session_id;
        it.counts.writes += 1;
        it.lease.begin(now);
        let granted = Duration::from_millis(TIMEOUT);
        self.feed(member, Event::SessionStarted { epoch: EPOCH, session_id, granted });
    }

    /// The servers delete what is left of a member that is gone.
    fn end_session(&mut self, member: usize) {
        self.members[member].is_gone = true;
        let deleted = self.zk.end(self.members[member].session, self.now);
        self.notify(&deleted);
    }

    fn send(&mut self, member: usize, message: Message) {
        if !matches!(message, Message::Heartbeat(_)) {
            self.busy = self.now;
        }
        let latency = self.rng.u64(1..=LATENCY);
        let it = &mut self.members[member];
        it.arrives_at = it.arrives_at.max(self.now + latency);
        let at = it.arrives_at;
        self.at(at, member, Due::Arrives(message));
    }

    fn answer(&mut self, member: usize, answer: Answer) {
        if !matches!(answer, Answer::Acknowledged(_)) {
            self.busy = self.now;
        }
        let latency = self.rng.u64(1..=LATENCY);
        let it = &mut self.members[member];
        it.receives_at = it.receives_at.max(self.now + latency);
        let at = it.receives_at;
        self.at(at, member, Due::Receives(answer));
    }

    fn receives(&mut self, member: usize, answer: Answer) {
        match answer {
            Answer::Done(op, outcome) => {
                self.ended(member, op, &outcome);
                self.feed(member, Event::Done { op, outcome });
                self.follow_whole(member);
            }
            Answer::Acknowledged(sent) => self.acknowledged(member, sent),
            Answer::Node { path, number, node } => self.has_read_node(member, path, number, node),
            Answer::Armed => self.is_armed(member),
            Answer::Read { number, answers } => self.has_read_all(member, number, answers),
            Answer::Changed { path, is_deleted } => self.changed(member, &path, is_deleted),
        }
    }

    // ---- the engine ----

    fn feed(&mut self, member: usize, event: Event) {
        let now = self.clock();
        let it = &mut self.members[member];
        it.engine.handle(now, event);
        let actions: Vec<_> = std::iter::from_fn(|| it.engine.poll_action()).collect();
        let wakes_at = it.engine.wakeup().map(millis);
        if let Some(at) = wakes_at {
            assert!(at > self.now, "member {member} is to wake at {at}, and it is {}", self.now);
        }
        let is_new = it.wakes_at != wakes_at;
        it.wakes_at = wakes_at;
        if !it.is_enrolled && it.engine.ballot().is_some() {
            it.is_enrolled = true;
            self.enrolled += 1;
        }
        if let Some(at) = wakes_at.filter(|_| is_new) {
            self.at(at, member, Due::Wakes(at));
        }
        for action in actions {
            self.act(member, action);
        }
        self.read_at_once(member);
    }

    fn act(&mut self, member: usize, action: Action) {
        match action {
            Action::Perform { op, request, .. } => {
                self.begins(member, op, &request);
                self.send(member, Message::Perform(op, request));
            }
            Action::Watch { set, .. } => self.watch(member, set),
            Action::KeepLease(keeps) => self.keep_lease(member, keeps),
            Action::Prepare(_) => self.app(member, AppEvent::Prepared),
            Action::TakeOver(_) => self.app(member, AppEvent::TakenOver),
            Action::Stop(_) => {
                self.members[member].run += 1;
                self.app(member, AppEvent::Stopped);
            }
            Action::Lead => self.led.push((self.now, member)),
            Action::End(EndReason::Left) => {
                // Its session is closed, which is a write.
                self.members[member].counts.writes += 1;
                self.end_session(member);
            }
            Action::End(EndReason::DuplicateMember { member, path, .. }) => {
                panic!("another process of {member} holds {path}")
            }
            Action::End(EndReason::OtherRecipe(recipe)) => panic!("members of {recipe} are there"),
            Action::WorkUntil(_)
            | Action::Suspend(_)
            | Action::AskBeforeMove(_)
            | Action::LeaderChanged(..)
            | Action::Note(_) => {}
        }
    }

    fn app(&mut self, member: usize, event: AppEvent) {
        let run = self.members[member].run;
        self.after(WORK, member, Due::App(run, event));
    }
}

/// The first whole millisecond that is not before `time`.
fn millis(time: Time) -> Millis {
    u64::try_from(time.since_origin().as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
