use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    config::{Effect, KeyChange},
    schema::Object,
};

/// What became of a reload of the configuration.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(in crate::worker) struct Reload {
    /// When, in milliseconds since the Unix epoch.
    pub(in crate::worker) at_ms: u64,
    /// Why it was refused. The former configuration stays in force then.
    pub(in crate::worker) problems: Vec<String>,
    /// The keys that have changed, if it was not refused.
    #[schemars(with = "Vec<Object>")]
    pub(in crate::worker) changes: Vec<KeyChange>,
    /// Why changes with the effect `handover` do not apply yet. The worker tries again by itself.
    pub(in crate::worker) waits: Option<String>,
}

impl Reload {
    /// What is still to be done about it, as a sentence without a subject.
    pub(in crate::worker) fn open(&self) -> Option<String> {
        if let Some(first) = self.problems.first() {
            let more = match self.problems.len() {
                1 => String::new(),
                all => format!(" (and {} more)", all - 1),
            };
            return Some(format!("uses the old configuration: {first}{more}"));
        }
        let keys = |effect| {
            let changes = self.changes.iter().filter(move |change| change.effect == effect);
            changes.map(|change| change.key.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (restart, handover) = (keys(Effect::WorkerRestart), keys(Effect::Handover));
        match &self.waits {
            Some(why) if !handover.is_empty() => Some(format!("does not apply {handover} yet: {why}")),
            None if !handover.is_empty() => Some(format!("applies {handover}")),
            _ => (!restart.is_empty()).then(|| format!("needs a restart for {restart}")),
        }
    }
}
