//! Four-letter words.

use std::fmt::{Display, Write as _};

use zk_proto::SessionId;

use super::connection::{Ending, Output};
use super::{Cluster, millis};
use crate::embedded::settings::Release;

/// What follows the release whose behaviour this is: what it really is.
const SUFFIX: &str = concat!("-zk-testkit-", env!("CARGO_PKG_VERSION"), ", built on no particular day");
const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

impl Cluster {
    /// False if that is no word.
    pub(super) fn answer_word(
        &mut self,
        connection: u64,
        at: usize,
        word: [u8; 4],
        argument: Option<[u8; 8]>,
    ) -> bool {
        let mut answer = match &word {
            b"ruok" => "imok".to_owned(),
            b"gtmk" => self.trace_mask.to_string(),
            b"stmk" => self.set_trace_mask(argument),
            b"srvr" => self.srvr(at, ""),
            b"stat" => self.srvr(at, &format!("Clients:\n{}\n", self.cons(at, connection))),
            b"mntr" => self.mntr(at),
            b"cons" => format!("{}\n", self.cons(at, connection)),
            b"conf" => self.conf(at),
            b"isro" => if self.replicas[at].local.is_some() { "ro" } else { "rw" }.to_owned(),
            // kazoo asks it for the version.
            b"envi" => format!("Environment:\nzookeeper.version={}\nhost.name=localhost\n", self.version()),
            b"wchs" => self.wchs(at),
            b"wchc" => self.watches_by_session(at),
            b"wchp" => self.watches_by_path(at),
            b"dump" => self.dump(),
            b"dirs" => "datadir_size: 0\nlogdir_size: 0\n".to_owned(),
            b"crst" => "Connection stats reset.\n".to_owned(),
            b"srst" => "Server stats reset.\n".to_owned(),
            _ => return false,
        };
        let serving = self.replicas[at].serves_reads();
        match &word {
            b"ruok" | b"gtmk" | b"stmk" | b"envi" => {}
            b"isro" if !serving => answer = "null".to_owned(),
            _ if !serving => answer = NOT_SERVING.to_owned(),
            b"crst" => {
                for held in self.connections.values_mut().filter(|held| held.at == at) {
                    (held.received, held.sent) = (0, 0);
                }
            }
            b"srst" => (self.replicas[at].received, self.replicas[at].sent) = (0, 0),
            _ => {}
        }
        // Not a frame: the bytes go out as they are.
        self.send_to_client(connection, Output::Send(answer.into()));
        self.end(connection, Ending::Orderly);
        true
    }

    fn version(&self) -> String {
        let release = match self.settings.release {
            Release::V3_8 => "3.8.0",
            Release::V3_9 => "3.9.3",
        };
        format!("{release}{SUFFIX}")
    }

    fn mode(&self, at: usize) -> &'static str {
        match self.replicas.len() {
            1 => "standalone",
            _ if self.replicas[at].local.is_some() => "read-only",
            _ if at == self.leader => "leader",
            _ => "follower",
        }
    }

    fn srvr(&self, at: usize, clients: &str) -> String {
        let replica = &self.replicas[at];
        format!(
            "Zookeeper version: {}\n{clients}Latency min/avg/max: 0/0.0/0\nReceived: {}\nSent: {}\n\
             Connections: {}\nOutstanding: {}\nZxid: 0x{:x}\nMode: {}\nNode count: {}\n",
            self.version(),
            replica.received,
            replica.sent,
            self.connections_at(at).len(),
            replica.outbox.len(),
            replica.tree.zxid(),
            self.mode(at),
            replica.tree.len(),
        )
    }

    fn mntr(&self, at: usize) -> String {
        let replica = &self.replicas[at];
        let mut text = format!("zk_version\t{}\nzk_server_state\t{}\n", self.version(), self.mode(at));
        let mut line = |key: &str, value: usize| {
            // Writing to a String does not fail.
            let _ = writeln!(text, "zk_{key}\t{value}");
        };
        line("packets_received", usize::try_from(replica.received).unwrap_or(usize::MAX));
        line("packets_sent", usize::try_from(replica.sent).unwrap_or(usize::MAX));
        line("num_alive_connections", self.connections_at(at).len());
        line("outstanding_requests", replica.outbox.len());
        line("znode_count", replica.tree.len());
        line("watch_count", replica.watches.count());
        line("ephemerals_count", replica.tree.ephemerals_len());
        line("approximate_data_size", replica.tree.data_size());
        line("global_sessions", self.sessions.len());
        if at == self.leader && self.replicas.len() > 1 {
            line("synced_followers", self.servers_up().saturating_sub(1));
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
            let session = held.session().map(|session| format!(",sid=0x{session:x}"));
            let _ = writeln!(text, "{})", session.unwrap_or_default());
        }
        text
    }

    fn set_trace_mask(&mut self, mask: Option<[u8; 8]>) -> String {
        let Some(mask) = mask else { return String::new() };
        self.trace_mask = i64::from_be_bytes(mask);
        self.trace_mask.to_string()
    }

    /// Of the watches of data only, as in Apache ZooKeeper; `mntr` counts all.
    fn wchs(&self, at: usize) -> String {
        let data = &self.replicas[at].watches.data;
        format!(
            "{} connections watching {} paths\nTotal watches:{}\n",
            data.watchers().count(),
            data.paths().count(),
            data.count()
        )
    }

    fn watches_by_session(&self, at: usize) -> String {
        let watchers = self.replicas[at].watches.data.watchers();
        let blocks = watchers.map(|(watcher, paths)| block(self.session_of(watcher), paths));
        blocks.collect::<String>() + "\n"
    }

    fn watches_by_path(&self, at: usize) -> String {
        let paths = self.replicas[at].watches.data.paths();
        let blocks = paths.map(|(path, held)| block(path, held.map(|watcher| self.session_of(watcher))));
        blocks.collect::<String>() + "\n"
    }

    /// As it is reported.
    fn session_of(&self, connection: u64) -> SessionId {
        SessionId(self.connections.get(&connection).and_then(|held| held.session()).unwrap_or(0))
    }

    fn conf(&self, at: usize) -> String {
        let settings = &self.settings;
        let (min_timeout, max_timeout) = settings.granted();
        format!(
            "clientPort={}\ntickTime={}\nmaxClientCnxns={}\nminSessionTimeout={}\nmaxSessionTimeout={}\n\
             serverId={}\ninitLimit={}\nsyncLimit={}\n",
            self.addresses[at].port(),
            millis(settings.tick_time),
            settings.max_connections,
            millis(min_timeout),
            millis(max_timeout),
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
        for (session, _, _) in sessions {
            let paths = self.replicas[self.leader].tree.ephemerals(session);
            if !paths.is_empty() {
                text += &block(format!("0x{session:x}:"), paths);
            }
        }
        text
    }
}

/// A heading, and what belongs to it.
fn block(heading: impl Display, lines: impl IntoIterator<Item: Display>) -> String {
    lines.into_iter().fold(format!("{heading}\n"), |text, line| text + &format!("\t{line}\n"))
}
