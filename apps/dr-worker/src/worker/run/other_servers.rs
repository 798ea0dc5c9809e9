//! Other servers for the living session.
//!
//! Members of one job with different ensembles would elect two leaders. So a new server is taken only if it has the same root
//! znode, created by the same transaction at the same time, as the ensemble of the session.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use zk_session::{ConnectError, OpError, Session, Stat};

use crate::{config::Config, connect::Servers, error::Error};

/// How long a new server may take to answer.
const WITHIN: Duration = Duration::from_secs(3);

/// How long a session lasts that was not closed.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Checks the servers that `new` has and `old` has not. One that can't be reached is taken if another one is known.
///
/// # Errors
/// If one is of another ensemble, or none is known to be of the present one.
pub(super) async fn check_same_ensemble(session: &Session, old: &Config, new: &Config) -> Result<(), Error> {
    if old.zookeeper.connect == new.zookeeper.connect {
        return Ok(());
    }
    let wrong = |message: String| Error::Setting { key: "zookeeper.connect", message };
    let before: BTreeSet<_> = old.zookeeper.servers().collect();
    let (known, added): (Vec<_>, Vec<_>) =
        new.zookeeper.servers().partition(|server| before.contains(server));
    let root = new.zookeeper.root.as_str();
    let here = session.with_timeout(WITHIN).exists(root).await;
    let here =
        here.map_err(|error| wrong(format!("can't be changed while ZooKeeper is not reachable: {error}")))?;
    let answers = join_all(added.iter().map(|server| root_at(server, new))).await;
    let mut is_known = !known.is_empty();
    for (server, answer) in added.iter().zip(answers) {
        match answer {
            Ok(there) if origin(there.as_ref()) == origin(here.as_ref()) => is_known = true,
            Ok(_) => {
                return Err(wrong(format!(
                    "{server} is a server of another ensemble: its znode {root} is not that of this worker; \
                     `dr-worker migrate` moves jobs to another ensemble"
                )));
            }
            Err(why) => tracing::warn!(server, "a new server of zookeeper.connect can't be reached: {why}"),
        }
    }
    if is_known {
        Ok(())
    } else {
        Err(wrong("no new server answers, and no old server is left in it".to_owned()))
    }
}

/// What tells a znode from one of another ensemble.
fn origin(root: Option<&Stat>) -> Option<(i64, i64)> {
    root.map(|stat| (stat.czxid, stat.ctime_ms))
}

/// The root znode, by this server.
async fn root_at(server: &str, config: &Config) -> Result<Option<Stat>, String> {
    let mut zookeeper = config.zookeeper.clone();
    server.clone_into(&mut zookeeper.connect);
    let builder = Servers::of(&zookeeper).builder().map_err(|error| error.to_string())?;
    let session = builder.session_timeout(TIMEOUT).connect_timeout(WITHIN).connect().await;
    let session = session.map_err(|error: ConnectError| error.to_string())?;
    let asked = session.with_timeout(WITHIN);
    let read = async {
        asked.sync(&zookeeper.root).await?;
        asked.exists(&zookeeper.root).await
    };
    let read = read.await.map_err(|error: OpError| error.to_string());
    session.close(WITHIN).await;
    read
}

/// Has the session use the servers of `new`.
pub(super) fn take_over(session: &Session, old: &Config, new: &Config) {
    let (was, is) = (&old.zookeeper, &new.zookeeper);
    if was.connect != is.connect
        && let Err(error) = session.set_servers(&is.connect)
    {
        tracing::error!(%error, "the session goes on with the old servers");
    }
    if was.prefer != is.prefer
        && let Err(error) = session.prefer(&is.prefer)
    {
        tracing::error!(%error, "the session goes on with the old preferred servers");
    }
}
