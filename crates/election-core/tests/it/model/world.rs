//! The whole system at one moment: members, the ensemble, the resource, and what must
//! be remembered of the past to judge the present.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    sync::Arc,
};

use election_core::{
    config::SiteId,
    handler::StopReason,
    internals::{
        Action, AppEvent, Engine, Event, Node, Now, OpId, Outcome, Time, Transaction, Watched, Wish, ZkOp,
        ZnodeWrite, fencing_token, raise_tokens,
        record::{AdminRequest, Cause, Contender, Current, Elected, Record, RequestRef},
    },
    status::Ballot,
};

use crate::invariants::{
    Verdict,
    a_successor_follows_a_leader::Tenures,
    at_most_one,
    blames_the_right_one::Chances,
    exclusions_end,
    fencing::Fencing,
    leads_as_decided::Appointments,
    never_on_one_sites_word::{self, Witness},
    one_decision_per_term::Decisions,
    one_life,
    others_undisturbed::{self, Slots},
    place_is_its_owners, planned_stops_have_time,
    requests_once::Requests,
};
use crate::model::{
    canon::Canon,
    process::{Answer, Client, Job, Link, Member, Phase, Process},
    server::{Server, Tree, children},
    settings::{Kind, LEASE, MEMORY, Outside, PLANNED, Setting, TICK},
};

/// When a run begins.
const BEGIN: Time = Time::from_millis(1_000_000_000);
const WALL_MS: u64 = 1_700_000_000_000;
const HOUR_MS: u64 = 3_600_000;

/// The newest token that the resource has seen of an ensemble that is gone.
const RESTORED: u64 = 1 << 36;

/// The resource that the job works on.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Store {
    /// The highest token that it has seen.
    pub(crate) highest: u64,
}

/// What was promised on the way here.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Past {
    decisions: Decisions,
    appointments: Appointments,
    tenures: Tenures,
    slots: Slots,
    /// By slot.
    fencing: BTreeMap<usize, Fencing>,
    requests: Requests,
    /// The tokens of leaders whose leader znode was taken from them while they may work: each may act beside the next one.
    deposed: BTreeSet<u64>,
    /// Who has ever lost whom.
    lost: BTreeMap<Ballot, BTreeSet<usize>>,
    /// By slot.
    chances: BTreeMap<usize, Chances>,
    remembered: Remembered,
}

/// The latest decision that a member knew when all was deleted: term, base of the tokens, and who knew
/// it, by member and life.
#[derive(Clone, Debug, Default, Hash)]
struct Remembered {
    term: u64,
    token_base: u64,
    by: BTreeSet<(usize, u64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) hours: u64,
    pub(crate) server: Arc<Server>,
    pub(crate) members: Vec<Arc<Member>>,
    /// By slot.
    pub(crate) stores: Vec<Store>,
    pub(crate) past: Arc<Past>,
    /// The member whose steps come first.
    pub(crate) turn: usize,
    /// How often an event may still overtake an earlier one.
    pub(crate) overtakes: u8,
    /// How many faults may still happen.
    pub(crate) faults: u8,
    /// Which kinds of faults have happened, a bit each, where each may happen once.
    pub(crate) happened: u16,
    /// How many requests were made.
    pub(crate) asked: u8,
    /// What does not hold.
    pub(crate) broken: Option<String>,
    /// Faults have stopped: there are no new ones.
    pub(crate) calm: bool,
    /// Members that don't come back, one bit each, in the check of the survivors.
    pub(crate) lost: u8,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, to: &mut H) {
        to.write_u64(self.fingerprint());
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
    }
}

impl World {
    pub(crate) fn new(setting: &Setting) -> Self {
        let mut world = Self {
            now: BEGIN,
            hours: 0,
            server: Arc::new(Server::new()),
            members: setting.members.iter().map(|_| Arc::default()).collect(),
            stores: vec![Store::default(); setting.slots],
            past: Arc::default(),
            turn: 0,
            overtakes: setting.overtakes,
            faults: setting.faults,
            happened: 0,
            asked: 0,
            broken: None,
            calm: false,
            lost: 0,
        };
        if setting.restored {
            world.restore(setting);
        }
        world
    }

    fn restore(&mut self, setting: &Setting) {
        self.stores.iter_mut().for_each(|store| store.highest = RESTORED);
        let path = setting.paths().elected();
        let raised = raise_tokens(None, None, RESTORED, "operator", WALL_MS).expect("a base");
        let data = raised.expect("a higher one").encode(&path).expect("a record");
        let create = ZnodeWrite::create(path, data).into();
        let _ = self.server().apply(0, &Tree::default(), &create);
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        let mut canon = Canon::new(self.now.since_origin().as_nanos(), (TICK * MEMORY).as_nanos());
        (self.hours, &self.server, &self.stores, &self.past).hash(&mut canon);
        (self.turn, self.overtakes, self.faults, self.happened).hash(&mut canon);
        (self.asked, self.broken.is_some(), self.calm, self.lost).hash(&mut canon);
        for member in &self.members {
            canon.part();
            member.hash(&mut canon);
        }
        canon.fingerprint()
    }

    pub(crate) fn clock(&self) -> Now {
        Now::new(self.now, WALL_MS + self.hours * HOUR_MS)
    }

    pub(crate) fn ticks_since(&self, earlier: Time) -> u32 {
        u32::try_from(self.now.since(earlier).as_secs() / TICK.as_secs()).unwrap_or(u32::MAX)
    }

    pub(crate) fn member(&mut self, m: usize) -> &mut Member {
        Arc::make_mut(&mut self.members[m])
    }

    pub(crate) fn server(&mut self) -> &mut Server {
        Arc::make_mut(&mut self.server)
    }

    pub(crate) fn require(&mut self, verdict: Verdict) {
        if let (Err(what), None) = (verdict, &self.broken) {
            self.broken = Some(what);
        }
    }

    // ---- processes ----

    pub(crate) fn start(&mut self, setting: &Setting, m: usize) {
        let number = u32::try_from(self.members[m].life).unwrap_or(u32::MAX);
        let mut engine = Engine::new(setting.config(m), number, self.clock());
        if setting.calls_off {
            engine.handle(self.clock(), Event::Wish(Wish::AskBeforeMoves));
        }
        let member = self.member(m);
        member.life += 1;
        member.process = Some(Process {
            engine,
            epochs: 0,
            client: None,
            keeps_lease: false,
            job: Job::default(),
            leaving: false,
            unfit: false,
        });
    }

    pub(crate) fn feed(&mut self, setting: &Setting, m: usize, event: Event) {
        let now = self.clock();
        let Some(process) = &mut self.member(m).process else { return };
        process.engine.handle(now, event);
        let mut actions = Vec::new();
        while let Some(action) = process.engine.poll_action() {
            actions.push(action);
        }
        for action in actions {
            self.act(setting, m, action);
        }
    }

    fn act(&mut self, setting: &Setting, m: usize, action: Action) {
        match action {
            Action::Perform { op, epoch, request } => self.perform(setting, m, op, epoch, request),
            Action::Watch { epoch, set } => {
                if let Some(client) = self.member(m).client_mut().filter(|c| c.epoch == epoch) {
                    let told = |w: &Watched| {
                        client.watched.iter().find(|(known, _)| known == w).and_then(|(_, told)| told.clone())
                    };
                    client.watched = set.into_iter().map(|w| (w.clone(), told(&w))).collect();
                    let wanted = client.watched.iter().any(|(w, _)| client.is_late(w));
                    client.late =
                        client.late.take().filter(|late| wanted || matches!(late, Event::Done { .. }));
                }
            }
            Action::KeepLease(keeps) => {
                if let Some(process) = &mut self.member(m).process {
                    process.keeps_lease = keeps;
                }
            }
            Action::Prepare(_) => {
                let phase = self.job(m).map(|job| job.phase);
                if phase != Some(Phase::Idle) {
                    let what = format!("one life: host {m} is to prepare while it is {phase:?}");
                    return self.require(Err(what));
                }
                self.begin(m, Phase::Preparing, Answer::Prepared);
            }
            Action::TakeOver(entered) => {
                let token = entered.fencing_token;
                let life = self.members[m].life;
                let (slot, term) = (entered.appointment.slot, entered.appointment.term);
                let past = Arc::make_mut(&mut self.past);
                let promised = !past.deposed.contains(&token);
                let fencing = past.fencing.entry(slot).or_default();
                let fenced = fencing.granted(promised, m, life, token);
                let led = match setting.recipe {
                    Kind::Elector => past.appointments.enters(promised, slot, term, &entered.ballot),
                    // There is no decision.
                    Kind::Queue | Kind::Single => Ok(()),
                };
                self.require(fenced.and(led));
                let broken = setting.broken.contains(&setting.members[m].0);
                self.begin(m, Phase::TakingOver, Answer::TakenOver);
                if let Some(job) = self.job(m) {
                    job.token = Some(token);
                    job.slot = slot;
                    job.given = Some((term, entered.ballot));
                    job.hangs = broken;
                }
            }
            Action::WorkUntil(until) => {
                if let Some(job) = self.job(m) {
                    job.until = Some(until);
                }
            }
            Action::AskBeforeMove(_) => {
                if let Some(job) = self.job(m) {
                    job.is_asked = true;
                }
            }
            Action::Stop(reason) => {
                self.check_undisturbed(setting, m, &reason);
                let Some(process) = &mut self.member(m).process else { return };
                let (job, keeps_lease) = (&mut process.job, process.keeps_lease);
                job.is_asked = false;
                let has_time = setting.standbys && job.phase == Phase::Serving && !reason.is_urgent();
                match job.phase {
                    // It has answered already; the two have crossed.
                    Phase::Idle => {}
                    Phase::Stopping => {
                        job.stops_within = 0;
                        if reason == StopReason::LeaseEnds {
                            self.require(planned_stops_have_time::hastened(m, keeps_lease));
                        }
                    }
                    _ => {
                        job.stops_within = if has_time { PLANNED } else { 0 };
                        job.phase = Phase::Stopping;
                        job.answers = Some(Answer::Stopped);
                    }
                }
            }
            Action::Note(note) => self.check_successor(setting, m, &note.text),
            Action::Lead | Action::Suspend(_) | Action::LeaderChanged(..) => {}
            Action::End(_) => {
                let member = self.member(m);
                let session = member.client().filter(|c| c.link != Link::Over).map(|c| c.session);
                let acts = member.process.take().is_some_and(|p| p.job.token.is_some());
                if acts {
                    self.require(Err(format!("one life: host {m} ends while its job runs")));
                }
                if let Some(session) = session {
                    self.end_session(setting, session);
                }
            }
        }
    }

    pub(crate) fn job(&mut self, m: usize) -> Option<&mut Job> {
        self.member(m).process.as_mut().map(|p| &mut p.job)
    }

    fn begin(&mut self, m: usize, phase: Phase, answer: Answer) {
        if let Some(job) = self.job(m) {
            job.phase = phase;
            job.answers = Some(answer);
        }
    }

    fn perform(&mut self, setting: &Setting, m: usize, op: OpId, epoch: u64, request: ZkOp) {
        if let ZkOp::Multi(asked) = &request {
            self.check_fit(setting, m, asked);
        }
        let living = |c: &&mut Client| c.epoch == epoch && c.link != Link::Over;
        let Some(client) = self.member(m).client_mut().filter(living) else {
            let outcome = Outcome::NotApplied("the session is over".to_owned());
            return self.feed(setting, m, Event::Done { op, outcome });
        };
        // No other part reads the history.
        let is_entry = |write: &ZnodeWrite| write.path.contains("/history/");
        let outcome = match request {
            ZkOp::Multi(Transaction { answer, .. }) if answer.creates() && is_entry(&answer) => {
                Outcome::Created { path: answer.path, czxid: 0, version: 0 }
            }
            ZkOp::Children(path) if path.ends_with("/history") => Outcome::Names(Vec::new()),
            ZkOp::Multi(mut transaction) => {
                transaction.before.retain(|write| !is_entry(write));
                return client.sent.push_back((op, transaction.into()));
            }
            request => return client.sent.push_back((op, request)),
        };
        self.feed(setting, m, Event::Done { op, outcome });
    }

    // ---- what the job does ----

    /// The application answers what was asked of it.
    pub(crate) fn answer(&mut self, setting: &Setting, m: usize) {
        let Some(job) = self.job(m) else { return };
        let Some(answer) = job.answers.take() else { return };
        let mut has_led = false;
        let event = match answer {
            Answer::Prepared => AppEvent::Prepared,
            Answer::TakenOver => {
                let (slot, token) = (job.slot, job.token.unwrap_or(0));
                if self.takes_over(setting, slot, token) {
                    if let Some(job) = self.job(m) {
                        job.phase = Phase::Serving;
                    }
                    AppEvent::TakenOver
                } else {
                    AppEvent::TakeoverFailed("the resource refuses the token".to_owned())
                }
            }
            Answer::Failed if job.phase == Phase::Preparing => AppEvent::PrepareFailed("it fails".to_owned()),
            Answer::Failed => AppEvent::TakeoverFailed("it fails".to_owned()),
            Answer::Ended => {
                job.phase = Phase::Ended;
                job.token = None;
                AppEvent::WorkFailed("it has ended".to_owned())
            }
            Answer::Stopped => {
                has_led = job.given.is_some();
                *job = Job::default();
                AppEvent::Stopped
            }
        };
        let is_promoted = event == AppEvent::TakenOver;
        self.feed(setting, m, Event::App(event));
        if setting.standbys && (is_promoted || has_led) {
            self.standby(setting, m, is_promoted);
        }
    }

    /// The application lets leadership move, or calls that off.
    pub(crate) fn consent(&mut self, setting: &Setting, m: usize, may_move: bool) {
        let Some(job) = self.job(m) else { return };
        job.is_asked = false;
        let event = match may_move {
            true => AppEvent::MoveAccepted,
            false => AppEvent::MoveDeclined("it is busy".to_owned()),
        };
        self.feed(setting, m, Event::App(event));
    }

    /// The claim, and then the first look at the resource.
    fn takes_over(&mut self, setting: &Setting, slot: usize, token: u64) -> bool {
        let store = &mut self.stores[slot];
        if token < store.highest && setting.has(Outside::Tokens) {
            return false;
        }
        if setting.has(Outside::Claim) {
            store.highest = store.highest.max(token);
        }
        // It uses what it has read.
        let fencing = Arc::make_mut(&mut self.past).fencing.entry(slot).or_default();
        let verdict = fencing.accepted(false, 0, token);
        self.require(verdict);
        true
    }

    /// A tick has passed. The guard ends what runs past its deadline.
    pub(crate) fn guard(&mut self, setting: &Setting, m: usize) {
        let now = self.now;
        let Some(job) = self.job(m) else { return };
        // The worker gives it no longer than its budget, which is a tick.
        job.hangs &= job.phase != Phase::Stopping;
        job.stops_within = job.stops_within.saturating_sub(1);
        if !setting.has(Outside::Guard) || job.token.is_none() || job.until.is_none_or(|until| now < until) {
            return;
        }
        job.token = None;
        job.hangs = false;
        job.stops_within = 0;
        if job.phase == Phase::Stopping {
            job.answers = Some(Answer::Stopped);
        } else {
            job.answers = Some(Answer::Ended);
        }
    }

    // ---- sessions ----

    pub(crate) fn end_session(&mut self, setting: &Setting, session: i64) {
        let gone = self.server().end(session);
        for path in gone {
            self.changed(setting, &path);
        }
    }

    pub(crate) fn connect(&mut self, setting: &Setting, m: usize) {
        let now = self.now;
        let Some(process) = &self.members[m].process else { return };
        let acts = process.job.token.is_some();
        let verdict = one_life::begins(m, process.engine.is_clear(), acts, false);
        self.require(verdict);
        let session = self.server().open(now);
        let Some(process) = &mut self.member(m).process else { return };
        process.epochs += 1;
        let epoch = process.epochs;
        process.client = Some(Client::new(epoch, session, now));
        let event = Event::SessionStarted {
            epoch,
            session_id: session,
            granted: TICK * crate::model::settings::TIMEOUT,
        };
        self.feed(setting, m, event);
    }

    pub(crate) fn over(&mut self, setting: &Setting, m: usize) {
        let Some(client) = self.member(m).client_mut() else { return };
        client.lose();
        client.link = Link::Over;
        let epoch = client.epoch;
        self.feed(setting, m, Event::SessionOver(epoch));
    }

    /// The session is heard of; the lease, if it is kept, lasts from now on.
    pub(crate) fn heartbeat(&mut self, setting: &Setting, m: usize) {
        let now = self.now;
        let Some(process) = &mut self.member(m).process else { return };
        let keeps = process.keeps_lease;
        let Some(client) = &mut process.client else { return };
        let (epoch, session, reaches) = (client.epoch, client.session, !client.minority);
        client.heard = now;
        if reaches {
            self.server().touch(session, now);
        }
        if keeps && (reaches || !setting.has(Outside::Heartbeats)) {
            let until = now + TICK * LEASE;
            if let Some(client) = self.member(m).client_mut() {
                client.lease = Some(until);
            }
            self.feed(setting, m, Event::Lease { epoch, valid_until: until });
        }
    }

    // ---- what has been written ----

    pub(crate) fn changed(&mut self, setting: &Setting, path: &str) {
        let paths = setting.paths();
        let elected = self.elected(setting);
        let slot = paths.slot_of(path).filter(|_| setting.recipe == Kind::Elector);
        let currents: Vec<_> = (0..setting.slots).map(|slot| self.current(setting, slot)).collect();
        let unix_ms = self.clock().unix_ms;
        let span = u64::try_from(setting.policy().exclusion.as_millis()).unwrap_or(u64::MAX);
        let writer = self.server.get(path).and_then(|n| self.member_of(setting, n.owner));
        let which = path.strip_prefix(&format!("{}/", paths.requests())).and_then(|name| {
            let czxid = self.server.get(path)?.czxid;
            Some(RequestRef { czxid, name: name.to_owned() })
        });
        if path == paths.elected() {
            self.depose_by_decision(setting, elected.as_ref());
        }
        let ordered = self.server.get(path).and_then(|n| AdminRequest::decode(path, &n.data).ok());
        let past = Arc::make_mut(&mut self.past);
        let mut verdict = Ok(());
        if let Some(elected) = &elected {
            if path == paths.elected() {
                past.appointments.decided(elected);
                verdict = past
                    .decisions
                    .stands(elected)
                    .and_then(|()| past.requests.decision(elected))
                    .and_then(|()| witnessed(setting, elected, &past.lost))
                    .and_then(|()| past.tenures.decided(elected))
                    .and_then(|()| past.slots.decided(elected))
                    .and_then(|()| exclusions_end::check(elected, unix_ms, span, 0));
            }
            for (at, current) in currents.iter().enumerate() {
                if path == paths.elected() || slot == Some(at) {
                    let chances = past.chances.entry(at).or_default();
                    verdict = verdict.and(chances.stands(at, elected, current.as_ref()));
                }
            }
        }
        if let Some((slot, current)) = slot.and_then(|slot| Some((slot, currents.get(slot)?.as_ref()?))) {
            past.tenures.holds(slot, current);
            verdict = verdict.and(place_is_its_owners::check(current, writer));
        }
        if let (Some(which), Some(request)) = (which, ordered) {
            verdict = verdict.and(past.requests.written(&which, &request));
        }
        self.require(verdict);
    }

    /// The leader znode of a slot is taken from its holder.
    fn depose(&mut self, setting: &Setting, slot: usize) {
        let base = self.elected(setting).map_or(0, |elected| elected.token_base);
        let place = match setting.recipe {
            Kind::Elector => self.server.get(&setting.paths().leader_znode(slot)),
            Kind::Queue | Kind::Single => self.first(setting),
        };
        if let Some(token) = place.and_then(|place| fencing_token(place.czxid, base)) {
            Arc::make_mut(&mut self.past).deposed.insert(token);
        }
    }

    /// A decision that others' reports or an operator's force have caused takes the leader znode from a member that may work.
    fn depose_by_decision(&mut self, setting: &Setting, elected: Option<&Elected>) {
        let Some(elected) = elected else { return };
        let vacated = elected.slots.iter().position(|slot| slot.given.term == elected.term);
        let suspected = elected.cause() == Cause::Suspected;
        let forced = elected.latest().and_then(|given| given.request.as_ref()).is_some_and(|request| {
            let path = setting.paths().request(&request.name);
            let request =
                self.server.get(&path).and_then(|node| AdminRequest::decode(&path, &node.data).ok());
            setting.forces_unheard() && request.is_some_and(|request| request.force)
        });
        if let Some(slot) = vacated.filter(|_| suspected || forced) {
            self.depose(setting, slot);
        }
    }

    /// `m` has not reached `suspect`.
    pub(crate) fn has_lost(&mut self, m: usize, suspect: &Ballot) {
        if !self.past.lost.get(suspect).is_some_and(|by| by.contains(&m)) {
            Arc::make_mut(&mut self.past).lost.entry(suspect.clone()).or_default().insert(m);
        }
    }

    fn member_of(&self, setting: &Setting, session: i64) -> Option<&'static str> {
        let m = self.members.iter().position(|m| m.client().is_some_and(|c| c.session == session))?;
        Some(setting.members[m].0)
    }

    pub(crate) fn elected(&self, setting: &Setting) -> Option<Elected> {
        let path = setting.paths().elected();
        Elected::decode(&path, &self.server.get(&path)?.data).ok()
    }

    /// The record in the leader znode of a slot; in the queue, that of the first candidate.
    pub(crate) fn current(&self, setting: &Setting, slot: usize) -> Option<Current> {
        let path = setting.paths().leader_znode(slot);
        if setting.recipe == Kind::Elector {
            return Current::decode(&path, &self.server.get(&path)?.data).ok();
        }
        let node = self.first(setting)?;
        let ballot = Ballot::new(format!("s{:x}-{:010}", node.owner, 0)).ok()?;
        Some(Contender::decode(&path, &node.data).ok()?.to_current(ballot, node.czxid))
    }

    /// Where a znode alone settles who leads: that one.
    pub(crate) fn first(&self, setting: &Setting) -> Option<&Node> {
        let paths = setting.paths();
        if setting.recipe == Kind::Single {
            return self.server.get(&paths.leader_znode(0));
        }
        let queue = paths.queue();
        let number = |name: &str| Ballot::new(name).ok().map(|ballot| ballot.sequence());
        children(&self.server.tree, &queue).min_by_key(|(name, _)| number(name)).map(|(_, node)| &**node)
    }

    // ---- what an administrator does ----

    pub(crate) fn delete_all(&mut self, setting: &Setting) {
        let past = Arc::make_mut(&mut self.past);
        past.decisions.deleted();
        past.slots.deleted();
        past.tenures.deleted();
        past.appointments.deleted();
        for (m, member) in self.members.iter().enumerate() {
            let known = member.process.as_ref().and_then(|process| process.engine.elected());
            let Some(known) = known.filter(|known| known.term >= past.remembered.term) else { continue };
            if known.term > past.remembered.term {
                past.remembered.by.clear();
            }
            past.remembered.term = known.term;
            past.remembered.token_base = known.token_base;
            past.remembered.by.insert((m, member.life));
        }
        (0..setting.slots).for_each(|slot| self.depose(setting, slot));
        let gone = self.server().delete_all();
        for path in gone {
            self.changed(setting, &path);
        }
    }

    /// Whether terms and tokens continue above what a member remembers that was there when all was deleted.
    pub(crate) fn is_remembered(&self, setting: &Setting) -> bool {
        let Remembered { term, token_base, by } = &self.past.remembered;
        let lives = |(m, life): &(usize, u64)| {
            let member = &self.members[*m];
            member.life == *life && member.process.is_some() && !self.is_lost(*m)
        };
        let kept = |elected: Elected| elected.term >= *term && elected.token_base >= *token_base;
        !by.iter().any(lives) || self.elected(setting).is_some_and(kept)
    }

    // ---- what must hold at each moment ----

    /// A leader stops for a decision or for the loss of its znode only where there is one.
    fn check_undisturbed(&mut self, setting: &Setting, m: usize, reason: &StopReason) {
        let Some(process) = &self.members[m].process else { return };
        let (Some(token), Some((term, ballot))) = (process.job.token, &process.job.given) else { return };
        let verdict = match reason {
            StopReason::NotNamed(_) | StopReason::Removed(_) if setting.recipe == Kind::Elector => {
                let own = process.engine.ballot();
                self.past.slots.stops(process.job.slot, *term, ballot, own.as_ref())
            }
            StopReason::LeaderZnodeLost => {
                let base = self.elected(setting).map_or(0, |elected| elected.token_base);
                let is_there = self
                    .server
                    .tree
                    .values()
                    .any(|node| node.owner != 0 && fencing_token(node.czxid, base) == Some(token));
                others_undisturbed::loses(m, is_there)
            }
            _ => return,
        };
        self.require(verdict);
    }

    pub(crate) fn judge(&mut self, setting: &Setting) {
        let acting = |m: usize, w: &Self| {
            let member = &w.members[m];
            let job = &member.process.as_ref()?.job;
            let token = job.token?;
            (!member.frozen).then_some((job.slot, (m, token)))
        };
        let everyone = 0..self.members.len();
        for m in everyone.clone() {
            let Some((slot, me)) = acting(m, self) else { continue };
            let others: BTreeSet<_> =
                everyone.clone().filter(|o| *o != m).filter_map(|o| acting(o, self)).collect();
            let others = others.into_iter().filter(|(of, _)| *of == slot).map(|(_, other)| other);
            let deposed = |token: u64| self.past.deposed.contains(&token);
            let others = others.filter(|(_, other)| !deposed(me.1.min(*other)));
            let verdict = at_most_one::check(true, me, others);
            self.require(verdict);
        }
        // Every acting member may be about to write, including one on a frozen machine.
        for m in everyone {
            let job = self.members[m].process.as_ref().map(|p| &p.job);
            let Some((slot, token)) = job.and_then(|job| Some((job.slot, job.token?))) else { continue };
            let store = &self.stores[slot];
            let accepted = token >= store.highest || !setting.has(Outside::Tokens);
            if accepted && self.past.fencing.get(&slot).is_some_and(|fencing| fencing.is_superseded(token)) {
                self.require(Err(format!(
                    "fencing: the resource would take a write of host {m} with token {token} though a later leader has \
                     read it"
                )));
            }
        }
    }
}

/// A leader whose leadership was ended was lost by enough others.
fn witnessed(setting: &Setting, elected: &Elected, lost: &BTreeMap<Ballot, BTreeSet<usize>>) -> Verdict {
    let suspect = match (elected.latest().and_then(|given| given.previous.as_ref()), elected.named(0)) {
        (Some(suspect), None) if elected.cause() == Cause::Suspected => &suspect.ballot,
        _ => return Ok(()),
    };
    let site = |m: usize| SiteId::new(setting.members[m].1).expect("a site");
    let by = lost.get(suspect).into_iter().flatten();
    let witnesses: Vec<_> = by.map(|m| Witness { host: *m, site: site(*m) }).collect();
    let sites = (0..setting.members.len()).map(site).collect();
    never_on_one_sites_word::check(suspect, &witnesses, &sites)
}
