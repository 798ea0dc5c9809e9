//! What goes wrong, and how it is mended.

use std::collections::BTreeMap;

use election_core::internals::{
    Event, Wish,
    record::{Control, Health, MAX_SLOTS, RequestKind, RoundTrips},
};

use fastrand::Rng;

use super::{
    Due, Sim, ToWorker,
    host::{Frozen, Link, Unseen},
    network::ToClient,
    operator::Errand,
    settings::{self, Fault},
};
use crate::zookeeper::Millis;

/// How far a wall clock may be off, in milliseconds.
pub(crate) const WALL_ERROR: u64 = 2000;

/// What no record looks like.
pub(crate) const GARBAGE: &[u8] = b"{\"v\":1,\"spoiled";

/// The repair of a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Healed {
    Cut,
    Minority,
    Loss,
    Watches,
    Latency,
    Health,
    SiteHealth,
    Sight,
    Abdication,
    Hold,
    WallClock,
    Lag,
    Refusal,
}

/// Attributes that a strategy may use.
pub(super) fn attributes(rng: &mut Rng) -> BTreeMap<String, String> {
    [("weight".to_owned(), rng.u8(0..4).to_string())].into()
}

impl Sim {
    /// The next fault, and the one after it.
    pub(super) fn fault(&mut self) {
        if self.is_calm() {
            return;
        }
        let next = self.rng.u64(1..2 * self.settings.fault_every);
        self.after(next, Due::Fault);
        let Some(fault) = self.settings.draw_fault(&mut self.rng) else {
            return;
        };
        let host = self.rng.usize(0..self.hosts.len());
        let lasts = self.rng.u64(1..self.settings.timeout * 5 / 2);
        self.trace.line(self.now, || format!("FAULT {fault:?} {} for {lasts} ms", self.hosts[host].member));
        let site = self.hosts[host].site.clone();
        let of_site: Vec<_> = (0..self.hosts.len()).filter(|h| self.hosts[*h].site == site).collect();
        match fault {
            Fault::Crash => self.crash_for(host, lasts),
            Fault::CrashSite => of_site.into_iter().for_each(|h| self.crash_for(h, lasts)),
            Fault::KillWorker => self.kill_worker(host, lasts),
            Fault::Leave => self.leave(host),
            Fault::Cut => self.cut(host, lasts),
            Fault::CutSite => of_site.into_iter().for_each(|h| self.cut(h, lasts)),
            Fault::Minority => self.cut_server(host, lasts),
            Fault::FreezeWorker => self.freeze(host, false, lasts),
            Fault::FreezeHost => self.freeze(host, true, lasts),
            Fault::LoseReplies => {
                self.hosts[host].net.loss = self.rng.f64() * 0.8;
                self.after(lasts, Due::Heal(host, Healed::Loss));
            }
            Fault::SlowWatches => {
                self.hosts[host].net.watch_delay = self.rng.u64(1..6000);
                self.after(lasts, Due::Heal(host, Healed::Watches));
            }
            Fault::SlowNetwork => {
                self.hosts[host].net.latency = self.rng.u64(1..1500);
                self.after(lasts, Due::Heal(host, Healed::Latency));
            }
            Fault::Outage => self.outage(lasts),
            Fault::Unwell if self.settings.app.standby.is_some() => self.start_standby(host),
            Fault::Unwell => {
                self.health(host, Health::Unhealthy { reason: "as the dice say".to_owned() });
                self.after(lasts, Due::Heal(host, Healed::Health));
            }
            Fault::SiteUnwell => {
                let site = self.hosts[host].site.clone();
                for host in 0..self.hosts.len() {
                    if self.hosts[host].site == site && self.rng.f64() < 0.8 {
                        let unwell = Health::Unhealthy { reason: "its uplink is down".to_owned() };
                        self.site_health(host, Some(unwell));
                        self.after(lasts, Due::Heal(host, Healed::SiteHealth));
                    }
                }
            }
            Fault::DeclareFailed => self.declare_failed(),
            Fault::Switchover => drop(self.request(RequestKind::Switchover, false)),
            Fault::Failover => drop(self.request(RequestKind::Failover, false)),
            Fault::Force => drop(self.request(RequestKind::Failover, true)),
            Fault::ForceFromOutside => {
                if let Some(name) = self.request(RequestKind::Failover, true) {
                    self.after(1, Due::Operator(Errand::Plan { name, tries: 0, seen: None }));
                }
            }
            Fault::Impatient => self.ask_impatiently(),
            Fault::Mode => self.change_mode(),
            Fault::Drain => self.drain(),
            Fault::Ack => self.acknowledge(),
            Fault::Confirm => self.confirm(),
            Fault::DeleteBallot => {
                let ballot = self.hosts[host].process.as_ref().and_then(|p| p.engine.ballot());
                if let Some(ballot) = ballot {
                    let path = self.ballot_path(&ballot);
                    self.depose_where(|place, _| place == path);
                    self.write(&path, None);
                }
            }
            Fault::DeleteNode => {
                let path = self.paths.node(&self.hosts[host].member);
                self.write(&path, None);
            }
            Fault::EndSession => {
                let session =
                    self.hosts[host].process.as_ref().and_then(|p| p.client.as_ref()).map(|c| c.session);
                if let Some(session) = session.filter(|s| self.zk.lives(*s)) {
                    self.depose_where(|_, place| place.owner == session);
                    self.close(session);
                }
            }
            Fault::DeleteCurrent => {
                let place = self.any_place();
                self.depose_where(|path, _| path == place);
                self.write(&place, None);
            }
            Fault::WallClock => {
                const DAY_MS: i64 = 24 * 3600 * 1000;
                self.hosts[host].clock.wall_error = self.rng.i64(-3 * DAY_MS..3 * DAY_MS);
                self.wall_clocks_were_wrong = true;
                self.after(lasts, Due::Heal(host, Healed::WallClock));
            }
            Fault::LagServer => {
                self.hosts[host].net.answers_late = self.rng.bool();
                let lag = self.rng.u64(300..10_000);
                self.lag(host, lag);
                self.after(lasts, Due::Heal(host, Healed::Lag));
            }
            Fault::DeleteElected => self.delete_tree(&self.paths.elected()),
            Fault::DeleteTree => {
                let all: Vec<_> = self.zk.paths().cloned().collect();
                if let Some(root) = self.rng.choice(&all) {
                    self.delete_tree(root);
                }
            }
            Fault::SpoilNode => self.spoil(&self.paths.node(&self.hosts[host].member), None),
            Fault::SpoilCurrent => {
                let place = self.any_place();
                self.spoil(&place, None);
            }
            // For every process that starts from now on.
            Fault::Resize => {
                let slots = settings::slots(&mut self.rng);
                self.settings.policy.slots = self.rng.choice([1, slots]).unwrap_or(slots);
            }
            Fault::SpoilControl => self.spoil(&self.paths.control(), Some(lasts)),
            Fault::SpoilElected => self.spoil(&self.paths.elected(), Some(lasts)),
            Fault::Unseen => self.unseen(host, Unseen::All, lasts),
            Fault::UnseenBySite => {
                let site = self.settings.sites[self.rng.usize(0..self.settings.sites.len())].clone();
                self.unseen(host, Unseen::Site(site), lasts);
            }
            Fault::Resign => self.wish(host, Wish::Resign("as the dice say".to_owned())),
            Fault::ResignBy => {
                let by = self.hosts[host].clock.time(self.now + lasts);
                self.wish(host, Wish::ResignBy { by, reason: "as the dice say".to_owned() });
            }
            Fault::Abdicate => {
                self.wish(host, Wish::Withdraw("as the dice say".to_owned()));
                self.after(lasts, Due::Heal(host, Healed::Abdication));
            }
            Fault::Hold => {
                self.wish(host, Wish::BlockSwitchover("as the dice say".to_owned()));
                self.after(lasts, Due::Heal(host, Healed::Hold));
            }
            Fault::RaiseTokens => {
                let beyond = self.rng.u64(0..1_000_000);
                self.raise_tokens(beyond);
            }
            Fault::Restore => self.copy(),
            Fault::Refuse => {
                self.hosts[host].net.refuses = true;
                self.after(lasts, Due::Heal(host, Healed::Refusal));
            }
            Fault::Drift => self.drift(host),
            Fault::ForgetTokens => {
                self.resource.forget();
                self.summary.failed_over += 1;
            }
            Fault::LoseTail => {
                let delay = self.rng.u64(1..2000);
                self.after(delay, Due::Restore(Box::new(self.zk.clone()), true));
            }
            Fault::Attributes => {
                let event = Event::Measured(attributes(&mut self.rng));
                self.tell_worker(host, 1, ToWorker::Event(event));
            }
            Fault::RoundTrips => {
                let zookeeper = Some(self.rng.u32(100..50_000));
                let event = Event::RoundTrips(
                    RoundTrips::default().with(|round_trips| round_trips.zookeeper = zookeeper),
                );
                self.tell_worker(host, 1, ToWorker::Event(event));
            }
            Fault::Upgrade => self.upgrade(host),
            Fault::SpoilRequest => {
                let prefix = self.paths.request_prefix();
                let mut changed = self.zk.make_parents(self.now, &prefix);
                changed.push(self.zk.create_sequential(self.now, &prefix, GARBAGE.to_vec(), 0).0);
                self.changed(&changed);
            }
        }
    }

    /// Every fault is mended, and everyone is well and started.
    pub(super) fn mend_all(&mut self) {
        self.outage_ends();
        self.settings.loss = 0.0;
        if self.settings.twin {
            // The second process was found.
            let twin = self.hosts.len() - 1;
            self.crash(twin);
            self.hosts[twin].retired = true;
        }
        for host in 0..self.hosts.len() {
            self.thaw(host);
            for what in [
                Healed::Cut,
                Healed::Minority,
                Healed::Loss,
                Healed::Watches,
                Healed::Latency,
                Healed::Health,
                Healed::SiteHealth,
                Healed::Sight,
                Healed::Abdication,
                Healed::Hold,
                Healed::WallClock,
                Healed::Lag,
                Healed::Refusal,
            ] {
                self.heal(host, what);
            }
        }
        if self.has_elector() {
            let data = self.last_good_elected.clone();
            self.run_errand(Errand::Repair { path: self.paths.elected(), data });
            let drained = self.settings.drained.iter().cloned().collect();
            self.order(&Control::default().with(|control| control.drained = drained));
            self.checks.obeyed.last_order();
        }
        // A member that does not know whether it has created a leader znode can't find out from a spoiled one.
        let places = match self.has_elector() {
            true => (0..MAX_SLOTS).map(|slot| self.paths.leader_znode(slot)).collect(),
            false => vec![self.place()],
        };
        for place in places {
            let spoiled = self.zk.get(&place).filter(|node| node.data == GARBAGE).map(|node| node.owner);
            if spoiled.is_some_and(|owner| !self.has_elector() || !self.leads_on(owner)) {
                self.depose_where(|path, _| path == place);
                self.write(&place, None);
            }
        }
        // Some nodes stay down for good.
        let keep = self.rng.usize(0..self.settings.members);
        for host in 0..self.hosts.len() {
            if self.hosts[host].process.is_none()
                && !self.hosts[host].retired
                && (host == keep || self.rng.f64() < 0.7)
            {
                let delay = self.rng.u64(1..3000);
                self.restart_later(host, delay);
            }
        }
    }

    fn crash_for(&mut self, host: usize, lasts: Millis) {
        self.crash(host);
        // A supervisor is quick, a person is slow.
        let delay = if self.rng.bool() { lasts } else { self.rng.u64(1..500) };
        self.restart_later(host, delay);
    }

    fn leave(&mut self, host: usize) {
        if let Some(process) = &mut self.hosts[host].process
            && !process.leaving
        {
            process.leaving = true;
            self.tell_worker(host, 1, ToWorker::Event(Event::Leave { hand_over: true }));
        }
    }

    fn cut(&mut self, host: usize, lasts: Millis) {
        self.hosts[host].net.cut = true;
        self.notice_later(host, self.settings.timeout * 2 / 3);
        self.after(lasts, Due::Heal(host, Healed::Cut));
    }

    /// The host's server is cut off from the others; its clients stay connected
    /// until it notices.
    fn cut_server(&mut self, host: usize, lasts: Millis) {
        if self.hosts[host].net.minority.is_none() {
            self.hosts[host].net.minority = Some(self.zk.zxid());
            self.after(lasts, Due::Heal(host, Healed::Minority));
        }
    }

    /// The host's clock runs at another rate, and what it has set timers for is due at another time.
    fn drift(&mut self, host: usize) {
        let drift_ppm = super::drift(&mut self.rng);
        let target = &mut self.hosts[host];
        // The end of what a dead worker has left is on the agenda already.
        if target.guarded.is_some() {
            return;
        }
        target.clock.runs(self.now, drift_ppm);
        self.summary.drifts += 1;
        self.wake_later(host);
        self.guard_again(host);
        self.give_up_later(host);
    }

    /// The host's server lags by this from now on.
    fn lag(&mut self, host: usize, lag: Millis) {
        self.hosts[host].net.lag = lag;
        // The watches report only then what it applies only then.
        self.read_all_watches(host);
    }

    fn unseen(&mut self, host: usize, unseen: Unseen, lasts: Millis) {
        self.hosts[host].net.unseen = unseen;
        self.after(lasts, Due::Heal(host, Healed::Sight));
    }

    /// The client notices within `latest` that its connection is dead.
    fn notice_later(&mut self, host: usize, latest: Millis) {
        let delay = self.rng.u64(1..latest.max(2));
        let client = self.hosts[host].process.as_ref().and_then(|p| p.client.as_ref());
        if let Some(client) = client.filter(|c| c.link == Link::Connected) {
            let (session, connection) = (client.session, client.connection);
            self.tell_worker(host, delay, ToWorker::Client(ToClient::Detect { session, connection }));
        }
    }

    pub(super) fn freeze(&mut self, host: usize, whole: bool, lasts: Millis) {
        if self.hosts[host].process.is_some() && self.hosts[host].frozen.is_none() {
            self.hosts[host].frozen = Some(Frozen { since: self.now, whole });
            self.after(lasts, Due::Thaw(host));
        }
    }

    /// It continues from where it was frozen: first the next step of the job, then all events that have waited, at
    /// once.
    pub(super) fn thaw(&mut self, host: usize) {
        let Some(frozen) = self.hosts[host].frozen.take() else {
            return;
        };
        self.trace.line(self.now, || format!("{}: thaws", self.hosts[host].member));
        let now = self.now;
        if let Some(process) = &mut self.hosts[host].process {
            process.thawed_at = now;
        }
        if frozen.whole && self.rng.bool() {
            self.late_act(host);
        }
        let waiting: Vec<_> = std::mem::take(&mut self.hosts[host].backlog).into_iter().collect();
        for due in waiting {
            self.dispatch(due);
        }
        if now - frozen.since > self.settings.timeout / 2 {
            self.notice_later(host, 50);
        }
    }

    /// The one act that a frozen job had checked its right to before it froze.
    fn late_act(&mut self, host: usize) {
        let job = self.hosts[host].process.as_ref().map(|p| (p.job.slot, p.job.token));
        let Some((slot, Some(token))) = job else {
            return;
        };
        self.writes_under(host, slot, token, false);
    }

    pub(super) fn outage(&mut self, lasts: Millis) {
        if self.outage {
            return;
        }
        self.outage = true;
        for host in 0..self.hosts.len() {
            self.notice_later(host, 300);
        }
        self.after(lasts, Due::OutageEnds);
    }

    pub(super) fn outage_ends(&mut self) {
        if std::mem::take(&mut self.outage) {
            self.restore();
            self.zk.elect_leader(self.now);
            for host in 0..self.hosts.len() {
                self.notice_later(host, 10);
            }
        }
    }

    pub(super) fn health(&mut self, host: usize, health: Health) {
        self.tell_worker(host, 1, ToWorker::Event(Event::Health(health)));
    }

    fn site_health(&mut self, host: usize, health: Option<Health>) {
        self.tell_worker(host, 1, ToWorker::Event(Event::SiteHealth(health)));
    }

    fn wish(&mut self, host: usize, wish: Wish) {
        self.tell_worker(host, 1, ToWorker::Event(Event::Wish(wish)));
    }

    pub(super) fn heal(&mut self, host: usize, what: Healed) {
        let net = &mut self.hosts[host].net;
        match what {
            Healed::Cut => {
                if std::mem::take(&mut net.cut) {
                    self.notice_later(host, 10);
                }
            }
            Healed::Minority => {
                if net.minority.is_some() {
                    // Its server has closed the connection, or does so now.
                    self.notice_later(host, 10);
                }
            }
            Healed::Refusal => net.refuses = false,
            Healed::Loss => net.loss = self.settings.loss,
            Healed::Watches => net.watch_delay = self.settings.latency,
            Healed::Latency => net.latency = self.settings.latency,
            Healed::Lag => {
                net.answers_late = false;
                if net.lag != net.usual_lag {
                    self.lag(host, self.hosts[host].net.usual_lag);
                }
            }
            Healed::Sight => net.unseen = Unseen::Nobody,
            Healed::Abdication => self.wish(host, Wish::Rejoin),
            Healed::Hold => self.wish(host, Wish::AllowSwitchover),
            Healed::WallClock => {
                let error = &mut self.hosts[host].clock.wall_error;
                if error.unsigned_abs() > WALL_ERROR {
                    *error = 0;
                }
            }
            // A standby is ready in its own time.
            Healed::Health if self.settings.app.standby.is_some() => {}
            Healed::Health => self.health(host, Health::Healthy),
            Healed::SiteHealth => self.site_health(host, Some(Health::Healthy)),
        }
    }

    /// An administrator deletes a znode and all below it.
    fn delete_tree(&mut self, root: &str) {
        let elected = self.paths.elected();
        if self.zk.get(&elected).is_some() && (elected == root || elected.starts_with(&format!("{root}/"))) {
            self.note_deletion();
        }
        self.depose_where(|place, _| place == root || place.starts_with(&format!("{root}/")));
        let gone = self.zk.delete_tree(self.now, root);
        self.trace.line(self.now, || format!("    administrator: deleteall {root}: {} znodes", gone.len()));
        if gone.contains(&self.paths.elected()) {
            self.checks.decisions.deleted();
            self.checks.slots.deleted();
            self.checks.tenures.deleted();
            self.summary.deleted += 1;
        }
        self.changed(&gone);
    }

    /// Whether the member on this session knows that it has created a leader znode: it writes a spoiled one again.
    fn leads_on(&self, session: i64) -> bool {
        self.hosts.iter().filter_map(|host| host.process.as_ref()).any(|process| {
            process.client.as_ref().is_some_and(|client| client.session == session)
                && process.engine.fencing_token().is_some()
        })
    }

    /// An accidental change. `repaired_after` is for what only an operator can repair.
    fn spoil(&mut self, path: &str, repaired_after: Option<Millis>) {
        let Some(node) = self.zk.get(path).cloned() else {
            return;
        };
        if node.data == GARBAGE {
            return;
        }
        self.write(path, Some(GARBAGE.to_vec()));
        if let Some(delay) = repaired_after {
            let errand = Errand::Repair { path: path.to_owned(), data: Some(node.data) };
            self.after(delay, Due::Operator(errand));
        }
    }
}
