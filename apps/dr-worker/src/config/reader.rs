//! Reads sections of the tree, and collects all problems instead of stopping at the first.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use serde_json::Value as PolicyValue;
use strategies::{Registry, settings};

use crate::mask::mask;

use super::{
    key::Terms,
    layers::KIND,
    parse::{Parse, Whole},
    problem::Problem,
    tree::{Node, Origin, Value},
};

/// An effective value and its source. Passwords in URLs are masked.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Shown {
    /// The key, in full.
    pub key: String,
    /// As it would be written in a file.
    pub value: String,
    /// Where it came from.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub origin: Origin,
    /// The same for equal values only, also where `value` is masked.
    #[serde(skip)]
    pub(super) identity: u64,
}

fn as_text<S: serde::Serializer>(origin: &Origin, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(origin)
}

/// What has been found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) problems: Vec<Problem>,
    pub(super) shown: Vec<Shown>,
    /// Stages and strategies that a policy may name besides the built-in ones.
    registry: Registry,
}

impl Findings {
    pub(super) fn with(registry: &Registry) -> Self {
        Self { registry: registry.clone(), ..Self::default() }
    }

    /// Stages and strategies that a policy may name besides the built-in ones.
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// One table of the configuration, while it is being read.
pub(super) struct Section<'a> {
    path: String,
    table: BTreeMap<String, Node>,
    /// The position of the table, if it is set.
    origin: Origin,
    /// The source of keys that are not set here.
    unset: Origin,
    known: Vec<&'static str>,
    /// Whether the user chooses the names of the keys.
    free: bool,
    /// Its kind, once it is read.
    kind: Option<String>,
    /// What a success means, if it is a probe.
    purpose: &'static str,
    findings: &'a mut Findings,
}

impl<'a> Section<'a> {
    /// Reads the root of the tree, and reports each key that `read` does not ask for.
    pub(super) fn read_root<T>(
        root: &Node,
        findings: &'a mut Findings,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        let mut section = Section::of(String::new(), Some(root), Origin::BuiltIn, findings);
        let result = read(&mut section);
        section.report_unknown();
        result
    }

    fn of(path: String, node: Option<&Node>, unset: Origin, findings: &'a mut Findings) -> Self {
        let origin = node.map_or(Origin::BuiltIn, |n| n.key_origin.clone());
        let table = match node.map(|node| (node, node.structured())) {
            None => BTreeMap::new(),
            Some((_, Value::Table(table))) => table,
            Some((node, other)) => {
                let message = format!("expected a table, found {}", other.kind());
                findings.problems.push(Problem::with_key(&node.origin, path.as_str(), message));
                BTreeMap::new()
            }
        };
        Section {
            path,
            table,
            origin,
            unset,
            known: Vec::new(),
            free: false,
            kind: None,
            purpose: "",
            findings,
        }
    }

    /// The full name of a key of this section.
    pub(super) fn key(&self, key: &str) -> String {
        let key = toml_edit::Key::new(key);
        if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }
    }

    /// Stages and strategies that a policy may name besides the built-in ones.
    pub(super) fn registry(&self) -> &Registry {
        &self.findings.registry
    }

    /// Whether a key is set here.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn ask(&mut self, key: &'static str) -> Option<Node> {
        self.know(key);
        self.table.get(key).cloned()
    }

    fn show<T: Parse>(&mut self, key: &str, value: &T, origin: Origin) {
        let mut identity = DefaultHasher::new();
        value.identity().hash(&mut identity);
        let (key, value) = (self.key(key), mask(&value.show()).into_owned());
        self.findings.shown.push(Shown { key, value, origin, identity: identity.finish() });
    }

    /// Shows the value of a key that is not set.
    pub(super) fn show_default<T: Parse>(&mut self, key: &str, value: &T) {
        self.show(key, value, self.unset.clone());
    }

    /// The same, if it is not set.
    pub(super) fn show_unless_set<T: Parse>(&mut self, key: &str, value: &T) {
        if !self.has(key) {
            self.show_default(key, value);
        }
    }

    /// Whether no problem with a key of this table, or inside its value, was found.
    pub(super) fn is_sound(&self, key: &str) -> bool {
        self.is_sound_at(&self.key(key))
    }

    /// Whether no problem with this key, in full, or inside its value, was found.
    pub(super) fn is_sound_at(&self, key: &str) -> bool {
        let is_inside = |inside: &str| inside.is_empty() || inside.starts_with(['.', '[']);
        let is_here = |full: &String| full.strip_prefix(key).is_some_and(is_inside);
        !self.findings.problems.iter().any(|problem| problem.key.as_ref().is_some_and(is_here))
    }

    /// Whether a table of this kind has such a key.
    pub(super) fn takes(&self, terms: &Terms) -> bool {
        terms.kinds.is_empty() || self.kind.as_deref().is_some_and(|kind| terms.kinds.contains(&kind))
    }

    /// Remembers the kind of this table, which decides about its other keys.
    pub(super) fn note_kind<T: Parse>(&mut self, key: &str, value: &T) {
        if key == KIND {
            self.kind = Some(value.show().trim_matches('"').to_owned());
        }
    }

    /// Reports a key that must be set. In `meaning` there can be `{}` for what a success of this probe shows.
    pub(super) fn missing<T>(&mut self, key: &'static str, meaning: &str) -> Option<T> {
        self.know(key);
        self.problem(key, format!("it is missing: {}", meaning.replace("{}", self.purpose)));
        None
    }

    /// Takes a key's value, if it is set.
    pub(super) fn optional<T: Parse>(&mut self, key: &'static str) -> Option<T> {
        let node = self.ask(key)?;
        match settings::read(&T::plain(&node)) {
            Ok(Whole(value)) => {
                self.show(key, &value, node.origin);
                Some(value)
            }
            Err(error) => {
                for (path, message) in error.iter() {
                    self.problem_within(&[&[key.to_owned()], path].concat(), message);
                }
                None
            }
        }
    }

    /// Takes a key's value as it is, for a crate that knows what it means. [`show_raw`](Self::show_raw) shows it.
    pub(super) fn raw(&mut self, key: &'static str) -> Option<PolicyValue> {
        Some(self.ask(key)?.plain())
    }

    /// Shows the value of such a key, or `default` if it is not set.
    pub(super) fn show_raw(&mut self, key: &'static str, default: Option<&PolicyValue>) {
        match (self.table.get(key), default) {
            (Some(node), _) => {
                let (value, origin) = (node.plain(), node.origin.clone());
                self.show(key, &value, origin);
            }
            (None, Some(default)) => self.show(key, default, self.unset.clone()),
            (None, None) => {}
        }
    }

    /// Reads a table below this one, whether it is set or not.
    pub(super) fn declared_table(
        &mut self,
        key: &'static str,
        terms: &Terms,
        read: impl FnOnce(&mut Section<'_>),
    ) {
        self.know(key);
        let unset = terms.inherits.map(|section| Origin::Inherited(section.to_owned()));
        let unset = unset.unwrap_or_else(|| self.unset.clone());
        let node = self.table.get(key).cloned();
        let mut section = Section::of(self.key(key), node.as_ref(), unset, self.findings);
        section.purpose = terms.purpose;
        read(&mut section);
        section.report_unknown();
    }

    /// Reads each table of an array below this one.
    pub(super) fn declared_tables<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Section<'_>) -> T,
    ) -> Vec<T> {
        let Some(node) = self.ask(key) else { return Vec::new() };
        let path = self.key(key);
        let Value::Array(all) = node.structured() else {
            self.problem(key, format!("expected an array of tables: [[{path}]]"));
            return Vec::new();
        };
        let read_one = |(at, node): (usize, &Node)| {
            let mut section =
                Section::of(format!("{path}[{at}]"), Some(node), self.unset.clone(), self.findings);
            let result = read(&mut section);
            section.report_unknown();
            result
        };
        all.iter().enumerate().map(read_one).collect()
    }

    /// Comes back to a table below this one, whose keys have been read.
    pub(super) fn again<T>(&mut self, key: &str, check: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let node = self.table.get(key).filter(|node| matches!(node.structured(), Value::Table(_))).cloned();
        check(&mut Section::of(self.key(key), node.as_ref(), self.unset.clone(), self.findings))
    }

    /// Reads each of the tables below this one, whose names the user chose: all but the keys that were asked for.
    pub(super) fn each_table<T>(&mut self, mut read: impl FnMut(&str, &mut Section<'_>) -> T) -> Vec<T> {
        self.free = true;
        let is_free = |name: &&String| !self.known.contains(&name.as_str());
        let names: Vec<_> = self.table.keys().filter(is_free).cloned().collect();
        let mut read_one = |name: &String| {
            let node = self.table.get(name).cloned();
            let mut section = Section::of(self.key(name), node.as_ref(), self.unset.clone(), self.findings);
            let result = read(name, &mut section);
            section.report_unknown();
            result
        };
        names.iter().map(&mut read_one).collect()
    }

    /// Marks a key as known without reading it.
    pub(super) fn know(&mut self, key: &'static str) {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
    }

    /// Reports a problem with the value of a key, or with its absence.
    pub(super) fn problem(&mut self, key: &str, message: impl Into<String>) {
        let origin = self.table.get(key).map_or_else(|| self.origin.clone(), |node| node.origin.clone());
        let full = self.key(key);
        self.findings.problems.push(Problem::with_key(&origin, full, message));
    }

    /// Reports a problem inside the value of a key. The steps to it are keys, and positions in arrays such as `[0]`.
    pub(super) fn problem_within(&mut self, path: &[String], message: &str) {
        let Some((key, path)) = path.split_first() else { return self.problem_here(message) };
        let (mut full, mut node) = (self.key(key), self.table.get(key).cloned());
        let mut origin = node.as_ref().map_or_else(|| self.origin.clone(), |node| node.origin.clone());
        for step in path {
            let inside = node.map(|node| node.structured());
            node = match &inside {
                Some(Value::Table(table)) => table.get(step).cloned(),
                Some(Value::Array(array)) => step
                    .trim_matches(['[', ']'])
                    .parse()
                    .ok()
                    .and_then(|place: usize| array.get(place).cloned()),
                _ => None,
            };
            match inside {
                Some(Value::Array(_)) => full.push_str(step),
                _ => full.push_str(&format!(".{}", toml_edit::Key::new(step))),
            }
            if let Some(node) = &node {
                origin = node.origin.clone();
            }
        }
        self.findings.problems.push(Problem::with_key(&origin, full, message));
    }

    /// Reports a problem with the section as a whole.
    pub(super) fn problem_here(&mut self, message: impl Into<String>) {
        let problem = Problem::with_key(&self.origin, self.path.clone(), message);
        self.findings.problems.push(problem);
    }

    fn report_unknown(self) {
        for (name, node) in &self.table {
            if self.free || node.outlived || self.known.contains(&name.as_str()) {
                continue;
            }
            let place =
                if self.path.is_empty() { "at the top".to_owned() } else { format!("in [{}]", self.path) };
            let message = settings::unknown_key(name, &self.known, &place);
            self.findings.problems.push(Problem::with_key(&node.key_origin, self.key(name), message));
        }
    }
}
