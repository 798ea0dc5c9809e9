//! `restart`, `stop` and `start`: requests about the job, which its leader carries out and answers, or about a standby.

use clap::Args;
use election_core::{
    config::MemberId,
    internals::record::{Outgoing, RequestKind},
};

use crate::{
    commands::{
        operation::{Ask, Election, Operation},
        requested::{Filed, Halted},
    },
    error::Error,
};

/// Restart the job on its leader, or a standby; leadership stays.
#[derive(Debug, Args)]
pub(super) struct Restart {
    #[command(flatten)]
    from: OneLeader,
    /// Member whose standby is restarted instead.
    #[arg(long, value_name = "MEMBER", conflicts_with_all = ["from", "slot"])]
    standby: Option<MemberId>,
}

/// The leader that a request is about.
#[derive(Debug, Args)]
pub(super) struct OneLeader {
    /// Leader that it is about, where there are several.
    #[arg(long, value_name = "MEMBER", conflicts_with = "slot")]
    from: Option<MemberId>,
    /// Slot whose leader it is about, counted from 0.
    #[arg(long, value_name = "SLOT")]
    slot: Option<usize>,
}

impl OneLeader {
    pub(super) fn outgoing(&self) -> Outgoing {
        match (&self.from, self.slot) {
            (Some(member), _) => Outgoing::Member(member.clone()),
            (None, Some(slot)) => Outgoing::Slot(slot),
            (None, None) => Outgoing::Only,
        }
    }
}

/// Stop the job, or a standby, until `start`.
#[derive(Debug, Args)]
pub(super) struct Stop {
    /// Member whose standby is stopped instead.
    #[arg(long, value_name = "MEMBER")]
    standby: Option<MemberId>,
}

/// Start a stopped job on its leader, or a stopped standby.
#[derive(Debug, Args)]
pub(super) struct Start {
    /// Member whose standby is started instead.
    #[arg(long, value_name = "MEMBER")]
    standby: Option<MemberId>,
}

/// A request about the standby of this member, or about the job.
fn of_standby_or<'a, T>(
    of: &Election<'a>,
    standby: &Option<MemberId>,
    about_standby: RequestKind,
    about_job: (RequestKind, Outgoing),
) -> Ask<'a, T> {
    let (kind, outgoing) = match standby {
        Some(member) => (about_standby, Outgoing::Member(member.clone())),
        None => about_job,
    };
    Ask::Request(of.author.request(kind, outgoing))
}

impl Operation for Restart {
    type Outcome = Filed;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Filed>, Error> {
        let about_job = (RequestKind::Restart, self.from.outgoing());
        Ok(of_standby_or(of, &self.standby, RequestKind::RestartStandby, about_job))
    }
}

impl Operation for Stop {
    type Outcome = Halted;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Halted>, Error> {
        Ok(of_standby_or(of, &self.standby, RequestKind::StopStandby, (RequestKind::Stop, Outgoing::Only)))
    }
}

impl Operation for Start {
    type Outcome = Halted;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Halted>, Error> {
        Ok(of_standby_or(of, &self.standby, RequestKind::StartStandby, (RequestKind::Start, Outgoing::Only)))
    }
}
