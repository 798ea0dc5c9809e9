//! Stages and strategies of another crate in a policy.

use std::{collections::BTreeMap, fmt};

use super::{
    Inputs, Needs,
    foreign::{OwnStage, OwnStrategy},
    reader::{Factory, Table, word},
    value::Value,
};
use crate::Pipeline;

/// The product of a factory and its settings. Two are equal if name and settings are.
#[derive(Clone)]
pub(super) struct Own<T> {
    pub(super) name: &'static str,
    settings: BTreeMap<String, Value>,
    made: T,
}

impl<T> PartialEq for Own<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.name, &self.settings) == (other.name, &other.settings)
    }
}

/// Without the product: the fingerprint of a policy uses this, and must not depend on addresses.
impl<T> fmt::Debug for Own<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").field("name", &self.name).field("settings", &self.settings).finish()
    }
}

/// The product of a factory.
pub(super) trait Made {
    /// Its kind in messages.
    const KIND: &'static str;
    /// The key that names it in its table.
    const KEY: &'static str;

    fn needs(&self) -> &Needs;

    /// A name of its own that differs from the registered one.
    fn other_name(&self, name: &str) -> Option<&'static str>;
}

impl Made for OwnStage {
    const KIND: &'static str = "stage";
    const KEY: &'static str = "stage";

    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn other_name(&self, name: &str) -> Option<&'static str> {
        self.names().find(|own| *own != name)
    }
}

impl Made for OwnStrategy {
    const KIND: &'static str = "strategy";
    const KEY: &'static str = "name";

    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn other_name(&self, _: &str) -> Option<&'static str> {
        None
    }
}

impl<T: Made> Own<T> {
    pub(super) fn needs(&self) -> &Needs {
        self.made.needs()
    }

    /// Lets the factory read its settings, and checks the product.
    pub(super) fn make(name: &'static str, factory: &Factory<T>, table: &mut Table<'_, '_>) -> Option<Self> {
        let before = table.findings.wrong.len();
        let kind = T::KIND;
        let Some(made) = factory(table) else {
            if table.findings.wrong.len() == before {
                table.findings.say(format!("the {kind} {name:?} cannot be built from these settings"));
            }
            return None;
        };
        if let Some(other) = made.other_name(name) {
            let message = format!("the {kind} {name:?} has the name {other:?}; register it under that name");
            table.findings.say(message);
        }
        if let Some(missing) = missing(made.needs(), &table.findings.inputs) {
            let message = format!("{name:?} cannot be used here: {missing}; leave it out");
            table.findings.say(message);
        }
        let mut settings = table.entries().clone();
        settings.remove(T::KEY);
        Some(Self { name, settings, made })
    }
}

impl Own<OwnStage> {
    pub(super) fn add(&self, pipeline: Pipeline) -> Pipeline {
        pipeline.with(self.made.filter.clone(), self.made.comparison.clone())
    }

    /// Whether it is only a filter.
    pub(super) fn is_filter(&self) -> bool {
        self.made.comparison.is_none()
    }
}

impl Own<OwnStrategy> {
    /// Reads the name of a strategy, or a table with it as `name` and with its settings.
    pub(super) fn read(value: &Value, findings: &mut super::Findings) -> Option<Self> {
        let empty = BTreeMap::new();
        let entries = match value {
            Value::Text(_) => &empty,
            Value::Table(entries) => entries,
            other => {
                let found = other.found();
                findings.say(format!(
                    "expected the name of a strategy, or a table with it as \"name\", found {found}"
                ));
                return None;
            }
        };
        Table::read(entries, findings, |table| {
            let known = match value {
                Value::Text(_) => Self::factory(value, table.findings),
                _ => {
                    table.require(OwnStrategy::KEY, "the name of the strategy");
                    table.with(OwnStrategy::KEY, Self::factory)
                }
            };
            let Some((name, factory)) = known else {
                // Its settings cannot be checked.
                table.leave_rest();
                return None;
            };
            Self::make(name, &factory, table)
        })
    }

    fn factory(name: &Value, findings: &mut super::Findings) -> Option<(&'static str, Factory<OwnStrategy>)> {
        let strategies = findings.registered.strategies.clone();
        if strategies.is_empty() {
            findings.say("this program has no strategies of its own; leave it out");
            return None;
        }
        let words: Vec<_> = strategies.keys().map(|name| (*name, *name)).collect();
        let name = word(name, findings, &words)?;
        Some((name, strategies.get(name)?.clone()))
    }

    pub(super) fn rank(&self, pipeline: Pipeline) -> Pipeline {
        pipeline.ranked_by(self.name, self.made.strategy.clone())
    }
}

/// A need that no member publishes.
fn missing(needs: &Needs, inputs: &Inputs) -> Option<&'static str> {
    if (needs.peers || needs.zookeeper || !needs.targets.is_empty()) && inputs.round_trips.is_none() {
        return Some("no member publishes its round trips");
    }
    if !needs.limited.is_empty() && !inputs.measured {
        return Some("no member publishes what it measures");
    }
    ((!needs.jobs.is_empty() || needs.load) && !inputs.jobs)
        .then_some("no member publishes which other jobs it leads")
}
