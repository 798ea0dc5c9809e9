use election_core::strategy::{Health, MemberRecord, Round};

use crate::{
    stage::{Filter, Stage},
    words,
};

/// Refuses members that report themselves unfit, and members whose first health check is not answered yet. The leader
/// is not refused for the latter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Healthy;

impl Stage for Healthy {
    const NAME: &'static str = "healthy";
}

impl Filter for Healthy {
    fn refuse(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<String> {
        match &candidate.health {
            Health::Healthy | Health::Unchecked => None,
            Health::Unknown => (round.incumbent != Some(&candidate.ballot))
                .then(|| "its first health check has not been answered yet".to_owned()),
            Health::Unhealthy { reason } => Some(match words::quote(reason) {
                reason if reason.is_empty() => "unhealthy without a reason".to_owned(),
                reason => format!("unhealthy: {reason}"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{View, member, unhealthy};

    #[test]
    fn who_is_unhealthy_is_out_with_its_own_words() {
        let cases = [
            (member("east-1", "east", 1), None),
            (unhealthy("east-1", "east", 1, "disk\nfull"), Some("unhealthy: disk full")),
            (unhealthy("east-1", "east", 1, " "), Some("unhealthy without a reason")),
        ];
        for (candidate, refusal) in cases {
            let got = Healthy.refuse(&candidate, &View::default().round());
            assert_eq!(got.as_deref(), refusal, "{candidate:?}");
        }
    }

    #[test]
    fn who_is_not_known_to_be_fit_is_out_unless_it_leads() {
        let with = |health| member("east-1", "east", 1).with(|m| m.health = health);
        let view = View::default();
        let refused = |health, leads: bool| {
            let candidate = with(health);
            let incumbent = leads.then_some(&candidate.ballot);
            Healthy.refuse(&candidate, &view.round().with(|round| round.incumbent = incumbent))
        };
        let why = "its first health check has not been answered yet";
        assert_eq!(refused(Health::Unknown, false).as_deref(), Some(why));
        assert_eq!(refused(Health::Unknown, true), None);
        for fit in [Health::Unchecked, Health::Healthy] {
            assert_eq!(refused(fit, false), None);
        }
    }
}
