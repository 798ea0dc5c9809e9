//! `assert`: whether a fencing token is that of the current leadership.

use election_core::internals::record::{Current, Status};
use serde_json::json;

use super::output::{self, Output};
use crate::{commands::Operator, config::Sources, error::Error};

/// `assert`
#[derive(Debug, clap::Args)]
pub(super) struct AssertArguments {
    /// Fencing token to check.
    #[arg(long, value_name = "TOKEN")]
    token: u64,
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
}

pub(super) async fn assert(arguments: &AssertArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    Operator::with(sources, async |operator| check(operator, arguments, how).await).await
}

async fn check(operator: &Operator, arguments: &AssertArguments, how: Output) -> Result<(), Error> {
    let job = operator.one(arguments.job.as_deref()).await?;
    let token = arguments.token;
    let snapshot = operator.observer().await?.snapshot(&operator.paths(&job)?).await?;
    let leaders: Vec<_> = (0..snapshot.leader_znodes.len())
        .filter_map(|slot| Some((&snapshot.leader_znode(slot)?.record, snapshot.fencing_token(slot)?)))
        .collect();
    match verdict(&leaders, token) {
        // In a script the exit code is the answer.
        Verdict::Holds(_) if how == Output::Pretty => Ok(()),
        Verdict::Holds(Current { member, site, term, .. }) => output::print_json(
            &json!({ "election": job, "token": token, "leader": member, "site": site, "term": term }),
        ),
        Verdict::Not(why) => {
            Err(Error::Failed(format!("{job}: {token} is not the token of the leader: {why}")))
        }
        Verdict::NotNow(why) => Err(Error::NotNow(format!("{job}: {why}, so {token} can't be confirmed"))),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict<'a> {
    /// It is the token of this READY leader.
    Holds(&'a Current),
    /// It is not, and will not be.
    Not(String),
    /// No member is READY with it; that may change.
    NotNow(String),
}

/// What is true of a token, by the leader znodes and their tokens.
fn verdict<'a>(leaders: &[(&'a Current, u64)], token: u64) -> Verdict<'a> {
    let (ready, others): (Vec<_>, Vec<_>) = leaders.iter().partition(|(l, _)| l.status == Status::Ready);
    let own =
        |leaders: &[&(&'a Current, u64)]| leaders.iter().find(|(_, its)| *its == token).map(|(l, _)| *l);
    if let Some(leader) = own(&ready) {
        return Verdict::Holds(leader);
    }
    if let Some(next) = own(&others) {
        return Verdict::NotNow(format!("{} is taking over with this token, but not READY yet", next.member));
    }
    let name = |(leader, its): &(&Current, u64)| format!("{} has {its}", leader.member);
    if !ready.is_empty() {
        return Verdict::Not(ready.iter().map(|leader| name(leader)).collect::<Vec<_>>().join(", "));
    }
    // Tokens only grow.
    match others.iter().find(|(_, its)| *its > token) {
        Some(newer) => Verdict::Not(format!("{}, and is taking over", name(newer))),
        None => Verdict::NotNow("no member is READY".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::phases::tests::leader, *};

    fn is_ready(leaders: &[(&str, &str, u64)], token: u64) -> Option<bool> {
        let leaders: Vec<_> =
            leaders.iter().map(|(member, status, token)| (leader(member, 1, status), *token)).collect();
        let leaders: Vec<_> = leaders.iter().map(|(leader, token)| (leader, *token)).collect();
        match verdict(&leaders, token) {
            Verdict::Holds(_) => Some(true),
            Verdict::Not(_) => Some(false),
            Verdict::NotNow(_) => None,
        }
    }

    #[test]
    fn only_the_token_of_a_ready_leader_holds() {
        let ready = [("a", "READY", 10)];
        assert_eq!([9, 10, 11].map(|token| is_ready(&ready, token)), [Some(false), Some(true), Some(false)]);
        // A leader that takes over has its token already; older ones are never valid again.
        let takes_over = [("a", "PROGRESS", 10)];
        assert_eq!([9, 10, 11].map(|token| is_ready(&takes_over, token)), [Some(false), None, None]);
        assert_eq!(is_ready(&[], 10), None);
        // One of two slots.
        let both = [("a", "READY", 10), ("b", "PROGRESS", 20)];
        assert_eq!(
            [5, 10, 15, 20].map(|token| is_ready(&both, token)),
            [Some(false), Some(true), Some(false), None]
        );
    }
}
