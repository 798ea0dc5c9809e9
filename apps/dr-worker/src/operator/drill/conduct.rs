//! Conducts a drill: reads, and does what its course says. Whatever ends it removes the order; if this command is killed,
//! the order ends by itself, and the next command finds the unfinished report.

use std::{pin::pin, time::Duration};

use election_admin::{AdminError, Observer, Snapshot};
use election_core::{
    internals::record::{
        FiledRequest, HistoryEntry, MemberRecord, Mode, Outgoing, RequestKind, RequestRef, RequestState,
        Status, Target,
    },
    status::Reason,
    strategy::in_words,
};
use zk_session::BootTime;

use super::{
    super::output,
    assembly::{Evidence, assemble},
    begin::{Drill, MARGIN},
    course::{Act, Course},
    seen::{Decided, Leader, Seen},
};
use crate::{
    advice,
    commands::{
        asker,
        drill::{
            checks::seconds,
            report::{DrillEvent, DrillOutcome, DrillReport, Who},
            runs,
        },
    },
    error::Error,
    signals::Signals,
    view::Explained,
    wall::unix_ms,
    znodes::{DrillAnswer, DrillOrder, WorkerPaths as _, drills},
};

/// The pause between two reads.
const LOOK: Duration = Duration::from_millis(100);

/// How long the last answers may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(6);

/// How long ZooKeeper may be unreadable before the drill is given up.
const BLIND_FOR: Duration = Duration::from_secs(30);

/// How much longer what is under way may take once signals have asked for the end of this command.
const HASTE: Duration = Duration::from_secs(1);

/// Runs a drill to its end. Returns the report, which is kept.
/// The flag is whether something may have happened.
pub(super) async fn conduct(drill: &Drill<'_>, run: String) -> Result<(DrillReport, bool), Error> {
    let Some(script) = drill.script() else {
        return Err(Error::Internal("the checks passed without a leader".to_owned()));
    };
    let begun = drill.begun(run, &script);
    let (operator, paths) = (drill.operator, drill.paths);
    let signals = Signals::new().map_err(|e| Error::Internal(format!("no signal handlers: {e}")))?;
    // The second one skips the move back.
    let mut heard = Heard { signals, received: Vec::new(), ends_at: 2 };
    heard.until_asked(operator.in_time(runs::write(&operator.session, paths, &begun))).await?;
    output::print_progress(format_args!(
        "drill {}: {} of {}, target {}; Ctrl-C aborts it",
        begun.run,
        begun.mode.as_str(),
        begun.job,
        begun.target
    ));
    let order = drill.order(&begun, &script);
    let mut watched = Watched {
        drill,
        course: Course::new(script),
        begun,
        since: BootTime::now(),
        request: None,
        evidence: Evidence::default(),
        printed: 0,
        kept: 0,
    };
    let given = operator.in_time(drills::begin(&operator.session, paths, &order));
    let given = heard.until_asked(given).await;
    let watching = match given {
        Ok(None) => watched.watch(&mut heard).await,
        Ok(Some(DrillOrder { run, by, mode, .. })) => Err(Error::NotNow(format!(
            "drill {run} ({}) of {by} is under way; wait for its end, or end it first",
            mode.as_str()
        ))),
        Err(error) => Err(error),
    };
    // From now on the next one ends it.
    heard.ends_at = heard.received.len() + 1;
    Ok(watched.finish(watching.err(), &mut heard).await)
}

/// The signals that have come.
struct Heard {
    signals: Signals,
    received: Vec<&'static str>,
    /// From this many on nothing is waited for.
    ends_at: usize,
}

impl Heard {
    /// Does this, and keeps the signals that come meanwhile. Once they ask for the end it has only a moment more.
    async fn until_asked<T>(&mut self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let mut work = pin!(work);
        while self.received.len() < self.ends_at {
            tokio::select! {
                done = &mut work => return done,
                signal = self.signals.next() => self.received.push(signal),
            }
        }
        let asked = |_| Error::NotNow(format!("the command received {}", self.received.join(" and ")));
        tokio::time::timeout(HASTE, work).await.map_err(asked)?
    }
}

/// A drill under way, and what is known of it.
struct Watched<'a> {
    drill: &'a Drill<'a>,
    course: Course,
    begun: DrillReport,
    since: BootTime,
    request: Option<FiledRequest>,
    evidence: Evidence,
    /// How many events are printed, and in the kept report.
    printed: usize,
    kept: usize,
}

impl Watched<'_> {
    async fn watch(&mut self, heard: &mut Heard) -> Result<(), Error> {
        let mut last_seen = BootTime::now();
        while self.course.result().is_none() {
            match heard.until_asked(self.look()).await {
                Ok(mut seen) => {
                    last_seen = BootTime::now();
                    seen.signals.clone_from(&heard.received);
                    if let (Some(filed), Some(state)) = (&mut self.request, &seen.request) {
                        filed.request.state = state.clone();
                    }
                    keep_newest(&mut self.evidence.answers, seen.answers.clone());
                    let act = self.course.see(&seen, BootTime::now().duration_since(self.since));
                    if let Some(act) = act {
                        self.act(act, heard).await?;
                    }
                }
                // A server may be in the part that is cut off. The first signal asks for the move back, which needs a look.
                Err(error)
                    if BootTime::now().duration_since(last_seen) < BLIND_FOR
                        && heard.received.len() < heard.ends_at =>
                {
                    tracing::debug!(%error, "the election can't be read");
                }
                Err(error) => return Err(error),
            }
            self.show(heard).await;
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                signal = heard.signals.next() => heard.received.push(signal),
            }
        }
        Ok(())
    }

    /// Reads the election.
    async fn look(&self) -> Result<Seen, Error> {
        let Drill { operator, paths, plan, .. } = self.drill;
        let incarnation = operator.incarnation().await?;
        let observer = Observer::new(incarnation.clone());
        let snapshot = observer.snapshot(paths).await?;
        let conductor = incarnation.get(&paths.drill_conductor()).await?;
        let order = drills::order(&incarnation, paths).await?;
        let (answers, _) = drills::answers(&incarnation, paths, &self.begun.run).await?;
        let request = match &self.request {
            Some(filed) => observer.request(paths, &filed.which).await?.map(|request| request.state),
            None => None,
        };
        // A request that could not be filed has failed.
        let request = request.or_else(|| self.request.as_ref().map(|filed| filed.request.state.clone()));
        let lag = |member: &MemberRecord| {
            let attribute = plan.objectives.lag.as_ref()?;
            Some((member.member.clone(), seconds(member.attributes.get(attribute)?)?))
        };
        Ok(Seen {
            leader: leader(&snapshot),
            decision: decided(&snapshot),
            members: snapshot.members.iter().map(|member| member.member.clone()).collect(),
            lags: snapshot.members.iter().filter_map(lag).collect(),
            request,
            obstacle: self.obstacle(&snapshot),
            is_conducted: conductor.is_some_and(|node| node.data == self.begun.run.as_bytes()),
            is_ordered: order.is_some_and(|order| order.run == self.begun.run),
            answers,
            signals: Vec::new(),
        })
    }

    fn obstacle(&self, snapshot: &Snapshot) -> Option<String> {
        let control = &snapshot.control;
        if control.mode != Mode::Auto {
            return Some(format!("an operator has set the mode {}", control.mode));
        }
        if let Some(stopped) = &control.stopped {
            return Some(format!("the job was {stopped}"));
        }
        if let Some(closed) = control.closed() {
            return Some(closed);
        }
        if let Some(site) = control.drained.first() {
            return Some(format!("an operator has drained site {site}"));
        }
        if let Some(order) = control.maintenance.first() {
            return Some(order.to_string());
        }
        let config = &self.drill.operator.config;
        let job = &self.drill.plan.job;
        let explained = Explained::new(job, snapshot, config, unix_ms());
        let mut obstacles = explained.slots.into_iter().flat_map(|slot| slot.obstacles);
        obstacles
            .find(|obstacle| obstacle.reason == Reason::Held)
            .map(|hold| advice::beside(hold.reason, &hold.sentence, job))
    }

    async fn act(&mut self, act: Act, heard: &mut Heard) -> Result<(), Error> {
        let Drill { operator, paths, .. } = self.drill;
        match act {
            // Without the order the next look ends the drill.
            Act::Go => {
                let go = drills::go(&operator.session, paths, &self.begun.run);
                heard.until_asked(operator.in_time(go)).await.map(drop)
            }
            Act::Move(to) => self.request(to, heard).await,
            Act::Withdraw => {
                let Some(filed) = &self.request else { return Ok(()) };
                let why = format!("by {} (the drill is aborted)", asker());
                let cancel = election_admin::cancel(&operator.session, paths, &filed.which, &why);
                heard.until_asked(operator.in_time(cancel)).await.map(drop)
            }
        }
    }

    async fn request(&mut self, to: Target, heard: &mut Heard) -> Result<(), Error> {
        let Drill { operator, paths, .. } = self.drill;
        let reason = Some(self.drill.reason_of(&self.begun.run));
        let request =
            election_admin::new_request(RequestKind::Switchover, Outgoing::Only, to, false, reason, asker());
        // What is refused is the outcome of the request.
        let asked = async {
            match election_admin::ask(&operator.session, paths, request.clone()).await {
                Err(error @ (AdminError::NotNow(_) | AdminError::Refused(_))) => {
                    Ok(Err(Error::from(error).to_string()))
                }
                asked => asked.map(Ok),
            }
        };
        match heard.until_asked(operator.in_time(asked)).await? {
            Ok(filed) => self.request = Some(filed),
            Err(reason) => {
                let state = RequestState::Failed { reason, at_ms: unix_ms() };
                let which = RequestRef { czxid: 0, name: "r-none".to_owned() };
                let mut request = request;
                request.state = state;
                self.request = Some(FiledRequest { which, request });
            }
        }
        Ok(())
    }

    /// Prints what has happened, and keeps it.
    async fn show(&mut self, heard: &mut Heard) {
        let events = &self.course.events;
        for DrillEvent { at_ms, who, what } in &events[self.printed..] {
            let seconds = Duration::from_millis(*at_ms).as_secs_f64();
            output::print_progress(format_args!("{seconds:>9.3} s  {who}: {what}"));
        }
        self.printed = events.len();
        if self.printed > self.kept && self.course.result().is_none() {
            self.kept = self.printed;
            let timeline = events.clone();
            let report = DrillReport { timeline, ..self.begun.clone() };
            // The final report is written in any case.
            let Drill { operator, paths, .. } = self.drill;
            let written = operator.in_time(runs::write(&operator.session, paths, &report));
            let _ = heard.until_asked(written).await;
        }
    }

    /// Ends the order, waits for the last answers, and keeps the report.
    async fn finish(mut self, broken: Option<Error>, heard: &mut Heard) -> (DrillReport, bool) {
        let Drill { operator, paths, plan, .. } = self.drill;
        let run = self.begun.run.clone();
        if let Some(filed) = &self.request
            && filed.request.state.is_unbegun()
        {
            let why = format!("by {} (the drill is over)", asker());
            let cancel = election_admin::cancel(&operator.session, paths, &filed.which, &why);
            let _ = heard.until_asked(operator.in_time(cancel)).await;
        }
        let ended = operator.in_time(drills::end(&operator.session, paths, &run));
        let ended = heard.until_asked(ended).await;
        if ended.is_ok()
            && let Err(error) = heard.until_asked(self.close()).await
        {
            warn_of(&run, "the last answers could not be read", &error);
        }
        match heard.until_asked(self.history()).await {
            Ok(history) => self.evidence.history = history,
            Err(error) => warn_of(&run, "the history could not be read", &error),
        }
        let mut report = assemble(self.begun.clone(), &self.course, &self.evidence, plan, unix_ms());
        if let Some(error) = &broken {
            report.outcome = DrillOutcome::Aborted;
            report.ended_ms = Some(unix_ms());
            report.sentence = format!("it could not be continued: {error}");
        }
        let mut report = report.bounded();
        let written = operator.in_time(runs::write(&operator.session, paths, &report));
        match heard.until_asked(written).await {
            Ok(true) => {}
            Ok(false) => output::print_warning(format_args!(
                "another command has ended drill {run}: its report is kept as that command has written it"
            )),
            Err(error) => {
                // Nobody can show that it passed.
                if report.outcome == DrillOutcome::Passed {
                    report.outcome = DrillOutcome::Failed;
                }
                report.sentence = format!("{}; the report could not be kept: {error}", report.sentence);
            }
        }
        if let Err(error) = heard.until_asked(self.trim()).await {
            warn_of(&run, "the oldest reports could not be removed", &error);
        }
        if let Err(error) = ended {
            let valid = in_words(plan.longest() + MARGIN);
            output::print_warning(format_args!(
                "the order of drill {run} could not be removed: {error}; workers forget it within {valid}"
            ));
        }
        (report, self.course.has_begun)
    }

    async fn history(&self) -> Result<Vec<HistoryEntry>, Error> {
        let Drill { operator, paths, .. } = self.drill;
        Ok(operator.observer().await?.history(paths).await?.0)
    }

    async fn trim(&self) -> Result<(), Error> {
        let Drill { operator, paths, .. } = self.drill;
        Ok(runs::trim(&operator.incarnation().await?, paths).await?)
    }

    /// Waits until the members have written their last answers.
    async fn close(&mut self) -> Result<(), Error> {
        let by = BootTime::now() + CLOSE_WITHIN;
        loop {
            let incarnation = self.drill.operator.incarnation().await?;
            let (answers, _) = drills::answers(&incarnation, self.drill.paths, &self.begun.run).await?;
            let is_closed = answers.iter().all(|answer| answer.closed);
            keep_newest(&mut self.evidence.answers, answers);
            if is_closed || BootTime::now() >= by {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Of a drill that is over: what is missing does not keep its report from being written.
fn warn_of(run: &str, what: &str, error: &Error) {
    output::print_warning(format_args!("drill {run} is over, but {what}: {error}"));
}

/// An answer that is gone, with another order, is kept.
fn keep_newest(known: &mut Vec<DrillAnswer>, answers: Vec<DrillAnswer>) {
    for answer in answers {
        match known.iter_mut().find(|other| other.member == answer.member) {
            Some(other) => *other = answer,
            None => known.push(answer),
        }
    }
}

fn leader(snapshot: &Snapshot) -> Option<Leader> {
    let record = &snapshot.leader_znode(0)?.record;
    Some(Leader {
        who: Who { member: record.member.clone(), site: record.site.clone() },
        ballot: record.ballot.clone(),
        term: record.term,
        is_ready: record.status == Status::Ready,
    })
}

fn decided(snapshot: &Snapshot) -> Option<Decided> {
    let elected = snapshot.decided()?;
    let given = &elected.slots.first()?.given;
    Some(Decided {
        term: given.term,
        cause: given.cause,
        sentence: given.sentence.clone(),
        by: elected.decided_by.clone(),
        noticed_at_ms: given.noticed_at_ms,
    })
}
