use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    config::{Effect, KeyChange},
    schema::Object,
};

/// What became of a reload of the configuration.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(in crate::worker) struct Reload {
    /// When, in milliseconds since the Unix epoch.
    pub(in crate::worker) at_ms: u64,
    /// Why it was refused. The former configuration stays in force then.
    pub(in crate::worker) problems: Vec<String>,
    /// The keys that have changed, if it was not refused.
    #[schemars(with = "Vec<Object>")]
    pub(in crate::worker) changes: Vec<KeyChange>,
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
        let waiting = self.changes.iter().filter(|change| change.effect == Effect::WorkerRestart);
        let waiting: Vec<_> = waiting.map(|change| change.key.as_str()).collect();
        (!waiting.is_empty()).then(|| format!("needs a restart for {}", waiting.join(", ")))
    }
}
