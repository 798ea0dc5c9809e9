//! The session of a command, and the elections that it is about.

use std::{cell::Cell, time::Duration};

use election_core::{Paths, operator::Observer, strategy::in_words};
use zk_session::{Incarnation, Session};

use super::output;
use crate::{
    config::{OperatorConfig, Sources},
    connect::connect,
    error::Error,
    mask::mask,
};

/// How long to wait for ZooKeeper before that is shown.
const PATIENCE: Duration = Duration::from_millis(700);

/// How long to wait for ZooKeeper to close the session.
const FAREWELL: Duration = Duration::from_millis(500);

/// An operator's session.
pub(super) struct Operator {
    pub(super) config: OperatorConfig,
    pub(super) session: Session,
    /// Whether a lost connection has been shown.
    shown: Cell<bool>,
}

/// Waits, and calls `shows` if that takes long.
async fn showing_delay<T>(awaited: impl Future<Output = T>, shows: impl FnOnce()) -> T {
    tokio::pin!(awaited);
    match tokio::time::timeout(PATIENCE, &mut awaited).await {
        Ok(result) => result,
        Err(_) => {
            shows();
            awaited.await
        }
    }
}

impl Operator {
    /// Connects as configured.
    pub(super) async fn connect(sources: &Sources) -> Result<Self, Error> {
        let config = OperatorConfig::load(sources)?;
        let zookeeper = &config.zookeeper;
        let shows = || {
            let (servers, most) = (&zookeeper.connect, in_words(zookeeper.connect_timeout));
            let servers = mask(servers);
            output::print_progress(format_args!(
                "waiting for ZooKeeper at {servers}, for {most} at most (zookeeper.connect_timeout)"
            ));
        };
        let session = showing_delay(connect(zookeeper, None), shows)
            .await
            .map_err(|error| error.located(|key, message| config.problem(key, message)))?;
        Ok(Self { config, session, shown: Cell::new(false) })
    }

    /// The present session. A lost connection is waited for, for as long as for the first one.
    pub(super) async fn incarnation(&self) -> Result<Incarnation, Error> {
        let limit = self.config.zookeeper.connect_timeout;
        let shows = || {
            // Once is enough for a command that reads again and again.
            if !self.shown.replace(true) {
                let most = in_words(limit);
                output::print_progress(format_args!(
                    "the connection to ZooKeeper is lost; waiting for it, for {most} at most \
                     (zookeeper.connect_timeout)"
                ));
            }
        };
        match showing_delay(tokio::time::timeout(limit, self.session.active()), shows).await {
            Ok(active) => active.map_err(|e| Error::Unreachable(e.to_string())),
            Err(_) => {
                let why = format!(
                    "the connection to ZooKeeper is lost, and was not restored within {}",
                    in_words(limit)
                );
                Err(Error::Unreachable(why))
            }
        }
    }

    /// An observer over the current session.
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
                "there is no election under {}: no worker has joined yet, or zookeeper.root differs",
                self.root()
            )));
        }
        Ok(found)
    }

    /// The named job, or all jobs.
    pub(super) async fn jobs(&self, job: Option<&str>) -> Result<Vec<String>, Error> {
        match job {
            Some(job) => Ok(vec![self.one(Some(job)).await?]),
            None => self.elections().await,
        }
    }

    /// The named job, or the only one.
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
                Err(Error::Usage(format!(
                    "there are several jobs; name one with --job: {}",
                    found.join(", ")
                )))
            }
        }
    }

    /// Closes the session, with a short timeout.
    pub(super) async fn close(self) {
        let _ = self.session.close(FAREWELL).await;
    }
}

/// The operator, for the records: user and host.
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
