//! The stages, one file each.
//!
//! | stage | kind | rule |
//! |---|---|---|
//! | [`Healthy`] | filter | the member reports itself fit, or has no health check |
//! | [`Priority`] | filter, comparison | 0 or less never leads; higher goes first |
//! | [`NotExcluded`] | filter | no exclusion of its ballot is in force |
//! | [`SiteHealthy`] | filter | its site has not failed as a whole, nor too often recently |
//! | [`SiteOpen`] | filter | its site is not drained, and it is not being serviced |
//! | [`SiteAllowed`] | filter | its site is none of those that the policy forbids |
//! | [`SiteMinimum`] | filter, comparison | sites with enough fit members before those with too few, or only those |
//! | [`Hours`] | comparison | sites within their hours before those outside |
//! | [`SiteOrder`] | comparison | the sites in order, the operators' preferred one before them |
//! | [`Spread`] | comparison | fewer leaders of other slots in its site |
//! | [`OtherSite`] | comparison | another site than the failed leader's, if there is one |
//! | [`SameSite`] | comparison | the failed leader's site, if a member is left there |
//! | [`FailedLast`] | comparison | the incarnation that failed comes last |
//! | [`FewerFailures`] | comparison | after a failure: fewer recent failures first |
//! | [`Incumbent`] | comparison | the elected or leading member first |
//! | [`OldestBallot`] | comparison | the member that joined first |
//! | [`YoungestBallot`] | comparison | the member that joined last |
//! | [`Class`] | filter, comparison | prefer, neutral, avoid, never: by an attribute |
//! | [`Software`] | filter, comparison | the newest or the oldest version first |
//! | [`Score`] | filter, comparison | weighted attributes |
//! | [`Latency`] | comparison | the nearest to a majority, to targets, .. |
//! | [`Limit`] | filter | no loss above a limit, unless an operator accepts it |
//! | [`WithJob`] | filter, comparison | beside the leader of another job, or apart from it |
//! | [`Capacity`] | comparison | members with room for the job besides the others that they lead |
//! | [`Share`] | comparison | a lot drawn for each election: even shares of many |
//! | [`RoundRobin`] | comparison | the next one after the last leader |
//!
//! Every [`Pipeline`](crate::Pipeline) ends with the member id, lowest first.

mod ballot_age;
mod capacity;
mod class;
mod failed_last;
mod fewer_failures;
mod healthy;
mod hours;
mod incumbent;
mod latency;
mod limit;
pub(crate) mod member_id;
mod not_excluded;
mod other_site;
mod priority;
mod round_robin;
mod same_site;
mod score;
mod share;
mod site_allowed;
mod site_healthy;
mod site_minimum;
mod site_open;
mod site_order;
mod software;
mod spread;
mod with_job;

pub use ballot_age::{OldestBallot, YoungestBallot};
pub use capacity::Capacity;
pub use class::Class;
pub use failed_last::FailedLast;
pub use fewer_failures::FewerFailures;
pub use healthy::Healthy;
pub use hours::Hours;
pub use incumbent::Incumbent;
pub use latency::{Distance, Latency};
pub use limit::Limit;
pub use not_excluded::NotExcluded;
pub use other_site::OtherSite;
pub use priority::Priority;
pub use round_robin::RoundRobin;
pub use same_site::SameSite;
pub use score::{Missing, Score, ScoreError, Term};
pub use share::Share;
pub use site_allowed::SiteAllowed;
pub use site_healthy::SiteHealthy;
pub(crate) use site_minimum::MAX as MAX_SITE_MINIMUM;
pub use site_minimum::{Minimum, SiteMinimum};
pub use site_open::SiteOpen;
pub use site_order::SiteOrder;
pub use software::{FirstVersion, Software, Version};
pub use spread::Spread;
pub use with_job::{Strength, WithJob, Within};

use election_core::strategy::{Cause, Ground, MemberRecord, Previous, Round, SiteId};

/// Whether this member is elected or leads.
pub(crate) fn is_incumbent(candidate: &MemberRecord, round: &Round<'_>) -> bool {
    round.incumbent == Some(&candidate.ballot)
}

/// Whether a stage that starts no move lets the [`Incumbent`] go first.
fn keeps(round: &Round<'_>) -> bool {
    matches!(round.cause, Cause::BetterCandidate | Cause::TokensRaised)
}

/// The leader that failed, if the cause is a failure. Otherwise a former leader is not avoided.
fn failed<'a>(round: &Round<'a>) -> Option<&'a Previous> {
    round.failed.filter(|_| round.cause.is_failure())
}

/// The ground of a refusal by an attribute: configuration or measurement.
fn said_by(candidate: &MemberRecord, attribute: &str) -> Ground {
    if candidate.measured.contains(attribute) { Ground::State } else { Ground::Order }
}

/// Whether no member of this site is elected at present.
fn is_closed(site: &SiteId, round: &Round<'_>) -> bool {
    round.control.drained.contains(site)
        || round.trouble.failed_sites.iter().any(|failed| failed.site == *site)
}
