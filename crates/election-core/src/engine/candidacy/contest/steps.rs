//! The candidacy: one step at a time, each with what follows from its outcome.

use super::{
    super::{
        by_recipe::ByRecipe as _,
        line::{Line, NEVER_CREATED, Rank},
    },
    AfterSeek, Before, ContestCandidacy, ContestStep, Generation,
};
use crate::{
    engine::{
        core::Core,
        io::{Level, Node, NoteKind, Outcome, StopReason, ZkOp},
        leader::OwnLeadership,
        ops::{Part, USED_UP},
        own::{Creation, OwnZnode},
        recipe::QueueFormat,
        transaction::ZnodeWrite,
        znode::Known,
    },
    ids::Ballot,
    record::{Contender, ContenderStatus, Record},
};

impl ContestCandidacy {
    /// Changes to the step that the circumstances require. Returns whether it can only wait.
    pub(super) fn turn(&mut self, core: &mut Core, leader: &mut OwnLeadership) -> bool {
        let idle = leader.is_idle();
        if core.own.leaving.is_asked() {
            if !idle {
                return true;
            }
            match self.step {
                ContestStep::Seek(AfterSeek::Leave)
                | ContestStep::ReadGeneration(AfterSeek::Leave)
                | ContestStep::Count(AfterSeek::Leave)
                | ContestStep::Look(AfterSeek::Leave, _)
                | ContestStep::Drop(_, _, AfterSeek::Leave) => return false,
                ContestStep::Idle | ContestStep::Gone => return true,
                _ => {}
            }
            let own = core.own.contest.znode.take().filter(|_| core.queue_format().is_some());
            self.before = None;
            // The session may live on for other elections.
            let nothing = self.attempts == 0 || self.created_one() && core.own.contest.is_released;
            self.step = match own {
                _ if nothing => ContestStep::Gone,
                Some(own) if self.created_one() => {
                    ContestStep::Drop(own.path.as_ref().into(), None, AfterSeek::Leave)
                }
                _ => self.seek_last(core, AfterSeek::Leave),
            };
            return nothing;
        }
        match self.step {
            ContestStep::Idle | ContestStep::Gone => return true,
            ContestStep::Leading if !idle => return !core.own.contest.ranks_again,
            ContestStep::Leading => self.released(core),
            _ => {}
        }
        let is_candidate = core.own.no_candidate().is_none();
        if self.step == ContestStep::Waiting && is_candidate && self.goes_on_waiting(core) {
            if !self.looks_at_duplicate(core) {
                return true;
            }
            self.step = ContestStep::LookAtDuplicate;
        }
        if self.step == ContestStep::First && is_candidate {
            if let Some((base, _)) =
                core.contest_base().filter(|(base, _)| idle && !core.reading.memory.is_behind(*base))
            {
                self.hand_over(core, leader, base);
            }
            return true;
        }
        if self.step == ContestStep::Create && self.join_at.is_some() {
            self.step = ContestStep::Pausing;
        }
        if self.step == ContestStep::Create
            && core.queue_format().is_none()
            && self.generation == Generation::Unread
        {
            self.step = ContestStep::ReadGeneration(AfterSeek::Join);
        }
        if self.step == ContestStep::Pausing {
            let due = self.join_at.is_none_or(|at| at <= core.now.time);
            if !due || core.own.no_candidate().is_some() {
                return true;
            }
            self.join_at = None;
            self.step = ContestStep::Seek(AfterSeek::Join);
        }
        if let Some(why) = core.own.no_candidate()
            && !self.is_paused()
            && !self.is_preparing()
        {
            core.note(Level::Warn, NoteKind::Registration, format!("is no candidate: {why}"));
            core.own.contest.znode = None;
            self.before = None;
            self.step = self.seek_last(core, AfterSeek::Pause);
        }
        false
    }

    /// Looks for what it has created before it creates nothing for a while. A creation that may still arrive is refused
    /// after a write of this session.
    fn seek_last(&self, core: &Core, then: AfterSeek) -> ContestStep {
        if !self.may_arrive {
            return ContestStep::Seek(then);
        }
        let parent = Line::queue(core).map_or_else(|| core.config.paths.leader(), |queue| queue.parent);
        ContestStep::Drop(format!("{parent}/{NEVER_CREATED}").into(), None, then)
    }

    /// Changes to the step that follows, if another candidate is not before this one any more. Returns whether none does.
    fn goes_on_waiting(&mut self, core: &mut Core) -> bool {
        self.has_waited = true;
        if core.queue_format().is_some() {
            // Cleared before the read, so that a znode that vanishes meanwhile is checked again.
            if !std::mem::take(&mut self.look_again) {
                return true;
            }
            // Every znode that was created since is behind the own one.
            let was_alone = self.before.as_ref().is_some_and(|before| before.alone && before.gone);
            self.step = if was_alone { ContestStep::First } else { ContestStep::Rank };
            return false;
        }
        let next = match core.reading.view.leader(0) {
            Known::Absent => ContestStep::Create,
            known if core.is_own_leader_znode(known) => ContestStep::Seek(AfterSeek::Join),
            _ => {
                self.suspect_holder(core);
                return true;
            }
        };
        self.suspect(core, None);
        self.step = next;
        false
    }

    pub(super) fn next_request(&mut self, core: &mut Core) -> Option<ZkOp> {
        let paths = core.config.paths.clone();
        let queue = Line::queue(core);
        let znode = || ZkOp::Get(paths.leader_znode(0));
        Some(match &self.step {
            ContestStep::ListLeftovers | ContestStep::Rank => queue?.list(),
            ContestStep::Leading if core.own.contest.ranks_again => queue?.list(),
            ContestStep::LookAtLeftover(names) => ZkOp::Get(queue?.path(names.last()?)),
            ContestStep::DropLeftover(names) => queue?.drop(names.last()?),
            ContestStep::Seek(_) => queue.map_or_else(znode, |queue| queue.list()),
            ContestStep::LookAtDuplicate => ZkOp::Get(self.suspected.as_ref()?.path.clone()),
            ContestStep::Adopt(name) => ZkOp::Get(queue?.path(name)),
            ContestStep::ReadGeneration(_) => ZkOp::Children(paths.leader()),
            ContestStep::Count(_) => ZkOp::Get(paths.leader()),
            ContestStep::Look(..) => znode(),
            ContestStep::Drop(path, None, _) => ZnodeWrite::delete(&**path, None).into(),
            ContestStep::Drop(_, Some((version, count)), _) => {
                self.creation(*count).undo(&paths, *version).into()
            }
            ContestStep::Create => return self.create_own(core),
            ContestStep::Idle
            | ContestStep::Waiting
            | ContestStep::First
            | ContestStep::Leading
            | ContestStep::Pausing
            | ContestStep::Gone => {
                return None;
            }
        })
    }

    fn create_own(&mut self, core: &mut Core) -> Option<ZkOp> {
        let status = match core.queue_format() {
            Some(_) => ContenderStatus::Waiting,
            None => ContenderStatus::Progress,
        };
        let base = core.contest_base().map_or(0, |(base, _)| base);
        let ballot = core.incarnation().ballot(self.attempts + 1)?;
        let contender = core.config.contender(status, &ballot, core.granted(), core.now.unix_ms, None, base);
        let data = match contender {
            Ok(data) => data,
            Err(error) => {
                core.delayed(Part::Candidacy, error);
                return None;
            }
        };
        self.written.clone_from(&data);
        self.attempts += 1;
        self.unanswered = true;
        self.may_arrive = true;
        Some(match Line::queue(core) {
            Some(queue) => queue.create(self.attempts, data),
            None => {
                let paths = &core.config.paths;
                let create = ZnodeWrite::create_ephemeral(paths.leader_znode(0), data);
                let create = create.counted_by(paths.leader());
                match self.generation.path() {
                    Some(generation) => create.only_while(&*generation, None).into(),
                    None => {
                        let generation = generation_of(core, &ballot);
                        self.generation = Generation::Known(generation.as_str().into());
                        create.then(ZnodeWrite::create(generation, "")).into()
                    }
                }
            }
        })
    }

    pub(super) fn step_done(&mut self, core: &mut Core, leader: &mut OwnLeadership, outcome: &Outcome) {
        let writes =
            matches!(self.step, ContestStep::Create | ContestStep::Drop(..) | ContestStep::DropLeftover(_));
        let answered = !matches!(outcome, Outcome::Unknown(_) | Outcome::NotApplied(_));
        match (self.step.clone(), outcome) {
            (_, Outcome::NotApplied(why)) => core.delayed(Part::Candidacy, why),
            (ContestStep::ListLeftovers, Outcome::Names(names)) => {
                self.look_at_leftovers(Line::queue(core).map_or_else(Vec::new, |queue| queue.others(names)));
            }
            (ContestStep::LookAtLeftover(mut names), Outcome::Got(node)) => {
                if node.as_ref().is_some_and(|node| self.is_of_this_member(core, node)) {
                    let text = "removing what a former process of this member left behind".to_owned();
                    core.note(Level::Info, NoteKind::Registration, text);
                    self.step = ContestStep::DropLeftover(names);
                } else {
                    names.pop();
                    self.look_at_leftovers(names);
                }
            }
            (ContestStep::DropLeftover(mut names), Outcome::Ok | Outcome::Missing) => {
                names.pop();
                self.look_at_leftovers(names);
            }
            (ContestStep::Seek(then), Outcome::Names(names)) => self.sought_in_queue(core, then, names),
            (ContestStep::Seek(then), Outcome::Got(node)) => {
                self.sought_leader_znode(core, then, node.as_ref())
            }
            (ContestStep::ReadGeneration(then), Outcome::Names(names)) => {
                self.generation = found_generation(core, names);
                let leader_znode = core.config.paths.leader_znode(0);
                let exists = names.iter().any(|name| leader_znode.ends_with(&format!("/{name}")));
                self.step = match exists || self.refused > 0 {
                    true => ContestStep::Seek(then),
                    false => self.nothing_left(then),
                };
            }
            (ContestStep::Count(then), Outcome::Got(counter)) => {
                let found = counter.as_ref().map(|counter| ContestStep::Look(then, counter.version));
                self.step = found.unwrap_or(ContestStep::Seek(then));
            }
            (ContestStep::Look(then, count), Outcome::Got(node)) => {
                self.looked_at_leader_znode(core, then, count, node.as_ref())
            }
            (ContestStep::Drop(_, None, AfterSeek::Leave), Outcome::Ok | Outcome::Missing)
                if self.created_one() =>
            {
                self.step = ContestStep::Gone;
            }
            // In an older copy of the ensemble, the generation may be another one.
            (ContestStep::Drop(_, Some(_), then), Outcome::Stale) => {
                self.step = ContestStep::ReadGeneration(then)
            }
            (ContestStep::Drop(_, _, then), Outcome::Ok | Outcome::Missing | Outcome::Stale) => {
                self.step = ContestStep::Seek(then);
            }
            (ContestStep::Create, Outcome::Created { path, czxid, .. }) => {
                let (owner, data) = (core.session_id(), std::mem::take(&mut self.written));
                let node = Node::created(data, *czxid, owner);
                self.joins_with(core, path, node, None);
            }
            // The counter was set in the transaction that created the znode.
            (ContestStep::Create, Outcome::Changed { version: count, mzxid: czxid }) => {
                let (owner, data) = (core.session_id(), std::mem::take(&mut self.written));
                let node = Node::created(data, *czxid, owner);
                let path = core.config.paths.leader_znode(0);
                self.joins_with(core, &path, node, Some(*count));
            }
            (ContestStep::Create, Outcome::Exists) => {
                self.refused = self.refused.saturating_add(1).min(2);
                let began =
                    core.incarnation().ballot(self.attempts).map(|ballot| generation_of(core, &ballot));
                self.step = match self.generation.path().as_deref() == began.as_deref() {
                    true => ContestStep::ReadGeneration(AfterSeek::Join),
                    false => ContestStep::Seek(AfterSeek::Join),
                };
            }
            // The parent was deleted.
            (ContestStep::Create, Outcome::Stale) => self.step = ContestStep::ReadGeneration(AfterSeek::Join),
            // It is unknown whether the znode was created.
            (ContestStep::Create, Outcome::Unknown(why)) => {
                self.step = ContestStep::Seek(AfterSeek::Join);
                core.delayed(Part::Candidacy, why);
            }
            (ContestStep::Adopt(name), Outcome::Got(node)) => {
                let adopted = node.as_ref().filter(|node| node.owner == core.session_id());
                match adopted.zip(Line::queue(core)) {
                    Some((node, queue)) => self.joins_with(core, &queue.path(&name), node.clone(), None),
                    None => self.step = ContestStep::Seek(AfterSeek::Join),
                }
            }
            (ContestStep::LookAtDuplicate, Outcome::Got(node)) => {
                self.looked_at_duplicate(core, node.as_ref())
            }
            (ContestStep::Rank, Outcome::Names(names)) => self.ranked(core, names),
            (ContestStep::Leading, Outcome::Names(names)) => self.ranked_again(core, leader, names),
            (_, outcome) => core.delayed(Part::Candidacy, outcome),
        }
        self.may_arrive &= !(writes && answered);
    }

    /// Whether a single znode was created on this session, and it is known.
    fn created_one(&self) -> bool {
        self.attempts == 1 && !self.unanswered && !self.may_arrive
    }

    fn look_at_leftovers(&mut self, names: Vec<String>) {
        self.step = if names.is_empty() { ContestStep::Create } else { ContestStep::LookAtLeftover(names) };
    }

    /// Whether its record has this member's id.
    fn is_of_this_member(&self, core: &Core, node: &Node) -> bool {
        let member = &core.config.member.member;
        if core.config.recipe.is_native() {
            Contender::decode("", &node.data).is_ok_and(|c| c.member == *member)
        } else {
            node.data == member.as_str().as_bytes()
        }
    }

    /// Single: the creation with this count, which was the last one.
    fn creation(&self, count: i32) -> Creation {
        Creation { count, generation: self.generation.path() }
    }

    /// Single: whether this incarnation has created the leader znode.
    fn owns(&self, core: &Core, node: &Node) -> bool {
        let known = core.read_leader_record(&core.config.paths.leader_znode(0), Some(node));
        core.is_own_leader_znode(&known)
    }

    /// The znodes of this incarnation in the queue. The last creation, if it had no answer, is this member's; all others
    /// are deleted.
    fn sought_in_queue(&mut self, core: &mut Core, then: AfterSeek, names: &[String]) {
        let Some(queue) = Line::queue(core) else { return };
        let mut mine = queue.own(names);
        let adoptable = |name: &str| {
            then == AfterSeek::Join && self.unanswered && queue.is_of_attempt(name, self.attempts)
        };
        self.step = match mine.clone().find(|name| !adoptable(name)) {
            Some(stray) => ContestStep::Drop(queue.path(stray).into(), None, then),
            None => match mine.next() {
                Some(own) => ContestStep::Adopt(own.into()),
                None => self.nothing_left(then),
            },
        };
    }

    fn sought_leader_znode(&mut self, core: &mut Core, then: AfterSeek, node: Option<&Node>) {
        core.see_leader_znode(0, node);
        if node.is_some() {
            self.refused = 0;
        } else if self.refused > 1 && then == AfterSeek::Join {
            core.contradicted(Part::Candidacy, &core.config.paths.leader_znode(0));
        }
        // A znode of another incarnation is never deleted, not even that of a former process of this member.
        match node {
            Some(node) if self.owns(core, node) => self.step = ContestStep::Count(then),
            Some(_) if then == AfterSeek::Join => {
                self.unanswered = false;
                let text = match core.reading.view.leader(0).record() {
                    Some(current) => format!("waits for {} to let go", current.member),
                    None => "waits for the holder to release the leader znode".to_owned(),
                };
                core.note(Level::Info, NoteKind::Registration, text);
                self.step = ContestStep::Waiting;
            }
            _ => self.step = self.nothing_left(then),
        }
    }

    /// The leader znode was this incarnation's a moment ago.
    fn looked_at_leader_znode(&mut self, core: &mut Core, then: AfterSeek, count: i32, node: Option<&Node>) {
        core.see_leader_znode(0, node);
        let path = core.config.paths.leader_znode(0);
        match node.filter(|n| self.owns(core, n)) {
            Some(node) if then == AfterSeek::Join && self.unanswered => {
                self.joins_with(core, &path, node.clone(), Some(count));
            }
            Some(node) => self.step = ContestStep::Drop(path.into(), Some((node.version, count)), then),
            None => self.step = ContestStep::Seek(then),
        }
    }

    fn nothing_left(&mut self, then: AfterSeek) -> ContestStep {
        self.unanswered = false;
        match then {
            AfterSeek::Join => ContestStep::Create,
            AfterSeek::Pause => ContestStep::Pausing,
            AfterSeek::Leave => ContestStep::Gone,
        }
    }

    fn joins_with(&mut self, core: &mut Core, path: &str, node: Node, count: Option<i32>) {
        self.unanswered = false;
        core.reading.memory.created(node.czxid);
        let queue = Line::queue(core);
        let ballot = match &queue {
            Some(_) => Ballot::new(path.rsplit('/').next().unwrap_or_default()).ok(),
            None => core.incarnation().ballot(self.attempts),
        };
        let Some(ballot) = ballot else {
            let parent = queue.as_ref().map_or("", |queue| queue.parent.as_str());
            let why = format!(
                "{path} is no name of a place in a queue; where its numbers are used up, delete {parent}"
            );
            self.step = ContestStep::Drop(path.into(), None, AfterSeek::Join);
            core.delayed(Part::Candidacy, why);
            core.ops.retry(Part::Candidacy, core.now.time + USED_UP);
            return;
        };
        if queue.is_none() {
            core.has_created(node.czxid);
        }
        let creation = count.map(|count| self.creation(count));
        let own = Box::new(OwnZnode { path: path.into(), node, creation, base: 0, ballot });
        let is_first = self.attempts == 1 && Line::is_first_of_all(own.name());
        core.own.contest.znode = Some(own);
        self.step = match core.queue_format() {
            Some(QueueFormat::Native) if is_first => ContestStep::First,
            Some(_) => ContestStep::Rank,
            None => ContestStep::First,
        };
    }

    /// The own znode was the first in the queue before the connection was lost.
    fn ranked_again(&mut self, core: &mut Core, leader: &mut OwnLeadership, names: &[String]) {
        core.own.contest.ranks_again = false;
        let (Some(queue), Some(own)) = (Line::queue(core), &core.own.contest.znode) else { return };
        if !queue.is_first(names, own.name()) && leader.held().is_none() {
            let why = "it is not the first in the queue any more".to_owned();
            leader.give_up_claim(core, StopReason::NotNamed(why));
        }
    }

    /// The position of the own znode in the queue.
    fn ranked(&mut self, core: &mut Core, names: &[String]) {
        let (Some(queue), Some(own)) = (Line::queue(core), &core.own.contest.znode) else { return };
        let own = own.name().to_owned();
        match queue.rank(names, &own) {
            Rank::Gone => self.own_lost(core, "the own znode in the queue is gone"),
            Rank::Stray(stray) => {
                // The stray is deleted, and the own znode is searched for again.
                self.unanswered = true;
                core.own.contest.znode = None;
                let text = "a former znode of this member is still in the queue".to_owned();
                core.note(Level::Warn, NoteKind::Registration, text);
                self.step = ContestStep::Drop(queue.path(stray).into(), None, AfterSeek::Join);
            }
            Rank::First => {
                self.suspect(core, None);
                self.before = None;
                self.step = ContestStep::First;
            }
            Rank::Behind(before, ahead) => {
                let path = queue.path(before);
                if self.before.as_ref().is_some_and(|known| known.gone && known.path == path) {
                    // The server that was read does not know of the deletion yet.
                    self.look_again = true;
                    core.retry(Part::Candidacy);
                } else {
                    let alone = ahead == 1;
                    let known = self.before.as_ref().filter(|known| known.path == path);
                    let first = alone || known.is_some_and(|known| known.first);
                    if known.is_none() {
                        self.previous = None;
                    }
                    self.before = Some(Box::new(Before { path, alone, ranked: true, first, gone: false }));
                    let suspected = queue.duplicate(names, &own).map(|name| queue.path(name));
                    self.suspect(core, suspected);
                    let text = format!("is in the queue as {own}, behind {before} ({ahead} before it)");
                    core.note(Level::Info, NoteKind::Registration, text);
                }
                self.step = ContestStep::Waiting;
            }
        }
    }
}

/// Single: what a creation names the generation that it begins.
fn generation_of(core: &Core, ballot: &Ballot) -> String {
    format!("{}{ballot}", core.config.paths.generation_prefix())
}

/// Single: the generation of the parent of the leader znode, by the names of its children. Two creations at one time may each
/// have begun one: they last equally long.
fn found_generation(core: &Core, names: &[String]) -> Generation {
    let parent = core.config.paths.leader();
    let mut paths = names.iter().map(|name| format!("{parent}/{name}"));
    let found = paths.find(|path| path.starts_with(&core.config.paths.generation_prefix()));
    found.map_or(Generation::Missing, |path| Generation::Known(path.into()))
}
