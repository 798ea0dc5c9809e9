//! Reads tables, and collects all problems instead of stopping at the first.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use election_core::SiteId;

use super::{
    Inputs,
    foreign::{OwnStage, OwnStrategy},
    value::Value,
};

/// One problem of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The steps to the value: keys, and positions in arrays counted from 0.
    pub path: Vec<Step>,
    /// What is wrong and what would be valid.
    pub message: String,
}

/// One step to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Into a table.
    Key(String),
    /// Into an array, counted from 0.
    Place(usize),
}

impl fmt::Display for Wrong {
    /// `rules[0].pipeline[1].first: ...`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.path.iter().enumerate() {
            match step {
                Step::Key(key) if index == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Place(place) => write!(f, "[{place}]")?,
            }
        }
        write!(f, ": {}", self.message)
    }
}

/// All problems of a policy; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(pub(super) Vec<Wrong>);

impl SpecError {
    /// One by one.
    pub fn iter(&self) -> impl Iterator<Item = &Wrong> {
        self.0.iter()
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(Wrong::to_string).collect();
        f.write_str(&all.join("\n"))
    }
}

impl std::error::Error for SpecError {}

/// Builds something from its settings, or reports their problems.
pub(crate) type Factory<T> = Arc<dyn Fn(&mut Table<'_, '_>) -> Option<T> + Send + Sync>;

/// The stages and strategies of other crates, by name.
#[derive(Clone, Default)]
pub(crate) struct Registered {
    pub(crate) stages: BTreeMap<&'static str, Factory<OwnStage>>,
    pub(crate) strategies: BTreeMap<&'static str, Factory<OwnStrategy>>,
}

/// The problems so far, the position of the reader, what the members publish, and the registered stages and strategies.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) wrong: Vec<Wrong>,
    path: Vec<Step>,
    pub(super) inputs: Inputs,
    pub(super) registered: Registered,
    /// The order of sites, once it is read.
    pub(super) sites: Vec<SiteId>,
}

impl Findings {
    pub(super) fn with(inputs: Inputs, registered: &Registered) -> Self {
        Self { inputs, registered: registered.clone(), ..Self::default() }
    }

    pub(super) fn say(&mut self, message: impl Into<String>) {
        self.wrong.push(Wrong { path: self.path.clone(), message: message.into() });
    }

    pub(super) fn say_of(&mut self, key: &str, message: impl Into<String>) {
        self.at(Step::Key(key.to_owned()), |findings| findings.say(message));
    }

    /// Goes into a value and back.
    pub(super) fn at<T>(&mut self, step: Step, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let read = read(self);
        self.path.pop();
        read
    }
}

/// A table of a policy that is being read: the settings of a stage or a strategy.
/// Each method returns the value of a key, or `None` if it is not set or not valid. An invalid value is reported with
/// its key and with what would be valid. A key that no method was asked for is reported as unknown.
pub struct Table<'a, 'f> {
    entries: &'a BTreeMap<String, Value>,
    known: Vec<&'static str>,
    /// Whether keys that are not asked for are ignored.
    free: bool,
    pub(super) findings: &'f mut Findings,
}

impl<'a, 'f> Table<'a, 'f> {
    /// Reads a table, and reports each key that is not asked for.
    pub(super) fn read<T>(
        entries: &'a BTreeMap<String, Value>,
        findings: &'f mut Findings,
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let mut table = Self { entries, known: Vec::new(), free: false, findings };
        let result = read(&mut table);
        let Table { known, free, findings, .. } = table;
        for key in entries.keys().filter(|key| !free && !known.contains(&key.as_str())) {
            let message = match known.as_slice() {
                [] => "unknown key; none is valid here".to_owned(),
                known => format!("unknown key; valid here: {}", known.join(", ")),
            };
            findings.say_of(key, message);
        }
        result
    }

    /// The value of a key as it is.
    pub fn value(&mut self, key: &'static str) -> Option<&'a Value> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.entries.get(key)
    }

    /// Reports a mandatory key that is not set; `meaning` is its use, for the message.
    pub fn require(&mut self, key: &'static str, meaning: &str) {
        if self.value(key).is_none() {
            self.findings.say_of(key, format!("it is missing: {meaning}"));
        }
    }

    /// Reports a problem with the value of a key: what is wrong with it, and what would be valid.
    pub fn problem(&mut self, key: &str, message: impl Into<String>) {
        self.findings.say_of(key, message);
    }

    /// The `sites` of the policy, the most preferred first.
    pub fn sites(&self) -> &[SiteId] {
        &self.findings.sites
    }

    pub(super) fn entries(&self) -> &'a BTreeMap<String, Value> {
        self.entries
    }

    /// Ignores the keys that are not asked for.
    pub(super) fn leave_rest(&mut self) {
        self.free = true;
    }

    /// The value of a key as `read` returns it, if it is set.
    pub(super) fn with<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&'a Value, &mut Findings) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(key)?;
        self.findings.at(Step::Key(key.to_owned()), |findings| read(value, findings))
    }

    /// A text that is not empty.
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        self.with(key, text)
    }

    /// One text or an array of them, none of them empty.
    pub fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        self.with(key, texts)
    }

    /// A span of time, a whole number of us, ms, s, m or h: `"500us"`, `"2ms"`, `"90s"`, `"30m"`.
    pub fn duration(&mut self, key: &'static str) -> Option<Duration> {
        self.with(key, micros).map(Duration::from_micros)
    }

    /// `true` or `false`.
    pub fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.with(key, |value, findings| match value {
            Value::Bool(yes) => Some(*yes),
            other => {
                findings.say(format!("expected true or false, found {}", other.found()));
                None
            }
        })
    }

    /// A number without a fraction, from `least` to `most`.
    pub fn whole(&mut self, key: &'static str, least: u32, most: u32) -> Option<u32> {
        self.with(key, |value, findings| whole(value, findings, least..=most))
    }

    /// Any number.
    #[expect(clippy::cast_precision_loss, reason = "what is written with so many digits is no measure")]
    pub fn number(&mut self, key: &'static str) -> Option<f64> {
        self.with(key, |value, findings| match value {
            Value::Whole(number) => Some(*number as f64),
            Value::Number(number) => Some(*number),
            other => {
                findings.say(format!("expected a number, found {}", other.found()));
                None
            }
        })
    }

    /// One of some words.
    pub fn word<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        self.with(key, |value, findings| word(value, findings, words))
    }
}

/// A span of time as text, in microseconds: `"500us"`, `"2ms"`, `"1s"`, `"30m"`, `"2h"`.
pub(super) fn micros(value: &Value, findings: &mut Findings) -> Option<u64> {
    const UNITS: [(&str, u64); 5] =
        [("us", 1), ("ms", 1000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000)];
    let parsed = match value {
        Value::Text(text) => UNITS.iter().find_map(|(unit, micros)| {
            let number = text.strip_suffix(unit)?.trim_end();
            let is_whole = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            number.parse::<u64>().ok().filter(|_| is_whole)?.checked_mul(*micros)
        }),
        _ => None,
    };
    if parsed.is_none() {
        findings.say(format!("expected a duration such as \"500us\" or \"2ms\", found {}", value.found()));
    }
    parsed
}

/// A number without a fraction, within these.
pub(super) fn whole(value: &Value, findings: &mut Findings, valid: RangeInclusive<u32>) -> Option<u32> {
    let Value::Whole(number) = value else {
        findings.say(format!("expected an integer, found {}", value.found()));
        return None;
    };
    let number = u32::try_from(*number).ok().filter(|number| valid.contains(number));
    if number.is_none() {
        let (least, most) = valid.into_inner();
        findings.say(format!("{} is out of range; {least} to {most} is valid", value.found()));
    }
    number
}

/// One text or an array of them, which is not empty.
pub(super) fn texts(value: &Value, findings: &mut Findings) -> Option<Vec<String>> {
    let Value::List(list) = value else { return text(value, findings).map(|text| vec![text]) };
    if list.is_empty() {
        findings.say("it is empty; leave it out instead");
        return None;
    }
    let each = list.iter().enumerate();
    each.map(|(index, value)| findings.at(Step::Place(index), |findings| text(value, findings))).collect()
}

/// A text that is not empty.
pub(super) fn text(value: &Value, findings: &mut Findings) -> Option<String> {
    match value {
        Value::Text(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Text(_) => {
            findings.say("it is empty; leave it out instead");
            None
        }
        other => {
            findings.say(format!("expected a string in quotes, found {}", other.found()));
            None
        }
    }
}

/// One of some words.
pub(super) fn word<T: Copy>(value: &Value, findings: &mut Findings, words: &[(&str, T)]) -> Option<T> {
    let valid = || words.iter().map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>().join(", ");
    let known = match value {
        Value::Text(text) => words.iter().find(|(word, _)| word == text),
        _ => None,
    };
    if known.is_none() {
        findings.say(format!("{} is not known; valid: {}", value.found(), valid()));
    }
    known.map(|(_, meaning)| *meaning)
}
