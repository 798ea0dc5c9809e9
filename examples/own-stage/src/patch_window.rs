use std::time::Duration;

use election_core::strategy::{MemberRecord, Round, SiteId, Windows, utc};
use serde::Deserialize;
use strategies::{Comparison, Filter, OwnStage, Standing, settings::duration};

/// Ranks members whose hosts are being patched, or soon will be, behind the others: such a host may restart at any
/// time.
///
/// A host's worker publishes the times in an attribute: a window such as `Sun 02:00-04:00`, in UTC, or several windows
/// separated by semicolons.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct PatchWindow {
    attribute: String,
    /// How long before a window opens the member already counts as in it.
    #[serde(deserialize_with = "duration")]
    ahead: Duration,
    /// Whether such a member can't lead at all.
    refuse: bool,
}

impl Default for PatchWindow {
    fn default() -> Self {
        Self { attribute: "patch_window".to_owned(), ahead: Duration::ZERO, refuse: false }
    }
}

/// The state of a host's windows.
enum Patched {
    Never,
    /// Its attribute is not a window.
    Unknown,
    /// Now, until then if the window ever ends; milliseconds since the Unix epoch.
    Until(Option<u64>),
    /// Soon, from then on.
    Soon(u64),
    /// Not before then.
    Later(u64),
}

impl PatchWindow {
    /// The name of the stage.
    pub const NAME: &'static str = "patch-window";

    /// The stage of a policy, with these settings.
    ///
    /// # Errors
    /// None.
    pub fn stage(self, _: &[SiteId]) -> Result<OwnStage, String> {
        Ok(if self.refuse { OwnStage::both(self) } else { OwnStage::comparison(self) })
    }

    fn patched(&self, candidate: &MemberRecord, round: &Round<'_>) -> Patched {
        // The clock is the round's: a stage with another clock would not be a pure function.
        let now = round.unix_ms;
        let Some(text) = candidate.attributes.get(&self.attribute) else { return Patched::Never };
        let texts: Vec<_> = text.split(';').map(str::trim).collect();
        let Ok(windows) = Windows::read(&texts) else { return Patched::Unknown };
        let opens = windows.open_from(now);
        let ahead = u64::try_from(self.ahead.as_millis()).unwrap_or(u64::MAX);
        match opens - now {
            0 => Patched::Until(windows.changes_after(now)),
            wait if wait <= ahead => Patched::Soon(opens),
            _ => Patched::Later(opens),
        }
    }

    fn describe(&self, candidate: &MemberRecord, round: &Round<'_>) -> String {
        match self.patched(candidate, round) {
            Patched::Never => format!("no {}", self.attribute),
            Patched::Unknown => format!("its {} is no window", self.attribute),
            Patched::Until(Some(end)) => format!("patched until {}", utc(end)),
            Patched::Until(None) => "patched at any time".to_owned(),
            Patched::Soon(start) => format!("patched soon: {}", utc(start)),
            Patched::Later(start) => format!("not patched before {}", utc(start)),
        }
    }

    fn is_poor(&self, candidate: &MemberRecord, round: &Round<'_>) -> bool {
        matches!(self.patched(candidate, round), Patched::Unknown | Patched::Until(_) | Patched::Soon(_))
    }
}

impl Comparison for PatchWindow {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        i64::from(self.is_poor(candidate, round))
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        self.describe(candidate, round)
    }
}

/// With `refuse`. Its ground passes by itself (`Ground::State`, the default): a leader in its window is replaced with
/// the delay of any move to a better member.
impl Filter for PatchWindow {
    fn refuse(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<String> {
        self.is_poor(candidate, round).then(|| self.describe(candidate, round))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use election_core::strategy::{Cause, Strategy};
    use strategies::{
        spec::Inputs,
        testing::{View, member, order, refused, with_attributes},
    };

    use super::*;

    /// A policy with this as the settings of the stage.
    fn policy(settings: &str) -> Result<Arc<dyn Strategy>, String> {
        let text =
            format!("auto_moves = 'all'\npipeline = [{{ stage = 'patch-window'{settings} }}, 'incumbent']");
        let entries = toml::from_str(&text).map_err(|error| error.to_string())?;
        let read = crate::registry().unwrap().read(&entries, Inputs::default());
        read.map(|spec| spec.strategy()).map_err(|error| error.to_string())
    }

    fn patched(id: &str, number: u32, window: &str) -> MemberRecord {
        with_attributes(id, "east", number, [("patch_window", window)])
    }

    /// It is Thursday, 14:30.
    #[test]
    fn whose_host_is_patched_goes_last() {
        let view = View::of([
            patched("a", 1, "Thu 14:00-16:00"),
            patched("b", 2, "Sun 02:00-04:00; Wed 02:00-04:00"),
            patched("c", 3, "00:00-24:00"),
            patched("d", 4, "on Sundays"),
            member("e", "east", 5),
        ]);
        let expected = [
            "b: not patched before 2026-11-08T02:00:00Z; first by member id",
            "e: no patch_window; second by member id",
            "a: patched until 2026-11-05T16:00:00Z; first by member id",
            "c: patched at any time; second by member id",
            "d: its patch_window is no window; third by member id",
        ];
        assert_eq!(order(&*policy("").unwrap(), &view), expected);
    }

    #[test]
    fn leadership_goes_before_the_window_opens() {
        let view = View::of([patched("a", 1, "15:00-16:00"), patched("b", 2, "Sun 02:00-04:00")])
            .led_by("a")
            .because(Cause::BetterCandidate);
        let first = |settings: &str| order(&*policy(settings).unwrap(), &view)[0].clone();
        assert_eq!(first(", ahead = '29m'"), "a: incumbent");
        assert_eq!(first(", ahead = '30m'"), "b: not patched before 2026-11-08T02:00:00Z");
    }

    #[test]
    fn it_can_put_out_who_is_patched() {
        let view = View::of([patched("a", 1, "Thu 14:00-16:00"), member("b", "east", 2)]);
        let strategy = policy(", refuse = true").unwrap();
        assert_eq!(order(&*strategy, &view), ["b: the only candidate"]);
        assert_eq!(refused(&*strategy, &view), ["a (patch-window): patched until 2026-11-05T16:00:00Z"]);
    }

    #[test]
    fn its_settings_are_checked() {
        let error = policy(", ahead = 'soon', attributes = 'x'").unwrap_err();
        assert!(
            error.contains(
                "pipeline[0].ahead: expected a duration such as \"500us\" or \"2ms\", found \"soon\""
            ),
            "{error}"
        );
        assert!(error.contains("valid here: stage, attribute, ahead, refuse"), "{error}");
    }
}
