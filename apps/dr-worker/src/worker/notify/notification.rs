//! A notification: an event as it is sent.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::event::Event;
use crate::{
    config::NodeConfig,
    worker::job::{JobEnv, variables},
};

/// An event of a job, ready to be sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Notification {
    /// Distinguishes it from all others. The same event has the same id from each sender.
    pub(crate) id: String,
    /// The name of the event.
    pub(crate) event: &'static str,
    /// The JSON object that is sent.
    pub(crate) body: String,
    /// The environment variables of a command.
    pub(crate) env: BTreeMap<String, String>,
}

impl Notification {
    /// `root` and `job` name the election.
    pub(super) fn of(event: &Event, node: &NodeConfig, root: &str, job: &str, at_ms: u64) -> Self {
        let name = event.kind.as_str();
        let id = format!("{}/{job}/{name}/{}", root.trim_end_matches('/'), event.key);
        Self::new(id, name, &event.text, &event.facts, node, (root, job), at_ms)
    }

    /// One that reports nothing but that notifications arrive.
    pub(crate) fn test(node: &NodeConfig, root: &str, at_ms: u64) -> Self {
        let id = format!("{}/test/{}/{at_ms}", root.trim_end_matches('/'), node.id);
        let text = format!("a test of {} in site {}; nothing has happened", node.id, node.site);
        Self::new(id, "test", &text, &json!({}), node, (root, ""), at_ms)
    }

    fn new(
        id: String,
        event: &'static str,
        text: &str,
        facts: &Value,
        node: &NodeConfig,
        (root, job): (&str, &str),
        at_ms: u64,
    ) -> Self {
        let mut body = json!({
            "id": id, "event": event, "job": job, "root": root, "text": text, "at_ms": at_ms,
            "sender": { "member": node.id, "site": node.site },
        });
        if let (Some(body), Some(facts)) = (body.as_object_mut(), facts.as_object()) {
            body.extend(facts.clone());
        }
        let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let number_of = |key: &str| facts[key].as_u64().unwrap_or(0);
        let previous = |key: &str| facts["previous"][key].as_str().map(str::to_owned);
        let env = JobEnv {
            job: job.to_owned(),
            member: node.id.to_string(),
            site: node.site.to_string(),
            slot: usize::try_from(number_of("slot")).unwrap_or(0),
            term: number_of("term"),
            fencing_token: number_of("fencing_token"),
            cause: text_of(&facts["cause"]),
            previous_leader: previous("member"),
            previous_site: previous("site"),
            reason: text_of(&facts["reason"]),
            is_rehearsal: false,
        };
        let leader_site = if facts["leader"].is_string() { text_of(&facts["site"]) } else { String::new() };
        let more = [event.to_owned(), id.clone(), text_of(&facts["leader"]), leader_site];
        let mut env = env.over(&BTreeMap::new());
        env.extend(variables(["DR_EVENT", "DR_EVENT_ID", "DR_LEADER", "DR_LEADER_SITE"], more));
        Self { id, event, body: body.to_string(), env }
    }
}
