//! Operators and administrators: requests, standing orders, force from outside, and accidental changes.

use election_core::{
    config::Recipe,
    internals::{
        self, ForceStep, ForcedFailover, Transaction, ZnodeWrite, explain, fencing_token,
        record::{
            AdminRequest, Confirmed, Control, Current, Elected, FailedSite, FiledRequest, MemberRecord, Mode,
            OrderedBy, Outgoing, Record, RequestKind, RequestRef, RequestState, Target,
        },
    },
};

use super::{Due, Sim, host};
use crate::zookeeper::Applied;

/// With this many open requests, operators wait. Each request of a backlog is decided in turn, in more operations than
/// `no_livelock` allows.
const PATIENCE: usize = 8;

/// Something that an operator does after a while.
#[derive(Clone, Debug)]
pub(crate) enum Errand {
    /// Plans the next step of a forced failover.
    Plan {
        name: String,
        tries: u32,
        /// The latest request that this one has seen decided.
        seen: Option<i64>,
    },
    /// Takes it, on what was read then.
    Step {
        name: String,
        tries: u32,
        step: ForceStep,
        /// The version of the decision, and its generation.
        read: (Option<i32>, i32),
        /// That of the request.
        asked: i32,
        seen: Option<i64>,
    },
    /// Withdraws a request: reads it, and then writes it in the version that was read.
    Cancel {
        name: String,
        version: Option<i32>,
    },
    Control(Box<Control>),
    /// The data before an accidental change.
    Repair {
        path: String,
        data: Option<Vec<u8>>,
    },
}

impl Errand {
    /// Forgets what was read of ZooKeeper.
    pub(super) fn look_again(&mut self) {
        match self {
            Self::Step { name, tries, seen, .. } => {
                *self = Self::Plan { name: std::mem::take(name), tries: *tries, seen: *seen };
            }
            Self::Cancel { version, .. } => *version = None,
            Self::Plan { .. } | Self::Control(_) | Self::Repair { .. } => {}
        }
    }
}

impl Sim {
    pub(super) fn commit(&mut self, applied: &Applied) {
        self.changed(&applied.changed);
    }

    fn unix_ms(&self) -> u64 {
        host::EPOCH_MS + self.now
    }

    /// Makes a request; answers its name.
    pub(super) fn request(&mut self, kind: RequestKind, force: bool) -> Option<String> {
        let valid_for_ms = if self.rng.bool() { 60_000 } else { self.rng.u64(100..8000) };
        self.request_for(kind, force, valid_for_ms)
    }

    /// Several requests that end within moments, some of which are withdrawn: just when the elector begins them, or
    /// is busy with another one.
    pub(super) fn ask_impatiently(&mut self) {
        for _ in 0..self.rng.u8(1..4) {
            let kind = if self.rng.bool() { RequestKind::Switchover } else { RequestKind::Failover };
            let valid_for_ms = self.rng.u64(1..400);
            let name = self.request_for(kind, false, valid_for_ms);
            if let Some(name) = name.filter(|_| self.rng.bool()) {
                let delay = self.rng.u64(0..200);
                self.after(delay, Due::Operator(Errand::Cancel { name, version: None }));
            }
        }
    }

    fn request_for(&mut self, kind: RequestKind, force: bool, valid_for_ms: u64) -> Option<String> {
        self.zk.get(&self.paths.election())?;
        let made = self.zk.make_parents(self.now, &self.paths.request_prefix());
        self.changed(&made);
        let all = self.zk.tree_at(&self.paths.requests(), self.zk.zxid());
        let open = |data: &[u8]| AdminRequest::decode("request", data).is_ok_and(|r| !r.state.is_final());
        if all.values().filter(|node| open(&node.data)).count() >= PATIENCE {
            return None;
        }
        let to = match self.rng.u8(0..4) {
            0 => Target::Member(self.hosts[self.rng.usize(0..self.hosts.len())].member.clone()),
            1 => Target::Site(self.settings.sites[self.rng.usize(0..self.settings.sites.len())].clone()),
            _ => Target::Any,
        };
        let from = match self.rng.u8(0..4) {
            0 => Outgoing::Only,
            1 => Outgoing::Member(self.hosts[self.rng.usize(0..self.hosts.len())].member.clone()),
            _ => Outgoing::Slot(self.rng.usize(0..self.settings.policy.slots)),
        };
        let mut request =
            AdminRequest::new(self.now.to_string(), kind, to, "operator".to_owned(), self.unix_ms());
        (request.from, request.force, request.valid_for_ms) = (from, force, valid_for_ms);
        request.now = force && self.now.is_multiple_of(2);
        let prefix = self.paths.request_prefix();
        let data = request.encode(&prefix).ok()?;
        let (path, _) = self.zk.create_sequential(self.now, &prefix, data, 0);
        self.trace.line(self.now, || {
            format!(
                "    operator: {path} {} from {:?} to {:?} force {force}",
                kind.as_str(),
                request.from,
                request.to
            )
        });
        self.changed(std::slice::from_ref(&path));
        let name = path.rsplit('/').next().map(str::to_owned);
        if let Some(name) = name.clone().filter(|_| self.rng.u8(0..4) == 0) {
            let delay = self.rng.u64(0..3000);
            self.after(delay, Due::Operator(Errand::Cancel { name, version: None }));
        }
        name
    }

    /// The steps of `dr-worker cancel`. Between the two the request may begin.
    fn cancel(&mut self, name: String, read: Option<i32>) {
        let path = self.paths.request(&name);
        let Some((mut request, version)) = self.read::<AdminRequest>(&path) else { return };
        if request.state != RequestState::Pending {
            return;
        }
        if read.is_none() {
            let delay = self.rng.u64(1..200);
            return self.after(delay, Due::Operator(Errand::Cancel { name, version: Some(version) }));
        }
        request.state = RequestState::Cancelled { reason: "by operator".to_owned(), at_ms: self.unix_ms() };
        self.trace.line(self.now, || format!("    operator: cancels {name}"));
        let Ok(data) = request.encode(&path) else { return };
        let applied = self.zk.set(self.now, &path, data, read);
        self.commit(&applied);
    }

    pub(super) fn run_errand(&mut self, errand: Errand) {
        match errand {
            Errand::Plan { name, tries, seen } => self.plan_force(name, tries, seen),
            Errand::Step { name, tries, step, read, asked, seen } => {
                self.step_force(name, tries, step, read, asked, seen);
            }
            Errand::Cancel { name, version } => self.cancel(name, version),
            // The last change is permanent.
            Errand::Control(_) if self.is_calm() => {}
            Errand::Control(control) => self.order(&control),
            Errand::Repair { path, data } => self.repair(&path, data),
        }
    }

    pub(super) fn read<R: Record>(&self, path: &str) -> Option<(R, i32)> {
        let node = self.zk.get(path)?;
        Some((R::decode(path, &node.data).ok()?, node.version))
    }

    fn plan_force(&mut self, name: String, tries: u32, seen: Option<i64>) {
        let path = self.paths.request(&name);
        let (Some(node), Some((request, _))) = (self.zk.get(&path), self.read::<AdminRequest>(&path)) else {
            return;
        };
        let which = RequestRef { czxid: node.czxid, name: name.clone() };
        let expired = self.unix_ms() >= request.created_ms.saturating_add(request.valid_for_ms);
        if request.state.is_final() || tries > 20 || (request.state == RequestState::Pending && expired) {
            return;
        }
        let asked = node.version;
        let tree = self.zk.tree_at(&self.paths.nodes(), self.zk.zxid());
        let newest_zxid = tree.values().map(|node| node.mzxid).max().unwrap_or(0);
        let mut members: Vec<_> =
            tree.values().filter_map(|n| MemberRecord::decode("member", &n.data).ok()).collect();
        members.sort_by(|a, b| a.ballot.cmp(&b.ballot));
        let control = self.read::<Control>(&self.paths.control()).map(|(c, _)| c).unwrap_or_default();
        let elected = self.read::<Elected>(&self.paths.elected());
        if elected.is_none() && self.zk.get(&self.paths.elected()).is_some() {
            return;
        }
        let Recipe::Elector(strategy) = self.settings.recipe.clone() else { return };
        let slots = elected.as_ref().map_or(self.settings.policy.slots, |(e, _)| e.slots.len());
        let current: Vec<_> =
            (0..slots).map(|slot| self.read::<Current>(&self.paths.leader_znode(slot))).collect();
        let current: Vec<_> = current.iter().map(|c| c.as_ref().map(|(c, version)| (c, *version))).collect();
        let failover = ForcedFailover {
            filed: &FiledRequest { which, request },
            policy: &self.settings.policy,
            strategy: strategy.as_ref(),
            unix_ms: self.unix_ms(),
            members: &members,
            newest_zxid,
            control: &control,
            elected: elected.as_ref().map(|(e, _)| e),
            current: &current,
            seen,
        };
        let step = failover.next_step();
        let seen = seen.max(elected.as_ref().and_then(|(e, _)| e.last_request));
        let mut delay = self.rng.u64(1..100);
        if let ForceStep::Vacate { after, .. } = &step {
            delay += u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        }
        let version = elected.map(|(_, version)| version);
        let read = (version, self.generation());
        self.after(delay, Due::Operator(Errand::Step { name, tries, step, read, asked, seen }));
    }

    /// The version of the ballots' parent.
    fn generation(&self) -> i32 {
        self.zk.get(&self.paths.election()).map_or(0, |parent| parent.version)
    }

    /// Writes a decision over this version, which was read with this generation.
    fn decide(
        &mut self,
        mut elected: Elected,
        read: (Option<i32>, i32),
        begun: Option<(&str, &AdminRequest, i32)>,
    ) {
        let last =
            self.read::<Elected>(&self.paths.elected()).map_or_else(|| elected.clone(), |(last, _)| last);
        let (over, generation) = (read.0.map(|version| (&last, version)), read.1);
        if let Ok(request) = internals::decision(&self.paths, &mut elected, over, generation, begun) {
            let applied = self.zk.apply(self.now, 0, 0, &request.into());
            self.commit(&applied);
        }
    }

    fn step_force(
        &mut self,
        name: String,
        tries: u32,
        step: ForceStep,
        read: (Option<i32>, i32),
        asked: i32,
        mut seen: Option<i64>,
    ) {
        self.trace.line(self.now, || format!("    operator: {name}: {step:?}"));
        match step {
            ForceStep::Begin(elected, request) => {
                self.decide(*elected, read, Some((&name, &request, asked)));
            }
            ForceStep::Write(elected) => {
                seen = seen.max(elected.last_request);
                self.decide(*elected, read, None);
            }
            ForceStep::Vacate { slot, version, .. } => {
                let delete = Transaction::from(ZnodeWrite::delete(self.paths.leader_znode(slot), version));
                let delete = delete.only_while_decided(&self.paths, read.0.unwrap_or(-1), read.1);
                let applied = self.zk.apply(self.now, 0, 0, &delete.into());
                self.commit(&applied);
            }
            ForceStep::Named | ForceStep::Refused(_) => return,
        }
        let delay = self.rng.u64(1..300);
        self.after(delay, Due::Operator(Errand::Plan { name, tries: tries + 1, seen }));
    }

    pub(super) fn order(&mut self, control: &Control) {
        let path = self.paths.control();
        let Ok(data) = control.encode(&path) else { return };
        self.trace.line(self.now, || format!("    operator: control {control:?}"));
        self.checks.confirmed.ordered(control);
        self.write(&path, Some(data));
    }

    /// Writes over any present data.
    pub(super) fn write(&mut self, path: &str, data: Option<Vec<u8>>) {
        match (self.zk.get(path).is_some(), data) {
            (true, Some(data)) => {
                let applied = self.zk.set(self.now, path, data, None);
                self.commit(&applied);
            }
            (false, Some(data)) => {
                self.zk.create(self.now, path, data, 0);
                self.changed(&[path.to_owned()]);
            }
            (true, None) => {
                let applied = self.zk.delete(self.now, path, None);
                self.commit(&applied);
            }
            (false, None) => {}
        }
    }

    fn repair(&mut self, path: &str, data: Option<Vec<u8>>) {
        let spoiled = self.zk.get(path).is_some_and(|n| n.data == super::faults::GARBAGE);
        if spoiled {
            // An earlier copy may be of before a deletion.
            let data = if path == self.paths.elected() { self.last_good_elected.clone() } else { data };
            self.trace.line(self.now, || format!("    operator: repairs {path}"));
            if let (true, Some(data)) = (path == self.paths.elected(), &data)
                && let Ok(elected) = Elected::decode(path, data)
            {
                // It was decided before, perhaps before the ensemble was restored, and begins no request.
                self.checks.requests.found(&elected);
                self.checks.never_back.restored(elected.term);
                // If the ensemble was restored meanwhile, those who know this decision miss nothing.
                if let Some(lost) = &mut self.lost {
                    lost.knowing.clear();
                }
            }
            self.write(path, data);
        }
    }

    /// The resource has seen tokens that were given out before the ensemble was
    /// restored from a copy, for all that the operator knows.
    /// Answers whether they are above now.
    pub(super) fn raise_tokens(&mut self, beyond: u64) -> bool {
        if !self.has_elector() {
            let above = self.resource.newest() + beyond;
            let base = serde_json::json!({ "v": 1, "token_base": above }).to_string().into_bytes();
            self.trace.line(self.now, || format!("    operator: tokens above {above}"));
            self.write(&self.paths.tokens(), Some(base));
            return true;
        }
        let path = self.paths.elected();
        let read = self.read::<Elected>(&path);
        if read.is_none() && self.zk.get(&path).is_some() {
            return false;
        }
        let base = read.as_ref().map_or(0, |(e, _)| e.token_base);
        let lowest_token =
            self.zk.get(&self.paths.leader_znode(0)).and_then(|n| fencing_token(n.czxid, base));
        let above = self.resource.newest() + beyond;
        let elected = read.as_ref().map(|(e, _)| e);
        let raised = internals::raise_tokens(elected, lowest_token, above, "operator", self.unix_ms());
        let Ok(Some(mut next)) = raised else { return raised.is_ok() };
        if read.is_none() {
            for path in [&path, &self.paths.ballot_prefix("")] {
                let made = self.zk.make_parents(self.now, path);
                self.changed(&made);
            }
        }
        let (over, generation) = (read.map(|(_, version)| version), self.generation());
        let Ok(write) = ZnodeWrite::decision(&self.paths, &mut next, over, generation) else { return false };
        self.trace.line(self.now, || format!("    operator: tokens above {above} from term {}", next.term));
        self.checks.raised.raised(next.term, above);
        let applied = self.zk.apply(self.now, 0, 0, &write.into());
        self.commit(&applied);
        true
    }

    /// The remembered takeovers and failures are cleared.
    pub(super) fn acknowledge(&mut self) {
        let path = self.paths.elected();
        let Some((elected, _)) = self.read::<Elected>(&path) else { return };
        let Some((next, _)) = internals::acknowledge(&elected, internals::Forgotten::ALL) else { return };
        let held = explain::held_until(&self.settings.policy, &elected, self.unix_ms());
        self.summary.acknowledged += u64::from(held.is_some());
        let Ok(data) = next.encode(&path) else { return };
        self.trace.line(self.now, || format!("    operator: acknowledges, held until {held:?}"));
        self.write(&path, Some(data));
    }

    /// Any site, for all who lead.
    pub(super) fn confirm(&mut self) {
        let Some((elected, _)) = self.read::<Elected>(&self.paths.elected()) else { return };
        let site = self.settings.sites[self.rng.usize(0..self.settings.sites.len())].clone();
        let word = |(slot, _)| Confirmed {
            term: elected.term_of(slot),
            site: site.clone(),
            by: "operator".to_owned(),
        };
        self.order(
            &Control::default().with(|control| control.confirmed = elected.leaders().map(word).collect()),
        );
    }

    pub(super) fn change_mode(&mut self) {
        let mode = [Mode::Auto, Mode::Manual, Mode::Observe][self.rng.usize(0..3)];
        let mut control = Control::default().with(|control| control.mode = mode);
        self.order(&control);
        control.mode = Mode::Auto;
        let delay = self.rng.u64(500..10_000);
        self.after(delay, Due::Operator(Errand::Control(Box::new(control))));
    }

    pub(super) fn declare_failed(&mut self) {
        let site = self.settings.sites[self.rng.usize(0..self.settings.sites.len())].clone();
        let failed = FailedSite {
            site,
            ordered: OrderedBy { reason: None, by: "operator".to_owned(), at_ms: self.unix_ms() },
        };
        self.order(&Control::default().with(|control| control.failed_sites = vec![failed]));
        let delay = self.rng.u64(500..10_000);
        self.after(delay, Due::Operator(Errand::Control(Box::default())));
    }

    pub(super) fn drain(&mut self) {
        let site = self.settings.sites[self.rng.usize(0..self.settings.sites.len())].clone();
        self.order(&Control::default().with(|control| control.drained = vec![site]));
        let delay = self.rng.u64(500..10_000);
        self.after(delay, Due::Operator(Errand::Control(Box::default())));
    }
}
