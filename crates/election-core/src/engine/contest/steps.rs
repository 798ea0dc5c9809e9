//! Standing for a place: one step at a time, each with what follows from its outcome.

use super::{Before, Engine, Own, RETRY, Step, Then, USED_UP};
use crate::{
    engine::{
        StopReason,
        io::{Level, Node, NoteKind, OpId, Outcome, Request},
        recipe::QueueFormat,
        rules::Rule,
        view::Known,
    },
    record::{Contender, ContenderStatus, Record, VERSION},
};

impl Engine {
    /// Takes the next step, if none is under way.
    pub(in crate::engine) fn advance_contest(&mut self) {
        if !self.is_contest() {
            return;
        }
        self.watch_over_office();
        let contest = &self.contest;
        if contest.op.is_some()
            || !self.session_is_active()
            || contest.retry_at.is_some_and(|at| self.now.time < at)
        {
            return;
        }
        self.contest.retry_at = None;
        if self.turn() {
            return;
        }
        let Some(request) = self.next_request() else { return };
        self.contest.op = self.perform(request);
    }

    /// Goes over to what the circumstances ask for; whether there is nothing to do but wait.
    fn turn(&mut self) -> bool {
        let idle = self.office_is_idle();
        if self.leaving.is_asked() {
            if !idle {
                return true;
            }
            match self.contest.step {
                Step::Seek(Then::Leave)
                | Step::Count(Then::Leave)
                | Step::Look(Then::Leave, _)
                | Step::Drop(_, _, Then::Leave) => return false,
                Step::Idle | Step::Gone => return true,
                _ => {}
            }
            self.contest.own = None;
            self.contest.before = None;
            // The session may live on for other elections.
            let nothing = self.contest.attempts == 0;
            self.contest.step = if nothing { Step::Gone } else { Step::Seek(Then::Leave) };
            return nothing;
        }
        match self.contest.step {
            Step::Idle | Step::Gone => return true,
            Step::InOffice if !idle => return !self.contest.ranks_again,
            Step::InOffice => self.left_office(),
            Step::First if self.no_candidate().is_none() => {
                if idle {
                    self.enter_office();
                }
                return true;
            }
            Step::Waiting if self.no_candidate().is_none() => return self.go_on_waiting(),
            _ => {}
        }
        if self.contest.step == Step::Create && self.contest.stand_at.is_some() {
            self.contest.step = Step::Pausing;
        }
        if self.contest.step == Step::Pausing {
            let due = self.contest.stand_at.is_none_or(|at| at <= self.now.time);
            if !due || self.no_candidate().is_some() {
                return true;
            }
            self.contest.stand_at = None;
            self.contest.step = Step::Seek(Then::Stand);
        }
        if let Some(why) = self.no_candidate()
            && !self.contest_is_paused()
            && !self.contest.is_preparing()
        {
            self.note(Level::Warn, NoteKind::Registration, format!("does not stand, for {why}"));
            self.contest.own = None;
            self.contest.before = None;
            self.contest.step = Step::Seek(Then::Pause);
        }
        false
    }

    /// Whether there is nothing to do but wait.
    fn go_on_waiting(&mut self) -> bool {
        self.contest.has_waited = true;
        if self.queue_format().is_some() {
            let again = std::mem::take(&mut self.contest.look_again);
            if again {
                // Cleared before it is read: what vanishes meanwhile is looked at again.
                self.contest.step = if self.rules.keep(Rule::RanksAgain) { Step::Rank } else { Step::First };
            }
            return !again;
        }
        let session = self.session_id();
        let next = match self.view.place(0) {
            Known::Absent => Step::Create,
            known if known.meta().is_some_and(|m| m.owner == session) => Step::Seek(Then::Stand),
            _ => return true,
        };
        self.contest.step = next;
        false
    }

    fn next_request(&mut self) -> Option<Request> {
        let paths = self.config.paths.clone();
        let queue = self.queue_format();
        let children = |format: QueueFormat| Request::Children { path: format.parent(&paths) };
        let place = || Request::Get { path: paths.place(0) };
        let in_queue = |name: &str| format!("{}/{name}", queue.unwrap_or_default().parent(&paths));
        Some(match &self.contest.step {
            Step::ListLeftovers | Step::Rank => children(queue?),
            Step::InOffice if self.contest.ranks_again => children(queue?),
            Step::LookAtLeftover(names) => Request::Get { path: in_queue(names.last()?) },
            Step::DropLeftover(name, _) => Request::Delete { path: in_queue(name), version: None },
            Step::Seek(_) => queue.map_or_else(place, children),
            Step::Adopt(name) => Request::Get { path: in_queue(name) },
            Step::Count(_) => Request::Get { path: paths.leader() },
            Step::Look(..) => place(),
            Step::Drop(path, None, _) => Request::Delete { path: path.clone(), version: None },
            Step::Drop(path, Some((version, count)), _) => Request::DeleteWhile {
                path: path.clone(),
                version: *version,
                unchanged: paths.leader(),
                unchanged_version: *count,
            },
            Step::Create => return self.create_own(),
            Step::Idle | Step::Waiting | Step::First | Step::InOffice | Step::Pausing | Step::Gone => {
                return None;
            }
        })
    }

    fn create_own(&mut self) -> Option<Request> {
        let status = match self.queue_format() {
            Some(_) => ContenderStatus::Waiting,
            None => ContenderStatus::Progress,
        };
        let data = self.contender_data(status, self.now.unix_ms, None)?;
        self.contest.written.clone_from(&data);
        self.contest.attempts += 1;
        self.contest.unanswered = true;
        Some(match self.queue_format() {
            Some(format) => {
                let stem = format.stem(self.session_id(), self.contest.attempts);
                Request::CreateSequential {
                    prefix: format!("{}/{stem}", format.parent(&self.config.paths)),
                    data,
                    ephemeral: true,
                    unique_prefix: true,
                }
            }
            None => Request::CreateCounted {
                path: self.config.paths.place(0),
                data,
                counter: self.config.paths.leader(),
            },
        })
    }

    /// What this member's znode holds.
    pub(in crate::engine) fn contender_data(
        &mut self,
        status: ContenderStatus,
        since_ms: u64,
        ready_ms: Option<u64>,
    ) -> Option<Vec<u8>> {
        let profile = &self.config.member;
        if !self.config.recipe.is_native() {
            return Some(profile.member.as_str().into());
        }
        let record = Contender {
            v: VERSION,
            member: profile.member.clone(),
            site: profile.site.clone(),
            status,
            address: profile.address.clone(),
            http: profile.http.clone(),
            software: profile.software.clone(),
            since_ms,
            ready_ms,
        };
        match record.encode(&self.config.paths.place(0)) {
            Ok(data) => Some(data),
            Err(error) => {
                self.contest_later(&error.to_string());
                None
            }
        }
    }

    fn contest_later(&mut self, why: &str) {
        self.note(Level::Warn, NoteKind::Trouble, format!("standing in the election is delayed: {why}"));
        self.contest.retry_at = Some(self.now.time + RETRY);
    }

    pub(in crate::engine) fn contest_done(&mut self, op: OpId, outcome: &Outcome) -> bool {
        if self.contest.op != Some(op) {
            return false;
        }
        self.contest.op = None;
        match (self.contest.step.clone(), outcome) {
            (_, Outcome::NotApplied(why)) => self.contest_later(why),
            (Step::ListLeftovers, Outcome::Names(names)) => {
                let stem = self.queue_format().map(|format| format.session_stem(self.session_id()));
                let others =
                    |name: &&String| stem.as_ref().is_none_or(|stem| !name.starts_with(stem.as_str()));
                self.look_at_leftovers(names.iter().filter(others).cloned().collect());
            }
            (Step::LookAtLeftover(mut names), Outcome::Got(node)) => {
                let name = names.pop().unwrap_or_default();
                if node.as_ref().is_some_and(|node| self.is_of_this_member(node)) {
                    let text = "removing what a former process of this member left behind".to_owned();
                    self.note(Level::Info, NoteKind::Registration, text);
                    self.contest.step = Step::DropLeftover(name, names);
                } else {
                    self.look_at_leftovers(names);
                }
            }
            (Step::DropLeftover(_, names), Outcome::Ok | Outcome::Missing) => self.look_at_leftovers(names),
            (Step::Seek(then), Outcome::Names(names)) => self.sought_in_queue(then, names),
            (Step::Seek(then), Outcome::Got(node)) => self.sought_place(then, node.as_ref()),
            (Step::Count(then), Outcome::Got(counter)) => {
                let found = counter.as_ref().map(|counter| Step::Look(then, counter.version));
                self.contest.step = found.unwrap_or(Step::Seek(then));
            }
            (Step::Look(then, count), Outcome::Got(node)) => self.looked_at_place(then, count, node.as_ref()),
            (Step::Drop(_, _, then), Outcome::Ok | Outcome::Missing | Outcome::Stale) => {
                self.contest.step = Step::Seek(then);
            }
            (Step::Create, Outcome::Created { path, czxid }) => {
                let (owner, data) = (self.session_id(), std::mem::take(&mut self.contest.written));
                let node = Node::created(data, *czxid, owner);
                self.stands_with(Own { path: path.clone(), node, count: None });
            }
            (Step::Create, Outcome::Counted { czxid, count }) => {
                let (owner, data) = (self.session_id(), std::mem::take(&mut self.contest.written));
                let node = Node::created(data, *czxid, owner);
                self.stands_with(Own { path: self.config.paths.place(0), node, count: Some(*count) });
            }
            (Step::Create, Outcome::Exists) => self.contest.step = Step::Seek(Then::Stand),
            // Nobody knows whether it stands.
            (Step::Create, Outcome::Unknown(why)) => {
                self.contest.step = Step::Seek(Then::Stand);
                self.contest_later(why);
            }
            (Step::Adopt(name), Outcome::Got(Some(node))) if node.owner == self.session_id() => {
                let parent = self.queue_format().unwrap_or_default().parent(&self.config.paths);
                let path = format!("{parent}/{name}");
                self.stands_with(Own { path, node: node.clone(), count: None });
            }
            (Step::Adopt(_), Outcome::Got(_)) => self.contest.step = Step::Seek(Then::Stand),
            (Step::Rank, Outcome::Names(names)) => self.ranked(names),
            (Step::InOffice, Outcome::Names(names)) => self.ranked_again(names),
            (step, outcome) => self.contest_later(&format!("{step:?}: {outcome:?}")),
        }
        true
    }

    fn look_at_leftovers(&mut self, names: Vec<String>) {
        self.contest.step = if names.is_empty() { Step::Create } else { Step::LookAtLeftover(names) };
    }

    /// Whether another session made it for this member.
    fn is_of_this_member(&self, node: &Node) -> bool {
        let member = &self.config.member.member;
        let says = if self.config.recipe.is_native() {
            Contender::decode("", &node.data).is_ok_and(|c| c.member == *member)
        } else {
            node.data == member.as_str().as_bytes()
        };
        says && node.owner != self.session_id()
    }

    fn owns(&self, node: &Node) -> bool {
        let member = || !self.rules.keep(Rule::OwnerChecked) && self.is_of_this_member(node);
        node.owner == self.session_id() || member()
    }

    /// What of this session stands in the queue: the last creation, if it was not
    /// answered, is this member's; all else goes.
    fn sought_in_queue(&mut self, then: Then, names: &[String]) {
        let Some(format) = self.queue_format() else { return };
        let session_stem = format.session_stem(self.session_id());
        let last_stem = format.stem(self.session_id(), self.contest.attempts);
        let mut mine = names.iter().filter(|name| name.starts_with(&session_stem));
        let adoptable =
            |name: &String| then == Then::Stand && self.contest.unanswered && name.starts_with(&last_stem);
        let path = |name: &String| format!("{}/{name}", format.parent(&self.config.paths));
        self.contest.step = match mine.clone().find(|name| !adoptable(name)) {
            Some(stray) => Step::Drop(path(stray), None, then),
            None => match mine.next() {
                Some(own) => Step::Adopt(own.clone()),
                None => self.nothing_left(then),
            },
        };
    }

    fn sought_place(&mut self, then: Then, node: Option<&Node>) {
        self.see_place(0, node);
        // Another session's is never deleted, not even that of a former process of this member.
        match node {
            Some(node) if self.owns(node) => self.contest.step = Step::Count(then),
            Some(_) if then == Then::Stand => {
                self.contest.unanswered = false;
                let text = match self.view.place(0).record() {
                    Some(current) => format!("waits for {} to let go", current.member),
                    None => "waits for whoever holds the place to let go".to_owned(),
                };
                self.note(Level::Info, NoteKind::Registration, text);
                self.contest.step = Step::Waiting;
            }
            _ => self.contest.step = self.nothing_left(then),
        }
    }

    /// The place was this session's a moment ago.
    fn looked_at_place(&mut self, then: Then, count: i32, node: Option<&Node>) {
        self.see_place(0, node);
        let path = self.config.paths.place(0);
        match node.filter(|n| self.owns(n)) {
            Some(node) if then == Then::Stand && self.contest.unanswered => {
                self.stands_with(Own { path, node: node.clone(), count: Some(count) });
            }
            Some(node) => self.contest.step = Step::Drop(path, Some((node.version, count)), then),
            None => self.contest.step = Step::Seek(then),
        }
    }

    fn nothing_left(&mut self, then: Then) -> Step {
        self.contest.unanswered = false;
        match then {
            Then::Stand => Step::Create,
            Then::Pause => Step::Pausing,
            Then::Leave => Step::Gone,
        }
    }

    fn stands_with(&mut self, own: Own) {
        self.contest.unanswered = false;
        if self.queue_format().is_some() && self.ballot_at(&own.path, own.node.owner).is_none() {
            let parent = self.queue_format().unwrap_or_default().parent(&self.config.paths);
            let why = format!(
                "{} is no name of a place in a queue; where its numbers are used up, delete {parent}",
                own.path
            );
            self.contest.step = Step::Drop(own.path, None, Then::Stand);
            self.contest_later(&why);
            self.contest.retry_at = Some(self.now.time + USED_UP);
            return;
        }
        self.contest.own = Some(own);
        self.contest.step = match self.queue_format() {
            Some(_) => Step::Rank,
            None => Step::First,
        };
    }

    /// It was the first in the queue before the connection was lost.
    fn ranked_again(&mut self, names: &[String]) {
        self.contest.ranks_again = false;
        let (Some(format), Some(own)) = (self.queue_format(), &self.contest.own) else {
            return;
        };
        let first = format.order(names).first().copied().map(str::to_owned);
        if first.as_deref() != own.path.rsplit('/').next() && self.office.held().is_none() {
            let why = "it is not the first in the queue any more".to_owned();
            self.give_up_claim(StopReason::NotNamed(why));
        }
    }

    /// Where the own znode stands in the queue.
    fn ranked(&mut self, names: &[String]) {
        let (Some(format), Some(own)) = (self.queue_format(), &self.contest.own) else {
            return;
        };
        let own = own.path.rsplit('/').next().unwrap_or_default().to_owned();
        let session_stem = format.session_stem(self.session_id());
        let parent = format.parent(&self.config.paths);
        let stray = names.iter().find(|name| name.starts_with(&session_stem) && **name != own);
        let order = format.order(names);
        let Some(place) = order.iter().position(|name| *name == own) else {
            return self.own_lost("the own znode in the queue is gone");
        };
        if let Some(stray) = stray {
            // A creation that was given up for lost: it goes, and this one is looked for again.
            self.contest.unanswered = true;
            self.contest.own = None;
            let text = "a former znode of this session still stands in the queue".to_owned();
            self.note(Level::Warn, NoteKind::Registration, text);
            self.contest.step = Step::Drop(format!("{parent}/{stray}"), None, Then::Stand);
            return;
        }
        let Some(before) = place.checked_sub(1).map(|at| order[at]) else {
            self.contest.before = None;
            self.contest.step = Step::First;
            return;
        };
        let path = format!("{parent}/{before}");
        if self.contest.before.as_ref().is_some_and(|known| known.gone && known.path == path) {
            // The server that was asked has not heard of it yet.
            self.contest.look_again = true;
            self.contest.retry_at = Some(self.now.time + RETRY);
        } else {
            self.contest.before = Some(Before { path, first: place == 1, gone: false });
            self.contest.previous = None;
            let text = format!("stands in the queue as {own}, behind {before} ({place} before it)");
            self.note(Level::Info, NoteKind::Registration, text);
        }
        self.contest.step = Step::Waiting;
    }
}
