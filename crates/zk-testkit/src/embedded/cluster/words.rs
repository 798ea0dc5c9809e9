//! Four-letter words.

use std::fmt::Write as _;

use super::connection::{Ending, Outgoing};
use super::{Cluster, millis};

const WORDS: [&[u8; 4]; 10] =
    [b"ruok", b"srvr", b"stat", b"mntr", b"cons", b"conf", b"isro", b"wchs", b"dump", b"envi"];
/// The release whose behaviour this is, and what it really is.
const VERSION: &str = concat!("3.8.0-zk-testkit-", env!("CARGO_PKG_VERSION"), ", built on no particular day");
const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

pub(super) fn is_word(prefix: [u8; 4]) -> bool {
    WORDS.contains(&&prefix)
}

impl Cluster {
    pub(super) fn answer_word(&mut self, connection: u64, word: [u8; 4]) {
        let Some(held) = self.connections.get(&connection) else { return };
        let at = held.at;
        let answer = match &word {
            b"ruok" => "imok".to_owned(),
            _ if !self.replicas[at].serving => NOT_SERVING.to_owned(),
            b"srvr" => self.srvr(at, ""),
            b"stat" => self.srvr(at, &format!("Clients:\n{}\n", self.cons(at, connection))),
            b"mntr" => self.mntr(at),
            b"cons" => format!("{}\n", self.cons(at, connection)),
            b"conf" => self.conf(at),
            b"isro" => "rw".to_owned(),
            // kazoo asks it for the version.
            b"envi" => format!("Environment:\nzookeeper.version={VERSION}\nhost.name=localhost\n"),
            b"wchs" => format!("Total watches:{}\n", self.replicas[at].watches.count()),
            _ => self.dump(),
        };
        // Not a frame: the bytes go out as they are.
        self.say(connection, Outgoing::Frame(answer.into()));
        self.end(connection, Ending::Orderly);
    }

    fn mode(&self, at: usize) -> &'static str {
        match self.replicas.len() {
            1 => "standalone",
            _ if at == self.leader => "leader",
            _ => "follower",
        }
    }

    fn connections_at(&self, at: usize) -> usize {
        self.connections.values().filter(|held| held.at == at).count()
    }

    fn srvr(&self, at: usize, clients: &str) -> String {
        let replica = &self.replicas[at];
        format!(
            "Zookeeper version: {VERSION}\n{clients}Latency min/avg/max: 0/0.0/0\nReceived: {}\nSent: {}\n\
             Connections: {}\nOutstanding: {}\nZxid: 0x{:x}\nMode: {}\nNode count: {}\n",
            replica.received,
            replica.sent,
            self.connections_at(at),
            replica.outbox.len(),
            replica.tree.zxid(),
            self.mode(at),
            replica.tree.len(),
        )
    }

    fn mntr(&self, at: usize) -> String {
        let replica = &self.replicas[at];
        let mut text = format!("zk_version\t{VERSION}\nzk_server_state\t{}\n", self.mode(at));
        let mut line = |key: &str, value: usize| {
            // Writing to a String does not fail.
            let _ = writeln!(text, "zk_{key}\t{value}");
        };
        line("packets_received", usize::try_from(replica.received).unwrap_or(usize::MAX));
        line("packets_sent", usize::try_from(replica.sent).unwrap_or(usize::MAX));
        line("num_alive_connections", self.connections_at(at));
        line("outstanding_requests", replica.outbox.len());
        line("znode_count", replica.tree.len());
        line("watch_count", replica.watches.count());
        line("ephemerals_count", replica.tree.ephemerals_len());
        line("approximate_data_size", replica.tree.data_size());
        line("global_sessions", self.sessions.len());
        if at == self.leader && self.replicas.len() > 1 {
            let synced =
                self.replicas.iter().enumerate().filter(|(index, replica)| {
                    *index != self.leader && replica.serving && replica.link.is_up()
                });
            line("synced_followers", synced.count());
        }
        text
    }

    fn cons(&self, at: usize, asking: u64) -> String {
        let mut text = String::new();
        for (id, held) in self.connections.iter().filter(|(_, held)| held.at == at) {
            let mark = u8::from(*id != asking);
            let _ = write!(
                text,
                " /{}[{mark}](queued={},recved={},sent={}",
                held.peer,
                held.queue.len(),
                held.received,
                held.sent
            );
            if let Some(session) = held.session() {
                let _ = write!(text, ",sid=0x{session:x}");
            }
            text.push_str(")\n");
        }
        text
    }

    fn conf(&self, at: usize) -> String {
        let settings = &self.settings;
        format!(
            "clientPort={}\ntickTime={}\nmaxClientCnxns=0\nminSessionTimeout={}\nmaxSessionTimeout={}\n\
             serverId={}\ninitLimit={}\nsyncLimit={}\n",
            settings.ports.get(at).copied().unwrap_or_default(),
            millis(settings.tick),
            millis(settings.min_timeout),
            millis(settings.max_timeout),
            at + 1,
            settings.sync_limit,
            settings.sync_limit,
        )
    }

    fn dump(&self) -> String {
        let sessions = self.sessions.list();
        let mut text = format!("Sessions ({}):\n", sessions.len());
        for (session, timeout_ms, _) in &sessions {
            let _ = writeln!(text, "0x{session:x}\t{timeout_ms}ms");
        }
        text.push_str("ephemeral nodes dump:\n");
        let tree = &self.replicas[self.leader].tree;
        for (session, _, _) in &sessions {
            let paths = tree.ephemerals(*session);
            if !paths.is_empty() {
                let _ = writeln!(text, "0x{session:x}:");
            }
            for path in paths {
                let _ = writeln!(text, "\t{path}");
            }
        }
        text
    }
}
