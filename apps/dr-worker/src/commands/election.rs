//! The session of a command, and the elections that it is about.

use std::{borrow::Cow, collections::BTreeSet, time::Duration};

use crate::znodes::overlays;
use anstream::eprintln;
use election_admin::{Layout, Observer};
use election_core::{Paths, strategy::in_words};
use futures_util::{StreamExt as _, stream};
use strategies::other_jobs::OtherJob;
use zk_session::{Incarnation, Session, SessionState};

use crate::{
    config::{OperatorConfig, Sources},
    connect::connect,
    error::Error,
    mask::mask,
    tls::ClientTls,
    view::led,
    workers::Workers,
};

/// How long to wait for ZooKeeper to close the session.
const FAREWELL: Duration = Duration::from_millis(500);

/// How long to wait for ZooKeeper before that is shown.
const PATIENCE: Duration = Duration::from_millis(700);

/// How long one server may take to make a session.
const SERVER_WITHIN: Duration = Duration::from_secs(5);

/// How many overlays are read at a time.
const READ_AT_ONCE: usize = 64;

/// Which jobs a verb is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which<'a> {
    Named(&'a str),
    /// The only one: refused where there are several.
    Only,
    All,
}

/// That none of several jobs was named.
pub(crate) fn which_job(option: &str, jobs: &[impl AsRef<str>]) -> Error {
    let jobs: Vec<&str> = jobs.iter().map(AsRef::as_ref).collect();
    Error::Usage(format!("which job? {} ({option})", jobs.join(", ")))
}

/// An operator's session.
#[derive(Clone)]
pub(crate) struct Operator {
    pub(crate) config: OperatorConfig,
    pub(crate) session: Session,
}

impl Operator {
    /// Connects as configured. A wait for ZooKeeper is shown on standard error.
    pub(crate) async fn connect(sources: &Sources) -> Result<Self, Error> {
        Self::connect_in(sources, Some(PATIENCE)).await
    }

    /// Does this work with a session as of [`connect`](Self::connect), and closes it.
    pub(crate) async fn with<T>(
        sources: &Sources,
        work: impl AsyncFnOnce(&Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let operator = Self::connect(sources).await?;
        let result = work(&operator).await;
        operator.close().await;
        result
    }

    /// As [`connect`](Self::connect), and shows nothing: in the middle of a line that is being typed.
    pub(crate) async fn connect_silently(sources: &Sources) -> Result<Self, Error> {
        Self::connect_in(sources, None).await
    }

    async fn connect_in(sources: &Sources, shown_after: Option<Duration>) -> Result<Self, Error> {
        let config = OperatorConfig::load(sources)?;
        let mut connecting = Box::pin(connect(&config.zookeeper, None, None));
        let patience = shown_after.unwrap_or(Duration::MAX);
        let session = match tokio::time::timeout(patience, &mut connecting).await {
            Ok(session) => session,
            Err(_) => {
                let limit = in_words(config.zookeeper.connect_timeout);
                let servers = mask(&config.zookeeper.connect);
                eprintln!(
                    "waiting for ZooKeeper at {servers}, for {limit} at most (zookeeper.connect_timeout)"
                );
                connecting.as_mut().await
            }
        };
        drop(connecting);
        let session = session.map_err(|error| error.located(|key, message| config.problem(key, message)))?;
        let mut operator = Self { config, session };
        if shown_after.is_some() {
            tokio::spawn(show_loss(operator.session.clone(), operator.config.zookeeper.connect_timeout));
            operator.read_overlays().await;
            operator.read_others().await;
        }
        Ok(operator)
    }

    /// The policies of the configured jobs as their members apply them. What can't be read or used is left out: a mistake in
    /// it must not block an operator.
    async fn read_overlays(&mut self) {
        let Ok(incarnation) = self.incarnation().await else { return };
        let jobs: Vec<String> = self.config.jobs.keys().cloned().collect();
        let reads = jobs.into_iter().map(|job| {
            let (incarnation, paths) = (incarnation.clone(), self.paths(&job));
            async move { Some((job, overlays::read(&incarnation, &paths.ok()?).await.ok()??)) }
        });
        let read: Vec<_> = stream::iter(reads).buffered(READ_AT_ONCE).collect().await;
        for (job, overlay) in read.into_iter().flatten().filter(|(_, overlay)| !overlay.text.is_empty()) {
            if let Ok(config) = self.config.with_overlay(&job, overlay.version, &overlay.text) {
                self.config = config;
            }
        }
    }

    /// Where the jobs are led that policies go by. What can't be read is unknown.
    async fn read_others(&mut self) {
        let needed: BTreeSet<String> =
            self.config.jobs.values().flat_map(|policy| policy.needs().jobs).collect();
        if needed.is_empty() {
            return;
        }
        let Ok(observer) = self.observer().await else { return };
        for job in needed {
            let Ok(paths) = self.paths(&job) else { continue };
            let led = match observer.snapshot(&paths).await {
                Ok(snapshot) => led(&snapshot),
                Err(error) => OtherJob::Unknown(format!("its election can't be read: {error}")),
            };
            self.config.others.insert(job, led);
        }
    }

    /// The same, knowing where the jobs are led now that the policy of this one goes by.
    pub(crate) async fn seeing(&self, job: &str) -> Result<Cow<'_, Self>, Error> {
        let needed = self.config.jobs.get(job).map(|policy| policy.needs().jobs).unwrap_or_default();
        if needed.is_empty() {
            return Ok(Cow::Borrowed(self));
        }
        let observer = self.observer().await?;
        let mut seeing = self.clone();
        for job in needed {
            let snapshot = observer.snapshot(&self.paths(&job)?).await?;
            seeing.config.others.insert(job, led(&snapshot));
        }
        Ok(Cow::Owned(seeing))
    }

    /// The present session. A lost connection is waited for, for as long as for the first one.
    pub(crate) async fn incarnation(&self) -> Result<Incarnation, Error> {
        let active = async { self.session.active().await.map_err(|e| Error::Unreachable(e.to_string())) };
        self.in_time(active).await
    }

    /// Does this over the session, which waits for a lost connection: for as long as for the first one.
    pub(crate) async fn in_time<T, E: Into<Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Error> {
        let limit = self.config.zookeeper.connect_timeout;
        match tokio::time::timeout(limit, work).await {
            Ok(done) => done.map_err(Into::into),
            Err(_) => {
                let limit = in_words(limit);
                Err(Error::Unreachable(format!(
                    "the connection to ZooKeeper is lost, and was not restored within {limit}"
                )))
            }
        }
    }

    /// An observer over the current session.
    pub(crate) async fn observer(&self) -> Result<Observer, Error> {
        Ok(Observer::new(self.incarnation().await?))
    }

    pub(crate) fn root(&self) -> &str {
        &self.config.zookeeper.root
    }

    pub(crate) fn paths(&self, job: &str) -> Result<Paths, Error> {
        Paths::new(self.root(), job).map_err(|why| Error::Usage(format!("--job: {why}")))
    }

    /// A client for workers.
    pub(crate) fn workers(&self) -> Option<Workers> {
        ClientTls::of_operator(&self.config.tls).map(|tls| Workers::new(&tls))
    }

    /// The names of all elections.
    pub(crate) async fn elections(&self) -> Result<Vec<String>, Error> {
        let found = self.observer().await?.elections(self.root()).await?;
        if found.is_empty() {
            return Err(Error::Failed(format!(
                "there is no election under {}: no worker has joined yet, or zookeeper.root differs",
                self.root()
            )));
        }
        Ok(found)
    }

    /// The named job, or all jobs.
    pub(crate) async fn jobs(&self, job: Option<&str>) -> Result<Vec<String>, Error> {
        match job {
            Some(job) => Ok(vec![self.one(Some(job)).await?]),
            None => self.elections().await,
        }
    }

    /// The jobs of a verb that can move or stop a job.
    ///
    /// # Errors
    /// When several are there and none was named: it is asked which.
    pub(crate) async fn chosen(&self, which: Which<'_>) -> Result<Vec<String>, Error> {
        match which {
            Which::Named(job) => self.jobs(Some(job)).await,
            Which::All => self.elections().await,
            Which::Only => {
                let found = self.elections().await?;
                if found.len() > 1 {
                    return Err(which_job("--job JOB, or --all", &found));
                }
                Ok(found)
            }
        }
    }

    /// Those of the [chosen](Self::chosen) jobs that have an elector, which alone obeys standing orders. The others are
    /// named.
    pub(crate) async fn governed(&self, which: Which<'_>) -> Result<Vec<String>, Error> {
        let jobs = self.chosen(which).await?;
        if matches!(which, Which::Named(_)) {
            return Ok(jobs);
        }
        let (observer, mut governed) = (self.observer().await?, Vec::new());
        for job in jobs {
            match observer.layout(&self.paths(&job)?).await? {
                Some(Layout::Elector) => governed.push(job),
                Some(other) => {
                    eprintln!(
                        "{job}: left out: the recipe \"{}\" has no elector to carry this out",
                        other.as_str()
                    );
                }
                None => {}
            }
        }
        if governed.is_empty() {
            return Err(Error::Failed(format!("no election under {} has an elector", self.root())));
        }
        Ok(governed)
    }

    /// The named job, or the only one.
    pub(crate) async fn one(&self, job: Option<&str>) -> Result<String, Error> {
        if let Some(job) = job {
            self.paths(job)?;
            return Ok(job.to_owned());
        }
        let mut found = self.elections().await?;
        match found.pop() {
            Some(only) if found.is_empty() => Ok(only),
            last => {
                found.extend(last);
                Err(which_job("--job JOB", &found))
            }
        }
    }

    /// A session with each server that makes one in time, by the server's name.
    pub(crate) async fn each_server(&self) -> Vec<(String, Session)> {
        let connecting = self.config.zookeeper.servers().map(|server| {
            let mut config = self.config.zookeeper.clone();
            config.connect = server.to_owned();
            config.connect_timeout = config.connect_timeout.min(SERVER_WITHIN);
            async move { Some((config.connect.clone(), connect(&config, None, None).await.ok()?)) }
        });
        futures_util::future::join_all(connecting).await.into_iter().flatten().collect()
    }

    /// Closes the sessions of [`each_server`](Self::each_server), with a short timeout.
    pub(crate) async fn close_all(servers: Vec<(String, Session)>) {
        let closing = servers.iter().map(|(_, session)| session.close(FAREWELL));
        futures_util::future::join_all(closing).await;
    }

    /// Closes the session, with a short timeout.
    pub(crate) async fn close(self) {
        let _ = self.session.close(FAREWELL).await;
    }
}

/// Shows on standard error that the connection is lost, once in a command.
async fn show_loss(session: Session, limit: Duration) {
    let mut states = session.subscribe();
    loop {
        if !states.borrow_and_update().is_active() {
            tokio::time::sleep(PATIENCE).await;
            match session.state() {
                SessionState::Closed => return,
                state if state.is_active() => {}
                _ => {
                    let limit = in_words(limit);
                    eprintln!(
                        "the connection to ZooKeeper is lost; waiting for it, for {limit} at most \
                         (zookeeper.connect_timeout)"
                    );
                    return;
                }
            }
        }
        if states.changed().await.is_err() {
            return;
        }
    }
}

/// The operator, for the records: user and host.
pub(crate) fn asker() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective())
        .ok()
        .flatten()
        .map_or_else(|| nix::unistd::Uid::effective().to_string(), |user| user.name);
    let host = nix::sys::utsname::uname()
        .ok()
        .and_then(|name| name.nodename().to_str().map(str::to_owned))
        .unwrap_or_default();
    format!("{user}@{host}")
}
