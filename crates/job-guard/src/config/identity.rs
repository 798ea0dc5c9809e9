//! The user that a program runs as.

use std::{collections::BTreeMap, ffi::CString};

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use serde::{Deserialize, Serialize};

/// A user and a group: names, or numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAs {
    /// The user.
    pub user: String,
    /// The group; the user's own by default.
    pub group: Option<String>,
}

/// A user with all that a process has of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
    /// The name and the home directory, if the user has an entry.
    #[serde(skip)]
    pub account: Option<(String, String)>,
}

/// A user or a group that this host does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct UserError {
    /// `user` or `group`.
    pub key: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl RunAs {
    /// Looks the user and the group up. Blocks as the host's name service does.
    ///
    /// # Errors
    /// If there is none, or they can't be looked up.
    pub fn resolve(&self) -> Result<Identity, UserError> {
        let number = |text: &str| text.parse::<u32>().ok();
        let in_user = |why: String| UserError { key: "user", why };
        let in_group = |why: String| UserError { key: "group", why };
        let user = match number(&self.user) {
            Some(uid) => User::from_uid(Uid::from_raw(uid)),
            None => User::from_name(&self.user),
        };
        let user = user.map_err(|error| in_user(format!("can't look up {:?}: {error}", self.user)))?;
        let group = match &self.group {
            None => None,
            Some(group) => {
                let found = match number(group) {
                    Some(gid) => Ok(Some(gid)),
                    None => Group::from_name(group).map(|found| found.map(|found| found.gid.as_raw())),
                };
                let found = found.map_err(|error| in_group(format!("can't look up {group:?}: {error}")))?;
                Some(found.ok_or_else(|| in_group(format!("no group {group:?} on this host")))?)
            }
        };
        let Some(user) = user else {
            let uid =
                number(&self.user).ok_or_else(|| in_user(format!("no user {:?} on this host", self.user)))?;
            let gid = group.ok_or_else(|| {
                in_user(format!("user {uid} has no entry on this host, so `group` must be set as well"))
            })?;
            return Ok(Identity { uid, gid, groups: vec![gid], account: None });
        };
        let gid = group.unwrap_or_else(|| user.gid.as_raw());
        let groups = CString::new(user.name.clone())
            .map_err(|error| error.to_string())
            .and_then(|name| getgrouplist(&name, Gid::from_raw(gid)).map_err(|error| error.to_string()))
            .map_err(|error| in_user(format!("can't list the groups of {:?}: {error}", user.name)))?;
        let account = Some((user.name, user.dir.to_string_lossy().into_owned()));
        let groups = groups.into_iter().map(Gid::as_raw).collect();
        Ok(Identity { uid: user.uid.as_raw(), gid, groups, account })
    }

    /// The same, unless it is this process's own user, without blocking.
    ///
    /// # Errors
    /// The reason, as a sentence.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn other_than_own(self) -> Result<Option<Identity>, String> {
        // A name service can be slow.
        let found = tokio::task::spawn_blocking(move || self.resolve()).await;
        let found = found.map_err(|error| error.to_string())?;
        let found = found.map_err(|error| error.to_string())?;
        Ok((!found.is_own()).then_some(found))
    }
}

impl Identity {
    /// Adds what a login of this user sets, and systemd's `User=`.
    pub(crate) fn log_in(&self, env: &mut BTreeMap<String, String>) {
        let Some((name, home)) = &self.account else { return };
        for (variable, value) in [("USER", name), ("LOGNAME", name), ("HOME", home)] {
            env.entry(variable.to_owned()).or_insert_with(|| value.clone());
        }
    }

    /// Whether this process has it already.
    pub fn is_own(&self) -> bool {
        Uid::effective().as_raw() == self.uid && Gid::effective().as_raw() == self.gid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_as(user: &str, group: Option<&str>) -> RunAs {
        RunAs { user: user.to_owned(), group: group.map(str::to_owned) }
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        let root = run_as("root", None).resolve().expect("each host has it");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(root.account.as_ref().map(|(name, _)| name.as_str()), Some("root"));
        assert_eq!(run_as("0", None).resolve(), Ok(root));
        let other = run_as("0", Some("4321")).resolve().expect("a number needs no entry");
        assert_eq!(other.gid, 4321);
        assert!(other.groups.contains(&4321), "{other:?}");
        let unknown = run_as("987654", Some("4321")).resolve().expect("numbers need no entry");
        assert_eq!((unknown.uid, unknown.gid, unknown.groups), (987_654, 4321, vec![4321]));
    }

    #[test]
    fn what_does_not_exist_is_named() {
        for (user, group, key, part) in [
            ("no-such-user", None, "user", "no user \"no-such-user\" on this host"),
            ("987654", None, "user", "`group` must be set as well"),
            ("root", Some("no-such-group"), "group", "no group \"no-such-group\" on this host"),
        ] {
            let error = run_as(user, group).resolve().unwrap_err();
            assert!(error.key == key && error.why.contains(part), "{error}");
        }
    }
}
