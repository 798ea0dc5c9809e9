//! Where an election keeps its znodes.

use std::sync::Arc;

use crate::ids::{Ballot, InvalidName, MemberId, check, check_id};

/// The paths of one election, all under `<root>/<election>`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Paths {
    base: Arc<str>,
}

impl Paths {
    /// The paths of `election` under `root` (`/` or `/some/path`). The election's name has the rules of a
    /// [`MemberId`](MemberId::new).
    ///
    /// # Errors
    /// When one of the two can't be part of a path of ZooKeeper, or the name breaks a rule.
    pub fn new(root: &str, election: &str) -> Result<Self, InvalidName> {
        check_id("the election", election)?;
        let root = root.trim_end_matches('/');
        match root.strip_prefix('/') {
            Some(parts) => parts.split('/').try_for_each(|part| check("the root's part", part))?,
            None if root.is_empty() => {}
            None => return Err(InvalidName::new("the root", root, "it does not begin with '/'")),
        }
        Ok(Self { base: format!("{root}/{election}").into() })
    }

    /// The paths of the election at `path`, such as `/app/greetings`.
    ///
    /// # Errors
    /// When it is not an absolute path of ZooKeeper.
    pub fn at(path: &str) -> Result<Self, InvalidName> {
        let (root, election) = path
            .rsplit_once('/')
            .ok_or_else(|| InvalidName::new("the election's path", path, "it does not begin with '/'"))?;
        Self::new(root, election)
    }

    /// `<root>/<election>` itself.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The election's name: the last part of its path.
    pub fn name(&self) -> &str {
        self.base.rsplit_once('/').map_or(&self.base, |(_, name)| name)
    }

    /// The parent of all members' records.
    pub fn nodes(&self) -> String {
        format!("{}/nodes", self.base)
    }

    /// A member's record.
    pub fn node(&self, member: &MemberId) -> String {
        format!("{}/nodes/{member}", self.base)
    }

    /// The parent of all ballots.
    pub fn election(&self) -> String {
        format!("{}/election", self.base)
    }

    /// One ballot.
    pub fn ballot(&self, ballot: &Ballot) -> String {
        format!("{}/election/{ballot}", self.base)
    }

    /// The prefix of a ballot: ZooKeeper appends its number to this.
    pub fn ballot_prefix(&self, guid: &str) -> String {
        format!("{}/election/{guid}-", self.base)
    }

    /// The decision.
    pub fn elected(&self) -> String {
        format!("{}/leader/elected", self.base)
    }

    /// The leader znode of `slot`: `leader/current` for the first, which in most elections is the only one, and
    /// `leader/current-1` and so on for the others.
    ///
    /// A slot has the same leader znode for any number of slots, so an election that grows or shrinks never has two
    /// znodes for one leadership.
    pub fn leader_znode(&self, slot: usize) -> String {
        match slot {
            0 => format!("{}/leader/current", self.base),
            slot => format!("{}/leader/current-{slot}", self.base),
        }
    }

    /// The prefix of the znodes that tell one life of [`leader`](Self::leader) from the next, with the recipe `single`.
    pub fn generation_prefix(&self) -> String {
        format!("{}/leader/generation-", self.base)
    }

    /// The slot whose leader znode `path` is.
    pub fn slot_of(&self, path: &str) -> Option<usize> {
        let rest = path.strip_prefix(&*self.base)?.strip_prefix("/leader/current")?;
        let slot = if rest.is_empty() { 0 } else { rest.strip_prefix('-')?.parse().ok()? };
        (self.leader_znode(slot) == path).then_some(slot)
    }

    /// The parent of the leader znodes.
    pub fn leader(&self) -> String {
        format!("{}/leader", self.base)
    }

    /// The parent of all candidates in the queue, with the recipe `queue`.
    pub fn queue(&self) -> String {
        format!("{}/queue", self.base)
    }

    /// The base of the tokens, with the recipes `queue` and `single`.
    pub fn tokens(&self) -> String {
        format!("{}/tokens", self.base)
    }

    /// The standing orders.
    pub fn control(&self) -> String {
        format!("{}/control", self.base)
    }

    /// The leaderships whose work may still run.
    pub fn breadcrumbs(&self) -> String {
        format!("{}/breadcrumbs", self.base)
    }

    /// The members of the last day.
    pub fn roster(&self) -> String {
        format!("{}/roster", self.base)
    }

    /// The parent of the operators' requests.
    pub fn requests(&self) -> String {
        format!("{}/requests", self.base)
    }

    /// One request.
    pub fn request(&self, name: &str) -> String {
        format!("{}/requests/{name}", self.base)
    }

    /// The prefix of a request.
    pub fn request_prefix(&self) -> String {
        format!("{}/requests/r-", self.base)
    }

    /// The parent of the history.
    pub fn history(&self) -> String {
        format!("{}/history", self.base)
    }

    /// The entry of the history for the leadership with this fencing token. The names are in the order of the tokens.
    pub fn history_entry(&self, token: u64) -> String {
        format!("{}/history/h-{token:020}", self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lie_under_root_and_election() {
        let paths = Paths::new("/dr/", "orders").unwrap();
        assert_eq!(paths.elected(), "/dr/orders/leader/elected");
        assert_eq!(Paths::new("/", "orders").unwrap().nodes(), "/orders/nodes");
        assert!(Paths::new("dr", "orders").is_err());
        assert!(Paths::new("/dr//x", "orders").is_err());
        assert!(Paths::new("/dr", "a/b").is_err());
    }

    #[test]
    fn a_path_is_root_and_election() {
        let paths = Paths::at("/dr/orders").unwrap();
        assert_eq!(paths, Paths::new("/dr", "orders").unwrap());
        assert_eq!((paths.name(), Paths::at("/orders").unwrap().name()), ("orders", "orders"));
        for (path, why) in
            [("orders", "begin with '/'"), ("dr/orders", "begin with '/'"), ("/dr/", "empty"), ("/", "empty")]
        {
            let said = Paths::at(path).unwrap_err().to_string();
            assert!(said.contains(why), "{path}: {said}");
        }
    }

    #[test]
    fn a_slot_has_one_leader_znode() {
        let paths = Paths::new("/dr", "orders").unwrap();
        assert_eq!(paths.leader_znode(0), "/dr/orders/leader/current");
        assert_eq!(paths.leader_znode(2), "/dr/orders/leader/current-2");
        for slot in [0, 1, 15] {
            assert_eq!(paths.slot_of(&paths.leader_znode(slot)), Some(slot));
        }
        for other in ["elected", "current-0", "current-01", "current-", "currently", "current-1/x"] {
            assert_eq!(paths.slot_of(&format!("/dr/orders/leader/{other}")), None, "{other}");
        }
    }
}
