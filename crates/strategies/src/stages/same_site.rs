use election_core::{record::MemberRecord, strategy::Round};

use super::failed;
use crate::stage::{Comparison, Standing};

/// After a failure: prefers the failed leader's site, for moving to another one
/// costs more than a restart beside it.
///
/// Where the cause is no failure, all are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct SameSite;

impl SameSite {
    /// The name of the stage.
    pub const NAME: &'static str = "same-site";
}

impl Comparison for SameSite {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        i64::from(failed(round).is_some_and(|failed| failed.site != candidate.site))
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        match failed(round) {
            Some(failed) if failed.site == candidate.site => {
                format!("stays in the failed leader's site ({})", failed.site)
            }
            Some(failed) => format!("leaves the failed leader's site ({})", failed.site),
            None => "no leader failed".to_owned(),
        }
    }

    fn speaks_when_tied(&self, _: &MemberRecord, round: &Round<'_>) -> bool {
        failed(round).is_some()
    }
}

#[cfg(test)]
mod tests {
    use election_core::record::Cause;

    use super::*;
    use crate::{
        Pipeline,
        support::{View, member, order, previous},
    };

    #[test]
    fn the_same_site_goes_first_after_every_failure_and_only_then() {
        for cause in Cause::ALL {
            let view = View {
                cause,
                failed: Some(previous("w-0", "west", 0)),
                ..View::of([member("e-1", "east", 1), member("w-1", "west", 2)])
            };
            let expected = if cause.is_failure() {
                [
                    "w-1: stays in the failed leader's site (west)",
                    "e-1: leaves the failed leader's site (west)",
                ]
            } else {
                ["e-1: first by member id", "w-1: second by member id"]
            };
            assert_eq!(order(&Pipeline::new().compare(SameSite), &view), expected);
        }
    }
}
