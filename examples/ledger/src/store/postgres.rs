//! The ledger in a PostgreSQL database, in a schema of its own.
//!
//! A claim and a booking are one statement each, and the statement is the transaction: the server locks, checks, writes
//! and commits without another message from the client. So a process that is frozen or cut off at any time leaves no
//! lock that its successor would have to wait for.

use std::collections::HashSet;
use std::time::Duration;

use postgres::error::SqlState;
use postgres::{Client, Config, IsolationLevel, NoTls, Row};

use super::{Balance, Booking, Claim, ClaimRecord, Entry, Progress, Refused, Snapshot, Store, StoreError};
use crate::leadership::Leadership;
use crate::orders::Order;

const SCHEMA: &str = include_str!("postgres.sql");
/// Kept in `ledger.layout`.
const LAYOUT: i64 = 1;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The connection is given up if the server acknowledges nothing for this long.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Lock waits end with 'busy', and the caller repeats: it checks for a signal in between. The triggers require read
/// committed: each of their statements must see what was committed before it got its lock.
const SESSION: &str = "SET default_transaction_isolation = 'read committed';
                       SET lock_timeout = '1s';
                       SET idle_in_transaction_session_timeout = '5s'";
/// Any number, the same in every process. It serialises the creation of the tables.
const SCHEMA_LOCK: i64 = 0x6c65_6467_6572;

/// A connection to the ledger.
pub(super) struct Postgres {
    client: Client,
    name: String,
}

impl Postgres {
    /// Connects, and creates the ledger's schema if necessary. `name` is for messages: the address without its
    /// password.
    pub(super) fn create_or_open(url: &str, name: String) -> Result<Self, StoreError> {
        let mut store = Self::connect(url, name)?;
        store.checked(Self::create_if_missing)?;
        store.with_known_layout()
    }

    /// Connects to a database with a ledger, to read it.
    pub(super) fn open_existing(url: &str, name: String) -> Result<Self, StoreError> {
        let mut store = Self::connect(url, name)?;
        if !store.checked(has_ledger)? {
            return Err(StoreError::Missing { store: store.name });
        }
        store.with_known_layout()
    }

    fn connect(url: &str, name: String) -> Result<Self, StoreError> {
        let connect = || {
            let mut config: Config = url.parse()?;
            if config.get_password().is_none()
                && let Ok(password) = std::env::var("PGPASSWORD")
            {
                config.password(password);
            }
            if config.get_connect_timeout().is_none() {
                config.connect_timeout(CONNECT_TIMEOUT);
            }
            config.tcp_user_timeout(SILENCE_TIMEOUT).application_name("ledger");
            let mut client = config.connect(NoTls)?;
            client.batch_execute(SESSION)?;
            Ok(client)
        };
        match connect() {
            Ok(client) => Ok(Self { client, name }),
            Err(error) => Err(describe(error, name)),
        }
    }

    fn create_if_missing(client: &mut Client) -> Result<(), postgres::Error> {
        // Checked first: creating needs rights that a job should not need, and would wait for the locks of other
        // processes.
        if has_ledger(client)? {
            return Ok(());
        }
        let mut transaction = client.transaction()?;
        transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&SCHEMA_LOCK])?;
        if !has_ledger(&mut transaction)? {
            transaction.batch_execute(SCHEMA)?;
            transaction.execute("INSERT INTO ledger.layout VALUES ($1)", &[&LAYOUT])?;
        }
        transaction.commit()
    }

    fn with_known_layout(mut self) -> Result<Self, StoreError> {
        let found =
            self.checked(|client| client.query_one("SELECT version FROM ledger.layout", &[])?.try_get(0))?;
        if found == LAYOUT {
            Ok(self)
        } else {
            Err(StoreError::Layout { store: self.name, found, expected: LAYOUT })
        }
    }

    fn checked<T>(
        &mut self,
        work: impl FnOnce(&mut Client) -> Result<T, postgres::Error>,
    ) -> Result<T, StoreError> {
        work(&mut self.client).map_err(|error| describe(error, self.name.clone()))
    }
}

impl Store for Postgres {
    fn claim(&mut self, leadership: &Leadership) -> Result<Claim, StoreError> {
        self.checked(|client| {
            let raised = client.execute(
                "UPDATE ledger.claim SET token = $1, term = $2, member = $3, site = $4",
                &[&leadership.token, &leadership.term, &leadership.member, &leadership.site],
            )?;
            if raised == 1 {
                return Ok(Claim::Granted);
            }
            let row = client.query_one("SELECT token, member FROM ledger.claim", &[])?;
            Ok(Claim::Refused { token: row.try_get(0)?, member: row.try_get(1)? })
        })
    }

    fn booked(&mut self) -> Result<HashSet<String>, StoreError> {
        self.checked(|client| {
            let rows = client.query("SELECT order_id FROM ledger.entries", &[])?;
            rows.iter().map(|row| row.try_get(0)).collect()
        })
    }

    fn book(&mut self, leadership: &Leadership, order: &Order) -> Result<Booking, StoreError> {
        self.checked(|client| {
            let inserted = client.execute(
                "INSERT INTO ledger.entries (order_id, account, currency, amount_cents, token, member)
                 VALUES ($1, $2, $3, $4, $5, $6)",
                &[
                    &order.order_id,
                    &order.account,
                    &order.currency,
                    &order.amount_cents,
                    &leadership.token,
                    &leadership.member,
                ],
            );
            match inserted {
                Ok(0) => {
                    let token = client.query_one("SELECT token FROM ledger.claim", &[])?.try_get(0)?;
                    Ok(Booking::Refused { token })
                }
                Ok(_) => Ok(Booking::Booked),
                Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => Ok(Booking::AlreadyBooked),
                Err(error) => Err(error),
            }
        })
    }

    fn progress(&mut self) -> Result<Progress, StoreError> {
        self.checked(|client| {
            let mut transaction = client
                .build_transaction()
                .read_only(true)
                .isolation_level(IsolationLevel::RepeatableRead)
                .start()?;
            let refused = refused(&mut transaction)?;
            let row = transaction.query_one(
                "SELECT token, term, member, site, (SELECT count(*) FROM ledger.entries) FROM ledger.claim",
                &[],
            )?;
            Ok(Progress {
                token: row.try_get(0)?,
                term: row.try_get(1)?,
                member: row.try_get(2)?,
                site: row.try_get(3)?,
                booked: count(&row, 4)?,
                refused,
            })
        })
    }

    fn snapshot(&mut self) -> Result<Snapshot, StoreError> {
        self.checked(|client| {
            let mut transaction = client
                .build_transaction()
                .read_only(true)
                .isolation_level(IsolationLevel::RepeatableRead)
                .start()?;
            let mut query = |statement| transaction.query(statement, &[]);
            let entries = query(
                "SELECT number, order_id, account, currency, amount_cents, token
                 FROM ledger.entries ORDER BY number",
            )?;
            let balances = query("SELECT account, currency, balance_cents FROM ledger.accounts")?;
            let claims = query(
                "SELECT token, term, member, site,
                        to_char(claimed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'), entries_before
                 FROM ledger.claims ORDER BY token",
            )?;
            let claim = query("SELECT token FROM ledger.claim")?;
            Ok(Snapshot {
                entries: entries.iter().map(entry).collect::<Result<_, _>>()?,
                balances: balances.iter().map(balance).collect::<Result<_, _>>()?,
                claims: claims.iter().map(claim_record).collect::<Result<_, _>>()?,
                token: claim.first().map_or(Ok(0), |row| row.try_get(0))?,
                refused: refused(&mut transaction)?,
            })
        })
    }
}

fn entry(row: &Row) -> Result<Entry, postgres::Error> {
    Ok(Entry {
        number: row.try_get(0)?,
        order_id: row.try_get(1)?,
        account: row.try_get(2)?,
        currency: row.try_get(3)?,
        amount_cents: row.try_get(4)?,
        token: row.try_get(5)?,
    })
}

fn balance(row: &Row) -> Result<Balance, postgres::Error> {
    Ok(Balance { account: row.try_get(0)?, currency: row.try_get(1)?, balance_cents: row.try_get(2)? })
}

fn claim_record(row: &Row) -> Result<ClaimRecord, postgres::Error> {
    Ok(ClaimRecord {
        token: row.try_get(0)?,
        term: row.try_get(1)?,
        member: row.try_get(2)?,
        site: row.try_get(3)?,
        claimed_at: row.try_get(4)?,
        entries_before: row.try_get(5)?,
    })
}

fn has_ledger(client: &mut impl postgres::GenericClient) -> Result<bool, postgres::Error> {
    // A query on the catalog's tables sees what another process has committed a
    // moment ago; `to_regclass` may answer from the server's cache of names.
    client
        .query_one(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables
                            WHERE schemaname = 'ledger' AND tablename = 'layout')",
            &[],
        )?
        .try_get(0)
}

fn refused(client: &mut impl postgres::GenericClient) -> Result<Refused, postgres::Error> {
    let row = client.query_one(
        "SELECT count(*) FILTER (WHERE what = 'claim'), count(*) FILTER (WHERE what = 'booking') FROM ledger.refusals",
        &[],
    )?;
    Ok(Refused { claims: count(&row, 0)?, bookings: count(&row, 1)? })
}

/// A count(*), which is never negative.
fn count(row: &Row, column: usize) -> Result<u64, postgres::Error> {
    row.try_get::<_, i64>(column).map(i64::unsigned_abs)
}

fn describe(error: postgres::Error, store: String) -> StoreError {
    let busy = [
        &SqlState::LOCK_NOT_AVAILABLE,
        &SqlState::T_R_DEADLOCK_DETECTED,
        &SqlState::T_R_SERIALIZATION_FAILURE,
    ];
    if error.code().is_some_and(|code| busy.contains(&code)) {
        StoreError::Busy { store, detail: error.to_string() }
    } else {
        StoreError::Unusable { store, source: error.into() }
    }
}
