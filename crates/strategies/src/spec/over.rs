//! The policy of one job over that of all jobs.

use std::collections::BTreeMap;

use super::value::Value;
use crate::stages::Limit;

/// The keys that a whole strategy replaces.
pub(super) const ORDER: [&str; 5] = ["on_leader_failure", "spread", "pipeline", "pipelines", "rules"];

/// Puts the keys of a policy for one job over those for all jobs.
///
/// - A `strategy` replaces everything else that orders the candidates, but not the stages `limit`.
/// - A pipeline or rules replace a strategy.
/// - `forbidden_sites` without `sites` are left out of the `sites` for all jobs.
pub fn put_over(under: &mut BTreeMap<String, Value>, news: BTreeMap<String, Value>) {
    if news.contains_key("strategy") {
        let limits = limits(under);
        under.retain(|key, _| !ORDER.contains(&key.as_str()));
        if !limits.is_empty() {
            under.insert("pipeline".to_owned(), Value::List(limits));
        }
    } else if ["pipeline", "rules"].into_iter().any(|key| news.contains_key(key)) {
        under.remove("strategy");
    }
    if let (Some(Value::List(forbidden)), false) = (news.get("forbidden_sites"), news.contains_key("sites"))
        && let Some(Value::List(sites)) = under.get_mut("sites")
    {
        sites.retain(|site| !forbidden.contains(site));
    }
    under.extend(news);
}

/// The stages `limit` of its pipeline.
fn limits(entries: &BTreeMap<String, Value>) -> Vec<Value> {
    let pipeline = match (entries.get("pipeline"), entries.get("pipelines")) {
        (Some(Value::Text(name)), Some(Value::Table(named))) => named.get(name),
        (pipeline, _) => pipeline,
    };
    let Some(Value::List(stages)) = pipeline else { return Vec::new() };
    let is_limit = |stage: &&Value| match stage {
        Value::Table(settings) => settings.get("stage") == Some(&Value::Text(Limit::NAME.to_owned())),
        _ => false,
    };
    stages.iter().filter(is_limit).cloned().collect()
}
