//! The layers of the configuration, merged: files, environment, command line.
//!
//! The one module that knows figment, which merges and remembers which layer each
//! value came from; the lines and columns are `file`'s.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use figment::{
    Figment, Metadata, Profile, Provider, Source,
    value::{Dict, Map, Num, Tag, Value as Merged},
};
use strategies::Registry;

use super::{
    KEYS,
    file::{self, Places},
    key,
    problem::{Problem, Problems},
    tree::{Node, Origin, Value},
};
use crate::{checked, program::NAME};

/// The key that decides which others a table may have.
pub(super) const KIND: &str = "kind";

/// What every environment variable of the configuration starts with.
pub const PREFIX: &str = "DR_WORKER__";

/// Read where no file is given, if there is one in it.
pub(crate) const DEFAULT_DIRECTORY: &str = "/etc/dr-worker";

/// A file longer than this is none of ours.
const MAX_FILE: u64 = 1024 * 1024;

/// Where the configuration is read from. Later layers win: files in order, then
/// the environment, then the command line.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Files, or directories whose `*.toml` are read in the order of their names. Hidden ones are not.
    pub paths: Vec<PathBuf>,
    /// Environment variables; those that don't start with [`PREFIX`] are none of ours.
    pub variables: Vec<(OsString, OsString)>,
    /// `key=value`, from the command line.
    pub sets: Vec<String>,
    /// Stages and strategies that a policy may name besides the built-in ones.
    pub registry: Registry,
}

impl Sources {
    /// The same for policies that may name these stages and strategies.
    #[must_use]
    pub fn with_registry(self, registry: Registry) -> Self {
        Self { registry, ..self }
    }

    /// The given files, or what is in `/etc/dr-worker`, this process's environment, and the given settings.
    pub fn with_environment(mut paths: Vec<PathBuf>, sets: Vec<String>) -> Self {
        if paths.is_empty() && has_files(Path::new(DEFAULT_DIRECTORY)) {
            paths.push(DEFAULT_DIRECTORY.into());
        }
        Self { paths, variables: std::env::vars_os().collect(), sets, registry: Registry::default() }
    }

    /// The files that are read, in their order.
    ///
    /// # Errors
    /// Directories that can't be read, or have none.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>, Problems> {
        let mut problems = Vec::new();
        let files = files(&self.paths, &mut problems);
        Problems::none_of(problems).map(|()| files)
    }

    /// The problems, and that no file was read, if nothing was given at all.
    pub(super) fn explain(&self, problems: Problems) -> Problems {
        let is_ours =
            |(name, _): &(OsString, OsString)| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
        if !self.paths.is_empty() || !self.sets.is_empty() || self.variables.iter().any(is_ours) {
            return problems;
        }
        let message =
            format!("not given, and {DEFAULT_DIRECTORY} has no *.toml file; `{NAME} init` writes one");
        problems.and(Problem::with_source("--config", message))
    }
}

/// One layer, as figment takes it.
struct Layer {
    origin: LayerOrigin,
    values: Dict,
}

/// The text of an overlay.
pub(super) enum Text<'a> {
    /// A file that is to become one.
    File { path: Arc<Path>, text: &'a str },
    /// From ZooKeeper.
    Overlay { version: u64, text: &'a str },
}

/// The settings of an overlay of a job: its text has the keys of `[job.NAME]`, or this table.
pub(super) fn of_job(job: &str, text: &Text<'_>) -> Result<Node, Problem> {
    let (Text::File { text: content, .. } | Text::Overlay { text: content, .. }) = text;
    let problem = |(line, column), message: String| match text {
        Text::File { path, .. } => {
            Problem::with_source(Origin::File { path: Arc::clone(path), line, column }, message)
        }
        Text::Overlay { version, .. } => {
            let at = Origin::Overlay { version: *version };
            Problem::with_source(at, format!("line {line}, column {column}: {message}"))
        }
    };
    let parsed = file::parse(content)
        .map_err(|e| problem(e.place, format!("this is not valid TOML: {}", e.message)))?;
    let table = ["job".to_owned(), job.to_owned()];
    let has_table = parsed.values.get("job").is_some_and(|jobs| jobs.as_dict().is_some());
    let is_other = |path: &&Vec<String>| !table.starts_with(path) && !path.starts_with(&table);
    if let Some(other) = parsed.places.keys().find(is_other).filter(|_| has_table) {
        let key = toml_edit::Key::new(job);
        let message = format!(
            "{}: an overlay of {job} has the keys of [job.{key}], or this table and nothing else",
            other.join(".")
        );
        return Err(problem(parsed.places[other].key, message));
    }
    let above = if has_table { &[][..] } else { &table };
    let places = parsed.places.into_iter().map(|(path, places)| ([above, &path].concat(), places));
    let origin = match text {
        Text::File { path, .. } => LayerOrigin::File { path: Arc::clone(path), places: places.collect() },
        Text::Overlay { version, .. } => LayerOrigin::Overlay { version: *version },
    };
    let below = |values, key: &String| Dict::from([(key.clone(), Merged::Dict(Tag::Default, values))]);
    let values = above.iter().rev().fold(parsed.values, below);
    let mut problems = Vec::new();
    let node = merged(&[Layer { origin, values }], &mut problems);
    problems.pop().map_or(Ok(node), Err)
}

enum LayerOrigin {
    Overlay { version: u64 },
    File { path: Arc<Path>, places: BTreeMap<Vec<String>, Places> },
    Variable(Arc<str>),
    Set(Arc<str>),
}

/// A layer under its number, by which each value finds back to it.
struct Numbered<'a>(usize, &'a Layer);

impl Provider for Numbered<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::from("layer", Source::Custom(self.0.to_string()))
    }

    fn data(&self) -> figment::error::Result<Map<Profile, Dict>> {
        Ok(Map::from([(Profile::Default, self.1.values.clone())]))
    }
}

/// Reads and merges all layers. A layer that cannot be read is a problem; the others are merged nevertheless, so that all
/// problems are found at once.
pub(super) fn merge(sources: &Sources, problems: &mut Vec<Problem>) -> Node {
    let mut layers = Vec::new();
    for path in files(&sources.paths, problems) {
        match read(&path) {
            Ok(layer) => layers.push(layer),
            Err(problem) => problems.push(problem),
        }
    }
    find_contradictions(&layers, problems);
    let jobs = job_names(&layers);
    variables(&sources.variables, &jobs, &mut layers, problems);
    sets(&sources.sets, &mut layers, problems);
    merged(&layers, problems)
}

fn merged(layers: &[Layer], problems: &mut Vec<Problem>) -> Node {
    let mut figment = Figment::new();
    for (number, layer) in layers.iter().enumerate() {
        figment = figment.merge(Numbered(number, layer));
    }
    let merged = figment
        .data()
        .map(|mut profiles| profiles.remove(&Profile::Default).unwrap_or_default())
        .unwrap_or_else(|e| {
            problems.push(Problem::with_source("merging the settings", e.to_string()));
            Dict::new()
        });
    let convert = Convert { figment: &figment, layers };
    Node {
        value: convert.table(merged, &mut Vec::new()),
        origin: Origin::BuiltIn,
        key_origin: Origin::BuiltIn,
        outlived: false,
    }
}

/// Whether a setting `key=value` is one of a policy, of all jobs or of one, or one that a job's policy uses.
pub fn is_of_policy(set: &str) -> bool {
    let key = set.split_once('=').map_or(set, |(key, _)| key);
    let Ok(keys) = toml_edit::Key::parse(key.trim()) else { return false };
    let names: Vec<_> = keys.iter().map(|key| key.get()).collect();
    matches!(names[..], ["policy", _, ..] | ["job", _, "policy", _, ..] | ["job", _, "fenced" | "load"])
}

/// The same with settings of a command line over all that is there.
pub(super) fn set_over(mut root: Node, all: &[String], problems: &mut Vec<Problem>) -> Node {
    let sources = Sources { sets: all.to_vec(), ..Sources::default() };
    put_over(&mut root, merge(&sources, problems), |_| false);
    root
}

/// Puts settings over others, apart from those whose origin `keeps` them.
pub(super) fn put_over(under: &mut Node, over: Node, keeps: fn(&Origin) -> bool) {
    match (&mut under.value, over.value) {
        (Value::Table(under), Value::Table(over)) => {
            if over.contains_key(KIND) && !under.get(KIND).is_some_and(|kind| keeps(&kind.origin)) {
                under.values_mut().filter(|node| !keeps(&node.origin)).for_each(|node| node.outlived = true);
            }
            for (key, node) in over {
                match under.get_mut(&key) {
                    Some(known) => put_over(known, node, keeps),
                    None => drop(under.insert(key, node)),
                }
            }
        }
        _ if keeps(&under.origin) => {}
        (_, value) => *under = Node { value, ..over },
    }
}

/// Whether there is a file to read, or a reason to report.
fn has_files(directory: &Path) -> bool {
    match files_in(directory) {
        Ok(files) => !files.is_empty(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

fn files_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    // Editors keep hidden copies and locks beside a file.
    let is_hidden =
        |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let toml = |path: &PathBuf| path.extension().is_some_and(|e| e == "toml") && !is_hidden(path);
    if let Some(mut files) = checked::inside(directory) {
        files.retain(toml);
        return Ok(files);
    }
    let entries = std::fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
    let all = entries.into_iter().map(|entry| entry.path());
    let mut files: Vec<_> = all.filter(toml).collect();
    files.sort();
    Ok(files)
}

fn files(paths: &[PathBuf], problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() && checked::inside(path).is_none() {
            files.push(path.clone());
            continue;
        }
        match files_in(path) {
            Ok(mut inside) => {
                if inside.is_empty() {
                    problems.push(Problem::with_source(path.display(), "the directory holds no *.toml file"));
                }
                files.append(&mut inside);
            }
            Err(e) => problems
                .push(Problem::with_source(path.display(), format!("the directory cannot be read: {e}"))),
        }
    }
    files
}

fn read(path: &Path) -> Result<Layer, Problem> {
    let unreadable = |why: String| Problem::with_source(path.display(), why);
    let bytes = checked::read(path, || {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes).map(|_| bytes)
    });
    let bytes = bytes.map_err(|e: io::Error| unreadable(format!("the file cannot be read: {e}")))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(unreadable(format!(
            "the file is longer than {MAX_FILE} bytes, the limit for a configuration"
        )));
    }
    let text =
        String::from_utf8(bytes).map_err(|e| unreadable(format!("the file is not UTF-8 text: {e}")))?;
    let path: Arc<Path> = Arc::from(path);
    let parsed = file::parse(&text).map_err(|e| {
        let origin = Origin::File { path: Arc::clone(&path), line: e.place.0, column: e.place.1 };
        Problem::with_source(origin, format!("this is not valid TOML: {}", e.message))
    })?;
    Ok(Layer { origin: LayerOrigin::File { path, places: parsed.places }, values: parsed.values })
}

/// Keys of one node: files that differ in them belong to two nodes.
const OF_ONE_NODE: [&str; 2] = ["id", "site"];

fn find_contradictions(layers: &[Layer], problems: &mut Vec<Problem>) {
    for key in OF_ONE_NODE {
        let said = layers.iter().filter_map(|layer| {
            let value = layer.values.get("node")?.as_dict()?.get(key)?.as_str()?;
            let LayerOrigin::File { path, places } = &layer.origin else { return None };
            let (line, column) =
                places.get(&["node".to_owned(), key.to_owned()][..]).map_or((1, 1), |p| p.value);
            Some((value, Origin::File { path: Arc::clone(path), line, column }))
        });
        let said: Vec<_> = said.collect();
        let Some((first, at)) = said.first() else { continue };
        if let Some((other, here)) = said.iter().find(|(value, _)| value != first) {
            let words =
                format!("{other:?} contradicts {first:?} in {at}: give each node only the file of its own");
            problems.push(Problem::with_key(here, format!("node.{key}"), words));
        }
    }
}

/// The names of all jobs in the files. Variables cannot spell most of them.
fn job_names(layers: &[Layer]) -> Vec<String> {
    layers
        .iter()
        .filter_map(|layer| layer.values.get("job")?.as_dict())
        .flat_map(|jobs| jobs.keys().cloned())
        .collect()
}

fn variables(
    all: &[(OsString, OsString)],
    jobs: &[String],
    layers: &mut Vec<Layer>,
    problems: &mut Vec<Problem>,
) {
    let mut ours: Vec<_> =
        all.iter().filter(|(name, _)| name.as_encoded_bytes().starts_with(PREFIX.as_bytes())).collect();
    // A section as a whole goes before its keys, whatever the environment's order.
    ours.sort();
    for (name, value) in ours {
        let shown = name.to_string_lossy().into_owned();
        let origin = Origin::Variable { name: Arc::from(shown.as_str()) };
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
            problems.push(Problem::with_source(origin, "it is not UTF-8 text"));
            continue;
        };
        let path = variable_path(&name[PREFIX.len()..], jobs);
        if path.iter().any(String::is_empty) {
            problems.push(Problem::with_source(
                origin,
                format!("it names no key; the form is {PREFIX}SECTION__KEY"),
            ));
            continue;
        }
        layers.push(Layer { origin: LayerOrigin::Variable(Arc::from(name)), values: nested(&path, value) });
    }
}

/// The key that a variable's name means.
///
/// Keys are written in lower case, and a job in the way the files write it:
/// `ORDERS_EU` finds a job `orders-eu`. What follows a job's `ENV` is the name of a
/// variable, and stays as it is.
fn variable_path(name: &str, jobs: &[String]) -> Vec<String> {
    let parts: Vec<&str> = name.split("__").collect();
    let is = |index: usize, word: &str| parts.get(index).is_some_and(|p| p.eq_ignore_ascii_case(word));
    if is(0, "job") && is(2, "env") && parts.len() > 3 {
        return vec!["job".into(), job_name(parts[1], jobs), "env".into(), parts[3..].join("__")];
    }
    parts
        .iter()
        .enumerate()
        .map(|(index, part)| match index {
            1 if is(0, "job") => job_name(part, jobs),
            _ => part.to_ascii_lowercase(),
        })
        .collect()
}

fn job_name(written: &str, jobs: &[String]) -> String {
    let plain = |name: &str| name.to_lowercase().replace(['-', '.'], "_");
    jobs.iter()
        .find(|job| plain(job) == plain(written))
        .cloned()
        .unwrap_or_else(|| written.to_ascii_lowercase())
}

fn sets(all: &[String], layers: &mut Vec<Layer>, problems: &mut Vec<Problem>) {
    for text in all {
        let origin = Origin::Set { text: Arc::from(text.as_str()) };
        let Some((key, value)) = text.split_once('=') else {
            problems.push(Problem::with_source(origin, "the form is --set section.key=value"));
            continue;
        };
        match toml_edit::Key::parse(key.trim()) {
            Ok(keys) => {
                let path: Vec<_> = keys.iter().map(|key| key.get().to_owned()).collect();
                layers.push(Layer {
                    origin: LayerOrigin::Set(Arc::from(text.as_str())),
                    values: nested(&path, value),
                });
            }
            Err(_) => problems.push(Problem::with_source(
                origin,
                format!("{key:?} is not a key; the form is --set section.key=value"),
            )),
        }
    }
}

fn nested(path: &[String], value: &str) -> Dict {
    let mut values = from_text(&mut path.to_vec(), value);
    for key in path.iter().skip(1).rev() {
        values = Merged::Dict(Tag::Default, Dict::from([(key.clone(), values)]));
    }
    path.first().map(|first| Dict::from([(first.clone(), values)])).unwrap_or_default()
}

/// The value of a key that comes as text. A table is taken apart, so that it is merged key by key; its values stay text.
fn from_text(path: &mut Vec<String>, text: &str) -> Merged {
    let parsed = key::holds_keys(&KEYS, path).then(|| text.parse::<toml_edit::Value>());
    let Some(Ok(toml_edit::Value::InlineTable(table))) = parsed else {
        return Merged::String(Tag::Default, text.to_owned());
    };
    let mut values = Dict::new();
    for (key, value) in table.iter() {
        let text = match value {
            // In the form that every reader of text takes for a string.
            toml_edit::Value::String(text) => serde_json::Value::from(text.value().as_str()).to_string(),
            other => other.to_string().trim().to_owned(),
        };
        path.push(key.to_owned());
        values.insert(key.to_owned(), from_text(path, &text));
        path.pop();
    }
    Merged::Dict(Tag::Default, values)
}

/// From figment's values to ours.
struct Convert<'a> {
    figment: &'a Figment,
    layers: &'a [Layer],
}

impl Convert<'_> {
    /// The number of the layer that a value is from.
    fn number(&self, value: &Merged) -> Option<usize> {
        self.figment.get_metadata(value.tag())?.source.as_ref()?.custom()?.parse().ok()
    }

    fn layer(&self, value: &Merged) -> Option<&LayerOrigin> {
        Some(&self.layers.get(self.number(value)?)?.origin)
    }

    fn node(&self, value: Merged, path: &mut Vec<String>) -> Node {
        let layer = self.layer(&value);
        let (key_origin, origin) = match layer {
            None => (Origin::BuiltIn, Origin::BuiltIn),
            Some(LayerOrigin::Overlay { version }) => {
                let origin = Origin::Overlay { version: *version };
                (origin.clone(), origin)
            }
            Some(LayerOrigin::Variable(name)) => {
                let origin = Origin::Variable { name: Arc::clone(name) };
                (origin.clone(), origin)
            }
            Some(LayerOrigin::Set(text)) => {
                let origin = Origin::Set { text: Arc::clone(text) };
                (origin.clone(), origin)
            }
            Some(LayerOrigin::File { path: file, places }) => {
                let at = |(line, column)| Origin::File { path: Arc::clone(file), line, column };
                let places = places.get(path.as_slice());
                (at(places.map_or((1, 1), |p| p.key)), at(places.map_or((1, 1), |p| p.value)))
            }
        };
        let textual = !matches!(layer, None | Some(LayerOrigin::File { .. } | LayerOrigin::Overlay { .. }));
        Node { value: self.value(value, textual, path), origin, key_origin, outlived: false }
    }

    fn value(&self, value: Merged, textual: bool, path: &mut Vec<String>) -> Value {
        match value {
            Merged::String(_, text) if textual => Value::Text(text),
            Merged::String(_, text) => Value::String(text),
            Merged::Char(_, c) => Value::String(c.to_string()),
            Merged::Bool(_, yes) => Value::Bool(yes),
            Merged::Num(_, Num::I64(number)) => Value::Integer(number),
            Merged::Num(_, Num::F64(number)) => Value::Float(number),
            // The files' reader makes no other numbers.
            Merged::Num(_, other) => Value::Float(other.to_f64().unwrap_or(f64::NAN)),
            Merged::Empty(..) => Value::Table(BTreeMap::new()),
            Merged::Dict(_, dict) => self.table(dict, path),
            Merged::Array(_, elements) => {
                let mut array = Vec::new();
                for (index, element) in elements.into_iter().enumerate() {
                    path.push(index.to_string());
                    array.push(self.node(element, path));
                    path.pop();
                }
                Value::Array(array)
            }
        }
    }

    fn table(&self, dict: Dict, path: &mut Vec<String>) -> Value {
        let kind = dict.get(KIND).and_then(|kind| self.number(kind));
        let mut table = BTreeMap::new();
        for (key, value) in dict {
            path.push(key.clone());
            let outlived = self.number(&value) < kind;
            table.insert(key, Node { outlived, ..self.node(value, path) });
            path.pop();
        }
        Value::Table(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_finds_the_job_as_the_files_write_it() {
        let jobs = vec!["orders-EU".to_owned()];
        assert_eq!(
            variable_path("JOB__ORDERS_EU__STOP_TIMEOUT", &jobs),
            ["job", "orders-EU", "stop_timeout"]
        );
        assert_eq!(variable_path("JOB__NEW__ENV__RUST_LOG", &jobs), ["job", "new", "env", "RUST_LOG"]);
        assert_eq!(variable_path("NODE__ID", &jobs), ["node", "id"]);
    }

    #[test]
    fn later_layers_win_key_by_key() {
        let mut problems = Vec::new();
        let root = merge(
            &Sources {
                paths: Vec::new(),
                variables: vec![
                    ("DR_WORKER__NODE__ID".into(), "12345".into()),
                    ("DR_WORKER__NODE__SITE".into(), "east".into()),
                    ("HOME".into(), "/root".into()),
                ],
                sets: vec!["node.site=west".into()],
                ..Sources::default()
            },
            &mut problems,
        );
        assert_eq!(problems, []);
        let Value::Table(root) = root.value else { panic!("{root:?}") };
        let Value::Table(node) = &root["node"].value else { panic!("{root:?}") };
        assert_eq!(node["id"].value, Value::Text("12345".into()));
        assert_eq!(node["id"].origin.to_string(), "environment variable DR_WORKER__NODE__ID");
        assert_eq!(node["site"].origin.to_string(), "--set node.site=...");
        assert_eq!(root.len(), 1);
    }
}
