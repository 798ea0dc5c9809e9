//! What can happen next, and what it does.

use std::{collections::BTreeSet, fmt};

use election_core::{
    engine::{Event, Node, Request, Role, Watched},
    record::{MemberRecord, Outgoing, Record, Request as Ordered, RequestState, Status, VERSION},
};

use crate::{
    process::{Answer, Client, Link, Member, Phase, Told},
    server::{Tree, children, parent_of},
    settings::{Fault, Outside, Setting, TICK, TIMEOUT},
    world::World,
};

/// One thing that happens, all at once. Members by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The oldest request of a member reaches the ensemble.
    Serve(usize),
    /// The oldest reply reaches it.
    Reply(usize),
    /// One of its watches reads, and tells.
    Tell(usize, usize),
    /// Its job answers.
    Answer(usize),
    /// Its first lease arrives.
    Beat(usize),
    /// It learns that its session is over.
    Learn(usize),
    /// It makes a session.
    Connect(usize),
    /// Its engine is woken.
    Wake(usize),
    /// It notices that its connection is lost.
    Notice(usize),
    /// It has reached the ensemble again.
    Resume(usize),
    /// It gives its session up by its own clock.
    GiveUp(usize),
    /// Its server has caught up.
    CatchUp(usize),
    /// Its machine goes on.
    Thaw(usize),
    /// Its process is started.
    Start(usize),
    /// An operator makes the next request of `Setting::asks`.
    Ask,
    /// The ensemble ends a session that it has not heard of for long enough.
    Expire(i64),
    /// Time passes.
    Tick,
    Fault(Fault, usize),
}

/// A step, and whether it overtakes what is to happen before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Move {
    pub(crate) step: Step,
    pub(crate) overtakes: bool,
}

impl Move {
    fn in_turn(step: Step) -> Self {
        Self { step, overtakes: false }
    }

    fn out_of_turn(step: Step) -> Self {
        Self { step, overtakes: true }
    }
}

impl World {
    /// What can happen next: in its turn, out of turn, or as a fault.
    pub(crate) fn moves(&self, setting: &Setting, moves: &mut Vec<Move>) {
        let mut due: Vec<Vec<Step>> = (0..self.members.len()).map(|m| self.due(setting, m)).collect();
        let mut patient = Vec::new();
        self.patient(setting, due.iter().all(Vec::is_empty), &mut patient);
        if due.iter().all(Vec::is_empty) {
            moves.extend(patient.into_iter().map(Move::in_turn));
        } else {
            let turn = if due[self.turn].is_empty() { None } else { Some(self.turn) };
            let mut rest = Vec::new();
            for (m, steps) in due.iter_mut().enumerate() {
                let first = if turn.is_none_or(|turn| turn == m) && !steps.is_empty() { 1 } else { 0 };
                moves.extend(steps.drain(..first).map(Move::in_turn));
                rest.append(steps);
            }
            if self.overtakes > 0 && !self.calm {
                moves.extend(rest.into_iter().chain(patient).map(Move::out_of_turn));
            }
        }
        let mut faults = Vec::new();
        self.faults(setting, &mut faults);
        moves.extend(faults.into_iter().map(Move::in_turn));
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_quiet(&self, setting: &Setting) -> bool {
        (0..self.members.len()).all(|m| self.due(setting, m).is_empty())
    }

    /// What is on its way to or from a member, or due there, in the order in which it
    /// happens where nothing overtakes anything. It is faster than a tick.
    pub(crate) fn due(&self, setting: &Setting, m: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        let member = &self.members[m];
        if member.process.is_none() && member.life == 0 {
            steps.push(Step::Start(m));
        }
        let Some(process) = member.process.as_ref().filter(|_| !member.frozen) else { return steps };
        let Some(client) = &process.client else {
            steps.push(Step::Connect(m));
            return steps;
        };
        let lives = self.server.lives(client.session);
        if client.link == Link::Connected && !lives && !client.minority {
            steps.push(Step::Learn(m));
        }
        if !client.replies.is_empty() {
            steps.push(Step::Reply(m));
        }
        if process.job.answers.is_some() && !process.job.hangs {
            steps.push(Step::Answer(m));
        }
        match client.link {
            Link::Connected if lives || client.minority => {
                if self.can_serve(client) {
                    steps.push(Step::Serve(m));
                }
                let tells = |w: &usize| self.would_tell(client, *w);
                steps.extend((0..client.watched.len()).filter(tells).map(|w| Step::Tell(m, w)));
                if process.keeps_lease && client.lease.is_none() && !client.minority {
                    steps.push(Step::Beat(m));
                }
            }
            Link::Over if process.engine.is_clear() || !setting.has(Outside::Tether) => {
                steps.push(Step::Connect(m));
            }
            Link::Connected | Link::Silent | Link::Paused | Link::Over => {}
        }
        if process.engine.wakeup().is_some_and(|at| at <= self.now) {
            steps.push(Step::Wake(m));
        }
        steps
    }

    /// What happens at any time, or never, where something is wrong; and that time passes
    /// where nothing is on its way.
    fn patient(&self, setting: &Setting, quiet: bool, steps: &mut Vec<Step>) {
        for (m, member) in self.members.iter().enumerate() {
            if member.frozen {
                steps.push(Step::Thaw(m));
            }
            if member.process.is_none() && member.life > 0 {
                steps.push(Step::Start(m));
            }
            let Some(client) = member.client() else { continue };
            // What was sent before may still arrive.
            let stranded = member.frozen || client.link == Link::Silent;
            if stranded && self.can_serve(client) && self.server.lives(client.session) {
                steps.push(Step::Serve(m));
            }
            if member.frozen {
                continue;
            }
            match client.link {
                Link::Silent => steps.push(Step::Notice(m)),
                Link::Connected if client.minority => steps.push(Step::Notice(m)),
                Link::Connected if client.view.is_some() => steps.push(Step::CatchUp(m)),
                Link::Paused => {
                    steps.push(Step::Resume(m));
                    if self.ticks_since(client.heard) >= TIMEOUT {
                        steps.push(Step::GiveUp(m));
                    }
                }
                Link::Connected | Link::Over => {}
            }
        }
        if usize::from(self.asked) < setting.asks.len() && !self.calm {
            steps.push(Step::Ask);
        }
        for (session, touched) in &self.server.sessions {
            if self.ticks_since(*touched) >= TIMEOUT {
                steps.push(Step::Expire(*session));
            }
        }
        // One leads, all is well, and nothing is going to happen any more: the end.
        let ended = steps.is_empty() && self.leader(setting).is_some();
        if quiet && !self.expiry_is_due() && !ended {
            steps.push(Step::Tick);
        }
    }

    /// The ensemble looks for dead sessions once in a tick.
    pub(crate) fn expiry_is_due(&self) -> bool {
        self.server.sessions.values().any(|touched| self.ticks_since(*touched) > TIMEOUT)
    }

    pub(crate) fn faults(&self, setting: &Setting, steps: &mut Vec<Step>) {
        if self.faults == 0 || self.calm {
            return;
        }
        if let Some((fault, m)) = setting.script.get(usize::from(setting.faults - self.faults)) {
            if self.members[*m].runs() && can(*fault, &self.members[*m]) {
                steps.push(Step::Fault(*fault, *m));
            }
            return;
        }
        for fault in setting.kinds {
            match fault {
                Fault::Clock => steps.push(Step::Fault(*fault, 0)),
                _ => {
                    let all = self.members.iter().enumerate().filter(|(_, m)| m.runs());
                    let can = all.filter(|(_, m)| can(*fault, m));
                    steps.extend(can.map(|(m, _)| Step::Fault(*fault, m)));
                }
            }
        }
    }

    fn can_serve(&self, client: &Client) -> bool {
        let reads = |r: &Request| matches!(r, Request::Get { .. } | Request::Children { .. });
        // One after the other: a stuck write holds up what follows.
        client.sent.front().is_some_and(|(_, request)| !client.minority || reads(request))
    }

    pub(crate) fn view_of(&self, client: &Client) -> Tree {
        client.view.as_ref().unwrap_or(&self.server.tree).clone()
    }

    fn would_tell(&self, client: &Client, w: usize) -> bool {
        let (watched, told) = &client.watched[w];
        let Some(told) = told else { return true };
        let tree = client.view.as_ref().unwrap_or(&self.server.tree);
        let stamp = |n: &Node| (n.czxid, n.mzxid);
        match watched {
            Watched::Node(path) => told.get("").copied() != tree.get(path).map(|n| stamp(n)),
            Watched::Tree(parent) => !children(tree, parent)
                .map(|(name, n)| (name, stamp(n)))
                .eq(told.iter().map(|(name, s)| (name.as_str(), *s))),
        }
    }

    // ---- what a step does ----

    pub(crate) fn make(&mut self, setting: &Setting, next: Move) {
        if next.overtakes {
            self.overtakes -= 1;
        }
        self.take(setting, next.step);
    }

    pub(crate) fn take(&mut self, setting: &Setting, step: Step) {
        match step {
            Step::Serve(m) => self.serve(setting, m),
            Step::Reply(m) => self.reply(setting, m),
            Step::Tell(m, w) => self.tell(setting, m, w),
            Step::Answer(m) => self.answer(setting, m),
            Step::Beat(m) => self.beat(setting, m),
            Step::Learn(m) | Step::GiveUp(m) => self.over(setting, m),
            Step::Connect(m) => self.connect(setting, m),
            Step::Wake(m) => self.feed(setting, m, Event::Tick),
            Step::Notice(m) => self.notice(setting, m),
            Step::Resume(m) => self.resume(setting, m),
            Step::CatchUp(m) => {
                if let Some(client) = self.member(m).client_mut() {
                    client.view = None;
                }
            }
            Step::Thaw(m) => {
                self.member(m).frozen = false;
                self.guard(setting, m);
            }
            Step::Start(m) => self.start(setting, m),
            Step::Ask => self.ask(setting),
            Step::Expire(session) => self.end_session(setting, session),
            Step::Tick => self.tick(setting),
            Step::Fault(fault, m) => self.fault(setting, fault, m),
        }
        self.dull(setting);
        self.judge(setting);
        // Who was at it goes on until nothing is left.
        self.turn = match step.member() {
            _ if self.is_quiet(setting) => 0,
            Some(m) => m,
            None => self.turn,
        };
    }

    fn serve(&mut self, setting: &Setting, m: usize) {
        let Some(client) = self.member(m).client_mut() else { return };
        let Some((op, request)) = client.sent.pop_front() else { return };
        let session = client.session;
        let view = self.members[m].client().map(|c| self.view_of(c)).unwrap_or_default();
        let applied = self.server().apply(session, &view, &request);
        let lone = {
            let reads = matches!(request, Request::Get { .. } | Request::Children { .. });
            let office = touches(&request).contains("/leader/");
            let at_once = reads && !office;
            let runs = self.members[m].runs() && self.members[m].link() == Some(Link::Connected);
            let Some(client) = self.member(m).client_mut() else { return };
            if !reads && client.view.is_some() {
                // Whoever has written sees all that was written before.
                client.view = None;
            }
            client.replies.push_back((op, applied.outcome));
            client.replies.len() == 1 && at_once && runs
        };
        if let Some(path) = applied.changed {
            self.changed(setting, &path);
        }
        // Where nothing that matters can come between, reading and learning are one.
        if lone {
            self.reply(setting, m);
        }
    }

    fn reply(&mut self, setting: &Setting, m: usize) {
        let Some(client) = self.member(m).client_mut() else { return };
        if let Some((op, outcome)) = client.replies.pop_front() {
            self.feed(setting, m, Event::Done { op, outcome });
        }
    }

    fn tell(&mut self, setting: &Setting, m: usize, w: usize) {
        let Some(client) = self.members[m].client() else { return };
        let (watched, view, epoch) = (client.watched[w].0.clone(), self.view_of(client), client.epoch);
        let value = read(&view, &watched);
        if let Some(client) = self.member(m).client_mut() {
            client.watched[w].1 = Some(value);
        }
        let event = match watched {
            Watched::Node(path) => {
                let node = view.get(&path).map(|n| (**n).clone());
                Event::Seen { epoch, path, node }
            }
            Watched::Tree(parent) => {
                let nodes =
                    children(&view, &parent).map(|(name, n)| (name.to_owned(), (**n).clone())).collect();
                Event::SeenTree { epoch, parent, nodes }
            }
        };
        self.feed(setting, m, event);
    }

    /// What nobody reacts to happens at once.
    fn dull(&mut self, setting: &Setting) {
        let fails = setting.kinds.iter().any(|k| matches!(k, Fault::JobFails | Fault::JobHangs));
        for m in 0..self.members.len() {
            let answers = self.members[m].process.as_ref().and_then(|p| p.job.answers);
            if answers == Some(Answer::Prepared) && !fails && self.members[m].runs() {
                self.answer(setting, m);
            }
            while let Some(w) = self.dull_watch(m) {
                self.tell(setting, m, w);
            }
        }
    }

    fn dull_watch(&self, m: usize) -> Option<usize> {
        let member = &self.members[m];
        let client =
            member.client().filter(|c| c.link == Link::Connected && member.runs() && c.view.is_none())?;
        (0..client.watched.len()).find(|w| {
            let (watched, told) = &client.watched[*w];
            let dull = match watched {
                Watched::Node(path) => {
                    let node = self.server.get(path);
                    let parent = parent_of(path);
                    let own = node.is_some_and(|n| n.owner == client.session);
                    let first = told.is_none();
                    (parent.ends_with("/nodes") && own)
                        || (parent.ends_with("/election") && node.is_some())
                        || (path.ends_with("/control") && first)
                }
                Watched::Tree(parent) => {
                    parent.ends_with("/requests") && children(&self.server.tree, parent).next().is_none()
                }
            };
            dull && self.server.lives(client.session) && self.would_tell(client, *w)
        })
    }

    fn notice(&mut self, setting: &Setting, m: usize) {
        let Some(client) = self.member(m).client_mut() else { return };
        client.lose();
        client.link = Link::Paused;
        let epoch = client.epoch;
        self.feed(setting, m, Event::SessionPaused { epoch });
    }

    fn resume(&mut self, setting: &Setting, m: usize) {
        let Some(client) = self.members[m].client() else { return };
        let (session, epoch) = (client.session, client.epoch);
        if !self.server.lives(session) {
            return self.over(setting, m);
        }
        if let Some(client) = self.member(m).client_mut() {
            client.link = Link::Connected;
        }
        self.feed(setting, m, Event::SessionResumed { epoch });
        self.beat(setting, m);
    }

    fn tick(&mut self, setting: &Setting) {
        self.now = self.now + TICK;
        for m in 0..self.members.len() {
            let member = &self.members[m];
            if !member.runs() {
                continue;
            }
            let connected = member.link() == Some(Link::Connected);
            if connected && member.client().is_some_and(|c| self.server.lives(c.session) || c.minority) {
                self.beat(setting, m);
            }
            if self.members[m]
                .process
                .as_ref()
                .is_some_and(|p| p.engine.wakeup().is_some_and(|at| at <= self.now))
            {
                self.feed(setting, m, Event::Tick);
            }
            self.guard(setting, m);
        }
        if setting.suspicion {
            (0..self.members.len()).for_each(|m| self.probe(setting, m));
        }
    }

    /// Asks every other member whether it is there.
    fn probe(&mut self, setting: &Setting, m: usize) {
        let stands = self.members[m].process.as_ref().and_then(|p| p.engine.ballot()).is_some();
        if !stands || !self.members[m].runs() {
            return;
        }
        let mut unanswered = BTreeSet::new();
        for (_, node) in children(&self.server.tree, &setting.paths().nodes()) {
            let Ok(record) = MemberRecord::decode("", &node.data) else { continue };
            let host = setting.members.iter().position(|(id, _)| record.member.as_str() == *id);
            let answers = host.is_some_and(|host| {
                let answering = self.members[host].process.as_ref().filter(|_| self.members[host].runs());
                host == m || answering.is_some_and(|p| p.engine.ballot().as_ref() == Some(&record.ballot))
            });
            if !answers {
                unanswered.insert(record.ballot);
            }
        }
        unanswered.iter().for_each(|suspect| self.has_lost(m, suspect));
        self.feed(setting, m, Event::Probed { unanswered });
    }

    fn fault(&mut self, setting: &Setting, fault: Fault, m: usize) {
        self.faults -= 1;
        match fault {
            Fault::Crash => self.member(m).process = None,
            Fault::Freeze => self.member(m).frozen = true,
            Fault::Cut => {
                if let Some(client) = self.member(m).client_mut() {
                    client.link = Link::Silent;
                }
            }
            Fault::Reset => self.notice(setting, m),
            Fault::Minority | Fault::Lag => {
                let tree = self.server.tree.clone();
                if let Some(client) = self.member(m).client_mut() {
                    client.view = Some(tree);
                    client.minority = fault == Fault::Minority;
                }
            }
            Fault::JobFails => self.job_answers(m, Answer::Failed),
            Fault::JobEnds => self.job_answers(m, Answer::Ended),
            Fault::JobHangs => {
                if let Some(job) = self.job(m) {
                    job.hangs = true;
                }
            }
            Fault::Leave => {
                if let Some(process) = &mut self.member(m).process {
                    process.leaving = true;
                }
                self.feed(setting, m, Event::Leave);
            }
            Fault::Clock => self.hours += 1,
        }
    }

    fn job_answers(&mut self, m: usize, answer: Answer) {
        if let Some(job) = self.job(m) {
            job.answers = Some(answer);
        }
    }

    fn ask(&mut self, setting: &Setting) {
        let ask = setting.asks[usize::from(self.asked)];
        self.asked += 1;
        let prefix = setting.paths().request_prefix();
        let request = Ordered {
            v: VERSION,
            id: self.asked.to_string(),
            kind: ask.kind,
            to: ask.target(),
            from: Outgoing::Only,
            force: ask.force,
            reason: None,
            by: "operator".to_owned(),
            created_ms: self.clock().unix_ms,
            state: RequestState::Pending,
        };
        let Ok(data) = request.encode(&prefix) else { return };
        let create = Request::CreateSequential { prefix, data, ephemeral: false, unique_prefix: false };
        let view = self.server.tree.clone();
        let applied = self.server().apply(0, &view, &create);
        if let Some(path) = applied.changed {
            self.changed(setting, &path);
        }
    }

    // ---- when all is well ----

    /// Who leads, if one does, is READY, and nobody has anything left to do.
    pub(crate) fn leader(&self, setting: &Setting) -> Option<usize> {
        let role = |m: &Member| m.process.as_ref().map(|p| p.engine.role());
        let leads = |m: &usize| role(&self.members[*m]) == Some(Role::Leader);
        let leader = (0..self.members.len()).find(leads)?;
        let (current, elected) = (self.current(setting)?, self.elected(setting)?);
        let works = self.members[leader].process.as_ref()?.job.phase == Phase::Serving;
        let rest = (0..self.members.len())
            .filter(|m| *m != leader)
            .all(|m| matches!(role(&self.members[m]), None | Some(Role::Standby | Role::Excluded)));
        let named =
            elected.named(0).is_some_and(|n| n.ballot == current.ballot && elected.term == current.term);
        let own = current.member.as_str() == setting.members[leader].0 && current.status == Status::Ready;
        (works && rest && named && own).then_some(leader)
    }
}

fn touches(request: &Request) -> &str {
    match request {
        Request::Create { path, .. }
        | Request::Set { path, .. }
        | Request::Delete { path, .. }
        | Request::DeleteWhile { path, .. }
        | Request::Get { path }
        | Request::Children { path } => path,
        Request::CreateSequential { prefix, .. } => prefix,
        Request::MakeParents(_) => "",
    }
}

fn can(fault: Fault, member: &Member) -> bool {
    let connected = member.link() == Some(Link::Connected) && !member.client().is_some_and(|c| c.minority);
    let Some(process) = &member.process else { return false };
    let job = &process.job;
    match fault {
        Fault::Crash | Fault::Freeze => true,
        Fault::Cut | Fault::Reset | Fault::Minority => connected,
        Fault::Lag => connected && member.client().is_some_and(|c| c.view.is_none()),
        Fault::JobFails => matches!(job.answers, Some(Answer::Prepared | Answer::TakenOver)),
        Fault::JobEnds => job.phase == Phase::Serving && job.answers.is_none(),
        Fault::JobHangs => job.answers.is_some() && !job.hangs,
        Fault::Leave => !process.leaving,
        Fault::Clock => false,
    }
}

/// What a watch would tell: creation and last change of what it looks at.
fn read(tree: &Tree, watched: &Watched) -> Told {
    match watched {
        Watched::Node(path) => {
            tree.get(path).map(|n| (String::new(), (n.czxid, n.mzxid))).into_iter().collect()
        }
        Watched::Tree(parent) => {
            children(tree, parent).map(|(name, n)| (name.to_owned(), (n.czxid, n.mzxid))).collect()
        }
    }
}

impl Step {
    fn member(self) -> Option<usize> {
        match self {
            Self::Serve(m)
            | Self::Reply(m)
            | Self::Tell(m, _)
            | Self::Answer(m)
            | Self::Beat(m)
            | Self::Learn(m)
            | Self::Connect(m)
            | Self::Wake(m)
            | Self::Notice(m)
            | Self::Resume(m)
            | Self::GiveUp(m)
            | Self::CatchUp(m)
            | Self::Thaw(m)
            | Self::Start(m) => Some(m),
            Self::Ask | Self::Expire(_) | Self::Tick | Self::Fault(..) => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
