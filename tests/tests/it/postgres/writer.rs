//! Clients that write rows at both nodes all the time, and record each row that was acknowledged.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postgres::{Client, Config, NoTls};

const PAUSE: Duration = Duration::from_millis(3);
const RETRY: Duration = Duration::from_millis(100);

/// The row, the server's timeline and the end of its WAL.
const INSERT: &str = "INSERT INTO rows VALUES ($1, $2, repeat('x', $3)) \
    RETURNING substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), \
    pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";

/// An acknowledged row.
#[derive(Clone, Debug)]
pub struct Ack {
    /// The client's node, and the number of its row.
    pub id: (i32, i64),
    /// When the statement was sent.
    pub begun: Instant,
    /// When the answer was there.
    pub ended: Instant,
    /// The timeline of the server.
    pub timeline: String,
    /// Where the row is in its WAL, in bytes.
    pub wal: i64,
}

/// A client for each node.
pub struct Writers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    is_paused: AtomicBool,
    size: AtomicUsize,
    acks: Mutex<Vec<Ack>>,
}

impl Writers {
    /// They begin when they are not [paused](Self::pause) any more.
    pub fn start(servers: [(&'static str, u16); 2]) -> Self {
        let shared = Arc::new(Shared::default());
        shared.size.store(100, Ordering::Relaxed);
        shared.is_paused.store(true, Ordering::Relaxed);
        let threads = (0..).zip(servers).map(|(node, server)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.write(node, server))
        });
        Self { threads: threads.collect(), shared }
    }

    /// The size of each further row.
    pub fn size(&self, bytes: usize) {
        self.shared.size.store(bytes, Ordering::Relaxed);
    }

    pub fn pause(&self, yes: bool) {
        self.shared.is_paused.store(yes, Ordering::Relaxed);
    }

    /// All acknowledged rows until now, of each node in their order.
    pub fn acks(&self) -> Vec<Ack> {
        self.shared.acks.lock().unwrap().clone()
    }

    /// Forgets rows that are lost.
    pub fn forget(&self, lost: &[Ack]) {
        let lost: HashSet<_> = lost.iter().map(|ack| ack.id).collect();
        self.shared.acks.lock().unwrap().retain(|ack| !lost.contains(&ack.id));
    }

    /// No client begins another row.
    pub fn no_more(&self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits for the clients, once the servers have ended.
    pub fn end(self) {
        self.no_more();
        self.threads.into_iter().for_each(|client| client.join().unwrap());
    }
}

impl Shared {
    fn write(&self, node: i32, server: (&str, u16)) {
        let mut number = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            // A server that is down refuses the connection, a standby the row. Each new connection takes the time of a login.
            if !self.is_paused.load(Ordering::Relaxed)
                && let Ok(mut client) = connect(server)
            {
                while !client.is_closed() && !self.is_over.load(Ordering::Relaxed) {
                    let _ = self.write_with(&mut client, node, &mut number);
                    thread::sleep(RETRY);
                }
            }
            thread::sleep(RETRY);
        }
    }

    fn write_with(&self, client: &mut Client, node: i32, number: &mut i64) -> Result<(), postgres::Error> {
        let insert = client.prepare(INSERT)?;
        while !self.is_over.load(Ordering::Relaxed) {
            if self.is_paused.load(Ordering::Relaxed) {
                thread::sleep(PAUSE);
                continue;
            }
            // A row whose answer was lost may exist: its number is not used again.
            *number += 1;
            let size = i32::try_from(self.size.load(Ordering::Relaxed)).unwrap();
            let begun = Instant::now();
            let row = client.query_one(&insert, &[&node, &*number, &size])?;
            let ended = Instant::now();
            let ack = Ack { id: (node, *number), begun, ended, timeline: row.get(0), wal: row.get(1) };
            self.acks.lock().unwrap().push(ack);
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

fn connect((address, port): (&str, u16)) -> Result<Client, postgres::Error> {
    let mut config = Config::new();
    config.host(address).port(port).user("writer").password("writer").dbname("postgres");
    config.connect_timeout(Duration::from_secs(2)).connect(NoTls)
}

/// Each timeline was written at one node, and no row was begun on one after a row was acknowledged on a newer one.
pub fn assert_one_at_a_time(acks: &[Ack]) {
    let mut timelines: BTreeMap<&str, Vec<&Ack>> = BTreeMap::new();
    for ack in acks {
        timelines.entry(&ack.timeline).or_default().push(ack);
    }
    for (timeline, acks) in &timelines {
        let nodes: HashSet<_> = acks.iter().map(|ack| ack.id.0).collect();
        assert_eq!(nodes.len(), 1, "timeline {timeline} was written at two nodes");
    }
    let all: Vec<_> = timelines.values().collect();
    for pair in all.windows(2) {
        let last = pair[0].iter().max_by_key(|ack| ack.begun).unwrap();
        let first = pair[1].iter().min_by_key(|ack| ack.ended).unwrap();
        assert!(last.begun <= first.ended, "two primaries have acknowledged rows: {last:?}, {first:?}");
    }
}

/// How long no row was acknowledged between one timeline and the next.
pub fn pauses(acks: &[Ack]) -> Vec<Duration> {
    let mut ends: BTreeMap<&str, (Instant, Instant)> = BTreeMap::new();
    for ack in acks {
        let (first, last) = ends.entry(&ack.timeline).or_insert((ack.ended, ack.ended));
        (*first, *last) = ((*first).min(ack.ended), (*last).max(ack.ended));
    }
    let all: Vec<_> = ends.values().collect();
    all.windows(2).map(|pair| pair[1].0.saturating_duration_since(pair[0].1)).collect()
}
