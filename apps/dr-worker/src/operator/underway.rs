//! A filed request: followed to its end, decided by this command if there is no elector, or withdrawn.

use std::{cell::RefCell, convert::Infallible, time::Duration};

use election_admin::{Snapshot, Withdrawal};
use election_core::{
    Paths,
    internals::record::{
        AdminRequest, Current, FiledRequest, HistoryEntry, Record as _, RequestKind, RequestState,
    },
    strategy::in_words,
};
use zk_session::BootTime;

use super::{
    leading::until_proved,
    output::{self, Output},
    phases::{MovePhases, durations},
};
use crate::{
    commands::{
        Operator,
        moves::{self, Decision, leads_already},
        operation::Election,
        requested::{Filed, Needless},
    },
    error::Error,
    signals::Signals,
    typed::Typed,
};

/// The timeout to withdraw a request.
const WITHDRAWAL: Duration = Duration::from_secs(5);

/// A request that is to be filed.
pub(super) struct Filing<'a> {
    pub(super) of: &'a Election<'a>,
    pub(super) request: AdminRequest,
    /// Whether the command waits for its end.
    pub(super) waits: bool,
    /// How long it waits; by default the sum of the policy's timeouts of a move.
    pub(super) timeout: Option<Duration>,
}

impl Filing<'_> {
    /// Files the request into the election that was just read, and follows it. On a signal it is withdrawn, if it is not begun.
    pub(super) async fn file_and_follow(self, snapshot: &Snapshot, how: Output) -> Result<(), Error> {
        let Self { of, request, waits, timeout } = self;
        let Election { operator, job, paths, .. } = of;
        let (patience, valid_for) = match waits {
            true => {
                let patience = timeout.unwrap_or_else(|| moves::longest_move(operator, job));
                (patience, patience + WITHDRAWAL)
            }
            false => (AdminRequest::USUAL_VALIDITY, AdminRequest::USUAL_VALIDITY),
        };
        let until = BootTime::now() + patience;
        let request = request.with_validity(valid_for);
        let mut signals = Signals::new().map_err(|e| Error::Internal(format!("no signal handlers: {e}")))?;
        let slot = snapshot.slot_for(&request).ok();
        let old = slot.and_then(|slot| snapshot.leader_znode(slot)).map(|znode| znode.record.clone());
        let filed = election_admin::file(&operator.session, paths, snapshot, request).await?;
        let underway =
            Underway { operator, job, paths, filed, patience, until, slot: slot.unwrap_or_default(), old };
        underway.print_filed(waits);
        let signal = tokio::select! {
            result = underway.see_through(waits, how) => return result,
            signal = signals.next() => signal,
        };
        underway.withdraw(&format!("{signal} while it was pending"), how).await
    }
}

/// A filed request.
struct Underway<'a> {
    operator: &'a Operator,
    job: &'a str,
    paths: &'a Paths,
    filed: FiledRequest,
    /// How long this command waits. It expires later, so that no elector ends it while this command withdraws it.
    patience: Duration,
    /// When this command stops waiting.
    until: BootTime,
    /// The slot that it is about.
    slot: usize,
    /// The leader of that slot when it was filed.
    old: Option<Current>,
}

impl Underway<'_> {
    fn print_filed(&self, waits: bool) {
        output::print_progress(format_args!(
            "request {}: {}",
            self.filed.which.name,
            moves::describe(self.job, &self.filed.request)
        ));
        if !waits {
            let valid_for = in_words(self.filed.request.valid_for());
            let who = self.who();
            output::print_progress(format_args!(
                "it expires unless {who} begins it within {valid_for}; follow it with `{}`, withdraw it with `{}`",
                self.how_to_follow(),
                self.how_to_cancel()
            ));
        }
    }

    fn kind(&self) -> RequestKind {
        self.filed.request.kind
    }

    /// What begins such a request.
    fn who(&self) -> String {
        let article = if self.kind().is_move() { "an" } else { "the" };
        format!("{article} {}", self.kind().begun_by())
    }

    fn how_to_follow(&self) -> Typed {
        Typed::verb("list").job(self.job).arg("--watch")
    }

    fn how_to_cancel(&self) -> Typed {
        Typed::verb("cancel").arg(&self.filed.which.name).job(self.job)
    }

    /// Follows the request to its end, or without `--wait` until it is begun. Decides a failover that no elector
    /// begins.
    async fn see_through(&self, waits: bool, how: Output) -> Result<(), Error> {
        let begun = BootTime::now();
        let phases = RefCell::new(MovePhases::new(self.old.clone()));
        let mut last = None;
        if self.filed.request.kind == RequestKind::Failover {
            let by = begun + moves::PATIENCE;
            let decided = moves::until_begun(self.operator, self.paths, &self.filed, by).await?;
            if matches!(decided.as_ref().map(|r| &r.state), None | Some(RequestState::Pending)) {
                self.decide_from_here(waits, how).await?;
            }
            last = decided;
        }
        if !waits {
            return match last.map(|r| r.state) {
                Some(RequestState::Failed { reason, .. }) => self.refused(&reason, how).await,
                Some(state) if state.failure().is_some() => Err(self.ended(&state)),
                state => self.report_begun(&state.unwrap_or(RequestState::Pending), how),
            };
        }
        tokio::select! {
            result = self.until_done(&phases, begun, how) => result,
            never = self.show_phases(&phases, begun) => never.map(|never| match never {}),
        }
    }

    /// Shows the phases of the move that the leader znode reports.
    async fn show_phases(&self, phases: &RefCell<MovePhases>, begun: BootTime) -> Result<Infallible, Error> {
        let path = self.paths.leader_znode(self.slot);
        let mut znode = self.operator.session.watch_data(path.clone());
        loop {
            let seen = znode.next().await.map_err(|e| Error::Unreachable(e.to_string()))?;
            // What can't be read is reported where the move ends.
            let leader = seen.value.and_then(|node| Current::decode(&path, &node.data).ok());
            show(phases.borrow_mut().see_leader(leader, BootTime::now().duration_since(begun)));
        }
    }

    /// Shows how long each phase took, as the new leader has recorded it: a command sees several at once.
    async fn show_durations(&self, term: u64) -> Result<(), Error> {
        let (history, _) = self.operator.observer().await?.history(self.paths).await?;
        let entry = history.into_iter().rev().find(|entry| (entry.slot, entry.term) == (self.slot, term));
        if let Some(HistoryEntry { phases, .. }) = entry {
            output::print_progress(format_args!("{:>11}  {}", "phases:", durations(&phases)));
        }
        Ok(())
    }

    /// Takes the decision instead of the elector.
    async fn decide_from_here(&self, waits: bool, how: Output) -> Result<(), Error> {
        let announce = || output::print_progress("no elector answers; this command takes the decision");
        match moves::decide(self.operator, self.job, self.paths, &self.filed, self.until, announce).await? {
            Decision::Made => Ok(()),
            // Withdrawn, so that no elector carries it out later.
            Decision::Refused(why) => self.withdraw_with(self.failed(&why), &why, how).await,
            Decision::StillLed(why) if !waits => Err(self.goes_on(why)),
            Decision::NotNow(why) | Decision::StillLed(why) => self.withdraw(&why, how).await,
        }
    }

    /// Withdraws the request if it is not begun, and reports the outcome.
    async fn withdraw(&self, why: &str, how: Output) -> Result<(), Error> {
        let name = &self.filed.which.name;
        let nothing = if self.kind().is_move() { "nothing was moved" } else { "nothing was done" };
        let withdrawn = Error::NotNow(format!("request {name} was withdrawn: {why}; {nothing}"));
        self.withdraw_with(withdrawn, why, how).await
    }

    /// The same, with the error to report once it is withdrawn.
    async fn withdraw_with(&self, withdrawn: Error, why: &str, how: Output) -> Result<(), Error> {
        let reason = format!("by {} ({why})", self.filed.request.by);
        let cancelled =
            election_admin::cancel(&self.operator.session, self.paths, &self.filed.which, &reason);
        let name = &self.filed.which.name;
        let failed = match tokio::time::timeout(WITHDRAWAL, cancelled).await {
            Ok(Ok(Withdrawal::Withdrawn(_))) => return Err(withdrawn),
            Ok(Ok(Withdrawal::TooLate(request))) => {
                return match request.state {
                    state @ RequestState::Done { .. } => self.report(&state, how),
                    state @ (RequestState::Accepted { .. } | RequestState::Pending) => {
                        Err(self.goes_on(self.kind().progress(&state)))
                    }
                    state => Err(self.ended(&state)),
                };
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("ZooKeeper did not answer within {}", in_words(WITHDRAWAL)),
        };
        Err(Error::NotNow(format!(
            "request {name} may still be carried out: {why}, and it could not be withdrawn: {failed}; it expires unless \
             it is begun within {} of the time when an elector reads it. Withdraw it with `{}`",
            in_words(self.filed.request.valid_for()),
            self.how_to_cancel()
        )))
    }

    async fn until_done(
        &self,
        phases: &RefCell<MovePhases>,
        begun: BootTime,
        how: Output,
    ) -> Result<(), Error> {
        let progress = |request: &AdminRequest| {
            let awaited = match request.kind {
                RequestKind::Stop => Some("the job to stop"),
                RequestKind::Restart | RequestKind::Start => Some("the job to be ready"),
                RequestKind::RestartStandby | RequestKind::StartStandby => Some("the standby to be ready"),
                RequestKind::StopStandby => Some("the standby to stop"),
                RequestKind::Switchover | RequestKind::Failover => None,
            };
            match (&request.state, awaited) {
                (RequestState::Pending, _) => {
                    output::print_progress(format_args!("waiting for {} to begin it", self.who()));
                }
                (RequestState::Accepted { .. }, Some(awaited)) if request.standby_of().is_some() => {
                    output::print_progress(format_args!("begun; waiting for {awaited}"));
                }
                (RequestState::Accepted { term }, Some(awaited)) => {
                    output::print_progress(format_args!("begun in term {term}; waiting for {awaited}"));
                }
                _ => {}
            }
            if awaited.is_none() {
                show(phases.borrow_mut().see_request(&request.state, BootTime::now().duration_since(begun)));
            }
        };
        let session = &self.operator.session;
        let last =
            election_admin::follow(session, self.paths, &self.filed.which, self.until, progress).await?;
        match last.map(|r| r.state) {
            Some(state @ RequestState::Done { .. }) => {
                if let RequestState::Done { term, .. } = state
                    && self.kind().is_move()
                {
                    self.show_durations(term).await?;
                }
                self.report(&state, how)
            }
            Some(RequestState::Failed { reason, .. }) => self.refused(&reason, how).await,
            Some(state @ RequestState::Accepted { .. }) => Err(self.goes_on(self.kind().progress(&state))),
            Some(RequestState::Pending) | None => {
                let waited = in_words(self.patience);
                let who = self.kind().begun_by();
                self.withdraw(&format!("no {who} began it within {waited}"), how).await
            }
            Some(state) => Err(self.ended(&state)),
        }
    }

    /// Without `--wait`: prints the request's id, even if the move is done already.
    fn report_begun(&self, state: &RequestState, how: Output) -> Result<(), Error> {
        match (state, how) {
            (_, Output::Json) => self.report(state, how),
            (RequestState::Done { term, leader, .. }, _) => {
                output::print_progress(format_args!("{leader} leads {} in term {term} already", self.job));
                output::print(&self.filed.which.name)
            }
            _ => output::print(&self.filed.which.name),
        }
    }

    fn report(&self, state: &RequestState, how: Output) -> Result<(), Error> {
        if how == Output::Json {
            return output::print_json(&Filed::in_state(self.job, &self.filed, state.clone()));
        }
        let job = self.job;
        let RequestState::Done { term, leader, .. } = state else {
            return output::print(&self.filed.which.name);
        };
        output::print(match self.kind() {
            RequestKind::Restart => format!("{job} was restarted on {leader}"),
            RequestKind::Stop => format!("{job} is stopped; {leader} leads"),
            RequestKind::Start => format!("{job} runs on {leader}"),
            RequestKind::RestartStandby => format!("the standby of {job} was restarted on {leader}"),
            RequestKind::StopStandby => format!("the standby of {job} is stopped on {leader}"),
            RequestKind::StartStandby => format!("the standby of {job} is started on {leader}"),
            RequestKind::Switchover | RequestKind::Failover => format!("{leader} leads {job} in term {term}"),
        })
    }

    /// The requested state may have been reached before the elector handled the request.
    async fn refused(&self, reason: &str, how: Output) -> Result<(), Error> {
        if !self.kind().is_move() {
            return Err(self.failed(reason));
        }
        let snapshot = self.operator.observer().await?.snapshot(self.paths).await?;
        match leads_already(&self.filed.request, &snapshot) {
            Some(leader) => {
                let (job, paths) = (self.job, self.paths);
                until_proved(self.operator, job, paths, self.slot, Some(leader), self.until).await?;
                report_leader(job, leader, how)
            }
            None => Err(self.failed(reason)),
        }
    }

    /// An expired request may succeed another time.
    fn ended(&self, state: &RequestState) -> Error {
        let reason = state.failure().unwrap_or_default();
        match state {
            RequestState::Expired { .. } => {
                Error::NotNow(format!("request {} {reason}; try again", self.filed.which.name))
            }
            _ => self.failed(&reason),
        }
    }

    fn failed(&self, reason: &str) -> Error {
        Error::Failed(format!("request {}: {reason}", self.filed.which.name))
    }

    /// Not a failure: it may still be carried out.
    fn goes_on(&self, last: String) -> Error {
        Error::NotNow(format!(
            "request {} is still open: {last}; don't repeat it, follow it with `{}`",
            self.filed.which.name,
            self.how_to_follow()
        ))
    }
}

fn show(lines: Vec<String>) {
    lines.into_iter().for_each(output::print_progress);
}

/// Reports that the target leads already.
pub(super) fn report_leader(job: &str, leader: &Current, how: Output) -> Result<(), Error> {
    let Current { member, term, .. } = leader;
    if how == Output::Json {
        return output::print_json(&Needless::new(job, Some(leader)));
    }
    output::print(format_args!("{member} leads {job} in term {term} already"))
}
