//! A driver for tests that does what it is told and counts what it is asked.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use zk_proto::{ErrorCode, Reply, Request, Ticket, WatchId};

use super::{Along, Answer, BoxFuture, CloseAnswer, Driver, DriverError, DriverResult};
use crate::acl::Acl;
use crate::incarnation::{Incarnation, lock};
use crate::node::{Epoch, SessionId, Stat};
use crate::time::BootTime;

pub(crate) const SESSION: SessionId = SessionId(0x77);

/// What the next operation gets; once the script is used up, operations never answer.
#[derive(Debug)]
pub(crate) enum Scripted {
    /// A stat, with data where data is asked for.
    Stat(Vec<u8>, Stat),
    /// No such znode.
    None,
    Fail(DriverError),
}

pub(crate) struct Fake {
    granted: Duration,
    script: Mutex<VecDeque<Scripted>>,
    /// Requests that are never answered: a driver that breaks its contract.
    unanswered: Mutex<Vec<oneshot::Sender<DriverResult<Reply>>>>,
    asked: AtomicUsize,
    aborted: AtomicBool,
}

impl Fake {
    pub(crate) fn new(granted: Duration, script: impl IntoIterator<Item = Scripted>) -> Arc<Self> {
        Arc::new(Self {
            granted,
            script: Mutex::new(script.into_iter().collect()),
            unanswered: Mutex::default(),
            asked: AtomicUsize::new(0),
            aborted: AtomicBool::new(false),
        })
    }

    /// A session on it that was heard of at `contact`.
    pub(crate) fn incarnation(
        self: &Arc<Self>,
        operation_timeout: Duration,
        contact: BootTime,
    ) -> Incarnation {
        Incarnation::new(Epoch(1), self.clone(), String::new(), operation_timeout, Acl::Open, contact)
    }

    /// How many requests it has had.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }
}

impl Driver for Fake {
    fn ticket(&self) -> Ticket {
        Ticket { session_id: SESSION, password: Vec::new(), timeout: self.granted, last_zxid: 0 }
    }

    fn send(&self, request: &Request<'_>, _: Along) -> Answer {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let (sender, answer) = oneshot::channel();
        let result = match lock(&self.script).pop_front() {
            Some(Scripted::Stat(data, stat)) => Ok(match request {
                Request::Create(create) => Reply::PathAndStat(create.path.clone().into_owned(), stat),
                Request::GetData { .. } => Reply::Data(Some(data.into()), stat),
                Request::GetChildren { .. } => Reply::NamesAndStat(Vec::new(), stat),
                Request::Delete { .. } => Reply::Empty,
                _ => Reply::Stat(stat),
            }),
            Some(Scripted::None) => Err(DriverError::Refused(ErrorCode::NO_NODE)),
            Some(Scripted::Fail(error)) => Err(error),
            None => {
                lock(&self.unanswered).push(sender);
                return answer;
            }
        };
        let _ = sender.send(result);
        answer
    }

    fn forget(&self, _: WatchId) {}

    fn servers_changed(&self) {}

    fn close(&self, _: BootTime) -> BoxFuture<'static, CloseAnswer> {
        Box::pin(async { CloseAnswer::Unknown })
    }

    fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
    }
}
