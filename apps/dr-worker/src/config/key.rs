//! A declared key, as data.

use serde::{Deserialize, Serialize};

/// The name of a key that the user chooses.
pub(super) const ANY: &str = "*";

/// The key of a job's table.
pub(crate) fn job_key(name: &str) -> String {
    format!("job.{}", toml_edit::Key::new(name))
}

/// What it takes until the new value of a key applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Nothing.
    Applied,
    /// The next start of the job.
    JobRestart,
    /// The worker executes itself, and its jobs run on. Until then the old value stays in force.
    Handover,
    /// A restart of the worker. Until then the old value stays in force.
    WorkerRestart,
}

impl Effect {
    /// Whether the old value stays in force when the configuration is read again.
    pub(super) fn keeps_old(self) -> bool {
        matches!(self, Self::Handover | Self::WorkerRestart)
    }
}

/// A key of a table.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// Its name; [`ANY`] where the user chooses it.
    pub(super) name: &'static str,
    /// What it means.
    pub(super) sentence: &'static str,
    pub(super) terms: Terms,
    pub(super) of: Of,
}

impl Key {
    /// The same with this default.
    pub(super) fn with_default(mut self, text: Option<String>) -> Self {
        if let Of::Value { default, .. } = &mut self.of {
            *default = text;
        }
        self
    }

    /// The same with these terms where it has none of its own.
    pub(super) fn under(mut self, terms: &Terms) -> Self {
        if self.terms.effect.is_none() {
            (self.terms.effect, self.terms.reason) = (terms.effect, terms.reason);
            self.terms.is_fixed = terms.is_fixed;
        }
        self.terms.reach = self.terms.reach.or(terms.reach);
        if self.terms.kinds.is_empty() {
            self.terms.kinds = terms.kinds;
        }
        self
    }
}

/// Every value's key in full with its sentence, where these are the configured jobs. Keys below other names that the user
/// chooses are left out.
pub(super) fn in_full(keys: &[Key], path: &str, jobs: &[&str]) -> Vec<(String, &'static str)> {
    let mut all = Vec::new();
    for key in keys {
        let names = match key.name {
            ANY if path == "job" => jobs,
            ANY => continue,
            _ => &[key.name],
        };
        for name in names {
            let name = toml_edit::Key::new(*name);
            let path = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
            match &key.of {
                Of::Value { .. } | Of::Table { shape: Shape::List, .. } => all.push((path, key.sentence)),
                Of::Table { keys, .. } => all.extend(in_full(keys, &path, jobs)),
            }
        }
    }
    all
}

/// Calls `each` with the names in each key that has a default, and with that.
pub(super) fn each_default(keys: &[Key], each: &mut impl FnMut(&[&'static str], &str)) {
    fn inside(keys: &[Key], path: &mut Vec<&'static str>, each: &mut impl FnMut(&[&'static str], &str)) {
        for key in keys {
            path.push(key.name);
            match &key.of {
                Of::Value { default: Some(default), .. } => each(path, default),
                Of::Value { .. } => {}
                Of::Table { keys, .. } => inside(keys, path, each),
            }
            path.pop();
        }
    }
    inside(keys, &mut Vec::new(), each);
}

/// What a key holds.
#[derive(Clone, Debug)]
pub(super) enum Of {
    /// A value.
    Value {
        /// The default, as it would be written in a file.
        default: Option<String>,
        /// Whether it can be a table, whose keys the user chooses.
        is_map: bool,
        #[cfg(test)]
        schema: schemars::Schema,
    },
    /// Keys.
    Table { keys: Vec<Key>, shape: Shape },
}

/// How a table is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// It is read whether it is set or not.
    Always,
    /// Nothing in it has a default unless it is set.
    Optional,
    /// It is one of an array.
    List,
}

/// What is declared of a key besides its name, its type, its default and its sentence.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    /// What a change takes; `None`: as for the table that it is in.
    pub(super) effect: Option<Effect>,
    /// Why a change takes a restart of the worker, if it does.
    pub(super) reason: &'static str,
    /// Whether an upgrade in place is refused when it has changed.
    pub(super) is_fixed: bool,
    /// What an overlay may do; `None`: as for the table that it is in.
    pub(super) reach: Option<Reach>,
    /// The kinds of its table that have it; empty: all.
    pub(super) kinds: &'static [&'static str],
    /// An example for `config/base.toml`.
    pub(super) example: Option<&'static str>,
    /// What `config/base.toml` sets.
    pub(super) set: Option<&'static str>,
    /// What it is for, if it must be set.
    pub(super) required: Option<&'static str>,
    /// The key that can be set instead of it.
    pub(super) instead: Option<&'static str>,
    /// Whether a job's recipe may be another one than `elector`.
    pub(super) any_recipe: bool,
    /// Whether the kind of the table must be set.
    pub(super) has_kind: bool,
    /// Whether its default depends on other keys or on the host.
    pub(super) is_derived: bool,
    /// Where values come from that are not set.
    pub(super) inherits: Option<&'static str>,
    /// An example of a name that the user chooses.
    pub(super) name: &'static str,
    /// What a success means, in a table of a probe.
    pub(super) purpose: &'static str,
}

/// What an overlay may do with a key. Everyone who can write to the znodes of an election can push one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It may change it.
    Safe,
    /// Only where `zookeeper.overlay` is `all`: it could make the node run another program.
    Program,
    /// Only where `zookeeper.overlay` is `all`: a leader with it can lead on without its job.
    StayDown,
    /// Nothing: it is each node's own.
    Node,
}

/// What a change of a key takes, and what an overlay may do with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundKey {
    pub(super) effect: Option<Effect>,
    pub(super) reason: &'static str,
    pub(super) is_fixed: bool,
    pub(super) reach: Reach,
    /// Whether there are declared keys below it.
    pub(super) is_table: bool,
}

/// Whether a key holds others, which can be set one by one.
pub(super) fn holds_keys(keys: &[Key], steps: &[String]) -> bool {
    let Some((step, rest)) = steps.split_first() else { return true };
    let named = keys.iter().find(|key| key.name == step);
    match named.or_else(|| keys.iter().find(|key| key.name == ANY)).map(|key| &key.of) {
        None | Some(Of::Table { shape: Shape::List, .. }) => false,
        Some(Of::Table { keys, .. }) => holds_keys(keys, rest),
        Some(Of::Value { is_map, .. }) => *is_map && rest.is_empty(),
    }
}

/// Looks a key up, by the names in it. What is below a value belongs to it.
pub(super) fn find(keys: &[Key], steps: &[String]) -> Option<FoundKey> {
    let mut found =
        FoundKey { effect: None, reason: "", is_fixed: false, reach: Reach::Program, is_table: true };
    let mut inside = keys;
    for step in steps {
        let named = inside.iter().find(|key| key.name == step);
        let key = named.or_else(|| inside.iter().find(|key| key.name == ANY))?;
        if key.terms.effect.is_some() {
            (found.effect, found.reason) = (key.terms.effect, key.terms.reason);
            found.is_fixed = key.terms.is_fixed;
        }
        found.reach = key.terms.reach.unwrap_or(found.reach);
        match &key.of {
            Of::Table { keys, .. } => inside = keys,
            Of::Value { .. } => return Some(FoundKey { is_table: false, ..found }),
        }
    }
    Some(found)
}
