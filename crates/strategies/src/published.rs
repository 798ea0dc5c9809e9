//! What members publish about the other jobs that they lead, for stages: attributes that are measured, never
//! configured.

use std::collections::BTreeMap;

use election_core::strategy::MemberRecord;

/// The prefix of the names of what a worker publishes by itself. No configured or measured attribute may have it.
pub const RESERVED: &str = "dr.";

/// The sum of the loads of all other jobs that the member leads.
pub const LOAD: &str = "dr.load";

/// The attributes of a member that leads jobs of this load besides the job itself. A load of 0 is not published.
pub fn attributes(load: u64) -> BTreeMap<String, String> {
    (load > 0).then(|| (LOAD.to_owned(), load.to_string())).into_iter().collect()
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
        let published = attributes(3);
        let pairs: Vec<_> = published.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("dr.load", "3")]);
        assert!(published.keys().all(|name| name.starts_with(RESERVED)));
        assert_eq!(load(&with_attributes("a", "east", 1, pairs)), 3);
        assert!(attributes(0).is_empty());
        assert_eq!(load(&with_attributes("a", "east", 1, [])), 0);
    }
}
