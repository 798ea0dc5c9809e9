//! Carries out what a schedule says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use e2e::{Worker, children, freeze_pid, kill_pid, thaw_pid};
use robustness::history::{Event, Excuse, Recorder};
use robustness::schedule::{Act, MEMBERS, Processes, Victim, Which};
use tokio::task::{JoinHandle, JoinSet};
use zk_testkit::Ensemble;

use crate::disturbed::{Disturbed, Part};
use crate::operators;
use crate::stage::{Stage, TOKEN};
use crate::watchers::{Seen, now};

/// Who answered 200 longer ago does not count as the leader.
const RECENT: Duration = Duration::from_secs(3);

/// Between two attempts to withdraw an order.
const AGAIN: Duration = Duration::from_secs(1);
/// Once nothing else is broken, all orders are withdrawn within this.
const WITHDRAWN_WITHIN: Duration = Duration::from_secs(120);

/// What repairs a fault.
#[derive(Debug)]
pub(crate) enum Repair {
    Start(String),
    Thaw(String, Vec<u32>),
    Network(Vec<String>),
    Site(Vec<String>, usize),
    StartServer(usize),
    ResumeServer(usize),
    RejoinServer(usize),
    /// By this command, after the one that gives the order has ended.
    Withdraw(Vec<String>, JoinHandle<Option<i32>>),
}

/// Breaks and repairs the stage.
#[derive(Debug)]
pub(crate) struct Faults {
    pub(crate) stage: Stage,
    recorder: Arc<Recorder>,
    seen: Seen,
    disturbed: Disturbed,
    active: BTreeMap<u64, Repair>,
    next: u64,
    /// Commands of operators.
    pub(crate) commands: JoinSet<()>,
    /// Orders that are being withdrawn: the numbers of their faults.
    withdrawals: JoinSet<anyhow::Result<u64>>,
}

impl Faults {
    pub(crate) fn new(stage: Stage, recorder: Arc<Recorder>, seen: Seen) -> Self {
        let (disturbed, active) = (Disturbed::default(), BTreeMap::new());
        let (commands, withdrawals) = (JoinSet::new(), JoinSet::new());
        Self { stage, recorder, seen, disturbed, active, next: 0, commands, withdrawals }
    }

    /// Breaks something. Returns the number of the fault if it is to be repaired later.
    pub(crate) async fn begin(&mut self, act: &Act) -> anyhow::Result<Option<u64>> {
        match act {
            Act::Kill { of, what } | Act::Freeze { of, what } => {
                let kills = matches!(act, Act::Kill { .. });
                self.hit_processes(*of, *what, kills)
            }
            Act::CutOff { of } => self.hit_network(*of, "is cut off", |worker| Ok(worker.host().unplug()?)),
            Act::Mute { of } => self.hit_network(*of, "is not heard", |worker| Ok(worker.host().mute()?)),
            Act::Lossy { of, percent } => {
                self.hit_network(*of, &format!("loses {percent} % of its packets"), |worker| {
                    Ok(worker.host().lose(*percent)?)
                })
            }
            Act::KillServer { server } => {
                let Some((server, fault)) = self.take_server(*server, "is killed").await? else {
                    return Ok(None);
                };
                self.stage.ensemble.kill(server).await?;
                Ok(self.lasts(fault, Repair::StartServer(server)))
            }
            Act::FreezeServer { server } => {
                let Some((server, fault)) = self.take_server(*server, "is frozen").await? else {
                    return Ok(None);
                };
                self.stage.ensemble.faults().pause(server)?;
                Ok(self.lasts(fault, Repair::ResumeServer(server)))
            }
            Act::IsolateServer { server } => {
                let Some((server, fault)) = self.take_server(*server, "reaches no other server").await?
                else {
                    return Ok(None);
                };
                self.stage.ensemble.faults().isolate(server)?;
                Ok(self.lasts(fault, Repair::RejoinServer(server)))
            }
            Act::CutSite { site } => self.cut_site(site),
            Act::Command { words } => {
                // What is broken when it is carried out, or how busy the leader is, can't be known here.
                let is_forced = words.iter().any(|word| word == "--force");
                self.order(words.clone(), if is_forced { vec![Excuse::Overlap] } else { vec![] });
                Ok(None)
            }
            Act::Post { path, body } => {
                self.post(path, body);
                Ok(None)
            }
            Act::Order { words, withdrawn } => Ok(self.standing_order(words, withdrawn)),
        }
    }

    /// Repairs a fault.
    pub(crate) async fn end(&mut self, fault: u64) -> anyhow::Result<()> {
        let Some(repair) = self.active.remove(&fault) else { return Ok(()) };
        let ensemble = Arc::clone(&self.stage.ensemble);
        match repair {
            Repair::Start(member) => {
                let worker = self.stage.cluster.worker(&member);
                if !worker.is_started() {
                    worker.start();
                }
            }
            Repair::Thaw(member, pids) => {
                pids.into_iter().for_each(thaw_pid);
                let worker = self.stage.cluster.worker(&member);
                if worker.is_started() {
                    worker.thaw();
                }
            }
            Repair::Network(members) => self.heal(&members),
            Repair::Site(members, server) => {
                self.heal(&members);
                ensemble.faults().rejoin(server)?;
            }
            Repair::StartServer(server) => ensemble.start_server(server).await?,
            Repair::ResumeServer(server) => ensemble.faults().resume(server)?,
            Repair::RejoinServer(server) => ensemble.faults().rejoin(server)?,
            Repair::Withdraw(words, given) => {
                self.withdraw(fault, words, given);
                return Ok(());
            }
        }
        self.disturbed.release(fault);
        self.recorder.record(now(), Event::Healed { fault })?;
        Ok(())
    }

    /// Repairs everything.
    pub(crate) async fn end_all(&mut self) -> anyhow::Result<()> {
        while let Some(fault) = self.active.keys().next().copied() {
            self.end(fault).await?;
        }
        let all_withdrawn = async {
            while let Some(withdrawn) = self.withdrawals.join_next().await {
                self.disturbed.release(withdrawn??);
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(WITHDRAWN_WITHIN, all_withdrawn).await.context("an order can't be withdrawn")?
    }

    /// What was withdrawn meanwhile can be ordered again.
    pub(crate) fn release_withdrawn(&mut self) -> anyhow::Result<()> {
        while let Some(withdrawn) = self.withdrawals.try_join_next() {
            self.disturbed.release(withdrawn??);
        }
        Ok(())
    }

    /// The order is in force until this command succeeds.
    fn withdraw(&mut self, fault: u64, words: Vec<String>, given: JoinHandle<Option<i32>>) {
        let (operator, recorder) = (self.stage.cluster.operator().clone(), Arc::clone(&self.recorder));
        self.withdrawals.spawn(async move {
            given.await?;
            let attempt =
                || operators::command(operator.clone(), Arc::clone(&recorder), words.clone(), vec![]);
            while attempt().await != Some(0) {
                tokio::time::sleep(AGAIN).await;
            }
            recorder.record(now(), Event::Healed { fault })?;
            Ok(fault)
        });
    }

    /// Starts workers again that have ended by themselves, as a service manager would. Returns what they ended with.
    pub(crate) fn restart_ended(&mut self) -> anyhow::Result<Vec<String>> {
        let mut ended = Vec::new();
        for (member, _) in MEMBERS {
            let worker = self.stage.cluster.worker(member);
            let Some(status) = worker.ended() else { continue };
            let what = format!("{member} has ended by itself: {status}");
            worker.start();
            ended.push(what.clone());
            let (code, asked) = (status.code(), false);
            self.recorder.record(now(), Event::Ended { member: member.to_owned(), code, asked })?;
            let fault = self.begun(what, Some(member), vec![])?;
            self.recorder.record(now(), Event::Healed { fault })?;
        }
        Ok(ended)
    }

    fn lasts(&mut self, fault: u64, repair: Repair) -> Option<u64> {
        self.active.insert(fault, repair);
        Some(fault)
    }

    fn begun(&mut self, what: String, member: Option<&str>, excuses: Vec<Excuse>) -> anyhow::Result<u64> {
        let (fault, member) = (self.next, member.map(str::to_owned));
        self.next += 1;
        self.recorder.record(now(), Event::Fault { fault, what, member, excuses })?;
        Ok(fault)
    }

    /// Marks parts as broken; `None` if one is broken already.
    fn take(
        &mut self,
        parts: &[Part],
        what: String,
        mut excuses: Vec<Excuse>,
    ) -> anyhow::Result<Option<u64>> {
        if !self.disturbed.take(parts, self.next) {
            return Ok(None);
        }
        excuses.extend(self.disturbed.nobody_can_lead());
        let member = match parts {
            [Part::Processes(member) | Part::Network(member)] => Some(member.as_str()),
            _ => None,
        };
        self.begun(what, member, excuses).map(Some)
    }

    fn member(&self, of: Victim) -> &'static str {
        let leader = self.seen.leader(RECENT).map(|leadership| leadership.member);
        let named =
            |member: &str| MEMBERS.iter().find(|(known, _)| *known == member).map(|(known, _)| *known);
        match of {
            Victim::Leader => leader.as_deref().and_then(named).unwrap_or(MEMBERS[0].0),
            Victim::Member(number) => MEMBERS[number % MEMBERS.len()].0,
        }
    }

    fn hit_processes(&mut self, of: Victim, what: Processes, kills: bool) -> anyhow::Result<Option<u64>> {
        let member = self.member(of);
        if !self.stage.cluster.worker(member).is_started() {
            return Ok(None);
        }
        let excuses = match (kills, what) {
            // Whatever continues first acts for a moment.
            (false, Processes::All) => vec![Excuse::Overlap],
            // Nothing checks the liveness of the job.
            (false, Processes::Job) => vec![Excuse::NoLeader],
            _ => vec![],
        };
        let verb = if kills { "killed" } else { "frozen" };
        let sentence = format!("{member}: {what:?} {verb}").to_lowercase();
        let Some(fault) = self.take(&[Part::Processes(member.to_owned())], sentence, excuses)? else {
            return Ok(None);
        };
        let worker = self.stage.cluster.worker(member);
        match (kills, what) {
            (true, Processes::Worker) => worker.kill(),
            (true, Processes::All) => worker.kill_with_guards(),
            (true, Processes::Guards) => worker.guards().into_iter().for_each(kill_pid),
            (true, Processes::Job) => jobs(worker).into_iter().for_each(kill_pid),
            (false, _) => {
                let pids = frozen(worker, what);
                return Ok(self.lasts(fault, Repair::Thaw(member.to_owned(), pids)));
            }
        }
        if worker.is_started() {
            // The worker itself starts what is gone.
            self.disturbed.release(fault);
            self.recorder.record(now(), Event::Healed { fault })?;
            return Ok(None);
        }
        Ok(self.lasts(fault, Repair::Start(member.to_owned())))
    }

    fn hit_network(
        &mut self,
        of: Victim,
        what: &str,
        hit: impl Fn(&Worker) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<u64>> {
        let member = self.member(of);
        let part = Part::Network(member.to_owned());
        let Some(fault) = self.take(&[part], format!("{member} {what}"), vec![])? else { return Ok(None) };
        hit(self.stage.cluster.worker(member))?;
        Ok(self.lasts(fault, Repair::Network(vec![member.to_owned()])))
    }

    fn heal(&mut self, members: &[String]) {
        members.iter().for_each(|member| self.stage.cluster.worker(member).plug_in());
    }

    async fn take_server(&mut self, which: Which, what: &str) -> anyhow::Result<Option<(usize, u64)>> {
        let server = match which {
            Which::Leading => self.stage.ensemble.leader().await.unwrap_or(0),
            Which::Server(server) => server,
        };
        let fault = self.take(&[Part::Server(server)], format!("server {server} {what}"), vec![])?;
        Ok(fault.map(|fault| (server, fault)))
    }

    /// The members of the site reach each other and its server, and nothing else of the deployment. The store is elsewhere.
    fn cut_site(&mut self, site: &str) -> anyhow::Result<Option<u64>> {
        let server = sites().position(|known| known == site).unwrap_or(0);
        let (inside, outside): (Vec<_>, Vec<_>) = MEMBERS.iter().partition(|(_, of)| *of == site);
        let networks = inside.iter().map(|(member, _)| Part::Network((*member).to_owned()));
        let parts: Vec<_> = networks.chain([Part::Server(server)]).collect();
        let Some(fault) = self.take(&parts, format!("site {site} is cut off"), vec![])? else {
            return Ok(None);
        };
        let mut others: Vec<_> =
            outside.iter().map(|(member, _)| self.stage.cluster.worker(member).host().ip()).collect();
        let ensemble = Arc::<Ensemble>::clone(&self.stage.ensemble);
        let servers = ensemble.servers().iter().filter(|other| other.index() != server);
        others.extend(servers.filter_map(|other| Some(other.host()?.ip())));
        for (member, _) in &inside {
            self.stage.cluster.worker(member).host().cut_from(&others)?;
        }
        if let Some(host) = ensemble.server(server).host() {
            host.cut_from(&others)?;
        }
        let members = inside.iter().map(|(member, _)| (*member).to_owned()).collect();
        Ok(self.lasts(fault, Repair::Site(members, server)))
    }

    fn standing_order(&mut self, words: &[String], withdrawn: &[String]) -> Option<u64> {
        let fault = self.next;
        if !self.disturbed.take(&[Part::Order], fault) {
            return None;
        }
        let is_out =
            |(member, site): &&(&str, &str)| words[1..].iter().any(|word| word == member || word == site);
        self.disturbed
            .order_out(MEMBERS.iter().filter(is_out).map(|(member, _)| (*member).to_owned()).collect());
        let mut excuses: Vec<_> = self.disturbed.nobody_can_lead().into_iter().collect();
        if words[0] == "pause" {
            excuses.push(Excuse::NoLeader);
        }
        let fault = self.begun(format!("ordered: {}", words.join(" ")), None, excuses).ok()?;
        let (operator, recorder) = (self.stage.cluster.operator().clone(), Arc::clone(&self.recorder));
        let given = tokio::spawn(operators::command(operator, recorder, words.to_vec(), vec![]));
        self.lasts(fault, Repair::Withdraw(withdrawn.to_vec(), given))
    }

    fn order(&mut self, words: Vec<String>, excuses: Vec<Excuse>) {
        let operator = self.stage.cluster.operator().clone();
        let command = operators::command(operator, Arc::clone(&self.recorder), words, excuses);
        self.commands.spawn(async move {
            command.await;
        });
    }

    fn post(&mut self, path: &str, body: &str) {
        let member = self.member(Victim::Leader);
        let address = self.stage.cluster.worker(member).http();
        let recorder = Arc::clone(&self.recorder);
        let (path, body) = (path.to_owned(), body.to_owned());
        self.commands.spawn(operators::post(address, TOKEN.to_owned(), recorder, path, body));
    }
}

/// The sites of the members, in the order of their servers.
fn sites() -> impl Iterator<Item = &'static str> {
    let mut all: Vec<_> = MEMBERS.iter().map(|(_, site)| *site).collect();
    all.dedup();
    all.into_iter()
}

/// The processes of jobs, hooks and probes.
fn jobs(worker: &Worker) -> Vec<u32> {
    worker.guards().into_iter().flat_map(children).collect()
}

/// Freezes processes. Returns those that the worker does not count as itself.
fn frozen(worker: &mut Worker, what: Processes) -> Vec<u32> {
    let (guards, jobs) = (worker.guards(), jobs(worker));
    let pids = match what {
        Processes::Worker => vec![],
        Processes::Guards => guards,
        Processes::Job => jobs,
        Processes::All => [guards, jobs].concat(),
    };
    if matches!(what, Processes::Worker | Processes::All) {
        worker.freeze();
    }
    pids.iter().copied().for_each(freeze_pid);
    pids
}
