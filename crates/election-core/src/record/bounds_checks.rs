//! Whatever bytes a znode has, its reader gets a record that can be written again as it is, or an error. Each crate that has
//! records checks them so; its module includes this file.

use election_core_records::{
    MAX_COUNT, MAX_MS, MAX_SLOTS, MAX_TERM, MAX_TOKEN, MAX_TOKEN_BASE, Record, text,
};
use serde_json::Value;

use super::election_core_records;

/// A record with all of its fields.
pub(super) struct Kind {
    name: &'static str,
    pub(super) sample: String,
    /// The record as it is written again, if it can be used. It is then the same when it is read again.
    again: fn(&[u8]) -> Option<Vec<u8>>,
}

impl Kind {
    pub(super) fn new<R: Record + PartialEq + std::fmt::Debug>(name: &'static str, sample: &str) -> Self {
        Self { name, sample: sample.to_owned(), again: again::<R> }
    }

    fn value(&self) -> Value {
        serde_json::from_str(&self.sample).unwrap()
    }

    /// Whether the record can be used.
    pub(super) fn is_usable(&self, data: &[u8]) -> bool {
        (self.again)(data).is_some()
    }
}

fn again<R: Record + PartialEq + std::fmt::Debug>(data: &[u8]) -> Option<Vec<u8>> {
    let record = match R::decode("/r-0000000001", data) {
        Ok(record) => record,
        Err(error) => {
            assert!(
                error.to_string().len() < 600 && !error.to_string().contains(char::is_control),
                "{error}"
            );
            return None;
        }
    };
    let again = record.encode("/z").unwrap_or_else(|e| panic!("{e}: {record:?}"));
    assert_eq!(R::decode("/r-0000000001", &again).unwrap(), record);
    Some(again)
}

/// The values in a record, by their path in it.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| leaves(value, &format!("{path}/{key}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, value)| leaves(value, &format!("{path}/{at}"), found));
        }
        _ => found.push(path.to_owned()),
    }
}

/// The largest value of the number at this path; `None` for one that has only the limit of its type.
fn limit(kind: &str, path: &str) -> Option<u64> {
    let parent = path.rsplit_once('/').unwrap().0;
    Some(match path.rsplit('/').find(|part| part.parse::<usize>().is_err()).unwrap() {
        name if name.ends_with("_ms") => MAX_MS,
        "attempts" | "obeyed" => MAX_MS,
        "s" if parent.ends_with("losses/s") => MAX_MS,
        "term" if matches!(kind, "elected" | "control" | "member") => MAX_TERM,
        "prepared" | "decided_in" | "stay" => MAX_TERM,
        "term" | "fencing_token" | "czxid" | "mzxid" | "last_request" => MAX_TOKEN,
        "token" | "token_base" => MAX_TOKEN_BASE,
        "slot" => MAX_SLOTS as u64 - 1,
        "version" | "count" | "failed" | "omitted" => MAX_COUNT,
        _ => return None,
    })
}

/// How many numbers there are. Each has a limit that is kept.
pub(super) fn numbers(kinds: &[Kind]) -> usize {
    let mut numbers = 0;
    for kind in kinds {
        let (name, sample) = (kind.name, kind.value());
        assert!(kind.is_usable(kind.sample.as_bytes()), "{name}");
        let mut paths = Vec::new();
        leaves(&sample, "", &mut paths);
        paths.retain(|path| sample.pointer(path).unwrap().is_number());
        for path in paths {
            let with = |number: Value| {
                let mut changed = sample.clone();
                *changed.pointer_mut(&path).unwrap() = number;
                kind.is_usable(changed.to_string().as_bytes())
            };
            numbers += 1;
            assert!(!with(u64::MAX.into()) && !with((1_u64 << 63).into()), "{name} {path}");
            assert_eq!(with((-1).into()), path == "/priority", "{name} {path}");
            if let Some(limit) = limit(name, &path) {
                assert!(!with((limit + 1).into()), "{name} {path}");
                // A slot is not ahead of its decision.
                assert_eq!(with(limit.into()), path != "/slots/0/given/term", "{name} {path}");
            }
        }
    }
    numbers
}

/// How many texts were read. What a reader shows and passes on is one line, whatever was written.
pub(super) fn texts(kinds: &[Kind]) -> usize {
    let mut texts = 0;
    for kind in kinds {
        let (name, sample) = (kind.name, kind.value());
        let mut paths = Vec::new();
        leaves(&sample, "", &mut paths);
        paths.retain(|path| sample.pointer(path).unwrap().is_string());
        for path in paths {
            for hostile in ["a\0b", "a\nb", "a\u{1b}[2Jb", "a\u{202e}b", &"x".repeat(5000)] {
                let mut changed = sample.clone();
                *changed.pointer_mut(&path).unwrap() = hostile.into();
                // What was read, as it would be written.
                let Some(read) = (kind.again)(changed.to_string().as_bytes()) else { continue };
                let read: Value = serde_json::from_slice(&read).unwrap();
                let read = read.pointer(&path).map_or("", |read| read.as_str().unwrap());
                let is_long = ["/attributes/k", "/measured/0"].contains(&path.as_str());
                let is_block = (name, path.as_str()) == ("overlay", "/text");
                let is_line = |text: &str| text.chars().all(|c| text::is_plain(c) || (is_block && c == '\n'));
                assert!(is_line(read), "{name} {path}: {read:?}");
                assert!(is_long || is_block || read.len() <= text::MAX, "{name} {path}");
                texts += 1;
            }
        }
    }
    texts
}

/// Names of more than 128 bytes are refused.
pub(super) fn names(kinds: &[Kind]) {
    for Kind { name: kind, sample, again } in kinds {
        let long = "a".repeat(129);
        for name in [r#""a""#, r#""s""#, r#""x-0000000001""#] {
            // Some of these texts are no names.
            let changed = sample.replacen(name, &format!("\"{long}{}", &name[1..]), 1);
            let is_name = !changed.contains(&format!("\"sentence\":\"{long}")) && changed != *sample;
            assert!(!is_name || again(changed.as_bytes()).is_none(), "{kind}: {changed}");
        }
    }
}

/// How many records could be used of those with random changes. Each encodes to itself.
pub(super) fn bytes(kinds: &[Kind], seeds: u64) -> usize {
    let extreme = [0, 1, MAX_SLOTS as u64, MAX_COUNT, MAX_MS, MAX_TERM, MAX_TOKEN, u64::MAX];
    let mut usable = 0;
    for seed in 0..seeds {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kind = &kinds[rng.usize(..kinds.len())];
        let mut value = kind.value();
        let mut paths = Vec::new();
        leaves(&value, "", &mut paths);
        for _ in 0..rng.usize(..3) {
            let path = &paths[rng.usize(..paths.len())];
            let parent = path.rsplit_once('/').unwrap().0;
            match value.pointer_mut(if rng.bool() { path } else { parent }) {
                Some(Value::Array(items)) if !items.is_empty() => {
                    *items = vec![items[0].clone(); [0, 2, 9, 60, 4000][rng.usize(..5)]];
                }
                Some(Value::Object(fields)) => {
                    let key = fields.keys().nth(rng.usize(..fields.len().max(1))).cloned();
                    key.map(|key| fields.remove(&key));
                }
                Some(leaf) if leaf.is_number() => *leaf = extreme[rng.usize(..extreme.len())].into(),
                Some(leaf) if leaf.is_string() => *leaf = "\u{1}\"ü".repeat(rng.usize(..9000)).into(),
                _ => {}
            }
        }
        let mut data = value.to_string().into_bytes();
        if rng.u8(..4) == 0 {
            let at = rng.usize(..data.len());
            data[at] = rng.u8(..);
        }
        // Also a record of another kind.
        let kind = if rng.u8(..8) == 0 { &kinds[rng.usize(..kinds.len())] } else { kind };
        usable += usize::from(kind.is_usable(&data));
    }
    usable
}
