//! What a policy names, with settings: stages and strategies, built-in ones and those of other crates.

use std::{collections::BTreeMap, sync::Arc};

use election_core::strategy::SiteId;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Inputs, Needs};
use crate::{
    own::{OwnStage, OwnStrategy},
    settings::{Findings, found, not_known},
};

/// A stage or a strategy of a policy. Two are equal if their names and settings are.
#[derive(Clone, Debug)]
pub(super) struct Named<T> {
    pub(super) name: &'static str,
    pub(super) settings: Map<String, Value>,
    pub(super) made: T,
}

impl<T> PartialEq for Named<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.name, &self.settings) == (other.name, &other.settings)
    }
}

/// Builds something from its settings, or reports their problems.
pub(crate) type Factory<T> = Arc<dyn Fn(&mut Settings<'_>) -> Option<T> + Send + Sync>;

/// The stages and strategies of other crates, by name.
#[derive(Clone, Default)]
pub(crate) struct Registered {
    pub(crate) stages: BTreeMap<&'static str, Factory<OwnStage>>,
    pub(crate) strategies: BTreeMap<&'static str, Factory<OwnStrategy>>,
}

/// What is known where stages are read.
pub(super) struct Known<'a> {
    pub(super) sites: &'a [SiteId],
    pub(super) inputs: Inputs,
    pub(super) registered: &'a Registered,
}

/// The settings of a stage or a strategy, on their way into a type.
pub(crate) struct Settings<'a> {
    name: &'static str,
    tag: &'static str,
    table: Value,
    pub(crate) sites: &'a [SiteId],
    pub(super) inputs: Inputs,
    findings: &'a mut Findings,
}

impl Settings<'_> {
    /// Reads them; `None` if anything is wrong.
    pub(crate) fn read<S: DeserializeOwned>(&mut self) -> Option<S> {
        let before = self.findings.problems.len();
        let settings = self.findings.read(&self.table, Some(self.tag));
        settings.filter(|_| self.findings.problems.len() == before)
    }

    pub(super) fn say_of(&mut self, key: &str, message: &str) {
        self.findings.say_of(key, message);
    }

    pub(crate) fn say(&mut self, message: impl Into<String>) {
        self.findings.say(message);
    }

    /// Refuses what needs something that no member publishes.
    pub(super) fn need(&mut self, is_published: bool, what: &str) -> Option<()> {
        if !is_published {
            self.say(format!(
                "{:?} cannot be used here: no member publishes {what}; leave it out",
                self.name
            ));
        }
        is_published.then_some(())
    }
}

/// The definition of a name, with the name.
pub(super) type Found<T> = (&'static str, Factory<T>);

/// What a policy can name.
pub(super) trait Nameable: Sized {
    /// Its kind in messages.
    const KIND: &'static str;
    /// The key that names it in its table.
    const TAG: &'static str;

    /// Finds it by a name, or reports why it is not there.
    fn find(name: &Value, known: &Known<'_>, findings: &mut Findings) -> Option<Found<Self>>;

    fn needs(&self) -> &Needs;
}

impl Nameable for OwnStrategy {
    const KIND: &'static str = "strategy";
    const TAG: &'static str = "name";

    fn find(name: &Value, known: &Known<'_>, findings: &mut Findings) -> Option<Found<Self>> {
        let all = &known.registered.strategies;
        if all.is_empty() {
            findings.say("this program has no strategies of its own; leave it out");
            return None;
        }
        let named = name.as_str().and_then(|name| all.get_key_value(name));
        if named.is_none() {
            findings.say(not_known(&found(name), all.keys()));
        }
        named.map(|(name, factory)| (*name, factory.clone()))
    }

    fn needs(&self) -> &Needs {
        &self.needs
    }
}

impl<T: Nameable> Named<T> {
    /// Reads the name, or a table with it and with settings.
    pub(super) fn read(value: &Value, known: &Known<'_>, findings: &mut Findings) -> Option<Self> {
        let (kind, tag) = (T::KIND, T::TAG);
        let mut settings = Map::new();
        let (name, factory) = match value {
            Value::String(_) => T::find(value, known, findings),
            Value::Object(table) => {
                settings.clone_from(table);
                let Some(name) = settings.remove(tag) else {
                    findings.say_of(tag, format!("it is missing: the name of the {kind}"));
                    return None;
                };
                findings.at(tag, |findings| T::find(&name, known, findings))
            }
            other => {
                let found = found(other);
                findings.say(format!(
                    "expected the name of a {kind}, or a table with it as {tag:?}, found {found}"
                ));
                None
            }
        }?;
        let table = Value::Object(settings.clone());
        let mut reading = Settings { name, tag, table, sites: known.sites, inputs: known.inputs, findings };
        let made = factory(&mut reading)?;
        let (needs, inputs) = (made.needs(), &known.inputs);
        let by_trips = needs.peers || needs.zookeeper || !needs.targets.is_empty();
        reading.need(!by_trips || inputs.round_trips.is_some(), ROUND_TRIPS)?;
        reading.need(needs.limited.is_empty() || inputs.measured, MEASURED)?;
        reading.need((needs.jobs.is_empty() && !needs.load) || inputs.jobs, JOBS)?;
        Some(Self { name, settings, made })
    }
}

pub(super) const ROUND_TRIPS: &str = "its round trips";
pub(super) const MEASURED: &str = "what it measures";
pub(super) const JOBS: &str = "which other jobs it leads";
