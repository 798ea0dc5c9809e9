//! The engine's znode operations on a session.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use zk_session::{
    BootTime, CreateMode, Created, Incarnation, MultiOp, MultiResult, OpError, ReadOp, ReadResult, Recovery,
    sleep_until,
};

use super::{RETRY, layout::Layout, to_node, turn::Starts};
use crate::{
    engine::{Node, Outcome, Transaction, WriteKind, ZkOp, ZnodeWrite},
    mirror::{Answer, BATCH, Read},
    paths::Paths,
    record::RecordError,
};

/// An attempt to perform an operation on one session.
pub(super) struct Attempt<'a> {
    pub(super) session: &'a Incarnation,
    pub(super) request: &'a ZkOp,
    /// The persistent znodes of the election, parents first.
    pub(super) directories: &'a [String],
    /// While the election begins.
    pub(super) starts: Option<&'a Starts>,
}

impl Attempt<'_> {
    /// Performs it. `own` is the recipe of the election, which all of its members must have.
    ///
    /// # Errors
    /// What ZooKeeper refuses: [`OpError::is_refused`].
    pub(super) async fn perform(mut self, own: Option<(Layout, Paths)>) -> Result<Outcome, OpError> {
        let request = self.request;
        self.starts = self.starts.filter(|_| is_first(request));
        // If the election is expected to be new, its directories are created without an attempt that would be refused.
        if self.starts.is_some_and(Starts::expects_new)
            && let Ok(Some(done)) = self.begin_election().await
        {
            return Ok(done);
        }
        match self.starts.and(own) {
            Some((own, paths)) => self.create_alone(own, &paths).await,
            None => Ok(self.create().await?.0),
        }
    }

    /// Creates the first znode of a member unless the election has members of another recipe: two recipes could have two
    /// leaders. Members of two that begin at one instant read before either has created its znode, so they read again
    /// afterwards: then at least the later one sees the other, and neither has led yet.
    async fn create_alone(&self, own: Layout, paths: &Paths) -> Result<Outcome, OpError> {
        let session = self.session;
        match Layout::other(session, paths, own).await {
            Ok(Some(other)) => return Ok(Outcome::OtherRecipe(other.as_str())),
            Ok(None) => {}
            Err(error) if error.is_refused() => return Err(error),
            Err(error) => return Ok(Outcome::NotApplied(error.to_string())),
        }
        let (done, is_new) = self.create().await?;
        let path = match &done {
            // Nobody was there before the directories.
            _ if is_new => return Ok(done),
            Outcome::Created { path, .. } => path,
            Outcome::Changed { .. } => self.request.path(),
            _ => return Ok(done),
        };
        loop {
            let error = match Layout::other(session, paths, own).await {
                Ok(None) => return Ok(done),
                Ok(Some(other)) => match session.delete(path, None).await {
                    Ok(()) | Err(OpError::NoNode { .. }) => return Ok(Outcome::OtherRecipe(other.as_str())),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if error.is_session_over() || error.is_refused() {
                return Err(error);
            }
            sleep_until(BootTime::now() + RETRY).await;
        }
    }

    /// Creates the first znode of a member, with the directories of the election if there are none. Also returns whether both
    /// were one transaction.
    async fn create(&self) -> Result<(Outcome, bool), OpError> {
        let &Self { session, request, starts, .. } = self;
        let done = attempt(session, request).await?;
        let creates = match request {
            ZkOp::CreateSequential { .. } => true,
            ZkOp::Multi(transaction) => transaction.counted().is_some() || transaction.subject().creates(),
            ZkOp::Get(_) | ZkOp::Children(_) => false,
        };
        let began = |is_new| starts.into_iter().for_each(|starts| starts.began(is_new));
        if creates && let Outcome::Created { .. } | Outcome::Changed { .. } = done {
            began(false);
        }
        if !creates || done != Outcome::Missing {
            return Ok((done, false));
        }
        let path = request.path();
        let missing = |error: OpError| match error.is_refused() {
            true => Err(error),
            false => {
                Ok((Outcome::NotApplied(format!("what is above {path} could not be made: {error}")), false))
            }
        };
        match self.begin_election().await {
            Ok(Some(done)) => {
                began(true);
                return Ok((done, true));
            }
            Ok(None) => {}
            Err(error) => return missing(error),
        }
        match attempt(session, request).await? {
            Outcome::Missing => {}
            done => return Ok((done, false)),
        }
        match session.create_parents(path).await {
            Ok(()) => Ok((attempt(session, request).await?, false)),
            Err(error) => missing(error),
        }
    }

    /// Creates all directories of an election that does not exist yet, by one request; with the first znode of its line, or
    /// its leader znode, if that is what the request creates. Then it is done. Otherwise it is to be attempted again.
    async fn begin_election(&self) -> Result<Option<Outcome>, OpError> {
        let &Self { session, request, directories, .. } = self;
        let Some(base) = directories.first() else { return Ok(None) };
        let first = first_in_election(request, base);
        let all = || {
            let directories =
                directories.iter().map(|path| MultiOp::create(path, "", CreateMode::Persistent));
            directories.chain(first.iter().flatten().cloned())
        };
        let done = match session.multi(all()).await {
            Err(OpError::NoNode { .. }) => {
                session.create_parents(base).await?;
                session.multi(all()).await
            }
            done => done,
        };
        let done = match (done, &first) {
            (Err(error), None) if error.is_session_over() => return Err(error),
            // The directories exist now.
            (_, None) | (Err(OpError::NodeExists { .. } | OpError::NoNode { .. }), Some(_)) => {
                return Ok(None);
            }
            (Err(error), Some(_)) => return outcome_of(error).map(Some),
            (Ok(done), Some(_)) => done,
        };
        let Some(MultiResult::Set { stat: Some(stat) }) = done.last() else {
            return Ok(Some(Outcome::Unknown(
                "it was created, but in which transaction was not answered".to_owned(),
            )));
        };
        Ok(Some(match request {
            ZkOp::CreateSequential { prefix, .. } => {
                Outcome::Created { path: first_child(prefix), czxid: stat.mzxid, version: 0 }
            }
            _ => Outcome::Changed { version: stat.version, mzxid: stat.mzxid },
        }))
    }
}

/// Whether the request can create the first znode of an election.
fn is_first(request: &ZkOp) -> bool {
    match request {
        ZkOp::CreateSequential { .. } => true,
        ZkOp::Multi(transaction) => transaction.counted().is_some(),
        ZkOp::Get(_) | ZkOp::Children(_) => false,
    }
}

/// What the request creates in an election whose directories are created in the same transaction. Last comes a set, whose
/// answer says which transaction that is.
fn first_in_election(request: &ZkOp, base: &str) -> Option<Vec<MultiOp>> {
    match request {
        ZkOp::CreateSequential { prefix, data, ephemeral } => Some(vec![
            MultiOp::create(first_child(prefix), data.clone(), mode(*ephemeral)),
            MultiOp::set(base, "", 0),
        ]),
        ZkOp::Multi(transaction) => {
            transaction.counted().filter(|_| transaction.checks.is_empty())?;
            let created = transaction.after.iter().map(operation);
            Some(created.chain([MultiOp::set(&transaction.answer.path, "", 0)]).collect())
        }
        ZkOp::Get(_) | ZkOp::Children(_) => None,
    }
}

/// The name that a server gives to the first child of a new znode. Groups have no sequential creates, but this is no
/// other znode: any further child gets the next number.
fn first_child(prefix: &str) -> String {
    format!("{prefix}{:010}", 0)
}

async fn attempt(session: &Incarnation, request: &ZkOp) -> Result<Outcome, OpError> {
    let result = match request {
        ZkOp::CreateSequential { prefix, data, ephemeral } => session
            .create_sequential(prefix, data.clone(), mode(*ephemeral), Recovery::Name)
            .await
            .map(created),
        ZkOp::Multi(transaction) => match &transaction.answer {
            ZnodeWrite { path, kind: WriteKind::Create { data, ephemeral } } if transaction.is_single() => {
                session.create(path, data.clone(), mode(*ephemeral)).await.map(created)
            }
            ZnodeWrite { path, kind: WriteKind::Set { data, version } } if transaction.is_single() => {
                let stat = session.set(path, data.clone(), *version).await;
                stat.map(|s| Outcome::Changed { version: s.version, mzxid: s.mzxid })
            }
            // A deletion by itself would read the znode first.
            _ => all_or_none(session, transaction).await,
        },
        ZkOp::Get(path) => session.get(path).await.map(|node| Outcome::Got(node.map(to_node))),
        ZkOp::Children(path) => {
            session.children(path).await.map(|c| Outcome::Names(c.map(|c| c.names).unwrap_or_default()))
        }
    };
    result.or_else(outcome_of)
}

/// An error if it is refused.
fn outcome_of(error: OpError) -> Result<Outcome, OpError> {
    Ok(match error {
        OpError::NoNode { .. } => Outcome::Missing,
        OpError::NodeExists { .. } => Outcome::Exists,
        OpError::BadVersion { .. } => Outcome::Stale,
        error if error.is_refused() => return Err(error),
        error if error.is_unknown() => Outcome::Unknown(error.to_string()),
        error => Outcome::NotApplied(error.to_string()),
    })
}

fn operation(write: &ZnodeWrite) -> MultiOp {
    let path = &write.path;
    match &write.kind {
        WriteKind::Create { data, ephemeral } => MultiOp::create(path, data.clone(), mode(*ephemeral)),
        WriteKind::Set { data, version } => MultiOp::set(path, data.clone(), *version),
        WriteKind::Delete { version } => MultiOp::delete(path, *version),
    }
}

/// The operations of a transaction, and the place of that which is answered.
fn group_of(transaction: &Transaction) -> (Vec<MultiOp>, usize) {
    let Transaction { checks, before, answer, after } = transaction;
    let target = &answer.path;
    let mut group: Vec<_> = checks.iter().map(|(path, version)| MultiOp::check(path, *version)).collect();
    group.extend(before.iter().map(operation));
    match &answer.kind {
        // Servers before 3.9 do not answer in which transaction a group has created a znode, but do so for a set.
        WriteKind::Create { data, ephemeral } => {
            group.extend([
                MultiOp::create(target, "", mode(*ephemeral)),
                MultiOp::set(target, data.clone(), 0),
            ]);
        }
        WriteKind::Set { .. } | WriteKind::Delete { .. } => group.push(operation(answer)),
    }
    let answered = group.len() - 1;
    group.extend(after.iter().map(operation));
    (group, answered)
}

/// The operations of a transaction.
pub fn operations(transaction: &Transaction) -> Vec<MultiOp> {
    group_of(transaction).0
}

/// Performs all operations or none. [`OpError::BadVersion`] if a condition is not met.
async fn all_or_none(session: &Incarnation, transaction: &Transaction) -> Result<Outcome, OpError> {
    let answer = &transaction.answer;
    let target = &answer.path;
    let (group, answered) = group_of(transaction);
    let done = match session.multi(group).await {
        Err(OpError::NoNode { path }) if path != *target => return Err(OpError::BadVersion { path }),
        done => done?,
    };
    Ok(match done.get(answered) {
        Some(MultiResult::Set { stat: Some(stat) }) if answer.creates() => {
            Outcome::Created { path: target.clone(), czxid: stat.czxid, version: stat.version }
        }
        Some(MultiResult::Set { stat: Some(stat) }) => {
            Outcome::Changed { version: stat.version, mzxid: stat.mzxid }
        }
        Some(MultiResult::Deleted) => Outcome::Ok,
        _ => Outcome::Unknown("it was done, but what it made was not answered".to_owned()),
    })
}

/// Carries out a transaction.
///
/// # Errors
/// [`OpError::BadVersion`] if a condition is not met.
pub async fn transact(session: &Incarnation, transaction: impl Into<Transaction>) -> Result<(), OpError> {
    all_or_none(session, &transaction.into()).await.map(drop)
}

fn created(created: Created) -> Outcome {
    let Created { path, stat, .. } = created;
    Outcome::Created { path, czxid: stat.czxid, version: stat.version }
}

/// The children of a znode with their data. Children that vanish meanwhile are omitted.
///
/// # Errors
/// When ZooKeeper doesn't answer.
pub async fn tree(session: &Incarnation, parent: &str) -> Result<BTreeMap<String, Node>, OpError> {
    let names = session.children(parent).await?.map(|c| c.names).unwrap_or_default();
    Ok(get_all(session, parent, names).await?.into_iter().collect())
}

/// Reads all of it, many by one request.
pub(super) async fn read_all(
    session: &Incarnation,
    reads: Vec<Read>,
) -> Result<Vec<(Read, Answer)>, OpError> {
    let batches = reads.chunks(BATCH).map(async |batch| {
        if let [read] = batch {
            return Ok(vec![read_one(session, read).await?]);
        }
        let group = batch.iter().map(|read| match read {
            Read::Names(path) => ReadOp::children(path),
            Read::Node(path) => ReadOp::get(path),
        });
        match session.multi_read(group).await {
            Ok(results) => Ok(results.into_iter().map(answer).collect()),
            Err(error) if error.is_session_over() => Err(error),
            // One by one: a reply with many long znodes would be longer than a connection accepts.
            Err(_) => try_join_all(batch.iter().map(async |read| read_one(session, read).await)).await,
        }
    });
    let answers: Vec<Vec<Answer>> = try_join_all(batches).await?;
    Ok(reads.into_iter().zip(answers.into_iter().flatten()).collect())
}

async fn read_one(session: &Incarnation, read: &Read) -> Result<Answer, OpError> {
    Ok(match read {
        Read::Names(path) => {
            Answer::Names(session.children(path).await?.map(|c| c.names).unwrap_or_default())
        }
        Read::Node(path) => Answer::Node(session.get(path).await?.map(to_node)),
    })
}

fn answer(result: ReadResult) -> Answer {
    match result {
        ReadResult::Children(names) => Answer::Names(names.unwrap_or_default()),
        ReadResult::Node(node) => Answer::Node(node.map(to_node)),
        _ => Answer::Node(None),
    }
}

/// Reads these children of a znode, many by one request. Those that don't exist are omitted.
///
/// # Errors
/// When ZooKeeper doesn't answer.
pub async fn get_all(
    session: &Incarnation,
    parent: &str,
    names: Vec<String>,
) -> Result<Vec<(String, Node)>, OpError> {
    let reads = names.iter().map(|name| Read::Node(format!("{parent}/{name}"))).collect();
    let nodes = read_all(session, reads).await?.into_iter().map(|(_, answer)| match answer {
        Answer::Node(node) => node,
        Answer::Names(_) => None,
    });
    Ok(names.into_iter().zip(nodes).filter_map(|(name, node)| Some((name, node?))).collect())
}

fn mode(ephemeral: bool) -> CreateMode {
    if ephemeral { CreateMode::Ephemeral } else { CreateMode::Persistent }
}

/// Why an election could not be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// ZooKeeper did not answer as expected.
    #[error(transparent)]
    Session(#[from] OpError),
    /// The election does not exist.
    #[error("there is no election at {0}")]
    NoElection(String),
    /// A record can't be used.
    #[error(transparent)]
    Record(#[from] RecordError),
}
