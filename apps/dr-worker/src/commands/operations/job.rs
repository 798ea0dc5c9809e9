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

/// Stop the job, wherever leadership goes, until `start`.
#[derive(Debug, Args)]
pub(super) struct Stop {}

/// Start a stopped job on its leader.
#[derive(Debug, Args)]
pub(super) struct Start {}

impl Operation for Restart {
    type Outcome = Filed;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Filed>, Error> {
        Ok(Ask::Request(match &self.standby {
            Some(member) => of.author.request(RequestKind::RestartStandby, Outgoing::Member(member.clone())),
            None => of.author.request(RequestKind::Restart, self.from.outgoing()),
        }))
    }
}

impl Operation for Stop {
    type Outcome = Halted;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Halted>, Error> {
        Ok(Ask::Request(of.author.request(RequestKind::Stop, Outgoing::Only)))
    }
}

impl Operation for Start {
    type Outcome = Halted;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Halted>, Error> {
        Ok(Ask::Request(of.author.request(RequestKind::Start, Outgoing::Only)))
    }
}
