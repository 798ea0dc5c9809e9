//! `switchover` and `failover`.

use std::time::Duration;

use election_core::{
    MemberId, SiteId,
    paths::Paths,
    record::{Outgoing, Request, RequestKind, RequestState, Target},
    shell::{
        Layout,
        operator::{self, Ticket},
    },
};
use serde_json::json;
use zk_session::BootTime;

use super::{
    Output, contest,
    election::{Operator, asker},
    list::{outgoing, target},
    output,
};
use crate::{config::Sources, error::Error};

/// How long a failover waits for the elector before it is carried out from here.
const PATIENCE: Duration = Duration::from_secs(5);

/// What both kinds of move take.
#[derive(Debug, clap::Args)]
pub(super) struct Move {
    /// Of which job; the only one by default.
    #[arg(long, value_name = "JOB")]
    pub(super) job: Option<String>,
    /// Who should lead; the best other member by default.
    #[arg(long, value_name = "MEMBER", conflicts_with = "to_site")]
    to: Option<MemberId>,
    /// Where it should be led from.
    #[arg(long, value_name = "SITE")]
    to_site: Option<SiteId>,
    /// Which leader is to be replaced, where there are several.
    #[arg(long, value_name = "MEMBER", conflicts_with = "slot")]
    from: Option<MemberId>,
    /// The leader of which slot is to be replaced, counted from 0.
    #[arg(long, value_name = "SLOT")]
    slot: Option<usize>,
    /// Why, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Wait until the new leader is ready, or it is certain that there will be none.
    #[arg(long)]
    pub(super) wait: bool,
    /// How long to wait [default: as long as the policy gives all phases of a move].
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
    /// Take leadership from a leader that won't let go. Two may act for a moment, so what the job
    /// writes to must check fencing tokens.
    #[arg(long)]
    force: bool,
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
    let request = operator::new_request(kind, from, to, force, wanted.reason.clone(), asker());
    let result = carry_out(&operator, wanted, &request, how).await;
    operator.close().await;
    result
}

/// A request on its way.
struct Underway<'a> {
    operator: &'a Operator,
    job: String,
    paths: Paths,
    ticket: Ticket,
    request: &'a Request,
}

async fn carry_out(operator: &Operator, wanted: &Move, request: &Request, how: Output) -> Result<(), Error> {
    let job = operator.one(wanted.job.as_deref()).await?;
    let paths = operator.paths(&job)?;
    match operator.observer().await?.layout(&paths).await? {
        None | Some(Layout::Elector) => {}
        Some(layout) => return contest::move_on(operator, &job, &paths, layout, wanted, request, how).await,
    }
    let ticket = operator::ask(&operator.session, &paths, request).await?;
    let underway = Underway { operator, job, paths, ticket, request };
    underway.say_asked(wanted.wait);
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        result = underway.see_through(wanted, how) => result,
        () = interrupted => Err(underway.goes_on("stopped waiting".to_owned())),
    }
}

impl Underway<'_> {
    fn say_asked(&self, waits: bool) {
        output::say(format_args!(
            "request {}: {} of {}{}{}",
            self.ticket.name,
            self.request.kind.as_str(),
            self.job,
            outgoing(&self.request.from),
            target(&self.request.to)
        ));
        if !waits {
            output::say(format_args!("follow it with `{}`", self.how_to_follow()));
        }
    }

    fn how_to_follow(&self) -> String {
        format!("dr-worker list --job {} --watch", self.job)
    }

    async fn see_through(&self, wanted: &Move, how: Output) -> Result<(), Error> {
        let begun = BootTime::now();
        let mut last = None;
        if self.request.kind == RequestKind::Failover {
            let decided = self.until_decided(begun + PATIENCE).await?;
            if matches!(decided.as_ref().map(|r| &r.state), None | Some(RequestState::Pending)) {
                self.carry_out_here().await?;
            }
            last = decided;
        }
        if !wanted.wait {
            return match last.map(|r| r.state) {
                Some(RequestState::Failed { reason, .. }) => Err(self.failed(&reason)),
                state => self.report_begun(&state.unwrap_or(RequestState::Pending), how),
            };
        }
        let timeout = wanted.timeout.unwrap_or_else(|| self.longest_move());
        self.until_done(begun + timeout, how).await
    }

    /// As long as every phase of a move may take by the policy.
    fn longest_move(&self) -> Duration {
        let config = &self.operator.config;
        let policy = config.policy_of(&self.job);
        config.zookeeper.session_timeout
            + policy.release_timeout
            + policy.acquire_timeout
            + policy.takeover_timeout
            + operator::ELECTOR_PATIENCE
    }

    /// Waits until somebody has looked at the request.
    async fn until_decided(&self, by: BootTime) -> Result<Option<Request>, Error> {
        let observer = self.operator.observer().await?;
        loop {
            let request = observer.request(&self.paths, &self.ticket.name).await?;
            let decided = request.as_ref().is_some_and(|r| r.state != RequestState::Pending);
            if decided || BootTime::now() >= by {
                return Ok(request);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Does the elector's part, for no elector does.
    async fn carry_out_here(&self) -> Result<(), Error> {
        let snapshot = self.operator.observer().await?.snapshot(&self.paths).await?;
        let slot = snapshot.slot_for(self.request).map_err(|why| self.failed(&why))?;
        if let Some(office) = snapshot.office(slot).filter(|_| !self.request.force) {
            return Err(self.goes_on(format!(
                "no elector has looked at it, and {} still holds leadership; with --force it is taken from it",
                office.record.member
            )));
        }
        output::say("no elector answers; carrying it out from here");
        let config = self.operator.config.policy_of(&self.job);
        // What a job needs to stop is for workers to know.
        let policy = config.engine(Duration::ZERO, false);
        let strategy = config.strategy();
        operator::force(
            &self.operator.session,
            &self.paths,
            &self.ticket,
            self.request,
            &policy,
            strategy.as_ref(),
        )
        .await?;
        Ok(())
    }

    async fn until_done(&self, by: BootTime, how: Output) -> Result<(), Error> {
        let progress = |request: &Request| match &request.state {
            RequestState::Pending => output::say("waiting for the elector to look at it"),
            RequestState::Accepted { term } => {
                output::say(format_args!("decided in term {term}; waiting for the new leader to be ready"));
            }
            RequestState::Done { .. } | RequestState::Failed { .. } => {}
        };
        let session = &self.operator.session;
        let last = operator::follow(session, &self.paths, &self.ticket, by, progress).await?;
        match last.map(|r| r.state) {
            Some(state @ RequestState::Done { .. }) => self.report(&state, how),
            Some(RequestState::Failed { reason, .. }) => Err(self.failed(&reason)),
            Some(RequestState::Accepted { term }) => {
                Err(self
                    .goes_on(format!("it was decided in term {term}, and the new leader is not ready yet")))
            }
            Some(RequestState::Pending) | None => {
                Err(self.goes_on("no elector has looked at it yet".to_owned()))
            }
        }
    }

    /// For who doesn't wait: the request's id, even where the move was so quick that it is done.
    fn report_begun(&self, state: &RequestState, how: Output) -> Result<(), Error> {
        match (state, how) {
            (_, Output::Json) => self.report(state, how),
            (RequestState::Done { term, leader, .. }, _) => {
                output::say(format_args!("{leader} leads {} in term {term} already", self.job));
                output::print(&self.ticket.name)
            }
            _ => output::print(&self.ticket.name),
        }
    }

    fn report(&self, state: &RequestState, how: Output) -> Result<(), Error> {
        if how == Output::Json {
            return output::print_json(
                &json!({ "election": self.job, "request": self.ticket.name, "outcome": state }),
            );
        }
        match state {
            RequestState::Done { term, leader, .. } => {
                output::print(format_args!("{leader} leads {} in term {term}", self.job))
            }
            _ => output::print(&self.ticket.name),
        }
    }

    fn failed(&self, reason: &str) -> Error {
        Error::Failed(format!("request {}: {reason}", self.ticket.name))
    }

    /// Never 'failed': the move may still be made.
    fn goes_on(&self, last: String) -> Error {
        Error::NotNow(format!(
            "request {} is still open: {last}; don't repeat it, follow it with `{}`",
            self.ticket.name,
            self.how_to_follow()
        ))
    }
}
