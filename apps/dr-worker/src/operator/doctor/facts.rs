//! What is known of a deployment: plain values, which the checks judge.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

pub(super) use crate::commands::servers::{Clock, Disk, Server, ServerAnswer};
use crate::{commands::servers::voters, view::ProblemRow};

/// All that is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The time, in milliseconds since the Unix epoch.
    pub(super) now_ms: u64,
    /// What the configuration asks of ZooKeeper.
    pub(super) asked: SessionConfig,
    /// The session; `None` if there is none, for the reason in `no_session`.
    pub(super) session: Option<SessionFacts>,
    pub(super) no_session: String,
    /// The servers of `zookeeper.connect`, in that order.
    pub(super) servers: Vec<Server>,
    /// The configured jobs.
    pub(super) jobs: Vec<JobFacts>,
    /// The elections in ZooKeeper.
    pub(super) elections: Vec<ElectionFacts>,
    /// Servers that disagree with the quorum about a znode of an election, as sentences.
    pub(super) disagreements: Vec<String>,
    /// Znodes that may not be read.
    pub(super) refused: Vec<String>,
    /// The living members of all elections.
    pub(super) members: Vec<MemberFacts>,
    /// The worker of this node; `None` if the configuration is that of no worker, for the reason in `no_node`.
    pub(super) node: Option<NodeFacts>,
    pub(super) no_node: String,
    /// Whether that is the configuration of an operator, who has no node or no job.
    pub(super) is_operator: bool,
}

/// `[zookeeper]`.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionConfig {
    pub(super) session_timeout: Duration,
    pub(super) tick_time: Duration,
    /// Whether `sites` maps servers to sites.
    pub(super) has_sites: bool,
    /// Whether the znodes have no access lists.
    pub(super) is_open: bool,
}

/// The session.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionFacts {
    pub(super) granted: Duration,
    /// Of several quorum round trips the one in the middle; `None` if none succeeded.
    pub(super) round_trip: Option<Duration>,
    /// Whether the servers keep a session whose connection is lost.
    pub(super) leases: bool,
    /// Whether a client without credentials could read what an access list forbids; `None` if that was not tried.
    pub(super) ignores_access_lists: Option<bool>,
}

impl Facts {
    /// The greatest tick of the servers, or else the configured one.
    pub(super) fn tick(&self) -> Duration {
        self.servers.iter().filter_map(Server::tick).max().unwrap_or(self.asked.tick_time)
    }

    /// The session timeout that is granted, or else the one that is asked for.
    pub(super) fn timeout(&self) -> Duration {
        self.session.as_ref().map_or(self.asked.session_timeout, |held| held.granted)
    }

    /// The servers with a vote.
    pub(super) fn voters(&self) -> Vec<Option<&Server>> {
        voters(&self.servers)
    }
}

/// A configured job.
#[derive(Clone, Debug, Default)]
pub(super) struct JobFacts {
    pub(super) name: String,
    /// `on_pause = "keep"`.
    pub(super) keeps: bool,
    pub(super) fenced: bool,
    pub(super) fast_failover: bool,
    /// How long before the end of its lease its stop begins; `None` if it is not configured for this node.
    pub(super) stop_budget: Option<Duration>,
}

/// An election.
#[derive(Clone, Debug, Default)]
pub(super) struct ElectionFacts {
    pub(super) name: String,
    /// Whether an elector decides by a policy.
    pub(super) has_elector: bool,
    /// The sites of its policy.
    pub(super) sites: Vec<String>,
    /// Sites that it excludes on purpose.
    pub(super) forbidden: Vec<String>,
    /// The members that lead, one for each slot; `None` where no member does.
    pub(super) leaders: Vec<Option<String>>,
    pub(super) candidates: Vec<CandidateFacts>,
    /// The members of the last day that do not take part: whether each stopped by itself, and a sentence.
    pub(super) absent: Vec<(bool, String)>,
    /// What becomes of the leadership if a site is lost.
    pub(super) losses: Vec<Loss>,
    /// Why the elector decides nothing, if it is on hold.
    pub(super) hold: Option<String>,
    pub(super) orders: OrderFacts,
    /// What the view of the election has found.
    pub(super) problems: Vec<ProblemRow>,
}

/// A member that may lead, or not.
#[derive(Clone, Debug, Default)]
pub(super) struct CandidateFacts {
    pub(super) member: String,
    pub(super) site: String,
    /// Why it may not.
    pub(super) barred: Option<String>,
}

/// The loss of a site.
#[derive(Clone, Debug, Default)]
pub(super) struct Loss {
    pub(super) site: String,
    /// Whether another member leads each slot then.
    pub(super) survives: bool,
    /// The result in one sentence.
    pub(super) sentence: String,
}

/// Standing orders, each as a sentence.
#[derive(Clone, Debug, Default)]
pub(super) struct OrderFacts {
    /// The mode, unless it is auto.
    pub(super) mode: Option<StandingOrder>,
    /// That the job is stopped, or the standby of a member.
    pub(super) stopped: Vec<StandingOrder>,
    pub(super) maintenance: Vec<StandingOrder>,
    /// Sites that are drained or marked as failed.
    pub(super) closed: Vec<StandingOrder>,
}

/// An order.
#[derive(Clone, Debug, Default)]
pub(super) struct StandingOrder {
    pub(super) sentence: String,
    /// When, or no earlier than when, in milliseconds since the Unix epoch.
    pub(super) at_ms: u64,
}

/// A living member.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberFacts {
    pub(super) member: String,
    pub(super) site: String,
    /// The addresses under which it is known, one for each process that uses its id.
    pub(super) places: BTreeSet<(String, String)>,
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) software: BTreeSet<String>,
    /// The overlay's version that it applies, by job.
    pub(super) overlays: BTreeMap<String, u64>,
    /// The id in its endpoint's answer; `None` if that is not for this client.
    pub(super) answers_as: Option<String>,
    pub(super) unreachable: Option<String>,
    /// The states of its standbys by job, as it answers.
    pub(super) standbys: BTreeMap<String, String>,
    /// Why it starts no job now, as it answers.
    pub(super) problem: Option<String>,
    pub(super) clock: Option<Clock>,
}

/// The worker of this node.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeFacts {
    pub(super) id: String,
    pub(super) address: String,
    /// Values that can't be used on this node: key and reason.
    pub(super) unusable: Vec<(String, String)>,
    /// What is wrong with its certificate, and whether others refuse it.
    pub(super) certificate: Option<(bool, String)>,
    /// The file of ZooKeeper's credentials, if others can read it.
    pub(super) readable_secret: Option<String>,
    /// What is wrong with a password that is sent to ZooKeeper.
    pub(super) plain_password: Option<&'static str>,
    pub(super) state_dir: String,
    /// Why `state_dir` can't be written.
    pub(super) not_writable: Option<String>,
    /// Whether `state_dir` is in memory.
    pub(super) in_memory: bool,
    /// The most open files of the worker, and how many its jobs need.
    pub(super) open_files: Option<(u64, u64)>,
    /// Limits of jobs that the worker can't have a cgroup keep: the job, the key, and why.
    pub(super) unmet_limits: Vec<(String, &'static str, String)>,
    /// How many bytes the worker's guards may lock in memory, if that is limited.
    pub(super) locked_memory: Option<u64>,
    /// The most processes of the worker's user.
    pub(super) processes: Option<u64>,
    /// Why the watchdog can't be used, and whether it is required.
    pub(super) watchdog: Option<(bool, String)>,
    /// What other hosts can do at its endpoints.
    pub(super) exposed: Vec<&'static str>,
}
