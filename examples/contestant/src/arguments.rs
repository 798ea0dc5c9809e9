use std::time::Duration;

use clap::{Parser, ValueEnum};
use zk_session::{DriverKind, Session, SessionBuilder};

/// Candidates of elections that print when they lead. The README describes the protocol.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub(crate) struct Arguments {
    /// The ensemble, as host:port,host:port.
    #[arg(long)]
    pub(crate) connect: String,
    /// The znode of the election, or above the elections.
    #[arg(long)]
    pub(crate) path: String,
    /// The session timeout, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub(crate) session: u64,
    /// How many candidates.
    #[arg(long, default_value_t = 1)]
    pub(crate) n: usize,
    /// Whether they are candidates in one election or each in its own, and on how many sessions.
    #[arg(long, value_enum, default_value_t = Mode::Cand)]
    pub(crate) mode: Mode,
    /// Candidate 0 joins first and never leads; with the recipe `elector`, it decides.
    #[arg(long)]
    pub(crate) witness: bool,
    /// Sets this process's names apart from another's.
    #[arg(long, default_value = "")]
    pub(crate) prefix: String,
    /// How the leader is found.
    #[arg(long, value_enum, default_value_t = RecipeName::Elector)]
    pub(crate) recipe: RecipeName,
    /// Whose znodes a queue is made of.
    #[arg(long, value_enum, default_value_t = Format::Native)]
    pub(crate) format: Format,
    /// The ensemble's tickTime, in milliseconds [default: 2000, or half of the session
    /// timeout if that is less: a server grants no less than two ticks].
    #[arg(long, value_name = "MS")]
    pub(crate) tick: Option<u64>,
    /// The ZooKeeper client underneath.
    #[arg(long, value_enum, default_value_t = Driver::Native)]
    pub(crate) driver: Driver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Candidates of one election at the path, each with a session of its own.
    Cand,
    /// Elections e0, e1... below the path, with one candidate and session each.
    Multi,
    /// Elections e<prefix>0... below the path, all on one session, opened at the word `go`.
    Many,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecipeName {
    /// The lowest ballot decides, by a strategy.
    Elector,
    /// The first in line leads.
    Queue,
    /// The candidate that creates the one znode leads.
    Single,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Our own.
    Native,
    /// Those of Curator's LeaderLatch.
    LeaderLatch,
    /// Those of kazoo's Election.
    KazooElection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Driver {
    /// zk-session's own
    Native,
    /// zookeeper-async
    ZookeeperAsync,
}

impl Arguments {
    pub(crate) fn session_timeout(&self) -> Duration {
        Duration::from_millis(self.session)
    }

    fn tick(&self) -> Duration {
        Duration::from_millis(self.tick.unwrap_or_else(|| (self.session / 2).min(2000)))
    }

    fn driver(&self) -> DriverKind {
        match self.driver {
            Driver::Native => DriverKind::Native,
            Driver::ZookeeperAsync => DriverKind::ZookeeperAsync,
        }
    }

    /// A session of these settings.
    pub(crate) fn session(&self) -> SessionBuilder {
        Session::builder(self.connect.clone())
            .session_timeout(self.session_timeout())
            .tick_time(self.tick())
            .driver(self.driver())
    }

    /// The parent and the name of candidate `i`'s election.
    pub(crate) fn election(&self, i: usize) -> (String, String) {
        let path = self.path.trim_end_matches('/');
        match self.mode {
            Mode::Cand => match path.rsplit_once('/') {
                Some((parent, name)) => (format!("{parent}/"), name.to_owned()),
                None => (String::new(), path.to_owned()),
            },
            Mode::Multi => (format!("{path}/"), format!("e{i}")),
            Mode::Many => (format!("{path}/"), format!("e{}{i}", self.prefix)),
        }
    }

    /// The id of candidate `i`. A process that takes part in many elections has the same one in all of them.
    pub(crate) fn member(&self, i: usize) -> String {
        if self.mode == Mode::Many {
            return format!("c{}-{}", self.prefix, std::process::id());
        }
        format!("c{}-{}-{i}", self.prefix, std::process::id())
    }
}
