//! One member: its process with the engine, the client of its session, and its job.

use std::collections::{BTreeMap, VecDeque};

use election_core::{
    internals::{Engine, Epoch, Event, OpId, Outcome, Time, Watched, ZkOp},
    status::Ballot,
};

use crate::model::server::Tree;

/// A node on which one process of this member may run.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Member {
    /// Counts processes.
    pub(crate) life: u64,
    pub(crate) process: Option<Process>,
    /// The machine is frozen: worker, guard and job.
    pub(crate) frozen: bool,
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Process {
    pub(crate) engine: Engine,
    pub(crate) epochs: Epoch,
    pub(crate) client: Option<Client>,
    pub(crate) keeps_lease: bool,
    pub(crate) job: Job,
    pub(crate) leaving: bool,
    /// Its standby is not ready.
    pub(crate) unfit: bool,
}

/// The client side of one session.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Client {
    pub(crate) epoch: Epoch,
    pub(crate) session: i64,
    pub(crate) link: Link,
    /// Sent, and not yet at the server.
    pub(crate) sent: VecDeque<(OpId, ZkOp)>,
    /// On their way back.
    pub(crate) replies: VecDeque<(OpId, Outcome)>,
    /// The watched znodes, and the last report of each watch.
    pub(crate) watched: Vec<(Watched, Option<Told>)>,
    /// What it has read, and what has not reached the engine yet: later readings and outcomes overtake it.
    pub(crate) late: Option<Event>,
    /// What its server has, if that lags.
    pub(crate) view: Option<Tree>,
    /// Its server is cut off from the others: reads are answered, writes are stuck, and the other servers do not hear
    /// from the session.
    pub(crate) minority: bool,
    /// The end of the lease that was last reported.
    pub(crate) lease: Option<Time>,
    /// When it last heard from the ensemble.
    pub(crate) heard: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    Connected,
    /// No message gets through, and the client hasn't noticed.
    Silent,
    /// It has noticed.
    Paused,
    Over,
}

/// A watch's report: creation and last change of each znode, by name.
pub(crate) type Told = BTreeMap<String, (i64, i64)>;

/// The application, and its guard.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Job {
    pub(crate) phase: Phase,
    /// The slot that it leads, and the term and ballot that it was given that for.
    pub(crate) slot: usize,
    pub(crate) given: Option<(u64, Ballot)>,
    /// The token that it acts with, while it acts.
    pub(crate) token: Option<u64>,
    pub(crate) until: Option<Time>,
    /// It is asked whether leadership may move.
    pub(crate) is_asked: bool,
    /// An answer is due.
    pub(crate) answers: Option<Answer>,
    /// It never answers.
    pub(crate) hangs: bool,
    /// How many ticks its planned stop may still take.
    pub(crate) stops_within: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Preparing,
    TakingOver,
    Serving,
    Stopping,
    /// It has ended by itself, or its guard has ended it.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Prepared,
    TakenOver,
    Failed,
    Ended,
    Stopped,
}

impl Member {
    /// Whether a process runs here and is not frozen.
    pub(crate) fn runs(&self) -> bool {
        self.process.is_some() && !self.frozen
    }

    pub(crate) fn client(&self) -> Option<&Client> {
        self.process.as_ref()?.client.as_ref()
    }

    pub(crate) fn client_mut(&mut self) -> Option<&mut Client> {
        self.process.as_mut()?.client.as_mut()
    }

    pub(crate) fn link(&self) -> Option<Link> {
        self.client().map(|client| client.link)
    }
}

impl Client {
    pub(crate) fn new(epoch: Epoch, session: i64, heard: Time) -> Self {
        Self {
            epoch,
            session,
            link: Link::Connected,
            sent: VecDeque::new(),
            replies: VecDeque::new(),
            watched: Vec::new(),
            late: None,
            view: None,
            minority: false,
            lease: None,
            heard,
        }
    }

    /// Whether what this watch has read has not reached the engine yet.
    pub(crate) fn is_late(&self, watched: &Watched) -> bool {
        match (&self.late, watched) {
            (Some(Event::Seen { path, .. }), Watched::Node(node)) => **path == **node,
            (Some(Event::SeenTree { parent, .. }), Watched::Tree(tree)) => **parent == **tree,
            _ => false,
        }
    }

    /// The oldest request that it has sent, if that is a write.
    pub(crate) fn writes(&self) -> Option<&ZkOp> {
        let (_, request) = self.sent.front()?;
        (!request.reads()).then_some(request)
    }

    /// All requests in progress fail, or their outcome is unknown.
    pub(crate) fn lose(&mut self) {
        let unknown = || Outcome::Unknown("the connection was lost".to_owned());
        let ops: Vec<_> =
            self.replies.drain(..).map(|(op, _)| op).chain(self.sent.drain(..).map(|(op, _)| op)).collect();
        self.replies.extend(ops.into_iter().map(|op| (op, unknown())));
        self.view = None;
        self.minority = false;
    }
}
