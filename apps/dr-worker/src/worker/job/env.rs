//! The environment variables that describe a leadership to the job and its hooks.

use std::collections::BTreeMap;

use election_admin::record::Breadcrumb;
use election_core::internals::{
    record::limits,
    text::{is_host, stripped},
};
use serde::{Deserialize, Serialize};

use crate::config::{DR_REHEARSAL, FENCE_VARIABLES, LEADERSHIP_VARIABLES, NOT_REHEARSED};

/// The facts of one leadership.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnv {
    /// `DR_JOB`: the job's name.
    pub job: String,
    /// `DR_MEMBER`: this member's id.
    pub member: String,
    /// `DR_SITE`: this member's site.
    pub site: String,
    /// `DR_SLOT`: the slot, counted from 0. A resource that several slots write to keeps their tokens apart.
    pub slot: usize,
    /// `DR_TERM`: the term of the decision.
    #[serde(with = "limits::term")]
    pub term: u64,
    /// `DR_FENCING_TOKEN`: the token that the job claims at its store before anything else.
    #[serde(with = "limits::token")]
    pub fencing_token: u64,
    /// `DR_CAUSE`: why leadership changed.
    pub cause: String,
    /// `DR_PREVIOUS_LEADER`: the leader before; empty if unknown.
    pub previous_leader: Option<String>,
    /// `DR_PREVIOUS_SITE`: the site of the leader before; empty if unknown.
    pub previous_site: Option<String>,
    /// `DR_REASON`, which only hooks have: the decision's sentence, or why the leadership ends; empty if unknown.
    pub reason: String,
    /// Whether this is a rehearsal, which is no leadership: `DR_REHEARSAL` is 1, and there are neither a `DR_TERM` nor a
    /// `DR_FENCING_TOKEN`.
    #[serde(skip)]
    pub is_rehearsal: bool,
}

impl JobEnv {
    /// The variables, on top of those that the job's configuration sets.
    ///
    /// All nine are always set in a leadership: a shell job under `set -u` must not fail in the first one. Of the worker's
    /// own environment none of them remains: see `guard::launch`.
    pub(crate) fn over(&self, configured: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let values = [
            self.job.clone(),
            self.member.clone(),
            self.site.clone(),
            self.slot.to_string(),
            self.term.to_string(),
            self.fencing_token.to_string(),
            self.cause.clone(),
            self.previous_leader.clone().unwrap_or_default(),
            self.previous_site.clone().unwrap_or_default(),
        ];
        let mut all = configured.clone();
        all.extend(variables(LEADERSHIP_VARIABLES, values));
        if self.is_rehearsal {
            NOT_REHEARSED.into_iter().for_each(|name| drop(all.remove(name)));
            all.insert(DR_REHEARSAL.to_owned(), "1".to_owned());
        }
        all
    }

    /// The same for the command `name`, which fences the leader of this former leadership.
    pub(crate) fn to_fence(
        &self,
        configured: &BTreeMap<String, String>,
        name: &str,
        former: &Breadcrumb,
    ) -> BTreeMap<String, String> {
        let (member, site) = (former.member.to_string(), former.site.to_string());
        let term = former.term.to_string();
        // Everyone who can write the record could otherwise give an option to the program that connects to it.
        let address = former.address.clone().filter(|address| is_host(address));
        let reason =
            format!("{member} of site {site} led in term {term} and has not reported that its job has ended");
        // The leader before may be another one.
        let env = Self { previous_leader: Some(member), previous_site: Some(site), ..self.clone() };
        let mut all = env.over(configured);
        let values = [name.to_owned(), reason, address.unwrap_or_default(), term];
        all.extend(variables(FENCE_VARIABLES, values));
        all
    }

    /// The same for a command that runs on every member, with the member's role as `DR_ROLE`.
    pub(crate) fn of_member(
        &self,
        configured: &BTreeMap<String, String>,
        role: &str,
    ) -> BTreeMap<String, String> {
        let mut all = self.over(configured);
        all.insert("DR_ROLE".to_owned(), role.to_owned());
        all
    }
}

/// Variables for a program. A value may come from ZooKeeper: no program can be started with a NUL in it, and a second line is
/// one that nobody here has written.
pub(crate) fn variables<const N: usize>(
    names: [&str; N],
    values: [String; N],
) -> impl Iterator<Item = (String, String)> {
    let passed_on = |(name, value): (&str, String)| (name.to_owned(), stripped(&value).into_owned());
    names.into_iter().zip(values).map(passed_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_no_control_characters_from_outside() {
        let configured = BTreeMap::from([("LINES".to_owned(), "1\n2".to_owned())]);
        let env = JobEnv {
            cause: "a\0b".into(),
            previous_leader: Some("x\ny\u{202e}".into()),
            ..JobEnv::default()
        };
        let all = env.over(&configured);
        assert_eq!((all["DR_CAUSE"].as_str(), all["DR_PREVIOUS_LEADER"].as_str()), ("ab", "x y"));
        assert_eq!(all["LINES"], "1\n2", "what the configuration says is passed on as it is");
    }

    #[test]
    fn the_leadership_overrides_what_is_configured() {
        let configured = BTreeMap::from([
            ("DR_TERM".to_owned(), "1".to_owned()),
            ("RUST_LOG".to_owned(), "info".to_owned()),
        ]);
        let env = JobEnv {
            job: "orders".into(),
            member: "east-1".into(),
            site: "east".into(),
            slot: 1,
            term: 7,
            fencing_token: 0x2_0000_0006,
            cause: "leader lost".into(),
            previous_leader: Some("west-1".into()),
            previous_site: None,
            reason: String::new(),
            is_rehearsal: false,
        };
        let all = env.over(&configured);
        let value = |name: &str| all.get(name).map(String::as_str);
        assert_eq!(value("RUST_LOG"), Some("info"));
        assert_eq!(value("DR_JOB"), Some("orders"));
        assert_eq!(value("DR_MEMBER"), Some("east-1"));
        assert_eq!(value("DR_SITE"), Some("east"));
        assert_eq!(value("DR_SLOT"), Some("1"));
        assert_eq!(value("DR_TERM"), Some("7"));
        assert_eq!(value("DR_FENCING_TOKEN"), Some("8589934598"));
        assert_eq!(value("DR_CAUSE"), Some("leader lost"));
        assert_eq!(value("DR_PREVIOUS_LEADER"), Some("west-1"));
        assert_eq!(value("DR_PREVIOUS_SITE"), Some(""));
        assert_eq!(value("DR_REHEARSAL"), None);
    }

    #[test]
    fn a_rehearsal_has_no_token_and_no_term() {
        let configured = BTreeMap::from([("DR_FENCING_TOKEN".to_owned(), "1".to_owned())]);
        let env = JobEnv { job: "orders".into(), is_rehearsal: true, ..JobEnv::default() };
        let all = env.over(&configured);
        assert_eq!(all.get("DR_REHEARSAL").map(String::as_str), Some("1"));
        assert_eq!(all.get("DR_JOB").map(String::as_str), Some("orders"));
        assert!(!all.contains_key("DR_FENCING_TOKEN") && !all.contains_key("DR_TERM"), "{all:?}");
    }
}
