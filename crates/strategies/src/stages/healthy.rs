use election_core::{
    record::{Health, MemberRecord},
    strategy::Round,
};

use crate::{stage::Filter, words};

/// Puts out who says of itself that it is not fit to lead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Healthy;

impl Healthy {
    /// The name of the stage.
    pub const NAME: &'static str = "healthy";
}

impl Filter for Healthy {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn refuse(&self, candidate: &MemberRecord, _: &Round<'_>) -> Option<String> {
        match &candidate.health {
            Health::Healthy | Health::Unknown => None,
            Health::Unhealthy { reason } => Some(match words::quote(reason) {
                reason if reason.is_empty() => "unhealthy, it doesn't say why".to_owned(),
                reason => format!("unhealthy: {reason}"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{View, member, unhealthy};

    #[test]
    fn who_is_unhealthy_is_out_with_its_own_words() {
        let cases = [
            (member("east-1", "east", 1), None),
            (unhealthy("east-1", "east", 1, "disk\nfull"), Some("unhealthy: disk full")),
            (unhealthy("east-1", "east", 1, " "), Some("unhealthy, it doesn't say why")),
        ];
        for (candidate, refusal) in cases {
            let got = Healthy.refuse(&candidate, &View::default().round());
            assert_eq!(got.as_deref(), refusal, "{candidate:?}");
        }
    }
}
