//! The arguments that `switchover` and `failover` share.

use std::time::Duration;

use election_core::{
    config::{MemberId, SiteId},
    internals::{
        record::{AdminRequest, Outgoing, RequestKind, Target},
        text::Text,
    },
};

use super::{dry_run::DryRun, election::asker};

/// A requested move of leadership.
#[derive(Debug, clap::Args)]
pub(super) struct Move {
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB")]
    pub(super) job: Option<String>,
    /// Member that should lead [default: the best other].
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
    /// Elect also a member that the stage `limit` excludes.
    ///
    /// The loss is accepted, and recorded.
    #[arg(long)]
    pub(super) accept_loss: bool,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<Text>,
    #[command(flatten)]
    pub(super) try_only: DryRun,
    /// Wait until the new leader is ready, or it has failed.
    #[arg(long)]
    pub(super) wait: bool,
    /// How long to wait [default: the policy's timeouts].
    ///
    /// The default is the sum of those of a move.
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = humantime::parse_duration)]
    pub(super) timeout: Option<Duration>,
}

impl Move {
    /// The target of the move.
    fn target(&self) -> Target {
        match (&self.to, &self.to_site) {
            (Some(member), _) => Target::Member(member.clone()),
            (None, Some(site)) => Target::Site(site.clone()),
            (None, None) => Target::Any,
        }
    }

    /// The request for it.
    pub(super) fn request(&self, kind: RequestKind, force: bool) -> AdminRequest {
        let (from, to) = (self.outgoing(), self.target());
        let mut request = election_admin::new_request(
            kind,
            from,
            to,
            force,
            self.reason.clone().map(Text::into_string),
            asker(),
        );
        request.accept_loss = self.accept_loss;
        request
    }

    /// The leader to replace.
    fn outgoing(&self) -> Outgoing {
        match (&self.from, self.slot) {
            (Some(member), _) => Outgoing::Member(member.clone()),
            (None, Some(slot)) => Outgoing::Slot(slot),
            (None, None) => Outgoing::Only,
        }
    }
}
