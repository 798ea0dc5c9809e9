//! Access lists: who may do what.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use sha1::{Digest as _, Sha1};

use super::hash_order::JavaHash;
use crate::embedded::code::Code;

/// The bits of `ZooDefs.Perms`.
pub(crate) mod permission {
    pub(crate) const READ: i32 = 1;
    pub(crate) const WRITE: i32 = 2;
    pub(crate) const CREATE: i32 = 4;
    pub(crate) const DELETE: i32 = 8;
    pub(crate) const ADMIN: i32 = 16;
    pub(crate) const ALL: i32 = 31;
}

/// Who: a scheme and what means something in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Id {
    pub(crate) scheme: String,
    pub(crate) id: String,
}

impl Id {
    pub(crate) fn new(scheme: &str, id: impl Into<String>) -> Self {
        Self { scheme: scheme.to_owned(), id: id.into() }
    }

    /// What a client becomes by `name:password` in the scheme `digest`.
    pub(crate) fn digest(credentials: &[u8]) -> Self {
        let text = String::from_utf8_lossy(credentials);
        let name = text.split_once(':').map_or(&*text, |(name, _)| name);
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha1::digest(text.as_bytes()));
        Self::new("digest", format!("{name}:{hash}"))
    }

    /// The name without what proves it.
    pub(crate) fn user(&self) -> &str {
        match self.scheme.as_str() {
            "digest" => self.id.split(':').next().unwrap_or_default(),
            _ => &self.id,
        }
    }
}

impl JavaHash for Id {
    fn java_hash(&self) -> i32 {
        [&self.scheme, &self.id]
            .into_iter()
            .fold(17_i32, |hash, part| hash.wrapping_mul(37).wrapping_add(part.java_hash()))
    }
}

/// One entry of an access list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl {
    pub(crate) permissions: i32,
    pub(crate) id: Id,
}

impl Acl {
    pub(crate) fn open() -> Arc<[Self]> {
        Arc::new([Self { permissions: permission::ALL, id: Id::new("world", "anyone") }])
    }

    pub(crate) fn read_only() -> Arc<[Self]> {
        Arc::new([Self { permissions: permission::READ, id: Id::new("world", "anyone") }])
    }

    fn is_for_anyone(&self) -> bool {
        self.id.scheme == "world" && self.id.id == "anyone"
    }
}

/// Whether one of `who` has one of the `wanted` permissions.
pub(crate) fn check(list: &[Acl], wanted: i32, who: &[Id]) -> Result<(), Code> {
    let may = list.iter().filter(|entry| entry.permissions & wanted != 0).any(|entry| {
        entry.is_for_anyone()
            || who.iter().filter(|id| id.scheme == entry.id.scheme).any(|id| match id.scheme.as_str() {
                "digest" => id.id == entry.id.id,
                "ip" => ip_matches(&id.id, &entry.id.id),
                _ => false,
            })
    });
    if list.is_empty() || may { Ok(()) } else { Err(Code::NO_AUTH) }
}

/// An entry as a client wants it. An id may be missing (kazoo's `auth` has none), and
/// Apache ZooKeeper stumbles over that only where it looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) permissions: i32,
    pub(crate) scheme: Option<String>,
    pub(crate) id: Option<String>,
}

impl Wanted {
    /// Whether an earlier entry is the same.
    fn is_double_of(&self, earlier: &Self) -> Result<bool, Code> {
        if self.permissions != earlier.permissions {
            return Ok(false);
        }
        let scheme = self.scheme.as_ref().ok_or(Code::MARSHALLING_ERROR)?;
        if Some(scheme) != earlier.scheme.as_ref() {
            return Ok(false);
        }
        let id = self.id.as_ref().ok_or(Code::MARSHALLING_ERROR)?;
        Ok(Some(id) == earlier.id.as_ref())
    }
}

/// The list as it is kept: without doubles, `auth` replaced by whom the client has
/// proved to be.
pub(crate) fn settle(list: &[Wanted], who: &[Id]) -> Result<Arc<[Acl]>, Code> {
    let mut single: Vec<&Wanted> = Vec::new();
    for entry in list {
        let mut is_double = false;
        for earlier in &single {
            is_double = is_double || entry.is_double_of(earlier)?;
        }
        if !is_double {
            single.push(entry);
        }
    }
    let mut settled = Vec::new();
    for entry in single {
        let permissions = entry.permissions;
        let id = || entry.id.as_deref().ok_or(Code::MARSHALLING_ERROR);
        let scheme = entry.scheme.as_deref().unwrap_or_default();
        match scheme {
            "world" if id()? == "anyone" => {}
            "auth" => {
                let before = settled.len();
                let proved = who.iter().filter(|id| id.scheme == "digest");
                settled.extend(proved.map(|id| Acl { permissions, id: id.clone() }));
                if settled.len() == before {
                    return Err(Code::INVALID_ACL);
                }
                continue;
            }
            "digest" if is_digest(id()?) => {}
            "ip" if ip_range(id()?).is_some() => {}
            _ => return Err(Code::INVALID_ACL),
        }
        settled.push(Acl { permissions, id: Id::new(scheme, id()?) });
    }
    if settled.is_empty() { Err(Code::INVALID_ACL) } else { Ok(settled.into()) }
}

/// For those who may read a list but not administer it.
pub(crate) fn without_hashes(list: &[Acl]) -> Vec<Acl> {
    let hide = |entry: &Acl| match (entry.id.scheme.as_str(), entry.id.id.split_once(':')) {
        ("digest", Some((name, _))) => {
            Acl { permissions: entry.permissions, id: Id::new("digest", format!("{name}:x")) }
        }
        _ => entry.clone(),
    };
    list.iter().map(hide).collect()
}

/// A name and a hash. Java's `split` forgets empty parts at the end.
fn is_digest(id: &str) -> bool {
    let parts: Vec<&str> = id.trim_end_matches(':').split(':').collect();
    parts.len() == 2
}

fn ip_range(text: &str) -> Option<(Vec<u8>, u32)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let bytes = match address.parse::<IpAddr>().ok()? {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let width = u32::try_from(bytes.len()).ok()? * 8;
    let bits = bits.map_or(Some(width), |bits| bits.parse().ok())?;
    (bits <= width).then_some((bytes, bits))
}

fn ip_matches(address: &str, range: &str) -> bool {
    let (Some((address, _)), Some((range, bits))) = (ip_range(address), ip_range(range)) else {
        return false;
    };
    address.len() == range.len()
        && address.iter().zip(&range).zip(0_u32..).all(|((mine, theirs), index)| {
            let left = bits.saturating_sub(index * 8).min(8);
            let mask = u8::try_from(0xff00_u32 >> left & 0xff).unwrap_or(0xff);
            mine & mask == theirs & mask
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(permissions: i32, scheme: &str, id: &str) -> Wanted {
        Wanted { permissions, scheme: Some(scheme.to_owned()), id: Some(id.to_owned()) }
    }

    #[test]
    fn a_digest_is_the_one_of_zookeeper() {
        assert_eq!(Id::digest(b"super:test").id, "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert_eq!(Id::digest(b"super:test").user(), "super");
    }

    #[test]
    fn addresses_match_by_their_first_bits() {
        assert!(ip_matches("127.0.0.1", "127.0.0.1"));
        assert!(ip_matches("10.1.255.3", "10.1.128.0/17"));
        assert!(!ip_matches("10.1.127.3", "10.1.128.0/17"));
        assert!(!ip_matches("127.0.0.1", "::1"));
        assert!(ip_matches("127.0.0.1", "0.0.0.0/0"));
        assert_eq!(ip_range("1.2.3.4/33"), None);
        assert_eq!(ip_range("localhost"), None);
    }

    #[test]
    fn an_empty_list_lets_everyone_in_and_is_not_accepted() {
        assert_eq!(check(&[], permission::ALL, &[]), Ok(()));
        assert_eq!(settle(&[], &[]), Err(Code::INVALID_ACL));
    }

    #[test]
    fn auth_becomes_whom_the_client_has_proved_to_be() {
        let who = [Id::new("ip", "127.0.0.1"), Id::digest(b"ann:1")];
        let settled = settle(&[entry(1, "auth", "")], &who).unwrap();
        assert_eq!(*settled, [Acl { permissions: 1, id: who[1].clone() }]);
        assert_eq!(settle(&[entry(1, "auth", "")], &who[..1]), Err(Code::INVALID_ACL));
        assert_eq!(check(&settled, permission::READ, &who), Ok(()));
        assert_eq!(check(&settled, permission::WRITE, &who), Err(Code::NO_AUTH));
        assert_eq!(check(&settled, permission::READ, &who[..1]), Err(Code::NO_AUTH));
        let shown = Acl { permissions: 1, id: Id::new("digest", "ann:x") };
        assert_eq!(without_hashes(&settled), [shown]);
    }

    #[test]
    fn what_no_scheme_knows_is_not_accepted() {
        for (scheme, id) in [("world", "someone"), ("digest", "ann"), ("ip", "x"), ("sasl", "ann"), ("", "")]
        {
            assert_eq!(settle(&[entry(1, scheme, id)], &[]), Err(Code::INVALID_ACL), "{scheme}:{id}");
        }
    }
}
