//! Plays a script against engines and an ensemble in memory, and records all events. Nothing is random, and time passes
//! only by commands of the script.

mod command;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use election_core::{
    Paths,
    config::{Policy, Recipe, SiteId},
    internals::{Action, Engine, Event, Now, OpId, Outcome, Time, Watched, ZkOp},
};

use crate::{
    strategy::SiteOrder,
    zookeeper::{Applied, Ensemble, parent_of},
};
use words::{entries, outcome_in_words, shorten, tokens, verb};

/// The wall clock when a script begins.
const UNIX_MS: u64 = 1_700_000_000_000;

/// The timeout that the ensemble grants, unless a script sets another one.
const GRANTED: Duration = Duration::from_secs(10);

/// So many steps without an end are a circle.
const STEPS: usize = 5000;

/// Creation and last change of what a watch has reported, by name.
type Versions = BTreeMap<String, (i64, i64)>;

#[derive(Debug)]
struct Member {
    engine: Engine,
    session: i64,
    epoch: u64,
    connected: bool,
    /// It receives nothing, and does nothing.
    frozen: bool,
    /// Its operations wait on their way to the ensemble.
    holds_operations: bool,
    /// Its watches have fired, and are not read yet.
    holds_watches: bool,
    /// Only the watches of these znodes have fired and are not read yet.
    unread: BTreeSet<String>,
    /// Znodes that the server of its session does not have, though the others have them.
    lacks: BTreeSet<String>,
    /// Its operations are applied, and the replies are on their way.
    holds_replies: bool,
    inbox: VecDeque<Event>,
    watched: BTreeMap<Watched, Option<Versions>>,
}

/// What becomes of the next operation that matches.
#[derive(Debug)]
struct Loss {
    member: String,
    verb: String,
    path: String,
    applied: bool,
}

#[derive(Debug)]
enum Pending {
    Operation { member: String, session: i64, op: OpId, request: ZkOp },
    Watch { member: String, watched: Watched },
    Reply { member: String, event: Event },
}

/// East before west.
fn sites() -> SiteOrder {
    SiteOrder(["east", "west"].map(|s| SiteId::new(s).expect("a site")).to_vec())
}

/// The stage.
#[derive(Debug)]
pub(crate) struct Stage {
    zk: Ensemble,
    paths: Paths,
    policy: Policy,
    recipe: Recipe,
    granted: Duration,
    now_ms: u64,
    members: BTreeMap<String, Member>,
    /// How many were started.
    started: u32,
    pending: VecDeque<Pending>,
    losses: Vec<Loss>,
    /// Requests that were lost on their way, with their members and sessions.
    lost: VecDeque<(String, i64, ZkOp)>,
    /// What the ensemble may be restored from.
    copy: Option<Ensemble>,
    out: String,
}

fn member_lacks(members: &BTreeMap<String, Member>, name: &str, path: &str) -> bool {
    members.get(name).is_some_and(|member| member.lacks.contains(path))
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self {
            zk: Ensemble::new(),
            paths: Paths::new("/dr", "orders").expect("paths"),
            policy: Policy::default(),
            recipe: Recipe::Elector(Arc::new(sites())),
            granted: GRANTED,
            now_ms: 0,
            members: BTreeMap::new(),
            started: 0,
            pending: VecDeque::new(),
            losses: Vec::new(),
            lost: VecDeque::new(),
            copy: None,
            out: String::new(),
        }
    }

    /// Plays one line, and answers what happened.
    pub(crate) fn play(&mut self, line: &str) -> Result<String, String> {
        self.out.clear();
        let mut words: Vec<_> = line.split_whitespace().collect();
        // 'after 3: ...' leaves the rest of what then happens for later.
        let mut steps = None;
        if let Some(number) = line.strip_prefix("after ").and_then(|rest| rest.split_once(':')) {
            steps = Some(number.0.parse::<usize>().map_err(|e| format!("{}: {e}", number.0))?);
            words.drain(..2);
        }
        let quietly = words.first() == Some(&"quietly");
        self.command(if quietly { &words[1..] } else { &words })?;
        self.settle_some(steps)?;
        Ok(if quietly { String::new() } else { self.out.clone() })
    }

    // ---- what then happens ----

    fn now(&self) -> Now {
        Now::new(Time::from_millis(self.now_ms), UNIX_MS + self.now_ms)
    }

    fn member(&mut self, name: &str) -> Result<&mut Member, String> {
        self.members.get_mut(name).ok_or_else(|| format!("there is no member {name}"))
    }

    fn say(&mut self, line: &str) {
        let line = entries(&shorten(&line.replace(&format!("{}/", self.paths.base()), "")));
        let _ = writeln!(self.out, "{line}");
    }

    fn admin(&mut self, change: impl FnOnce(&mut Ensemble, u64) -> Applied) -> Result<(), String> {
        let applied = change(&mut self.zk, self.now_ms);
        if applied.changed.is_empty() {
            return Err(format!("nothing was changed: {:?}", applied.outcome));
        }
        self.changed(&applied.changed);
        Ok(())
    }

    fn end_session(&mut self, session: i64) {
        let gone = self.zk.end(session, self.now_ms);
        for path in &gone {
            self.say(&format!("expired: {path}"));
        }
        self.changed(&gone);
    }

    fn absolute(&self, path: &str) -> String {
        format!("{}/{path}", self.paths.base())
    }

    fn changed(&mut self, paths: &[String]) {
        for (name, member) in &self.members {
            for watched in member.watched.keys() {
                let hit = match watched {
                    Watched::Node(path) => paths.iter().any(|p| **p == **path),
                    Watched::Tree(parent) => paths.iter().any(|p| parent_of(p) == &**parent),
                };
                if hit {
                    let watched = watched.clone();
                    self.pending.push_back(Pending::Watch { member: name.clone(), watched });
                }
            }
        }
    }

    fn feed(&mut self, name: &str, event: Event) -> Result<(), String> {
        let now = self.now();
        let member = self.member(name)?;
        if member.frozen {
            member.inbox.push_back(event);
            return Ok(());
        }
        member.engine.handle(now, event);
        let mut actions = Vec::new();
        while let Some(action) = member.engine.poll_action() {
            actions.push(action);
        }
        if let Some(at) = member.engine.wakeup()
            && at <= now.time
        {
            return Err(format!("{name} asks to be woken at {at:?}, and it is {:?}", now.time));
        }
        for action in actions {
            self.act(name, action)?;
        }
        Ok(())
    }

    fn act(&mut self, name: &str, action: Action) -> Result<(), String> {
        let line = match action {
            Action::Perform { op, epoch, request } => {
                let member = self.member(name)?;
                let session = if epoch == member.epoch { member.session } else { 0 };
                self.pending.push_back(Pending::Operation { member: name.to_owned(), session, op, request });
                return Ok(());
            }
            Action::Watch { set, .. } => {
                let member = self.members.get_mut(name).ok_or("it acts")?;
                member.watched.retain(|w, _| set.contains(w));
                for watched in set {
                    if !member.watched.contains_key(&watched) {
                        member.watched.insert(watched.clone(), None);
                        self.pending.push_back(Pending::Watch { member: name.to_owned(), watched });
                    }
                }
                return Ok(());
            }
            Action::KeepLease(true) => "keep the lease".to_owned(),
            Action::KeepLease(false) => "let the lease go".to_owned(),
            Action::Prepare(n) => format!("PREPARE for term {}", n.term),
            Action::TakeOver(g) => {
                format!("TAKE OVER term {} because of {}", g.appointment.term, g.appointment.cause)
            }
            Action::Lead => "LEAD".to_owned(),
            Action::WorkUntil(until) => format!("work until {:.1} s", until.since_origin().as_secs_f64()),
            Action::AskBeforeMove(reason) => format!("MAY IT MOVE? {reason}"),
            Action::Suspend(true) => "SUSPEND".to_owned(),
            Action::Suspend(false) => "CONTINUE".to_owned(),
            Action::Stop(reason) => format!("STOP: {reason}"),
            Action::LeaderChanged(..) => return Ok(()),
            Action::Note(note) => format!("\"{}\"", note.text),
            Action::End(reason) => format!("END: {reason:?}"),
        };
        let line = tokens(&line);
        self.say(&format!("{name}: {line}"));
        Ok(())
    }

    /// Carries out all pending steps until there are none left.
    fn settle(&mut self) -> Result<(), String> {
        self.settle_some(None)
    }

    fn settle_some(&mut self, steps: Option<usize>) -> Result<(), String> {
        for _ in 0..steps.unwrap_or(STEPS) {
            let thawed = self.members.iter().find(|(_, m)| !m.frozen && !m.inbox.is_empty());
            if let Some(name) = thawed.map(|(name, _)| name.clone()) {
                if let Some(event) = self.member(&name)?.inbox.pop_front() {
                    self.feed(&name, event)?;
                }
                continue;
            }
            let ready = self.pending.iter().position(|pending| {
                let held =
                    |name: &String, held: fn(&Member) -> bool| self.members.get(name).is_some_and(held);
                match pending {
                    Pending::Operation { member, .. } => !held(member, |m| m.holds_operations),
                    Pending::Reply { member, .. } => !held(member, |m| m.holds_replies),
                    Pending::Watch { member, watched } => {
                        !held(member, |m| m.holds_watches)
                            && !matches!(watched, Watched::Node(path) if self
                                .members
                                .get(member)
                                .is_some_and(|m| m.unread.contains(&**path)))
                    }
                }
            });
            let Some(pending) = ready.and_then(|at| self.pending.remove(at)) else {
                return Ok(());
            };
            match pending {
                Pending::Operation { member, session, op, request } => {
                    self.operation(&member, session, op, &request)?;
                }
                Pending::Watch { member, watched } => self.read_watch(&member, watched)?,
                Pending::Reply { member, event } => self.feed(&member, event)?,
            }
        }
        if steps.is_some() {
            return Ok(());
        }
        Err(format!("no end after {STEPS} steps"))
    }

    fn operation(&mut self, name: &str, session: i64, op: OpId, request: &ZkOp) -> Result<(), String> {
        let Some(member) = self.members.get(name) else {
            return Ok(());
        };
        let told = self.operation_in_words(request);
        if !member.connected || !self.zk.lives(session) {
            self.say(&format!("{name} -> {told}: no connection"));
            let outcome = Outcome::Unknown("no connection".to_owned());
            return self.feed(name, Event::Done { op, outcome });
        }
        let verb = verb(request);
        let relative = request.path().replace(&format!("{}/", self.paths.base()), "");
        let lost = self
            .losses
            .iter()
            .position(|l| l.member == name && l.verb == verb && relative.starts_with(&l.path))
            .map(|at| self.losses.remove(at));
        if lost.as_ref().is_some_and(|l| !l.applied) {
            self.say(&format!("{name} -> {told}: REQUEST LOST"));
            self.lost.push_back((name.to_owned(), session, request.clone()));
            let outcome = Outcome::Unknown("no answer".to_owned());
            return self.feed(name, Event::Done { op, outcome });
        }
        let applied = self.zk.apply(self.now_ms, session, self.zk.zxid(), request);
        let applied = match request {
            ZkOp::Get(path) if member_lacks(&self.members, name, path) => {
                Applied { outcome: Outcome::Got(None), ..applied }
            }
            _ => applied,
        };
        let outcome = match lost {
            Some(_) => {
                self.say(&format!("{name} -> {told}: applied, REPLY LOST"));
                Outcome::Unknown("no answer".to_owned())
            }
            None => {
                let words = outcome_in_words(&applied.outcome);
                self.say(&format!("{name} -> {told}{words}"));
                applied.outcome
            }
        };
        self.changed(&applied.changed);
        let event = Event::Done { op, outcome };
        if self.members.get(name).is_some_and(|member| member.holds_replies) {
            self.pending.push_back(Pending::Reply { member: name.to_owned(), event });
            return Ok(());
        }
        self.feed(name, event)
    }

    fn read_watch(&mut self, name: &str, watched: Watched) -> Result<(), String> {
        let view = self.zk.zxid();
        let Some(member) = self.members.get_mut(name).filter(|m| m.connected) else {
            return Ok(());
        };
        let lacks = matches!(&watched, Watched::Node(path) if member.lacks.contains(&**path));
        let epoch = member.epoch;
        let Some(told) = member.watched.get_mut(&watched) else {
            return Ok(());
        };
        let (value, event) = match &watched {
            Watched::Node(path) => {
                let node = self.zk.get_at(path, view).filter(|_| !lacks).cloned();
                let value: BTreeMap<_, _> =
                    node.iter().map(|n| (String::new(), (n.czxid, n.mzxid))).collect();
                (value, Event::Seen { epoch, path: path.to_string(), node })
            }
            Watched::Tree(parent) => {
                let nodes = self.zk.tree_at(parent, view);
                let value = nodes.iter().map(|(name, n)| (name.clone(), (n.czxid, n.mzxid))).collect();
                (value, Event::SeenTree { epoch, parent: parent.to_string(), nodes })
            }
        };
        if told.as_ref() == Some(&value) {
            return Ok(());
        }
        *told = Some(value);
        self.feed(name, event)
    }
}
