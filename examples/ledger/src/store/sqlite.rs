//! The ledger in an SQLite file.
//!
//! The file belongs to one host: the locks that order its writers don't work over a network file system. A process that
//! is frozen inside its transaction keeps the file's write lock until it wakes or is killed. A successor's claim waits
//! for that. This delays the claim, and is safe.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Row, TransactionBehavior, params};

use super::{Balance, Booking, Claim, ClaimRecord, Entry, Progress, Refused, Snapshot, Store, StoreError};
use crate::leadership::Leadership;
use crate::orders::Order;

const SCHEMA: &str = include_str!("sqlite.sql");
/// Kept in the file's `user_version`.
const LAYOUT: i64 = 1;
/// How long SQLite itself waits for a lock. It is short because the caller repeats, and checks for a signal in between.
const LOCK_WAIT: Duration = Duration::from_millis(250);
/// How long to try to switch a file to write-ahead logging. For that one step SQLite answers 'busy' at once,
/// independent of its busy timeout.
const SWITCH_WAIT: Duration = Duration::from_secs(10);

/// An open ledger file.
pub(super) struct Sqlite {
    connection: Connection,
    name: String,
}

impl Sqlite {
    /// Opens the file, and creates it if necessary.
    pub(super) fn create_or_open(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut store = Self::open(path, flags)?;
        store.prepare().map_err(|error| store.error(error))?;
        let layout = store.layout()?;
        if layout == LAYOUT { Ok(store) } else { Err(store.other_layout(layout)) }
    }

    /// Opens a file with a ledger, to read it.
    pub(super) fn open_existing(path: &Path) -> Result<Self, StoreError> {
        let missing = || StoreError::Missing { store: name(path) };
        if !path.exists() {
            return Err(missing());
        }
        // Not read-only: the first process that opens a file after a crash has to write to it, to recover.
        let store = Self::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        match store.layout()? {
            0 => Err(missing()),
            LAYOUT => {
                store
                    .connection
                    .pragma_update(None, "query_only", true)
                    .map_err(|error| store.error(error))?;
                Ok(store)
            }
            other => Err(store.other_layout(other)),
        }
    }

    fn open(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        // One thread: no mutex. Paths, not URIs: a `?` in a name is a `?`.
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(path, flags)
            .and_then(|connection| connection.busy_timeout(LOCK_WAIT).map(|()| connection));
        match opened {
            Ok(connection) => Ok(Self { connection, name: name(path) }),
            Err(source) => Err(StoreError::Unusable { store: name(path), source: source.into() }),
        }
    }

    /// Configures the file for several processes, and creates the tables once.
    fn prepare(&mut self) -> rusqlite::Result<()> {
        // Readers then don't block the writer, and the writer does not block them.
        let started = Instant::now();
        loop {
            match self.connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())) {
                Err(error) if is_busy(&error) && started.elapsed() < SWITCH_WAIT => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                result => break result?,
            }
        }
        // A booking that was reported as booked is on the disk, even after a power failure.
        self.connection.pragma_update(None, "synchronous", "full")?;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let layout: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let tables: i64 =
            transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if layout == 0 && tables == 0 {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "user_version", LAYOUT)?;
        }
        transaction.commit()
    }

    fn layout(&self) -> Result<i64, StoreError> {
        self.connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .map_err(|error| self.error(error))
    }

    fn other_layout(&self, found: i64) -> StoreError {
        StoreError::Layout { store: self.name.clone(), found, expected: LAYOUT }
    }

    fn error(&self, error: rusqlite::Error) -> StoreError {
        let store = self.name.clone();
        if is_busy(&error) {
            StoreError::Busy { store, detail: error.to_string() }
        } else {
            StoreError::Unusable { store, source: error.into() }
        }
    }
}

impl Store for Sqlite {
    fn claim(&mut self, leadership: &Leadership) -> Result<Claim, StoreError> {
        claim(&mut self.connection, leadership).map_err(|error| self.error(error))
    }

    fn booked(&mut self) -> Result<HashSet<String>, StoreError> {
        let ids = || -> rusqlite::Result<HashSet<String>> {
            let mut statement = self.connection.prepare("SELECT order_id FROM entries")?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        ids().map_err(|error| self.error(error))
    }

    fn book(&mut self, leadership: &Leadership, order: &Order) -> Result<Booking, StoreError> {
        book(&mut self.connection, leadership, order).map_err(|error| self.error(error))
    }

    fn progress(&mut self) -> Result<Progress, StoreError> {
        progress(&mut self.connection).map_err(|error| self.error(error))
    }

    fn snapshot(&mut self) -> Result<Snapshot, StoreError> {
        snapshot(&mut self.connection).map_err(|error| self.error(error))
    }
}

fn claim(connection: &mut Connection, leadership: &Leadership) -> rusqlite::Result<Claim> {
    // Immediate: it has the write lock before it reads, so the data that it reads does not change, and a busy file is
    // waited for at the start and not half-way.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let raised = transaction.execute(
        "UPDATE claim SET token = ?1, term = ?2, member = ?3, site = ?4",
        params![leadership.token, leadership.term, leadership.member, leadership.site],
    )?;
    let answer = if raised == 1 {
        Claim::Granted
    } else {
        transaction.query_row("SELECT token, member FROM claim", [], |row| {
            Ok(Claim::Refused { token: row.get(0)?, member: row.get(1)? })
        })?
    };
    // A refusal is committed too: its record.
    transaction.commit()?;
    Ok(answer)
}

fn book(connection: &mut Connection, leadership: &Leadership, order: &Order) -> rusqlite::Result<Booking> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let inserted = transaction.execute(
        "INSERT INTO entries (order_id, account, currency, amount_cents, token, member)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            order.order_id,
            order.account,
            order.currency,
            order.amount_cents,
            leadership.token,
            leadership.member
        ],
    );
    let answer = match inserted {
        Ok(0) => {
            let token = transaction.query_row("SELECT token FROM claim", [], |row| row.get(0))?;
            Booking::Refused { token }
        }
        Ok(_) => Booking::Booked,
        Err(error) if is_duplicate(&error) => Booking::AlreadyBooked,
        Err(error) => return Err(error),
    };
    transaction.commit()?;
    Ok(answer)
}

fn progress(connection: &mut Connection) -> rusqlite::Result<Progress> {
    let transaction = connection.transaction()?;
    let refused = refused(&transaction)?;
    transaction.query_row(
        "SELECT token, term, member, site, (SELECT count(*) FROM entries) FROM claim",
        [],
        |row| {
            Ok(Progress {
                token: row.get(0)?,
                term: row.get(1)?,
                member: row.get(2)?,
                site: row.get(3)?,
                booked: count(row, 4)?,
                refused,
            })
        },
    )
}

fn snapshot(connection: &mut Connection) -> rusqlite::Result<Snapshot> {
    let transaction = connection.transaction()?;
    let mut entries = transaction.prepare(
        "SELECT number, order_id, account, currency, amount_cents, token FROM entries ORDER BY number",
    )?;
    let entries = entries.query_map([], |row| {
        Ok(Entry {
            number: row.get(0)?,
            order_id: row.get(1)?,
            account: row.get(2)?,
            currency: row.get(3)?,
            amount_cents: row.get(4)?,
            token: row.get(5)?,
        })
    })?;
    let mut balances = transaction.prepare("SELECT account, currency, balance_cents FROM accounts")?;
    let balances = balances.query_map([], |row| {
        Ok(Balance { account: row.get(0)?, currency: row.get(1)?, balance_cents: row.get(2)? })
    })?;
    let mut claims = transaction
        .prepare("SELECT token, term, member, site, claimed_at, entries_before FROM claims ORDER BY token")?;
    let claims = claims.query_map([], |row| {
        Ok(ClaimRecord {
            token: row.get(0)?,
            term: row.get(1)?,
            member: row.get(2)?,
            site: row.get(3)?,
            claimed_at: row.get(4)?,
            entries_before: row.get(5)?,
        })
    })?;
    let token = transaction.query_row("SELECT token FROM claim", [], |row| row.get(0)).optional()?;
    Ok(Snapshot {
        entries: entries.collect::<rusqlite::Result<_>>()?,
        balances: balances.collect::<rusqlite::Result<_>>()?,
        claims: claims.collect::<rusqlite::Result<_>>()?,
        token: token.unwrap_or(0),
        refused: refused(&transaction)?,
    })
}

fn refused(connection: &Connection) -> rusqlite::Result<Refused> {
    connection.query_row(
        "SELECT count(*) FILTER (WHERE what = 'claim'), count(*) FILTER (WHERE what = 'booking') FROM refusals",
        [],
        |row| Ok(Refused { claims: count(row, 0)?, bookings: count(row, 1)? }),
    )
}

/// A count(*), which is never negative.
fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::unsigned_abs)
}

fn name(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn is_duplicate(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
}
