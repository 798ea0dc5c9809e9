//! A filed request: followed to its end, decided by this command if there is no elector, or withdrawn.

use std::time::Duration;

use election_core::{
    Paths,
    operator::{self, OperatorError, Snapshot, Withdrawal},
    record::{Current, FiledRequest, Request, RequestKind, RequestState, Status, Target},
    strategy::in_words,
};
use serde_json::json;
use zk_session::BootTime;

use super::{
    election::Operator,
    list::{outgoing, target},
    output::{self, Output},
};
use crate::error::Error;

/// How long a failover waits for the elector before this command decides.
const PATIENCE: Duration = Duration::from_secs(5);

/// The timeout to withdraw a request.
const WITHDRAWAL: Duration = Duration::from_secs(5);

/// A filed request.
pub(super) struct Underway<'a> {
    pub(super) operator: &'a Operator,
    pub(super) job: String,
    pub(super) paths: Paths,
    pub(super) filed: FiledRequest,
    /// When it expires.
    pub(super) until: BootTime,
}

impl Underway<'_> {
    pub(super) fn print_filed(&self, waits: bool) {
        output::print_progress(format_args!(
            "request {}: {} of {}{}{}",
            self.filed.which.name,
            self.filed.request.kind.as_str(),
            self.job,
            outgoing(&self.filed.request.from),
            target(&self.filed.request.to)
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
    fn who(&self) -> &'static str {
        if self.kind().is_move() { "an elector" } else { "the leader" }
    }

    fn how_to_follow(&self) -> String {
        format!("dr-worker list --job {} --watch", self.job)
    }

    fn how_to_cancel(&self) -> String {
        format!("dr-worker cancel {} --job {}", self.filed.which.name, self.job)
    }

    /// Follows the request to its end, or without `--wait` until it is begun. Decides a failover that no elector
    /// begins.
    pub(super) async fn see_through(&self, waits: bool, how: Output) -> Result<(), Error> {
        let begun = BootTime::now();
        let mut last = None;
        if self.filed.request.kind == RequestKind::Failover {
            let decided = self.until_decided(begun + PATIENCE).await?;
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
        self.until_done(self.until, how).await
    }

    /// Waits until an elector has handled the request.
    async fn until_decided(&self, by: BootTime) -> Result<Option<Request>, Error> {
        let observer = self.operator.observer().await?;
        loop {
            let request = observer.request(&self.paths, &self.filed.which).await?;
            let decided = request.as_ref().is_some_and(|r| r.state != RequestState::Pending);
            if decided || BootTime::now() >= by {
                return Ok(request);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Takes the decision instead of the elector.
    async fn decide_from_here(&self, waits: bool, how: Output) -> Result<(), Error> {
        let snapshot = self.operator.observer().await?.snapshot(&self.paths).await?;
        let slot = match snapshot.slot_for(&self.filed.request) {
            Ok(slot) => slot,
            Err(why) => return self.give_up(why.to_string(), how).await,
        };
        if let Some(znode) = snapshot.leader_znode(slot).filter(|_| !self.filed.request.force) {
            let why = format!(
                "no elector has begun it, and {} still leads; --force replaces it",
                znode.record.member
            );
            return match waits {
                true => self.withdraw(&why, how).await,
                false => Err(self.goes_on(why)),
            };
        }
        output::print_progress("no elector answers; this command takes the decision");
        let config = self.operator.config.policy_of(&self.job);
        // Only workers need the job's stop budget.
        let policy = config.engine(Duration::ZERO, false);
        let strategy = config.strategy();
        let session = &self.operator.session;
        let forced =
            operator::force(session, &self.paths, &self.filed, &policy, strategy.as_ref(), self.until).await;
        match forced {
            Ok(()) => Ok(()),
            Err(OperatorError::Refused(why)) => self.give_up(why, how).await,
            Err(OperatorError::NotNow(why)) => self.withdraw(&why, how).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Reports that the request failed, and withdraws it, so that no elector carries it out later.
    async fn give_up(&self, why: String, how: Output) -> Result<(), Error> {
        let failed = self.failed(&why);
        self.withdraw_with(failed, &why, how).await
    }

    /// Withdraws the request if it is not begun, and reports the outcome.
    pub(super) async fn withdraw(&self, why: &str, how: Output) -> Result<(), Error> {
        let name = &self.filed.which.name;
        let nothing = if self.kind().is_move() { "nothing was moved" } else { "nothing was done" };
        let withdrawn = Error::NotNow(format!("request {name} was withdrawn: {why}; {nothing}"));
        self.withdraw_with(withdrawn, why, how).await
    }

    /// The same, with the error to report once it is withdrawn.
    async fn withdraw_with(&self, withdrawn: Error, why: &str, how: Output) -> Result<(), Error> {
        let reason = format!("by {} ({why})", self.filed.request.by);
        let cancelled = operator::cancel(&self.operator.session, &self.paths, &self.filed.which, &reason);
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

    async fn until_done(&self, by: BootTime, how: Output) -> Result<(), Error> {
        let progress = |request: &Request| match &request.state {
            RequestState::Pending => {
                output::print_progress(format_args!("waiting for {} to begin it", self.who()));
            }
            RequestState::Accepted { term } => {
                let end = match request.kind {
                    RequestKind::Stop => "the job to stop",
                    RequestKind::Restart | RequestKind::Start => "the job to be ready",
                    RequestKind::Switchover | RequestKind::Failover => "the new leader to be ready",
                };
                output::print_progress(format_args!("begun in term {term}; waiting for {end}"));
            }
            _ => {}
        };
        let session = &self.operator.session;
        let last = operator::follow(session, &self.paths, &self.filed.which, by, progress).await?;
        match last.map(|r| r.state) {
            Some(state @ RequestState::Done { .. }) => self.report(&state, how),
            Some(RequestState::Failed { reason, .. }) => self.refused(&reason, how).await,
            Some(state @ RequestState::Accepted { .. }) => Err(self.goes_on(self.kind().progress(&state))),
            Some(RequestState::Pending) | None => {
                let waited = in_words(self.filed.request.valid_for());
                let who = if self.kind().is_move() { "elector" } else { "leader" };
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
            return output::print_json(
                &json!({ "election": self.job, "request": self.filed.which.name, "outcome": state }),
            );
        }
        let job = &self.job;
        match (state, self.kind()) {
            (RequestState::Done { leader, .. }, RequestKind::Restart) => {
                output::print(format_args!("{job} was restarted on {leader}"))
            }
            (RequestState::Done { leader, .. }, RequestKind::Stop) => {
                output::print(format_args!("{job} is stopped; {leader} leads"))
            }
            (RequestState::Done { leader, .. }, RequestKind::Start) => {
                output::print(format_args!("{job} runs on {leader}"))
            }
            (RequestState::Done { term, leader, .. }, _) => {
                output::print(format_args!("{leader} leads {job} in term {term}"))
            }
            _ => output::print(&self.filed.which.name),
        }
    }

    /// The requested state may have been reached before the elector handled the request.
    async fn refused(&self, reason: &str, how: Output) -> Result<(), Error> {
        if !self.kind().is_move() {
            return Err(self.failed(reason));
        }
        let snapshot = self.operator.observer().await?.snapshot(&self.paths).await?;
        match leads_already(&self.filed.request, &snapshot) {
            Some(leader) => report_leader(&self.job, leader, how),
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

/// The READY leader to replace, if it matches the target already.
pub(super) fn leads_already<'a>(request: &Request, snapshot: &'a Snapshot) -> Option<&'a Current> {
    let slot = snapshot.slot_for(request).ok()?;
    let leader = &snapshot.leader_znode(slot)?.record;
    let named = snapshot.decided()?.named(slot)?;
    let fits = match &request.to {
        Target::Any => false,
        Target::Member(member) => leader.member == *member,
        Target::Site(site) => leader.site == *site,
    };
    (fits && leader.status == Status::Ready && leader.ballot == named.ballot).then_some(leader)
}

/// Reports that the target leads already.
pub(super) fn report_leader(job: &str, leader: &Current, how: Output) -> Result<(), Error> {
    let Current { member, term, .. } = leader;
    if how == Output::Json {
        let outcome = json!({ "state": "done", "term": term, "leader": member });
        return output::print_json(&json!({ "election": job, "request": null, "outcome": outcome }));
    }
    output::print(format_args!("{member} leads {job} in term {term} already"))
}
