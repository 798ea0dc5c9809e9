//! Access lists: who may do what.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use sha1::{Digest as _, Sha1};
use zk_proto::{Acl, AclEntry, ErrorCode, Id};

use super::hash_order::JavaHash;

/// What a client becomes by `name:password` in the scheme `digest`.
pub(crate) fn digest_id(credentials: &[u8]) -> Id {
    let text = String::from_utf8_lossy(credentials);
    let name = text.split_once(':').map_or(&*text, |(name, _)| name);
    let hash = base64::engine::general_purpose::STANDARD.encode(Sha1::digest(text.as_bytes()));
    Id::new("digest", format!("{name}:{hash}"))
}

/// The name without what proves it.
pub(crate) fn user(id: &Id) -> &str {
    match id.scheme.as_str() {
        "digest" => id.id.split(':').next().unwrap_or_default(),
        _ => &id.id,
    }
}

impl JavaHash for Id {
    fn java_hash(&self) -> i32 {
        [&self.scheme, &self.id]
            .into_iter()
            .fold(17_i32, |hash, part| hash.wrapping_mul(37).wrapping_add(part.java_hash()))
    }
}

/// The list that gives every client these permissions.
pub(crate) fn for_anyone(permissions: i32) -> Arc<[Acl]> {
    Arc::new([Acl { permissions, id: Id::new("world", "anyone") }])
}

/// The scheme of those whom no access list binds.
pub(crate) const SUPER: &str = "super";

/// Whether one of `who` has one of the `wanted` permissions.
pub(crate) fn check(list: &[Acl], wanted: i32, who: &[Id]) -> Result<(), ErrorCode> {
    let may = list.iter().filter(|entry| entry.permissions & wanted != 0).any(|entry| {
        (entry.id.scheme == "world" && entry.id.id == "anyone")
            || who.iter().filter(|id| id.scheme == entry.id.scheme).any(|id| match id.scheme.as_str() {
                "digest" => id.id == entry.id.id,
                "ip" => ip_matches(&id.id, &entry.id.id),
                _ => false,
            })
    });
    let is_super = || who.iter().any(|id| id.scheme == SUPER);
    if list.is_empty() || may || is_super() { Ok(()) } else { Err(ErrorCode::NO_AUTH) }
}

/// Whether two entries are the same. An id may be missing (kazoo's `auth` has none), and
/// Apache ZooKeeper fails on that only where it looks at it.
fn is_double(entry: &AclEntry<'_>, earlier: &AclEntry<'_>) -> Result<bool, ErrorCode> {
    if entry.permissions != earlier.permissions {
        return Ok(false);
    }
    let scheme = entry.scheme.as_ref().ok_or(ErrorCode::MARSHALLING_ERROR)?;
    if Some(scheme) != earlier.scheme.as_ref() {
        return Ok(false);
    }
    let id = entry.id.as_ref().ok_or(ErrorCode::MARSHALLING_ERROR)?;
    Ok(Some(id) == earlier.id.as_ref())
}

/// The list as it is kept: without doubles, `auth` replaced by whom the client has
/// proved to be.
pub(crate) fn settle(list: &[AclEntry<'_>], who: &[Id]) -> Result<Arc<[Acl]>, ErrorCode> {
    let mut single: Vec<&AclEntry<'_>> = Vec::new();
    for entry in list {
        let mut double = false;
        for earlier in &single {
            double = double || is_double(entry, earlier)?;
        }
        if !double {
            single.push(entry);
        }
    }
    let mut settled = Vec::new();
    for entry in single {
        let permissions = entry.permissions;
        let id = || entry.id.as_deref().ok_or(ErrorCode::MARSHALLING_ERROR);
        let scheme = entry.scheme.as_deref().unwrap_or_default();
        match scheme {
            "world" if id()? == "anyone" => {}
            "auth" => {
                let before = settled.len();
                let proved = who.iter().filter(|id| id.scheme == "digest");
                settled.extend(proved.map(|id| Acl { permissions, id: id.clone() }));
                if settled.len() == before {
                    return Err(ErrorCode::INVALID_ACL);
                }
                continue;
            }
            "digest" if is_digest(id()?) => {}
            "ip" if ip_range(id()?).is_some() => {}
            _ => return Err(ErrorCode::INVALID_ACL),
        }
        settled.push(Acl { permissions, id: Id::new(scheme, id()?) });
    }
    if settled.is_empty() { Err(ErrorCode::INVALID_ACL) } else { Ok(settled.into()) }
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
    use zk_proto::permission;

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
        assert_eq!(settle(&[], &[]), Err(ErrorCode::INVALID_ACL));
    }
}
