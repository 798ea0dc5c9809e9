//! `restart`, `stop` and `start`: requests about the job, which its leader carries out and answers.

use clap::Args;
use election_core::{
    config::MemberId,
    internals::{
        record::{AdminRequest, Outgoing, RequestKind, Target},
        text::Text,
    },
};

use crate::{
    commands::{
        operation::{Ask, Election, HOLD, Operation, Takes},
        requested::{Filed, Halted},
    },
    error::Error,
};

/// Restart the job on its leader; leadership stays.
#[derive(Debug, Args)]
pub(super) struct Restart {
    #[command(flatten)]
    from: OneLeader,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<Text>,
}

/// The leader that a request is about.
#[derive(Debug, Default, Args)]
pub(super) struct OneLeader {
    /// Leader that it is about, where there are several.
    #[arg(long, value_name = "MEMBER", conflicts_with = "slot")]
    from: Option<MemberId>,
    /// Slot whose leader it is about, counted from 0.
    #[arg(long, value_name = "SLOT")]
    slot: Option<usize>,
}

impl OneLeader {
    pub(super) fn request(&self, kind: RequestKind, reason: &Option<Text>, by: &str) -> AdminRequest {
        let from = match (&self.from, self.slot) {
            (Some(member), _) => Outgoing::Member(member.clone()),
            (None, Some(slot)) => Outgoing::Slot(slot),
            (None, None) => Outgoing::Only,
        };
        let reason = reason.clone().map(Text::into_string);
        election_admin::new_request(kind, from, Target::Any, false, reason, by.to_owned())
    }
}

/// Stop the job, wherever leadership goes, until `start`.
#[derive(Debug, Args)]
pub(super) struct Stop {
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<Text>,
}

/// Start a stopped job on its leader.
#[derive(Debug, Args)]
pub(super) struct Start {
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<Text>,
}

const TAKES: Takes =
    Takes { yes: true, wait: Some("Wait until it is done or has failed."), ..Takes::ONE_JOB };

impl Operation for Restart {
    const VERB: &'static str = "restart";
    const HEADING: &'static str = HOLD;
    const TAKES: Takes = TAKES;
    type Outcome = Filed;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Filed>, Error> {
        Ok(Ask::Request(self.from.request(RequestKind::Restart, &self.reason, of.by)))
    }
}

impl Operation for Stop {
    const VERB: &'static str = "stop";
    const HEADING: &'static str = HOLD;
    const TAKES: Takes = TAKES;
    type Outcome = Halted;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Halted>, Error> {
        Ok(Ask::Request(OneLeader::default().request(RequestKind::Stop, &self.reason, of.by)))
    }
}

impl Operation for Start {
    const VERB: &'static str = "start";
    const HEADING: &'static str = HOLD;
    const TAKES: Takes = Takes { yes: false, ..TAKES };
    type Outcome = Halted;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Halted>, Error> {
        Ok(Ask::Request(OneLeader::default().request(RequestKind::Start, &self.reason, of.by)))
    }
}
