//! The merged settings as a tree in which each value knows where it came from.

use std::{collections::BTreeMap, fmt, path::Path, sync::Arc};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is not set.
    BuiltIn,
    /// It is not set here, and taken over from this section.
    Inherited(String),
    /// A file.
    File {
        /// As it was given.
        path: Arc<Path>,
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
    },
    /// An overlay in ZooKeeper.
    Overlay {
        /// Its version.
        version: u64,
    },
    /// An environment variable.
    Variable {
        /// Its name in the environment.
        name: Arc<str>,
    },
    /// A `--set` on the command line.
    Set {
        /// All of it, `key=value`.
        text: Arc<str>,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in default"),
            Self::Inherited(section) => write!(f, "taken over from [{section}]"),
            Self::File { path, line, column } => {
                write!(f, "{}:{line}:{column}", path.display())
            }
            Self::Overlay { version } => write!(f, "ZooKeeper, version {version}"),
            Self::Variable { name } => write!(f, "environment variable {name}"),
            Self::Set { text } => match text.split_once('=') {
                // The value can hold a secret, at any key.
                Some((key, _)) => write!(f, "--set {key}=..."),
                None => write!(f, "--set {text}"),
            },
        }
    }
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) value: Value,
    /// The position of the value.
    pub(super) origin: Origin,
    /// The position of its key.
    pub(super) key_origin: Origin,
    /// Whether a later layer has chosen the `kind` of its table: it is not read if it does not belong to that.
    pub(super) outlived: bool,
}

impl Default for Node {
    /// No settings.
    fn default() -> Self {
        let value = Value::Table(BTreeMap::new());
        Self { value, origin: Origin::BuiltIn, key_origin: Origin::BuiltIn, outlived: false }
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// From the environment or the command line. The key decides about its type, so that `12345` can be a member's id.
    Text(String),
    String(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    Array(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

impl Value {
    /// What it is, for 'found ...' in an error.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) | Self::String(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number with a fraction",
            Self::Bool(_) => "a boolean",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
        }
    }
}
