//! The stores of the ledger, and their common interface.
//!
//! The fence is in the store, not in this program. By triggers and for every client, both stores refuse a claim with an
//! older token and a booking whose token is not the claimed one, and record the refusal. This program follows the
//! protocol: it claims first, and accepts a refusal.

#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use crate::leadership::Leadership;
use crate::orders::Order;

/// A store that keeps the ledger and fences its writers.
///
/// Every method is one transaction. After an error the outcome of a write may be unknown. Repeating it is safe: a claim
/// is idempotent, and an order that was already booked is [`Booking::AlreadyBooked`].
pub(crate) trait Store {
    /// Claims the store for this leadership. Call it before anything is read.
    fn claim(&mut self, leadership: &Leadership) -> Result<Claim, StoreError>;

    /// The ids of all booked orders.
    fn booked(&mut self) -> Result<HashSet<String>, StoreError>;

    /// Books one order: its entry and its account's balance.
    fn book(&mut self, leadership: &Leadership, order: &Order) -> Result<Booking, StoreError>;

    /// The ledger's progress.
    fn progress(&mut self) -> Result<Progress, StoreError>;

    /// All data, as of one moment.
    fn snapshot(&mut self) -> Result<Snapshot, StoreError>;
}

/// The store's answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Only writes under this token are accepted from now on.
    Granted,
    /// The store keeps this newer token, or the same one of another member. The refusal is recorded there.
    Refused { token: i64, member: String },
}

/// The store's answer to a booking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Booking {
    Booked,
    /// An entry of this order exists: an earlier process with the same token booked it after this one had read.
    AlreadyBooked,
    /// The token is not the claimed one, which is this. The refusal is recorded in the store.
    Refused {
        token: i64,
    },
}

/// The ledger's progress and its claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Progress {
    /// Orders booked.
    pub(crate) booked: u64,
    /// The claimed token; 0 before the first claim.
    pub(crate) token: i64,
    pub(crate) term: i64,
    pub(crate) member: String,
    pub(crate) site: String,
    /// Late writes that the store refused.
    pub(crate) refused: Refused,
}

/// The number of refusals, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Refused {
    pub(crate) claims: u64,
    pub(crate) bookings: u64,
}

/// All data of a store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// In booking order.
    pub(crate) entries: Vec<Entry>,
    pub(crate) balances: Vec<Balance>,
    /// By token, oldest first.
    pub(crate) claims: Vec<ClaimRecord>,
    /// The token claimed now.
    pub(crate) token: i64,
    pub(crate) refused: Refused,
}

/// One booking.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Its number, from 1, in the order of booking, without gaps.
    pub(crate) number: i64,
    pub(crate) order_id: String,
    pub(crate) account: String,
    pub(crate) currency: String,
    pub(crate) amount_cents: i64,
    pub(crate) token: i64,
}

/// What one account owes in one currency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Balance {
    pub(crate) account: String,
    pub(crate) currency: String,
    pub(crate) balance_cents: i64,
}

/// One leadership's claim.
#[derive(Debug, Clone)]
pub(crate) struct ClaimRecord {
    pub(crate) token: i64,
    pub(crate) term: i64,
    pub(crate) member: String,
    pub(crate) site: String,
    /// When it was first made, UTC, RFC 3339, by the store's clock.
    pub(crate) claimed_at: String,
    /// The number of entries at that time. An entry with a higher number must have this token or a newer one.
    pub(crate) entries_before: i64,
}

/// Why a store could not carry out a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("{store}: there is no ledger yet; `ledger run` makes one")]
    Missing { store: String },
    /// Another process holds a lock that is needed. Nothing was changed; a later try may succeed.
    #[error("{store}: locked by another process: {detail}")]
    Busy { store: String, detail: String },
    #[error("{store}: {}", in_full(.source.as_ref()))]
    Unusable { store: String, source: Box<dyn Error + Send + Sync> },
    #[error(
        "{store}: holds layout {found} of the ledger, this program writes layout {expected}; \
         give it another store, or the program that made this one"
    )]
    Layout { store: String, found: i64, expected: i64 },
    #[cfg_attr(feature = "postgres", expect(dead_code, reason = "every kind of store is built in"))]
    #[error("{store}: built without PostgreSQL; build with the feature `postgres`")]
    Unsupported { store: String },
}

/// An error with its causes: a database's own message is often one level down.
fn in_full(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

/// The kind of store, and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreAddress {
    /// A file on this host.
    Sqlite(PathBuf),
    /// A server; the URL as given.
    Postgres(String),
}

impl FromStr for StoreAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            if path.is_empty() {
                return Err("a path is missing after `sqlite:`".into());
            }
            Ok(Self::Sqlite(path.into()))
        } else if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            Ok(Self::Postgres(text.into()))
        } else {
            Err("a store is `sqlite:PATH` or `postgres://USER@HOST:PORT/DATABASE`".into())
        }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(to, "sqlite:{}", path.display()),
            Self::Postgres(url) => to.write_str(&without_secrets(url)),
        }
    }
}

/// The URL without a password and without parameters, which may carry one too.
fn without_secrets(url: &str) -> String {
    let url = url.split('?').next().unwrap_or(url);
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((before, host))) => {
            let user = before.split("://").nth(1).and_then(|user| user.split(':').next()).unwrap_or_default();
            format!("{scheme}://{user}@{host}")
        }
        _ => url.to_owned(),
    }
}

/// Opens a store to write to it. Creates the ledger's tables if they do not exist.
pub(crate) fn open(address: &StoreAddress) -> Result<Box<dyn Store>, StoreError> {
    match address {
        StoreAddress::Sqlite(path) => Ok(Box::new(sqlite::Sqlite::create_or_open(path)?)),
        #[cfg(feature = "postgres")]
        StoreAddress::Postgres(url) => {
            Ok(Box::new(postgres::Postgres::create_or_open(url, address.to_string())?))
        }
        #[cfg(not(feature = "postgres"))]
        StoreAddress::Postgres(_) => Err(StoreError::Unsupported { store: address.to_string() }),
    }
}

/// Opens an existing store to read it.
pub(crate) fn open_existing(address: &StoreAddress) -> Result<Box<dyn Store>, StoreError> {
    match address {
        StoreAddress::Sqlite(path) => Ok(Box::new(sqlite::Sqlite::open_existing(path)?)),
        #[cfg(feature = "postgres")]
        StoreAddress::Postgres(url) => {
            Ok(Box::new(postgres::Postgres::open_existing(url, address.to_string())?))
        }
        #[cfg(not(feature = "postgres"))]
        StoreAddress::Postgres(_) => Err(StoreError::Unsupported { store: address.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_file_or_a_server() {
        assert_eq!("sqlite:/srv/l.db".parse(), Ok(StoreAddress::Sqlite("/srv/l.db".into())));
        assert!(matches!("postgresql://h/d".parse(), Ok(StoreAddress::Postgres(_))));
        for wrong in ["", "sqlite:", "/srv/l.db", "mysql://h/d"] {
            assert!(wrong.parse::<StoreAddress>().is_err(), "{wrong:?} was taken for a store");
        }
    }

    #[test]
    fn a_printed_address_holds_no_password() {
        for (given, shown) in [
            ("postgres://app:s3cret@db:5432/shop", "postgres://app@db:5432/shop"),
            ("postgres://app:s3@cret@db/shop", "postgres://app@db/shop"),
            ("postgres://app@db/shop?password=s3cret", "postgres://app@db/shop"),
            ("postgresql://db/shop", "postgresql://db/shop"),
        ] {
            assert_eq!(given.parse::<StoreAddress>().unwrap().to_string(), shown);
        }
    }
}
