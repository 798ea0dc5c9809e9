//! The session of a command, and the elections that it is about.

use std::time::Duration;

use election_core::{Paths, operator::Observer};
use zk_session::{Incarnation, Session};

use crate::{
    config::{OperatorConfig, Sources},
    connect::connect,
    error::Error,
};

/// How long to wait for ZooKeeper to close the session.
const FAREWELL: Duration = Duration::from_millis(500);

/// An operator's session.
pub(crate) struct Operator {
    pub(crate) config: OperatorConfig,
    pub(crate) session: Session,
}

impl Operator {
    /// Connects as configured.
    pub(crate) async fn connect(sources: &Sources) -> Result<Self, Error> {
        let config = OperatorConfig::load(sources)?;
        let session = connect(&config.zookeeper, None)
            .await
            .map_err(|error| error.located(|key, message| config.problem(key, message)))?;
        Ok(Self { config, session })
    }

    pub(crate) async fn incarnation(&self) -> Result<Incarnation, Error> {
        self.session.active().await.map_err(|e| Error::Unreachable(e.to_string()))
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
                Err(Error::Usage(format!(
                    "there are several jobs; name one with --job: {}",
                    found.join(", ")
                )))
            }
        }
    }

    /// Closes the session, with a short timeout.
    pub(crate) async fn close(self) {
        let _ = self.session.close(FAREWELL).await;
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
