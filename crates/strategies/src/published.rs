//! What members publish about the other jobs that they lead, for stages: attributes that are measured, never
//! configured.

use std::collections::BTreeMap;

use election_core::strategy::MemberRecord;

/// The prefix of these attributes' names. No other attribute may have it.
pub const RESERVED: &str = "dr.";

/// The jobs named by the policy that the member leads, sorted, separated by spaces.
pub const LEADS: &str = "dr.leads";

/// The sum of the loads of all other jobs that the member leads.
pub const LOAD: &str = "dr.load";

/// The attributes of a member that leads these of the jobs that a policy names, with this load besides the job itself.
/// An empty list and a load of 0 are not published.
pub fn attributes<'a>(leads: impl IntoIterator<Item = &'a str>, load: u64) -> BTreeMap<String, String> {
    let mut leads: Vec<_> = leads.into_iter().collect();
    leads.sort_unstable();
    let leads = (!leads.is_empty()).then(|| (LEADS.to_owned(), leads.join(" ")));
    let load = (load > 0).then(|| (LOAD.to_owned(), load.to_string()));
    leads.into_iter().chain(load).collect()
}

/// Whether a member publishes that it leads this job.
pub(crate) fn leads(member: &MemberRecord, job: &str) -> bool {
    member.attributes.get(LEADS).is_some_and(|all| all.split(' ').any(|one| one == job))
}

/// The published load of the other jobs that a member leads.
pub(crate) fn load(member: &MemberRecord) -> u64 {
    member.attributes.get(LOAD).and_then(|load| load.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_attributes;

    #[test]
    fn what_is_published_is_what_is_read() {
        let published = attributes(["web", "db"], 3);
        let pairs: Vec<_> = published.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("dr.leads", "db web"), ("dr.load", "3")]);
        assert!(published.keys().all(|name| name.starts_with(RESERVED)));
        let member = with_attributes("a", "east", 1, pairs);
        assert!(leads(&member, "db") && leads(&member, "web"));
        assert!(!leads(&member, "d") && !leads(&member, ""));
        assert_eq!(load(&member), 3);
        assert!(attributes([], 0).is_empty());
        let none = with_attributes("a", "east", 1, []);
        assert!(!leads(&none, "db"));
        assert_eq!(load(&none), 0);
    }
}
