//! The driver over the crate `zookeeper-client`.
//!
//! That client keeps one session per value, replays credentials and never goes on in another session. It is trusted with
//! a session as long as one connection lasts:
//! - **Connections.** At a lost one the client would try the others in an order that knows nothing of what was lost, with
//!   pauses that double without bound, by the addresses of the beginning, and would not say what timeout the next server
//!   grants. So it is ended at that moment, and the session is carried on by a new value of it, with the id and the
//!   password, at the server that `seek` finds. A session that must not lose time to the dead survives a dead link and
//!   a dead server besides.
//! - **Watches** end with the value. Each is told to have a gap, whereupon it is read again. A quorum round trip on the new
//!   connection, before anything else, sees to it that what is read then is not older than before: the new value does
//!   not know how far the old one had seen.
//! - **Timeouts.** The client pings and notices silence by the timeout that is asked for. Where another one is granted, the
//!   new session is at once carried on by a value that goes by that one.
//! - **Ends.** Its task is taken from it as it is spawned, so that it can be ended at once, and so that its death is
//!   noticed. It closes its session when its last handle is dropped: its task holds one to its end.
//! - It queues requests while it is disconnected, and would send them after their caller has given up: they are refused
//!   here instead. What it has queued is not written any more once the process was frozen for half a session timeout.
//! - A malformed reply can panic in it: caught, and the session given up.
//! - Of a certificate that one side refuses it says only that there is no connection: `tls` finds out before.

mod attach;
mod convert;
mod keeper;
#[cfg(feature = "tls")]
mod tls;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use zookeeper_client::{Client, Error, MultiWriteError, SessionState};

use self::attach::{Attached, Recipe, Said};
use self::convert::{access_list, classify, client_mode, convert, convert_result};
use self::keeper::Core;
use super::seek::{self, Refusal, Seeker};
use super::{
    BARRIER_PATH, BoxFuture, CloseAnswer, Code, ConnectFailure, ConnectSpec, Connected, Driver, DriverError,
    DriverEvent, DriverResult, Host, MultiAnswer, WatchToken, acknowledged,
};
use crate::acl::Acl;
use crate::config::DriverKind;
use crate::multi::MultiOp;
use crate::node::{CreateMode, SessionId, Stat};
use crate::time::{BootTime, sleep_until, within};

/// Makes a session.
pub(super) async fn connect(spec: ConnectSpec) -> Result<Connected, ConnectFailure> {
    let recipe = Recipe::prepare(&spec).await?;
    let said = Said::default();
    let attach = |host: Host, patience| {
        let recipe = recipe.clone();
        async move { recipe.begin(host.clone(), patience).await.map(|attached| (host, attached)) }
    };
    let making = seek::first(&spec, |host, answer| said.note(host, answer), attach);
    let (host, attached) = match within(spec.deadline, making).await {
        Some(Ok(Some((_, found)))) => found,
        Some(Err(Refusal::AuthFailed(reason))) => return Err(ConnectFailure::AuthFailed(reason)),
        Some(Ok(None) | Err(_)) | None => return Err(ConnectFailure::Unavailable(said.report())),
    };
    let attached = Arc::new(attached);
    let (events, receiver) = mpsc::unbounded_channel();
    let core = Arc::new(Core::new(Arc::clone(&attached), events));
    let driver = ClientDriver {
        session_id: SessionId(attached.session.id().0),
        granted: attached.granted,
        acl: spec.acl,
        core: Arc::clone(&core),
    };
    tokio::spawn(core.keep(recipe.clone(), Seeker::new(&spec), (host, attached)));
    Ok(Connected { driver: Arc::new(driver), events: receiver })
}

struct ClientDriver {
    session_id: SessionId,
    granted: Duration,
    acl: Acl,
    core: Arc<Core>,
}

impl ClientDriver {
    /// Runs one operation of the client: refused while disconnected, bounded, its panics caught.
    fn call<T, F>(
        &self,
        deadline: BootTime,
        operation: impl FnOnce(Client, Arc<Attached>) -> F + Send + 'static,
    ) -> BoxFuture<'static, DriverResult<T>>
    where
        F: Future<Output = Result<T, Error>> + Send,
        T: Send,
    {
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            if core.closing.is_cancelled() {
                return Err(DriverError::NotSent("the session is being closed".to_owned()));
            }
            let Some(attached) = core.attached() else {
                return Err(DriverError::NotSent("the connection is lost".to_owned()));
            };
            let client = attached.client().map_err(DriverError::NotSent)?;
            let gone = attached.gone.clone();
            // Created here and not before: the client sends at creation.
            let operation = AssertUnwindSafe(async move { operation(client, attached).await }).catch_unwind();
            let answer = tokio::select! {
                biased;
                answer = operation => answer,
                () = core.closing.cancelled() => {
                    return Err(DriverError::Ambiguous("the session was closed meanwhile".to_owned()));
                }
                () = gone.cancelled() => {
                    return Err(DriverError::Ambiguous("the connection was lost meanwhile".to_owned()));
                }
                () = sleep_until(deadline) => {
                    return Err(DriverError::Ambiguous("no answer in time".to_owned()));
                }
            };
            match answer {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(error)) => Err(classify(error)),
                Err(_) => {
                    let reason = "a reply of the server could not be understood".to_owned();
                    core.say(DriverEvent::Dead { reason: reason.clone() });
                    core.abort();
                    Err(DriverError::Ambiguous(reason))
                }
            }
        })
    }
}

impl Driver for ClientDriver {
    fn kind(&self) -> DriverKind {
        DriverKind::ZookeeperClient
    }

    fn session_id(&self) -> SessionId {
        self.session_id
    }

    fn granted_timeout(&self) -> Duration {
        self.granted
    }

    fn get(
        &self,
        path: &str,
        watch: Option<WatchToken>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<(Vec<u8>, Stat)>> {
        let (path, core) = (path.to_owned(), Arc::clone(&self.core));
        self.call(deadline, move |client, attached| async move {
            match watch {
                None => client.get_data(&path).await.map(|(data, stat)| (data, convert(stat))),
                Some(token) => {
                    let (data, stat, watcher) = client.get_and_watch_data(&path).await?;
                    core.await_watch(&attached, token, path, watcher);
                    Ok((data, convert(stat)))
                }
            }
        })
    }

    fn exists(
        &self,
        path: &str,
        watch: Option<WatchToken>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<Option<Stat>>> {
        let (path, core) = (path.to_owned(), Arc::clone(&self.core));
        self.call(deadline, move |client, attached| async move {
            match watch {
                None => client.check_stat(&path).await.map(|stat| stat.map(convert)),
                Some(token) => {
                    let (stat, watcher) = client.check_and_watch_stat(&path).await?;
                    core.await_watch(&attached, token, path, watcher);
                    Ok(stat.map(convert))
                }
            }
        })
    }

    fn children(
        &self,
        path: &str,
        watch: Option<WatchToken>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<(Vec<String>, Stat)>> {
        let (path, core) = (path.to_owned(), Arc::clone(&self.core));
        self.call(deadline, move |client, attached| async move {
            match watch {
                None => client.get_children(&path).await.map(|(names, stat)| (names, convert(stat))),
                Some(token) => {
                    let (names, stat, watcher) = client.get_and_watch_children(&path).await?;
                    core.await_watch(&attached, token, path, watcher);
                    Ok((names, convert(stat)))
                }
            }
        })
    }

    fn create(
        &self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        sequential: bool,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<(String, Stat)>> {
        let (path, data) = (path.to_owned(), data.to_vec());
        let mode = client_mode(mode, sequential);
        let acls = access_list(self.acl);
        self.call(deadline, move |client, _| async move {
            let options = mode.with_acls(acls);
            let (stat, sequence) = client.create(&path, &data, &options).await?;
            let created = if sequential { format!("{path}{sequence}") } else { path };
            Ok((created, convert(stat)))
        })
    }

    fn set(
        &self,
        path: &str,
        data: &[u8],
        version: Option<i32>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<Stat>> {
        let (path, data) = (path.to_owned(), data.to_vec());
        self.call(deadline, move |client, _| async move {
            client.set_data(&path, &data, version).await.map(convert)
        })
    }

    fn delete(
        &self,
        path: &str,
        version: Option<i32>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<()>> {
        let path = path.to_owned();
        self.call(deadline, move |client, _| async move { client.delete(&path, version).await })
    }

    fn has_multi(&self) -> bool {
        true
    }

    fn multi(&self, ops: &[MultiOp], deadline: BootTime) -> BoxFuture<'static, DriverResult<MultiAnswer>> {
        let (ops, acls) = (ops.to_vec(), access_list(self.acl));
        self.call(deadline, move |client, _| async move {
            let mut writer = client.new_multi_writer();
            for (at, op) in ops.iter().enumerate() {
                let added = match op {
                    // As the server has it: -1 is any version.
                    MultiOp::Check { path, version } => writer.add_check_version(path, version.unwrap_or(-1)),
                    MultiOp::Create { path, data, mode } => {
                        writer.add_create(path, data, &client_mode(*mode, false).with_acls(acls))
                    }
                    MultiOp::Set { path, data, version } => writer.add_set_data(path, data, *version),
                    MultiOp::Delete { path, version } => writer.add_delete(path, *version),
                };
                if let Err(error) = added {
                    return Ok(MultiAnswer::Refused { at, code: Code::Invalid(error.to_string()) });
                }
            }
            match writer.commit().await {
                Ok(results) if results.len() == ops.len() => {
                    Ok(MultiAnswer::Done(results.into_iter().map(convert_result).collect()))
                }
                Ok(_) => Err(Error::UnexpectedError("results for another number of operations".to_owned())),
                Err(MultiWriteError::RequestFailed { source }) => Err(source),
                // The server has answered, and what it answers is that nothing was done.
                Err(MultiWriteError::OperationFailed { index, source }) => {
                    let code = match classify(source) {
                        DriverError::Definite(code) => code,
                        DriverError::Ambiguous(said) | DriverError::NotSent(said) => Code::Other(said),
                    };
                    Ok(MultiAnswer::Refused { at: index, code })
                }
            }
        })
    }

    fn barrier(&self, deadline: BootTime) -> BoxFuture<'static, DriverResult<()>> {
        let deletion =
            self.call(deadline, |client, _| async move { client.delete(BARRIER_PATH, None).await });
        Box::pin(async move { acknowledged(deletion.await) })
    }

    fn forget(&self, token: WatchToken) {
        self.core.forget(token);
    }

    fn close(&self, deadline: BootTime) -> BoxFuture<'static, CloseAnswer> {
        let core = Arc::clone(&self.core);
        // The client says goodbye when nobody holds it any more: operations under way let go of it.
        core.closing.cancel();
        let attached = core.attached();
        Box::pin(async move {
            let Some(attached) = attached else { return CloseAnswer::Unknown };
            let connected = attached.state() == SessionState::SyncConnected;
            attached.say_goodbye();
            let ended = within(deadline, attached.ended.cancelled()).await;
            let answer = match (ended, attached.state()) {
                // The answer to the goodbye has come, or the server no longer knows the session.
                (Some(()), SessionState::Closed | SessionState::Expired) => CloseAnswer::Acknowledged,
                _ if connected => CloseAnswer::Sent,
                _ => CloseAnswer::Unknown,
            };
            core.abort();
            attached.ended.cancelled().await;
            answer
        })
    }

    fn abort(&self) {
        self.core.abort();
    }
}

impl Drop for ClientDriver {
    fn drop(&mut self) {
        self.core.abort();
    }
}

fn in_words(state: SessionState) -> &'static str {
    match state {
        SessionState::Disconnected => "lost",
        SessionState::SyncConnected => "up",
        SessionState::AuthFailed => "refused for its credentials",
        SessionState::ConnectedReadOnly => "read-only",
        SessionState::Expired => "of an expired session",
        SessionState::Closed => "closed",
    }
}
