//! `switchover`, `failover` and `cancel`.
//!
//! A command that waits leaves no request behind that could be carried out after it: what is not begun when it
//! ends, by its timeout or by a signal, is withdrawn. The request ends by itself about as long after it was made, for when
//! the command is killed.

use std::{collections::BTreeSet, time::Duration};

use election_core::{
    MemberId, Paths, SiteId,
    operator::{self, Layout, OperatorError, Snapshot, Withdrawal},
    record::{Current, FiledRequest, Outgoing, Request, RequestKind, RequestState, Status, Target},
    strategy::in_words,
};
use serde_json::json;
use zk_session::BootTime;

use super::{
    Output, contest, control,
    election::{Operator, asker},
    list::{outgoing, target},
    output,
};
use crate::{config::Sources, error::Error, run::signals::Signals, view::hold_of};

/// How long a failover waits for the elector before it is carried out from here.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a command that ends takes at most to withdraw its request.
const WITHDRAWAL: Duration = Duration::from_secs(5);

/// What both kinds of move take.
#[derive(Debug, clap::Args)]
pub(super) struct Move {
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB")]
    pub(super) job: Option<String>,
    /// Member that should lead [default: the best other one].
    #[arg(long, value_name = "MEMBER", conflicts_with = "to_site")]
    to: Option<MemberId>,
    /// Site that should lead.
    #[arg(long, value_name = "SITE")]
    to_site: Option<SiteId>,
    /// Leader to replace, where there are several.
    #[arg(long, value_name = "MEMBER", conflicts_with = "slot")]
    from: Option<MemberId>,
    /// Slot whose leader to replace, counted from 0.
    #[arg(long, value_name = "SLOT")]
    slot: Option<usize>,
    /// Accept a loss: elect also a member that the stage `limit` excludes.
    #[arg(long)]
    accept_loss: bool,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Wait until the new leader is ready or the request has failed.
    #[arg(long)]
    pub(super) wait: bool,
    /// How long to wait [default: the sum of the policy's timeouts of a move].
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = humantime::parse_duration)]
    pub(super) timeout: Option<Duration>,
}

/// `switchover`
#[derive(Debug, clap::Args)]
pub(super) struct SwitchoverArguments {
    #[command(flatten)]
    wanted: Move,
}

/// `failover`
#[derive(Debug, clap::Args)]
pub(super) struct FailoverArguments {
    #[command(flatten)]
    wanted: Move,
    /// Replace a leader that does not stop; two may act for a moment.
    ///
    /// The job's resource must check fencing tokens.
    #[arg(long)]
    force: bool,
}

/// `cancel`
#[derive(Debug, clap::Args)]
pub(super) struct CancelArguments {
    /// Request id, as printed by `switchover`, `failover` and `list`: r-0000000000.
    #[arg(value_name = "ID", value_parser = request_id)]
    id: String,
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
}

/// It becomes part of a path.
fn request_id(text: &str) -> Result<String, String> {
    let number = text.strip_prefix("r-").unwrap_or_default();
    let number = number.strip_prefix('-').unwrap_or(number);
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err("a request's id is 'r-' and its number, such as r-0000000000".to_owned());
    }
    Ok(text.to_owned())
}

pub(super) async fn cancel(arguments: &CancelArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let operator = Operator::connect(sources).await?;
    let result = withdraw(&operator, arguments, how).await;
    operator.close().await;
    result
}

async fn withdraw(operator: &Operator, arguments: &CancelArguments, how: Output) -> Result<(), Error> {
    let job = operator.one(arguments.job.as_deref()).await?;
    let (paths, id) = (operator.paths(&job)?, &arguments.id);
    let filed = operator::request(&operator.session, &paths, id).await?;
    let why = format!("by {}", asker());
    let request = match operator::cancel(&operator.session, &paths, &filed.which, &why).await? {
        Withdrawal::Withdrawn(request) => request,
        Withdrawal::TooLate(Request { state, .. }) => {
            return Err(Error::Failed(format!("request {id} can't be withdrawn any more: {state}")));
        }
    };
    match how {
        Output::Json => {
            output::print_json(&json!({ "election": job, "request": id, "outcome": request.state }))
        }
        Output::Pretty => output::print(format_args!("request {id} is withdrawn")),
    }
}

pub(super) async fn switchover(
    arguments: &SwitchoverArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    ask(&arguments.wanted, RequestKind::Switchover, false, sources, how).await
}

pub(super) async fn failover(
    arguments: &FailoverArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    ask(&arguments.wanted, RequestKind::Failover, arguments.force, sources, how).await
}

async fn ask(
    wanted: &Move,
    kind: RequestKind,
    force: bool,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let to = match (&wanted.to, &wanted.to_site) {
        (Some(member), _) => Target::Member(member.clone()),
        (None, Some(site)) => Target::Site(site.clone()),
        (None, None) => Target::Any,
    };
    let from = match (&wanted.from, wanted.slot) {
        (Some(member), _) => Outgoing::Member(member.clone()),
        (None, Some(slot)) => Outgoing::Slot(slot),
        (None, None) => Outgoing::Only,
    };
    let operator = Operator::connect(sources).await?;
    let request = Request {
        accept_loss: wanted.accept_loss,
        ..operator::new_request(kind, from, to, force, wanted.reason.clone(), asker())
    };
    let result = carry_out(&operator, wanted, request, how).await;
    operator.close().await;
    result
}

/// A request on its way.
struct Underway<'a> {
    operator: &'a Operator,
    job: String,
    paths: Paths,
    filed: FiledRequest,
    /// When it may not be begun any more.
    until: BootTime,
}

async fn carry_out(operator: &Operator, wanted: &Move, request: Request, how: Output) -> Result<(), Error> {
    let job = operator.one(wanted.job.as_deref()).await?;
    let paths = operator.paths(&job)?;
    match operator.observer().await?.layout(&paths).await? {
        None | Some(Layout::Elector) => {}
        Some(layout) => return contest::move_on(operator, &job, &paths, layout, wanted, &request, how).await,
    }
    let snapshot = operator.observer().await?.snapshot(&paths).await?;
    check_names(operator, &job, &request, &snapshot)?;
    if let Some(leader) = leads_already(&request, &snapshot) {
        return report_leader(&job, leader, how);
    }
    if request.kind == RequestKind::Switchover && !is_led(&request, &snapshot) {
        let skipped = crate::ask::elector(&job, &snapshot).await;
        if let Some(hold) = skipped.and_then(|skipped| hold_of(&skipped, &job)) {
            let way_out = format!("`dr-worker failover --job {job}` names a leader now");
            return Err(Error::NotNow(format!("{job}: no leader can hand over: {hold}; {way_out}")));
        }
    }
    let valid_for = match wanted.wait {
        true => wanted.timeout.unwrap_or_else(|| longest_move(operator, &job)),
        false => Request::USUAL_VALIDITY,
    };
    let until = BootTime::now() + valid_for;
    let request = request.with_validity(valid_for);
    let mut signals = Signals::new().map_err(|e| Error::Internal(format!("no signal handlers: {e}")))?;
    let filed = operator::ask(&operator.session, &paths, request).await?;
    let underway = Underway { operator, job, paths, filed, until };
    underway.say_asked(wanted.wait);
    let signal = tokio::select! {
        result = underway.see_through(wanted, how) => return result,
        signal = signals.next() => signal,
    };
    underway.withdraw(&format!("{signal} while it was pending"), how).await
}

/// As long as every phase of a move may take by the policy.
fn longest_move(operator: &Operator, job: &str) -> Duration {
    let config = &operator.config;
    let policy = config.policy_of(job);
    config.zookeeper.session_timeout
        + policy.release_timeout
        + policy.acquire_timeout
        + policy.takeover_timeout
        + operator::ELECTOR_PATIENCE
}

/// A name that is mistyped is found before anything is written.
fn check_names(operator: &Operator, job: &str, request: &Request, snapshot: &Snapshot) -> Result<(), Error> {
    let from = match &request.from {
        Outgoing::Member(member) => Some(member),
        Outgoing::Slot(_) | Outgoing::Only => None,
    };
    let to = match &request.to {
        Target::Member(member) => Some(member),
        Target::Site(_) | Target::Any => None,
    };
    // A leader whose worker is gone is no member any more, and can be replaced by its name.
    let leader_znodes =
        || snapshot.leader_znodes.iter().flatten().map(|leader_znode| &leader_znode.record.member);
    let members: BTreeSet<_> = snapshot.members.iter().map(|member| &member.member).collect();
    let is_unknown = |member: &&MemberId| !members.contains(*member);
    let unknown =
        to.filter(is_unknown).or(from.filter(is_unknown).filter(|from| leader_znodes().all(|o| o != *from)));
    if let Some(unknown) = unknown {
        let members: Vec<_> = members.iter().map(|member| member.as_str()).collect();
        let members = if members.is_empty() { "no member takes part".to_owned() } else { members.join(", ") };
        return Err(Error::Failed(format!("{job}: unknown member {unknown}; members: {members}")));
    }
    match &request.to {
        Target::Site(site) => {
            control::check_sites(operator, job, [site], snapshot, "").map_err(Error::Failed)
        }
        Target::Member(_) | Target::Any => Ok(()),
    }
}

/// The READY leader that is to be replaced, if it is what is asked for.
fn leads_already<'a>(request: &Request, snapshot: &'a Snapshot) -> Option<&'a Current> {
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

/// Whether there is a READY leader where one is to be replaced.
fn is_led(request: &Request, snapshot: &Snapshot) -> bool {
    let leader_znode = snapshot.slot_for(request).ok().and_then(|slot| snapshot.leader_znode(slot));
    leader_znode.is_some_and(|leader_znode| leader_znode.record.status == Status::Ready)
}

fn report_leader(job: &str, leader: &Current, how: Output) -> Result<(), Error> {
    let Current { member, term, .. } = leader;
    if how == Output::Json {
        let outcome = json!({ "state": "done", "term": term, "leader": member });
        return output::print_json(&json!({ "election": job, "request": null, "outcome": outcome }));
    }
    output::print(format_args!("{member} leads {job} in term {term} already"))
}

impl Underway<'_> {
    fn say_asked(&self, waits: bool) {
        output::say(format_args!(
            "request {}: {} of {}{}{}",
            self.filed.which.name,
            self.filed.request.kind.as_str(),
            self.job,
            outgoing(&self.filed.request.from),
            target(&self.filed.request.to)
        ));
        if !waits {
            let valid_for = in_words(self.filed.request.valid_for());
            output::say(format_args!(
                "it expires unless an elector begins it within {valid_for}; follow it with `{}`, withdraw it with `{}`",
                self.how_to_follow(),
                self.how_to_cancel()
            ));
        }
    }

    fn how_to_follow(&self) -> String {
        format!("dr-worker list --job {} --watch", self.job)
    }

    fn how_to_cancel(&self) -> String {
        format!("dr-worker cancel {} --job {}", self.filed.which.name, self.job)
    }

    async fn see_through(&self, wanted: &Move, how: Output) -> Result<(), Error> {
        let begun = BootTime::now();
        let mut last = None;
        if self.filed.request.kind == RequestKind::Failover {
            let decided = self.until_decided(begun + PATIENCE).await?;
            if matches!(decided.as_ref().map(|r| &r.state), None | Some(RequestState::Pending)) {
                self.carry_out_here(wanted.wait, how).await?;
            }
            last = decided;
        }
        if !wanted.wait {
            return match last.map(|r| r.state) {
                Some(RequestState::Failed { reason, .. }) => self.refused(&reason, how).await,
                Some(state) if state.failure().is_some() => Err(self.ended(&state)),
                state => self.report_begun(&state.unwrap_or(RequestState::Pending), how),
            };
        }
        self.until_done(self.until, how).await
    }

    /// Waits until somebody has looked at the request.
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

    /// Does the elector's part, for no elector does.
    async fn carry_out_here(&self, waits: bool, how: Output) -> Result<(), Error> {
        let snapshot = self.operator.observer().await?.snapshot(&self.paths).await?;
        let slot = match snapshot.slot_for(&self.filed.request) {
            Ok(slot) => slot,
            Err(why) => return self.give_up(why, how).await,
        };
        if let Some(leader_znode) = snapshot.leader_znode(slot).filter(|_| !self.filed.request.force) {
            let why = format!(
                "no elector has begun it, and {} still holds leadership; with --force it is taken from it",
                leader_znode.record.member
            );
            return match waits {
                true => self.withdraw(&why, how).await,
                false => Err(self.goes_on(why)),
            };
        }
        output::say("no elector answers; carrying it out from here");
        let config = self.operator.config.policy_of(&self.job);
        // What a job needs to stop is for workers to know.
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

    /// It can't be carried out from here; and what this command reports as failed, no elector is to do later.
    async fn give_up(&self, why: String, how: Output) -> Result<(), Error> {
        let failed = self.failed(&why);
        self.withdraw_with(failed, &why, how).await
    }

    /// Withdraws it, if it is not begun, for this command ends; and says what became of it.
    async fn withdraw(&self, why: &str, how: Output) -> Result<(), Error> {
        let name = &self.filed.which.name;
        let withdrawn = Error::NotNow(format!("request {name} was withdrawn: {why}; nothing was moved"));
        self.withdraw_with(withdrawn, why, how).await
    }

    /// The same; `withdrawn` once it is.
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
                        Err(self.goes_on(state.to_string()))
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
            RequestState::Pending => output::say("waiting for the elector to begin it"),
            RequestState::Accepted { term } => {
                output::say(format_args!("begun in term {term}; waiting for the new leader to be ready"));
            }
            _ => {}
        };
        let session = &self.operator.session;
        let last = operator::follow(session, &self.paths, &self.filed.which, by, progress).await?;
        match last.map(|r| r.state) {
            Some(state @ RequestState::Done { .. }) => self.report(&state, how),
            Some(RequestState::Failed { reason, .. }) => self.refused(&reason, how).await,
            Some(state @ RequestState::Accepted { .. }) => Err(self.goes_on(state.to_string())),
            Some(RequestState::Pending) | None => {
                let waited = in_words(self.filed.request.valid_for());
                self.withdraw(&format!("no elector began it within {waited}"), how).await
            }
            Some(state) => Err(self.ended(&state)),
        }
    }

    /// For who doesn't wait: the request's id, even where the move was so quick that it is done.
    fn report_begun(&self, state: &RequestState, how: Output) -> Result<(), Error> {
        match (state, how) {
            (_, Output::Json) => self.report(state, how),
            (RequestState::Done { term, leader, .. }, _) => {
                output::say(format_args!("{leader} leads {} in term {term} already", self.job));
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
        match state {
            RequestState::Done { term, leader, .. } => {
                output::print(format_args!("{leader} leads {} in term {term}", self.job))
            }
            _ => output::print(&self.filed.which.name),
        }
    }

    /// What was asked for may have come about before the elector looked at the request.
    async fn refused(&self, reason: &str, how: Output) -> Result<(), Error> {
        let snapshot = self.operator.observer().await?.snapshot(&self.paths).await?;
        match leads_already(&self.filed.request, &snapshot) {
            Some(leader) => report_leader(&self.job, leader, how),
            None => Err(self.failed(reason)),
        }
    }

    /// One that has expired may go well another time.
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

    /// Never 'failed': the move may still be made.
    fn goes_on(&self, last: String) -> Error {
        Error::NotNow(format!(
            "request {} is still open: {last}; don't repeat it, follow it with `{}`",
            self.filed.which.name,
            self.how_to_follow()
        ))
    }
}
