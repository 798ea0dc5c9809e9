//! `switchover` and `failover`.

use std::time::Duration;

use clap::Args;
use election_core::{
    config::{MemberId, SiteId},
    internals::record::{AdminRequest, RequestKind, Target},
};

use super::job::OneLeader;
use crate::{
    commands::{
        operation::{Ask, Author, Election, Operation},
        plan,
        requested::Moved,
    },
    error::Error,
    wall::unix_ms,
};

/// Move leadership from a living leader to a fit member.
#[derive(Debug, Args)]
pub(super) struct Switchover {
    #[command(flatten)]
    wanted: Wanted,
    /// Plan it for this time.
    ///
    /// RFC 3339 (2026-11-26T02:30:00+01:00), the next HH:MM in UTC, or a delay (+30m). The elector's clock decides.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["wait", "dry_run"])]
    at: Option<String>,
    /// How late it may begin [default: 5m].
    #[arg(long, value_name = "DURATION", requires = "at", value_parser = humantime::parse_duration)]
    within: Option<Duration>,
}

/// Move leadership even if the leader or the elector is down.
#[derive(Debug, Args)]
pub(super) struct Failover {
    #[command(flatten)]
    wanted: Wanted,
    /// Replace a leader that does not stop in time.
    ///
    /// The leader is asked to stop, and has its stop budget for that. A leader that is frozen or cut off has not stopped
    /// then: two may act, and the job's resource must check fencing tokens.
    #[arg(long)]
    force: bool,
    /// With --force: do not wait for the leader to stop.
    ///
    /// Two act until the leader has stopped.
    #[arg(long, requires = "force")]
    now: bool,
}

/// A requested move of leadership.
#[derive(Debug, Args)]
struct Wanted {
    /// Member that should lead [default: the best other].
    #[arg(long, value_name = "MEMBER", conflicts_with = "to_site")]
    to: Option<MemberId>,
    /// Site that should lead.
    #[arg(long, value_name = "SITE")]
    to_site: Option<SiteId>,
    #[command(flatten)]
    from: OneLeader,
    /// Also allow a member that the stage `limit` excludes.
    ///
    /// The loss is accepted, and recorded.
    #[arg(long)]
    accept_loss: bool,
}

impl Wanted {
    fn request(&self, kind: RequestKind, force: bool, author: Author<'_>) -> AdminRequest {
        let (to, site) = (self.to.clone(), self.to_site.clone());
        let to = to.map(Target::Member).or(site.map(Target::Site)).unwrap_or(Target::Any);
        let mut request = author.request(kind, self.from.outgoing());
        (request.to, request.force, request.accept_loss) = (to, force, self.accept_loss);
        request
    }
}

impl Switchover {
    fn request(&self, author: Author<'_>) -> Result<AdminRequest, Error> {
        let request = self.wanted.request(RequestKind::Switchover, false, author);
        match &self.at {
            Some(at) => plan::plan(request, at, self.within, unix_ms()),
            None => Ok(request),
        }
    }
}

impl Operation for Switchover {
    type Outcome = Moved;

    fn check(&self) -> Result<(), Error> {
        self.request(Author { by: "", reason: None }).map(drop)
    }

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Moved>, Error> {
        Ok(Ask::Request(self.request(of.author)?))
    }
}

impl Failover {
    fn request(&self, author: Author<'_>) -> AdminRequest {
        let mut request = self.wanted.request(RequestKind::Failover, self.force, author);
        request.now = self.now;
        request
    }
}

impl Operation for Failover {
    type Outcome = Moved;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Moved>, Error> {
        Ok(Ask::Request(self.request(of.author)))
    }
}

#[cfg(test)]
mod tests {
    use election_core::internals::record::{Outgoing, RequestState};

    use super::*;
    use crate::commands::operation::{Declared, MOVE, Takes};

    fn read<T: Operation>(words: &[&str]) -> T {
        let declared = Declared::of::<T>("x", MOVE, Takes { dry_run: true, wait: Some(""), ..Takes::ORDER });
        let matches = declared.full_command().no_binary_name(true).try_get_matches_from(words).unwrap();
        T::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn arguments_become_a_request() {
        let request_of =
            |words: &[&str]| read::<Switchover>(words).request(Author { by: "ann", reason: None }).unwrap();
        let plain = request_of(&[]);
        assert_eq!((plain.to, plain.from, plain.by.as_str()), (Target::Any, Outgoing::Only, "ann"));
        let to = request_of(&["--to=west-1", "--slot=1", "--accept-loss"]);
        assert_eq!(to.to, Target::Member(MemberId::new("west-1").unwrap()));
        assert_eq!((to.from, to.accept_loss), (Outgoing::Slot(1), true));
        let planned = request_of(&["--at=+30m", "--within=10m"]);
        assert!(matches!(planned.state, RequestState::Planned { .. }), "{planned:?}");
        assert_eq!(planned.valid_for(), Duration::from_secs(600));
        let forced = read::<Failover>(&["--to-site=west", "--force", "--now"])
            .request(Author { by: "ann", reason: None });
        assert!(forced.force && forced.now && forced.to == Target::Site(SiteId::new("west").unwrap()));
    }
}
