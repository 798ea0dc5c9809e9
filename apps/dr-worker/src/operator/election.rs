//! Which election a command is about, and a session to speak to it.

use std::time::Duration;

use election_core::{Paths, operator::Observer};
use zk_session::{Incarnation, Session};

use crate::{
    config::{OperatorConfig, Sources},
    connect::connect,
    error::Error,
};

/// How long to wait for ZooKeeper to hear that a command has ended.
const FAREWELL: Duration = Duration::from_millis(500);

/// An operator's session.
pub(super) struct Operator {
    pub(super) config: OperatorConfig,
    pub(super) session: Session,
}

impl Operator {
    /// Connects as the configuration says.
    pub(super) async fn connect(sources: &Sources) -> Result<Self, Error> {
        let config = OperatorConfig::load(sources)?;
        let session = connect(&config.zookeeper)
            .await
            .map_err(|error| error.located(|key, message| config.problem(key, message)))?;
        Ok(Self { config, session })
    }

    pub(super) async fn incarnation(&self) -> Result<Incarnation, Error> {
        self.session.active().await.map_err(|e| Error::Unreachable(e.to_string()))
    }

    /// Reads over the session that lives now.
    pub(super) async fn observer(&self) -> Result<Observer, Error> {
        Ok(Observer::new(self.incarnation().await?))
    }

    pub(super) fn root(&self) -> &str {
        &self.config.zookeeper.root
    }

    pub(super) fn paths(&self, job: &str) -> Result<Paths, Error> {
        Paths::new(self.root(), job).map_err(|why| Error::Usage(format!("--job: {why}")))
    }

    /// The names of all elections.
    pub(super) async fn elections(&self) -> Result<Vec<String>, Error> {
        let found = self.observer().await?.elections(self.root()).await?;
        if found.is_empty() {
            return Err(Error::Failed(format!(
                "there is no election under {}: no worker has joined yet, or zookeeper.root is another",
                self.root()
            )));
        }
        Ok(found)
    }

    /// The job that was named, or all that there are.
    pub(super) async fn jobs(&self, job: Option<&str>) -> Result<Vec<String>, Error> {
        match job {
            Some(job) => Ok(vec![self.one(Some(job)).await?]),
            None => self.elections().await,
        }
    }

    /// The job that was named, or the only one.
    pub(super) async fn one(&self, job: Option<&str>) -> Result<String, Error> {
        if let Some(job) = job {
            self.paths(job)?;
            return Ok(job.to_owned());
        }
        let mut found = self.elections().await?;
        match found.pop() {
            Some(only) if found.is_empty() => Ok(only),
            last => {
                found.extend(last);
                Err(Error::Usage(format!("there are several jobs; name one by --job: {}", found.join(", "))))
            }
        }
    }

    /// Ends the session, without making anybody wait.
    pub(super) async fn close(self) {
        let _ = self.session.close(FAREWELL).await;
    }
}

/// Who asks, for the records: user and host.
pub(super) fn asker() -> String {
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
