//! One candidate: its part in an election, and its lines of output.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use election_core::{
    Election, ElectionConfig, Handler, Leadership, Paths,
    config::{Policy, Profile, QueueFormat, Recipe, TakeoverLimit},
    handler::{Failure, StopOrder},
};
use strategies::{OnLeaderFailure, PolicySpec};
use tokio::task::{JoinHandle, JoinSet};
use zk_session::{Session, SessionBuilder};

use crate::{
    arguments::{Arguments, Format, Mode, RecipeName},
    out,
};

/// The site of all candidates: this is not about sites.
const SITE: &str = "here";

/// A candidate, and its part in the election while it has one.
pub(crate) struct Candidate {
    number: usize,
    session: Session,
    /// For another session, after the present one has ended.
    builder: Arc<SessionBuilder>,
    config: ElectionConfig,
    election: Option<Election>,
    releasing: Arc<AtomicBool>,
    /// The leadership whose release was requested and is not complete.
    leaving: Option<JoinHandle<()>>,
}

/// What all candidates of a process share.
pub(crate) struct Common {
    builder: Arc<SessionBuilder>,
    recipe: Recipe,
    policy: Arc<Policy>,
    /// The member of all elections, if it is one.
    profile: Option<Arc<Profile>>,
}

impl Common {
    pub(crate) fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let profile = (arguments.mode == Mode::Many).then(|| profile(0, arguments)).transpose()?;
        Ok(Self {
            builder: Arc::new(arguments.session()),
            recipe: recipe(arguments)?,
            policy: Arc::new(policy(arguments)),
            profile: profile.map(Arc::new),
        })
    }
}

fn profile(number: usize, arguments: &Arguments) -> anyhow::Result<Profile> {
    let mut member = Profile::new(arguments.member(number).parse()?).in_site(SITE.parse()?);
    if arguments.witness && number == 0 {
        member.priority = 0;
    }
    Ok(member)
}

impl Common {
    fn config(&self, number: usize, arguments: &Arguments) -> anyhow::Result<ElectionConfig> {
        let (root, name) = arguments.election(number);
        let member = match &self.profile {
            Some(member) => Arc::clone(member),
            None => Arc::new(profile(number, arguments)?),
        };
        let paths = Paths::new(&root, &name).with_context(|| format!("--path {}", arguments.path))?;
        Ok(ElectionConfig::new(paths, member, self.recipe.clone()).policy(Arc::clone(&self.policy)))
    }
}

/// Elections on one session. Nothing but the handle is kept of each, because its memory is measured.
#[derive(Default)]
pub(crate) struct Many {
    elections: Vec<Election>,
    releasing: Arc<AtomicBool>,
}

impl Many {
    pub(crate) fn join(session: &Session, arguments: &Arguments) -> anyhow::Result<Self> {
        let common = Common::new(arguments)?;
        let mut many = Self { elections: Vec::with_capacity(arguments.n), releasing: Arc::default() };
        for number in 0..arguments.n {
            let voice = Voice { number, releasing: Arc::clone(&many.releasing) };
            let config = common.config(number, arguments)?;
            many.elections.push(Election::join(session.clone(), config, voice));
        }
        Ok(many)
    }

    /// Waits until it is a candidate in each.
    pub(crate) async fn enrolled(&self) {
        for election in &self.elections {
            enrolled(election).await;
        }
    }

    /// Leaves all at once.
    pub(crate) async fn leave(self) {
        self.releasing.store(true, Ordering::SeqCst);
        let mut leaving = JoinSet::new();
        for election in self.elections {
            leaving.spawn(async move { election.leave().await });
        }
        while leaving.join_next().await.is_some() {}
    }
}

impl Candidate {
    pub(crate) fn new(
        number: usize,
        session: Session,
        arguments: &Arguments,
        common: &Common,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            number,
            session,
            builder: Arc::clone(&common.builder),
            config: common.config(number, arguments)?,
            election: None,
            releasing: Arc::default(),
            leaving: None,
        })
    }

    /// Joins its election again after it has left.
    pub(crate) async fn join(&mut self) {
        if self.election.is_some() {
            return out::error(&format!("candidate {} takes part already", self.number));
        }
        if let Some(leaving) = self.leaving.take() {
            let _ = leaving.await;
        }
        self.releasing = Arc::default();
        let voice = Voice { number: self.number, releasing: Arc::clone(&self.releasing) };
        self.election = Some(Election::join(self.session.clone(), self.config.clone(), voice));
    }

    /// Waits until it is a candidate in its election.
    pub(crate) async fn enrolled(&self) {
        if let Some(election) = &self.election {
            enrolled(election).await;
        }
    }

    /// Releases leadership, and leaves the election.
    pub(crate) fn release(&mut self) {
        let Some(election) = self.election.take() else {
            return out::error(&format!("candidate {} does not take part", self.number));
        };
        let number = self.number;
        self.releasing.store(true, Ordering::SeqCst);
        out::say_of("RELEASE", number);
        self.leaving = Some(tokio::spawn(async move {
            election.leave().await;
            out::say_of("RELEASED", number);
        }));
    }

    /// Ends as a process does that is killed: without another word to the servers. Returns its session, re-attached, for
    /// the caller to close: that is what the servers do after the session timeout.
    pub(crate) async fn crash(&mut self) -> anyhow::Result<Session> {
        let Some(election) = self.election.take() else {
            bail!("candidate {} does not take part", self.number);
        };
        self.releasing.store(true, Ordering::SeqCst);
        let ticket = self.session.clone().hand_over().await.context("it has no session now")?;
        drop(election);
        SessionBuilder::clone(&self.builder)
            .resume(ticket)
            .connect()
            .await
            .context("its session can't be ended")
    }

    /// Gets another session after a crash.
    pub(crate) async fn reconnect(&mut self) -> anyhow::Result<Session> {
        self.session =
            SessionBuilder::clone(&self.builder).connect().await.context("it gets no other session")?;
        Ok(self.session.clone())
    }

    /// Prints the id of its session.
    pub(crate) fn say_session(&self) {
        if let Some(incarnation) = self.session.incarnation() {
            out::say_of(&format!("SESSION {:x}", incarnation.session_id().0), self.number);
        }
    }

    /// Leaves the election without a line of output.
    pub(crate) async fn leave(&mut self) {
        self.releasing.store(true, Ordering::SeqCst);
        if let Some(election) = self.election.take() {
            election.leave().await;
        }
        if let Some(leaving) = self.leaving.take() {
            let _ = leaving.await;
        }
    }
}

/// Waits until the member is a candidate.
async fn enrolled(election: &Election) {
    let mut status = election.status();
    // It ends when the election does, and is then no longer awaited.
    let _ = status.wait_for(|status| status.ballot.is_some()).await;
}

/// The recipe of all candidates.
fn recipe(arguments: &Arguments) -> anyhow::Result<Recipe> {
    Ok(match arguments.recipe {
        RecipeName::Elector => {
            let policy = PolicySpec::for_sites([SITE.parse()?])
                .with(|policy| policy.on_leader_failure = OnLeaderFailure::PreferOrder);
            Recipe::Elector(policy.strategy())
        }
        RecipeName::Queue => Recipe::Queue(match arguments.format {
            Format::Native => QueueFormat::Native,
            Format::LeaderLatch => QueueFormat::LeaderLatch,
            Format::KazooElection => QueueFormat::KazooElection,
        }),
        RecipeName::Single => Recipe::Single,
    })
}

/// This handler does not delay a change of leadership, because that is what is measured.
fn policy(arguments: &Arguments) -> Policy {
    Policy::default().with(|policy| {
        // There is no work to end.
        policy.stop_budget = Some((arguments.session_timeout() / 100).min(Duration::from_millis(50)));
        policy.min_tenure = Duration::ZERO;
        policy.max_takeovers = TakeoverLimit { count: u32::MAX, within: Duration::from_secs(1) };
        policy.startup_wait = Duration::ZERO;
    })
}

/// Prints a line when it leads.
struct Voice {
    number: usize,
    releasing: Arc<AtomicBool>,
}

impl Handler for Voice {
    async fn takeover(&self, _: &Leadership) -> Result<(), Failure> {
        out::say_of("LEADER", self.number);
        Ok(())
    }

    async fn lead(&self, _: &Leadership) -> Result<(), Failure> {
        out::say_of("ANNOUNCED", self.number);
        std::future::pending().await
    }

    async fn stop(&self, _: &StopOrder) {
        let word = if self.releasing.load(Ordering::SeqCst) { "STOPPED" } else { "LOST" };
        out::say_of(word, self.number);
    }
}
