//! Runs a job's `measure` command, whose output becomes attributes of the member for policies.

use election_core::internals::text::is_plain;
use std::collections::BTreeMap;
use std::future::pending;

use job_guard::{Guards, OneShot};
use serde_json::Value;
use strategies::published::RESERVED;

use super::{described::beside, env::JobEnv};
use crate::config::{Helper, JobSpec};

/// How many bytes of its output are read: a member's record has no room for more.
const MOST: usize = 16 * 1024;

/// The longest name, in characters: names appear in reports and metrics.
const LONGEST_NAME: usize = 64;

/// Runs the job's command that measures, if it has one, and returns its values when it and everything that it started
/// has ended. One that hangs in the kernel counts as failed until it has ended.
///
/// `role` is the member's role, which the command gets as `DR_ROLE`: a leader has no lag.
///
/// # Errors
/// The reason, as a sentence: it did not start, failed, took too long, or its output is invalid.
///
/// # Cancel safety
/// If the future is dropped, the guard kills the command soon after.
pub async fn run_measure(
    spec: &JobSpec,
    env: &JobEnv,
    role: &str,
    guards: &Guards,
) -> Result<BTreeMap<String, String>, String> {
    let Some(measure) = &spec.measure else { return Ok(BTreeMap::new()) };
    let command = OneShot {
        command: measure.command.clone(),
        timeout: measure.timeout,
        hears: Some(MOST),
        may_outlast: true,
        ..beside(spec, "measure", spec.user_of(Helper::Measure), env.of_member(&spec.env, role))
    };
    let finished = command.run(guards, pending()).await;
    finished.succeeded("it")?;
    if finished.stdout.len() > MOST {
        return Err("its output is too long for attributes".to_owned());
    }
    understand(&String::from_utf8_lossy(&finished.stdout))
}

/// One JSON object, or lines of `name=value`.
fn understand(text: &str) -> Result<BTreeMap<String, String>, String> {
    let said: Vec<_> = if text.trim_start().starts_with('{') {
        let object: BTreeMap<String, Value> = serde_json::from_str(text)
            .map_err(|error| format!("its output is not a JSON object: {error}"))?;
        let values = object.into_iter().map(|(name, value)| match value {
            // `null` means unknown.
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some((name, text))),
            Value::Number(number) => Ok(Some((name, number.to_string()))),
            Value::Bool(yes) => Ok(Some((name, yes.to_string()))),
            Value::Array(_) | Value::Object(_) => {
                Err(format!("{name:?} in its output is not a text, a number, a boolean or null"))
            }
        });
        values.filter_map(Result::transpose).collect::<Result<_, _>>()?
    } else {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pairs = lines.map(|line| match line.split_once('=') {
            Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
            None => Err(format!("its output has the line {line:?}, which is not name=value")),
        });
        pairs.collect::<Result<_, _>>()?
    };
    let mut attributes = BTreeMap::new();
    for (name, value) in said {
        if name.is_empty() || name.chars().count() > LONGEST_NAME || !name.chars().all(is_plain) {
            return Err(format!("{name:?} in its output is not the name of an attribute"));
        }
        if name.starts_with(RESERVED) {
            return Err(format!(
                "{name:?} in its output is reserved: workers publish under names that begin with {RESERVED:?}"
            ));
        }
        // Values appear in reports, line by line.
        if !value.chars().all(is_plain) {
            return Err(format!("the value of {name:?} in its output has a control character"));
        }
        if attributes.insert(name.clone(), value).is_some() {
            return Err(format!("{name:?} appears twice in its output"));
        }
    }
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Result<Vec<(String, String)>, String> {
        understand(text).map(|all| all.into_iter().collect())
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn lines_and_json_say_the_same() {
        let expected = pairs(&[("lag", "0.5"), ("load", "high"), ("writable", "true")]);
        assert_eq!(said("lag=0.5\n\n# of today\n load = high\nwritable=true\n"), Ok(expected.clone()));
        assert_eq!(
            said(" {\"lag\": 0.5, \"load\": \"high\", \"writable\": true, \"gone\": null}\n"),
            Ok(expected)
        );
        assert_eq!(said(""), Ok(Vec::new()));
        assert_eq!(said("query=a=b"), Ok(pairs(&[("query", "a=b")])));
    }

    #[test]
    fn what_cannot_be_understood_is_said() {
        for (text, part) in [
            ("lag", "\"lag\", which is not name=value"),
            ("=5", "\"\" in its output is not the name"),
            ("lag=1\nlag=2", "\"lag\" appears twice"),
            ("{\"lag\": [1]}", "\"lag\" in its output is not a text"),
            ("{\"lag\": 1", "not a JSON object"),
            ("{} {}", "not a JSON object"),
            ("{\"lag\": \"1\\n2\"}", "the value of \"lag\""),
            ("dr.leads=db", "\"dr.leads\" in its output is reserved"),
        ] {
            let error = said(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(said(&format!("{}=1", "n".repeat(65))).is_err());
    }
}
