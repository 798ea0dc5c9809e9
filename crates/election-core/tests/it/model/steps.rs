//! What can happen next, and what it does.

use std::{collections::BTreeSet, fmt, sync::Arc};

use election_core::{
    internals::{
        Event, Node, Outcome, Watched, ZkOp,
        record::{AdminRequest, MemberRecord, Record, Status},
    },
    status::Role,
};

use crate::model::{
    process::{Answer, Client, Link, Member, Phase, Process, Told},
    server::{Tree, children},
    settings::{Fault, Kind, Outside, Setting, TICK, TIMEOUT},
    world::World,
};

/// One thing that happens, all at once. Members by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The oldest request of a member reaches the ensemble.
    Serve(usize),
    /// The oldest reply reaches it.
    Reply(usize),
    /// One of its watches reads, and reports.
    Tell(usize, usize),
    /// Its job answers.
    Answer(usize),
    /// Its standby is ready.
    Ready(usize),
    /// The application answers whether leadership may move.
    Consent(usize, bool),
    /// Its first lease arrives.
    Heartbeat(usize),
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
    /// What it has read before arrives.
    Arrive(usize),
    /// A write reaches the ensemble whose connection was lost: [`Fault::Stray`].
    Land,
    /// [`Fault::Late`]: one of its watches reads, or its oldest reply has come, and the result arrives later.
    Hold(usize, Option<usize>),
    /// Its machine continues.
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

/// A step, and whether it overtakes an earlier one.
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
                if setting.race {
                    steps.retain(|step| first == 1 && matches!(step, Step::Tell(..)));
                }
                rest.append(steps);
            }
            if !self.calm {
                let straggles = |step: &mut Step| step.straggles(setting);
                moves.extend(patient.extract_if(.., straggles).map(Move::in_turn));
            }
            if self.overtakes > 0 && !self.calm {
                moves.extend(rest.into_iter().chain(patient).map(Move::out_of_turn));
            }
        }
        let may_call_off = |step: &Move| match step.step {
            Step::Consent(m, true) if !self.calm => Some(Move { step: Step::Consent(m, false), ..*step }),
            _ => None,
        };
        let called_off: Vec<_> = moves.iter().filter_map(may_call_off).collect();
        moves.extend(called_off);
        let mut faults = Vec::new();
        self.faults(setting, &mut faults);
        moves.extend(faults.into_iter().map(Move::in_turn));
    }

    /// Whether there are no messages in transit.
    pub(crate) fn is_quiet(&self, setting: &Setting) -> bool {
        (0..self.members.len()).all(|m| self.due(setting, m).is_empty())
    }

    /// The messages from or to a member and its due events, in their order without an overtake. It takes less than a
    /// tick.
    pub(crate) fn due(&self, setting: &Setting, m: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        let member = &self.members[m];
        if member.process.is_none() && member.life == 0 {
            steps.push(Step::Start(m));
        }
        let Some(process) = member.process.as_ref().filter(|_| !member.frozen) else { return steps };
        // What arrives late is of the former session.
        let late = process.client.as_ref().is_some_and(|client| client.late.is_some());
        let returns = !self.is_lost(m) && !late;
        let Some(client) = &process.client else {
            steps.extend(returns.then_some(Step::Connect(m)));
            return steps;
        };
        let lives = self.server.lives(client.session);
        if client.link == Link::Connected && !lives && !client.minority {
            steps.push(Step::Learn(m));
        }
        if !client.replies.is_empty() {
            steps.push(Step::Reply(m));
        }
        if process.job.answers.is_some() && !process.job.hangs && process.job.stops_within == 0 {
            steps.push(Step::Answer(m));
        }
        if process.job.is_asked && !process.job.hangs {
            steps.push(Step::Consent(m, true));
        }
        match client.link {
            Link::Connected if lives || client.minority => {
                if self.can_serve(client) {
                    steps.push(Step::Serve(m));
                }
                let tells = |w: &usize| self.would_tell(client, *w);
                steps.extend((0..client.watched.len()).filter(tells).map(|w| Step::Tell(m, w)));
                if process.keeps_lease && client.lease.is_none() && !client.minority {
                    steps.push(Step::Heartbeat(m));
                }
            }
            Link::Over if returns && (process.engine.is_clear() || !setting.has(Outside::SessionPin)) => {
                steps.push(Step::Connect(m));
            }
            Link::Connected | Link::Silent | Link::Paused | Link::Over => {}
        }
        if process.engine.wakeup().is_some_and(|at| at <= self.now) {
            steps.push(Step::Wake(m));
        }
        steps
    }

    /// Events that happen at any time or never, after a fault; and the passing of time if there are no messages in
    /// transit.
    fn patient(&self, setting: &Setting, quiet: bool, steps: &mut Vec<Step>) {
        if !self.server.strays.is_empty() {
            steps.push(Step::Land);
        }
        for (m, member) in self.members.iter().enumerate() {
            let returns = !self.is_lost(m);
            if member.runs() && member.client().is_some_and(|client| client.late.is_some()) {
                steps.push(Step::Arrive(m));
            }
            if member.frozen && returns {
                steps.push(Step::Thaw(m));
            }
            if member.process.is_none() && member.life > 0 && returns {
                steps.push(Step::Start(m));
            }
            if let Some(process) = member.process.as_ref().filter(|_| member.runs()) {
                // A stop that has time ends at any moment of it.
                if process.job.stops_within > 0 && process.job.answers.is_some() && !process.job.hangs {
                    steps.push(Step::Answer(m));
                }
                if process.unfit && process.job.given.is_none() {
                    steps.push(Step::Ready(m));
                }
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
                    if returns {
                        steps.push(Step::Resume(m));
                    }
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
        // There is a leader, all is well, and there are no further events: the end.
        let ended = steps.is_empty() && self.is_led(setting);
        let late = |m: &Arc<Member>| m.runs() && m.client().is_some_and(|c| c.late.is_some());
        let quiet = quiet && self.server.strays.is_empty() && !self.members.iter().any(late);
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
        for fault in setting.kinds.iter().filter(|kind| self.happened & kind.bit() == 0) {
            match fault {
                Fault::Clock => steps.push(Step::Fault(*fault, 0)),
                Fault::DeleteAll if self.server.tree.is_empty() => {}
                Fault::DeleteAll => steps.push(Step::Fault(*fault, 0)),
                Fault::Late => (0..self.members.len()).for_each(|m| self.may_be_late(m, steps)),
                _ => {
                    let all = self.members.iter().enumerate().filter(|(_, m)| m.runs());
                    let can = all.filter(|(_, m)| can(*fault, m));
                    steps.extend(can.map(|(m, _)| Step::Fault(*fault, m)));
                }
            }
        }
    }

    fn can_serve(&self, client: &Client) -> bool {
        // One after the other: a stuck write holds up what follows.
        !client.sent.is_empty() && (!client.minority || client.writes().is_none())
    }

    pub(crate) fn view_of(&self, client: &Client) -> Tree {
        client.view.as_ref().unwrap_or(&self.server.tree).clone()
    }

    fn would_tell(&self, client: &Client, w: usize) -> bool {
        let (watched, told) = &client.watched[w];
        if client.is_late(watched) {
            return false;
        }
        let Some(told) = told else { return true };
        let tree = client.view.as_ref().unwrap_or(&self.server.tree);
        let stamp = |n: &Node| (n.czxid, n.mzxid);
        match watched {
            Watched::Node(path) => told.get("").copied() != tree.get(&**path).map(|n| stamp(n)),
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
            Step::Ready(m) => self.standby(setting, m, true),
            Step::Consent(m, may_move) => self.consent(setting, m, may_move),
            Step::Heartbeat(m) => self.heartbeat(setting, m),
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
            Step::Arrive(m) => {
                if let Some(event) = self.member(m).client_mut().and_then(|client| client.late.take()) {
                    self.feed(setting, m, event);
                }
            }
            Step::Land => self.land(setting),
            Step::Hold(m, watch) => self.hold(setting, m, watch),
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
        // The member whose turn it is continues until it has no further steps.
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
        let reads = request.reads();
        if !reads {
            self.server().has_moved(session);
        }
        let lone = {
            let leader_znode = setting.recipe != Kind::Elector || request.path().contains("/leader/");
            let at_once = reads && !leader_znode;
            let runs = self.members[m].runs() && self.members[m].link() == Some(Link::Connected);
            let Some(client) = self.member(m).client_mut() else { return };
            if !reads && client.view.is_some() {
                // A client that has written sees everything that was written before.
                client.view = None;
            }
            client.replies.push_back((op, applied.outcome));
            client.replies.len() == 1 && at_once && runs
        };
        for path in applied.changed {
            self.changed(setting, &path);
        }
        // If no relevant step can come between, reading and reporting are one step.
        if lone {
            self.reply(setting, m);
        }
    }

    fn land(&mut self, setting: &Setting) {
        let tree = self.server.tree.clone();
        let (session, request) = self.server().strays.remove(0);
        let applied = self.server().apply(session, &tree, &request);
        for path in applied.changed {
            self.changed(setting, &path);
        }
    }

    fn reply(&mut self, setting: &Setting, m: usize) {
        let Some(client) = self.member(m).client_mut() else { return };
        if let Some((op, outcome)) = client.replies.pop_front() {
            self.feed(setting, m, Event::Done { op, outcome });
        }
    }

    fn tell(&mut self, setting: &Setting, m: usize, w: usize) {
        if let Some(event) = self.reads(m, w) {
            self.feed(setting, m, event);
        }
    }

    /// What one of its watches reads now.
    fn reads(&mut self, m: usize, w: usize) -> Option<Event> {
        let client = self.members[m].client()?;
        let (watched, view, epoch) = (client.watched[w].0.clone(), self.view_of(client), client.epoch);
        let value = read(&view, &watched);
        if let Some(client) = self.member(m).client_mut() {
            client.watched[w].1 = Some(value);
        }
        Some(match watched {
            Watched::Node(path) => {
                let node = view.get(&*path).map(|n| (**n).clone());
                Event::Seen { epoch, path: path.to_string(), node }
            }
            Watched::Tree(parent) => {
                let nodes =
                    children(&view, &parent).map(|(name, n)| (name.to_owned(), (**n).clone())).collect();
                Event::SeenTree { epoch, parent: parent.to_string(), nodes }
            }
        })
    }

    /// What a member has read that could reach it late.
    fn may_be_late(&self, m: usize, steps: &mut Vec<Step>) {
        let member = &self.members[m];
        let connected = |client: &&Client| client.link == Link::Connected && client.late.is_none();
        let Some(client) = member.client().filter(connected).filter(|_| member.runs()) else { return };
        let reads = |outcome: &Outcome| matches!(outcome, Outcome::Got(_) | Outcome::Names(_));
        if client.replies.front().is_some_and(|(_, outcome)| reads(outcome)) {
            steps.push(Step::Hold(m, None));
        }
        let watches = (0..client.watched.len()).filter(|w| self.would_tell(client, *w));
        steps.extend(watches.map(|w| Step::Hold(m, Some(w))));
    }

    fn hold(&mut self, setting: &Setting, m: usize, watch: Option<usize>) {
        self.faults -= 1;
        if setting.once {
            self.happened |= Fault::Late.bit();
        }
        let read = watch.and_then(|w| self.reads(m, w));
        if let Some(client) = self.member(m).client_mut() {
            let reply = || client.replies.pop_front().map(|(op, outcome)| Event::Done { op, outcome });
            client.late = read.or_else(reply);
        }
    }

    /// Events without a reaction happen at once.
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
                    let parent = crate::zookeeper::parent_of(path);
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
        self.feed(setting, m, Event::SessionPaused(epoch));
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
        self.feed(setting, m, Event::SessionResumed(epoch));
        self.heartbeat(setting, m);
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
                self.heartbeat(setting, m);
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
        self.feed(setting, m, Event::Probed(unanswered));
    }

    fn fault(&mut self, setting: &Setting, fault: Fault, m: usize) {
        self.faults -= 1;
        if setting.once {
            self.happened |= fault.bit();
        }
        match fault {
            Fault::Crash => self.member(m).process = None,
            Fault::Kill => {
                let session = self.member(m).client().map(|client| client.session);
                self.member(m).process = None;
                let now = self.now;
                session.into_iter().for_each(|session| self.server().may_close(session, now));
            }
            Fault::Freeze => self.member(m).frozen = true,
            Fault::Cut => {
                if let Some(client) = self.member(m).client_mut() {
                    client.link = Link::Silent;
                }
            }
            Fault::Reset => self.notice(setting, m),
            Fault::Stray => {
                let client = self.members[m].client();
                let stray = client.and_then(|client| Some((client.session, client.sent.front()?.1.clone())));
                self.server().strays.extend(stray);
                self.notice(setting, m);
            }
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
                self.feed(setting, m, Event::Leave { hand_over: true });
            }
            Fault::StandbyEnds => self.standby(setting, m, false),
            Fault::Clock => self.hours += 1,
            Fault::DeleteAll => self.delete_all(setting),
            // It is a step of its own.
            Fault::Late => {}
        }
    }

    fn job_answers(&mut self, m: usize, answer: Answer) {
        if let Some(job) = self.job(m) {
            job.answers = Some(answer);
        }
    }

    pub(crate) fn ask(&mut self, setting: &Setting) {
        let ask = setting.asks[usize::from(self.asked)];
        self.asked += 1;
        let prefix = setting.paths().request_prefix();
        let created_ms = self.clock().unix_ms;
        let mut request = AdminRequest::new(
            self.asked.to_string(),
            ask.kind,
            ask.target(),
            "operator".to_owned(),
            created_ms,
        );
        (request.force, request.now) = (ask.force, ask.now);
        // Its end would be one more moment in every order of events.
        request.valid_for_ms = election_core::internals::record::limits::MAX_MS;
        let Ok(data) = request.encode(&prefix) else { return };
        let create = ZkOp::CreateSequential { prefix, data, ephemeral: false };
        let view = self.server.tree.clone();
        let applied = self.server().apply(0, &view, &create);
        for path in applied.changed {
            self.changed(setting, &path);
        }
    }

    // ---- when all is well ----

    /// Whether as many lead as there are slots, or members for them, all READY, and no other member has
    /// anything left to do. Members that never return are not looked at.
    pub(crate) fn is_led(&self, setting: &Setting) -> bool {
        let here = |m: &usize| !self.is_lost(*m);
        let processes = || {
            let all = (0..self.members.len()).filter(here);
            all.filter_map(|m| Some((m, self.members[m].process.as_ref()?)))
        };
        let leads = |process: &Process| process.engine.role() == Role::Leader;
        let rests = |process: &Process| matches!(process.engine.role(), Role::Standby | Role::Excluded);
        let may_lead =
            |m: usize, process: &Process| !process.leaving && !setting.broken.contains(&setting.members[m].0);
        let candidates = processes().filter(|(m, process)| may_lead(*m, process)).count();
        let leaders: Vec<_> = processes().filter(|(_, process)| leads(process)).collect();
        leaders.len() == setting.slots.min(candidates).max(1)
            && processes().all(|(_, process)| leads(process) || rests(process))
            && leaders.into_iter().all(|(m, process)| self.holds(setting, m, process).is_some())
    }

    /// This leader works, its znode exists and names it, and so does the decision, if there is one.
    fn holds(&self, setting: &Setting, m: usize, process: &Process) -> Option<()> {
        let slot = process.engine.slot()?;
        let current = self.current(setting, slot)?;
        let own = match setting.recipe {
            Kind::Elector => {
                let elected = self.elected(setting)?;
                let named = elected.named(slot)?;
                named.ballot == current.ballot && elected.term_of(slot) == current.term
            }
            Kind::Queue | Kind::Single => self.first(setting)?.owner == process.client.as_ref()?.session,
        };
        let says = current.member.as_str() == setting.members[m].0 && current.status == Status::Ready;
        (own && says && process.job.phase == Phase::Serving).then_some(())
    }
}

fn can(fault: Fault, member: &Member) -> bool {
    let connected = member.link() == Some(Link::Connected) && !member.client().is_some_and(|c| c.minority);
    let Some(process) = &member.process else { return false };
    let job = &process.job;
    match fault {
        Fault::Crash | Fault::Kill | Fault::Freeze => true,
        Fault::Cut | Fault::Reset | Fault::Minority => connected,
        Fault::Stray => connected && member.client().and_then(Client::writes).is_some(),
        Fault::Lag => connected && member.client().is_some_and(|c| c.view.is_none()),
        Fault::JobFails => matches!(job.answers, Some(Answer::Prepared | Answer::TakenOver)),
        Fault::JobEnds => job.phase == Phase::Serving && job.answers.is_none(),
        Fault::JobHangs => job.answers.is_some() && !job.hangs,
        Fault::Leave => !process.leaving,
        Fault::StandbyEnds => !process.unfit && job.given.is_none(),
        Fault::Clock | Fault::DeleteAll | Fault::Late => false,
    }
}

/// What a watch would report: creation and last change of what it watches.
fn read(tree: &Tree, watched: &Watched) -> Told {
    match watched {
        Watched::Node(path) => {
            tree.get(&**path).map(|n| (String::new(), (n.czxid, n.mzxid))).into_iter().collect()
        }
        Watched::Tree(parent) => {
            children(tree, parent).map(|(name, n)| (name.to_owned(), (n.czxid, n.mzxid))).collect()
        }
    }
}

impl Step {
    /// Of the [patient](World::patient) ones, the events between any two steps of others that are no overtake. In a
    /// race, the events of a member that is frozen or lags.
    fn straggles(&self, setting: &Setting) -> bool {
        match self {
            Self::Arrive(_) | Self::Land => true,
            Self::Serve(_) | Self::Thaw(_) | Self::CatchUp(_) => setting.race,
            _ => false,
        }
    }

    fn member(self) -> Option<usize> {
        match self {
            Self::Serve(m)
            | Self::Reply(m)
            | Self::Tell(m, _)
            | Self::Answer(m)
            | Self::Ready(m)
            | Self::Consent(m, _)
            | Self::Heartbeat(m)
            | Self::Learn(m)
            | Self::Connect(m)
            | Self::Wake(m)
            | Self::Notice(m)
            | Self::Resume(m)
            | Self::GiveUp(m)
            | Self::CatchUp(m)
            | Self::Arrive(m)
            | Self::Thaw(m)
            | Self::Start(m) => Some(m),
            Self::Ask | Self::Land | Self::Expire(_) | Self::Tick | Self::Hold(..) | Self::Fault(..) => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
