//! Spreads the leaderships of many jobs over the nodes.
//!
//! ```text
//!   one node leads the election `balancer` ─▶ every interval: reads all elections (survey)
//!       ─▶ plans a few moves (strategies::fair_share) ─▶ asks each election's elector for a switchover
//! ```
//!
//! It only files requests that an operator could file: the elector of each job handles them as any other, and refuses
//! them if the target is not fit. While the balancer's leader changes, two balancers may run for a moment. They plan
//! from the same records, and a request names the leader to replace, so the second request is refused.

mod survey;

use std::{collections::BTreeMap, sync::Arc};

use election_admin::{Observer, Snapshot};
use election_core::{
    Election, ElectionConfig, Handler, Leadership, Paths,
    config::{Leftovers, MemberId, Policy, Profile, QueueFormat, Recipe},
    errors::{Ended, InvalidName},
    handler::{ElectionEvent, Failure, StopOrder},
    internals::record::{Outgoing, RequestKind, RequestRef, Target},
};
use metrics::counter;
use strategies::{FairShare, fair_share::Move};
use tokio::{
    sync::{self, Semaphore},
    task::JoinSet,
    time::{Duration, sleep},
};
use zk_session::{Incarnation, Session};

use super::metrics::record;
use crate::{
    config::{self, BALANCING, BalanceConfig, Config},
    error::Error,
    wall::unix_ms,
};
use survey::{CountedJob, RefusedMoves, survey};

/// The balancer's own election.
const NAME: &str = "balancer";

/// How many elections are read at a time.
const READ_AT_ONCE: usize = 16;

/// For how long a refused move is not requested again.
const REFUSED_FOR: Duration = Duration::from_secs(600);

/// What is balanced, and how.
#[derive(Clone, Debug)]
pub(super) struct Balanced {
    jobs: Arc<[CountedJob]>,
    config: BalanceConfig,
}

fn invalid(wrong: InvalidName) -> Error {
    Error::Setting { key: "zookeeper.root", message: wrong.to_string() }
}

impl Balanced {
    pub(super) fn of(config: &Config) -> Result<Self, Error> {
        let mut jobs = Vec::new();
        for job in &config.jobs {
            jobs.push(CountedJob {
                paths: Paths::new(&config.zookeeper.root, job.name()).map_err(invalid)?,
                name: job.name().to_owned(),
                who: job.policy.who.clone(),
                policy: job.policy.engine(job.spec.stop_budget(), job.fenced),
                balance: job.recipe == config::Recipe::Elector && job.policy.balance,
            });
        }
        Ok(Self { jobs: jobs.into(), config: config.balance })
    }
}

/// Joins the balancer's election. Returns the way to change what is balanced too.
///
/// `leftovers`: whether the session may have znodes of the program before this one in this process.
pub(super) fn join(
    config: &Config,
    session: &Session,
    me: Profile,
    leftovers: Leftovers,
) -> Result<(Election, sync::watch::Sender<Balanced>), Error> {
    let root = &config.zookeeper.root;
    let (sender, balanced) = sync::watch::channel(Balanced::of(config)?);
    let by = format!("{NAME} on {}", config.node.id);
    let under = format!("{}/{BALANCING}", root.trim_end_matches('/'));
    // It runs no work that has to be stopped.
    let policy = Policy::default().with(|policy| policy.stop_budget = Some(Duration::ZERO));
    let paths = Paths::new(&under, NAME).map_err(invalid)?;
    let election = ElectionConfig::new(paths, me, Recipe::Queue(QueueFormat::Native));
    let election = election.policy(policy).leftovers(leftovers);
    let balancer = Balancer { session: session.clone(), balanced, by };
    Ok((Election::join(session.clone(), election, balancer), sender))
}

/// Logs if the balancer's election ends early: the jobs continue without it.
pub(super) async fn watch(election: Election) {
    match election.ended().await {
        Ended::Left | Ended::SessionClosed => {}
        ended => tracing::error!(%ended, "this worker does not balance leaderships until it is restarted"),
    }
}

/// The application of the balancer's election.
struct Balancer {
    session: Session,
    balanced: sync::watch::Receiver<Balanced>,
    by: String,
}

/// The memory of earlier rounds.
#[derive(Default)]
struct Earlier {
    asked: Vec<AskedMove>,
    refused: RefusedMoves,
    /// Whether the last failure was logged.
    complained: bool,
}

/// A requested move.
struct AskedMove {
    job: String,
    request: RequestRef,
    to: MemberId,
}

impl Handler for Balancer {
    fn observe(&self, event: ElectionEvent) {
        record(NAME, event, None);
    }

    async fn takeover(&self, _: &Leadership) -> Result<(), Failure> {
        tracing::info!("this worker is the balancer now");
        Ok(())
    }

    async fn lead(&self, leadership: &Leadership) -> Result<(), Failure> {
        let mut memory = Earlier::default();
        loop {
            let interval = self.balanced.borrow().config.interval;
            sleep(interval).await;
            if !leadership.is_valid() {
                continue;
            }
            match self.round(leadership, &mut memory).await {
                Ok(()) => memory.complained = false,
                Err(error) if memory.complained => {
                    tracing::debug!(%error, "still can't balance the leaderships")
                }
                Err(error) => {
                    memory.complained = true;
                    tracing::warn!(%error, "can't balance the leaderships now; trying again");
                }
            }
        }
    }

    async fn stop(&self, _: &StopOrder) {
        // Only the future of `lead` ran, which has been dropped.
    }
}

impl Balancer {
    async fn round(&self, leadership: &Leadership, memory: &mut Earlier) -> Result<(), Error> {
        let session = self.session.active().await.map_err(|e| Error::Unreachable(e.to_string()))?;
        let Balanced { jobs, config } = self.balanced.borrow().clone();
        let snapshots = self.read(&jobs, &session).await;
        memory.read_outcomes(&snapshots);
        let seen = survey(&jobs, &snapshots, &memory.refused, unix_ms());
        if !memory.asked.is_empty() {
            tracing::debug!(moves = memory.asked.len(), "moves are under way");
            return Ok(());
        }
        let plan = FairShare { at_most: config.at_most }.plan(&seen.nodes, &seen.elections);
        for wanted in &plan.moves {
            if !leadership.is_valid() {
                break;
            }
            self.ask(&jobs, wanted, memory).await?;
        }
        Ok(())
    }

    /// Every election that can be read.
    async fn read(&self, jobs: &[CountedJob], session: &Incarnation) -> BTreeMap<String, Snapshot> {
        let places = Arc::new(Semaphore::new(READ_AT_ONCE));
        let mut reads = JoinSet::new();
        for job in jobs {
            let (name, paths) = (job.name.clone(), job.paths.clone());
            let (observer, places) = (Observer::new(session.clone()), Arc::clone(&places));
            reads.spawn(async move {
                let _place = places.acquire().await;
                (name, observer.snapshot(&paths).await)
            });
        }
        let mut snapshots = BTreeMap::new();
        while let Some(read) = reads.join_next().await {
            match read {
                Ok((name, Ok(snapshot))) => {
                    snapshots.insert(name, snapshot);
                }
                Ok((job, Err(error))) => {
                    tracing::debug!(job, %error, "the election can't be read; it is not balanced in this round")
                }
                Err(error) => tracing::debug!(%error, "an election was not read"),
            }
        }
        snapshots
    }

    async fn ask(&self, jobs: &[CountedJob], wanted: &Move, memory: &mut Earlier) -> Result<(), Error> {
        let Some(job) = jobs.iter().find(|job| job.name == wanted.election) else { return Ok(()) };
        let reason = format!("fair share: {}", wanted.reason);
        tracing::info!(job = job.name, from = %wanted.from, to = %wanted.to, reason, "requesting a switchover");
        let request = election_admin::new_request(
            RequestKind::Switchover,
            Outgoing::Member(wanted.from.clone()),
            Target::Member(wanted.to.clone()),
            false,
            Some(reason),
            self.by.clone(),
        );
        let filed = election_admin::ask(&self.session, &job.paths, request).await?;
        count(&job.name, "asked");
        let job = job.name.clone();
        memory.asked.push(AskedMove { job, request: filed.which, to: wanted.to.clone() });
        Ok(())
    }
}

impl Earlier {
    /// Reads the outcomes of requested moves.
    fn read_outcomes(&mut self, snapshots: &BTreeMap<String, Snapshot>) {
        let now = unix_ms();
        self.refused.retain(|_, until_ms| *until_ms > now);
        let (asked, refused) = (&mut self.asked, &mut self.refused);
        asked.retain(|asked| {
            // Unknown while the election can't be read.
            let Some(snapshot) = snapshots.get(&asked.job) else { return true };
            let filed = snapshot.requests.iter().find(|filed| filed.which == asked.request);
            // The request was removed meanwhile.
            let Some(state) = filed.map(|filed| &filed.request.state) else { return false };
            if !state.is_final() {
                return true;
            }
            match state.failure() {
                Some(reason) => {
                    tracing::warn!(job = asked.job, to = %asked.to, reason, "a move for even shares failed");
                    count(&asked.job, "failed");
                    let until_ms = now.saturating_add(REFUSED_FOR.as_millis() as u64);
                    refused.insert((asked.job.clone(), asked.to.clone()), until_ms);
                }
                None => count(&asked.job, "done"),
            }
            false
        });
    }
}

fn count(job: &str, outcome: &'static str) {
    counter!("dr_balance_moves_total", "job" => job.to_owned(), "outcome" => outcome).increment(1);
}
