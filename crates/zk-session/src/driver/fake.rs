//! A driver for tests that does what it is told and counts what it is asked.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{BoxFuture, CloseAnswer, Driver, DriverError, DriverResult, WatchToken};
use crate::config::DriverKind;
use crate::incarnation::{Incarnation, lock};
use crate::node::{CreateMode, Epoch, SessionId, Stat};
use crate::time::BootTime;

pub(crate) const SESSION: SessionId = SessionId(0x77);

/// What the next operation gets; once the script is used up, operations never answer.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A stat, with data where data is asked for.
    Stat(Vec<u8>, Stat),
    None,
    Fail(DriverError),
}

pub(crate) struct Fake {
    granted: Duration,
    script: Mutex<VecDeque<Reply>>,
    asked: AtomicUsize,
    aborted: AtomicBool,
}

impl Fake {
    pub(crate) fn new(granted: Duration, script: impl IntoIterator<Item = Reply>) -> Arc<Self> {
        Arc::new(Self {
            granted,
            script: Mutex::new(script.into_iter().collect()),
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
        Incarnation::new(Epoch(1), self.clone(), String::new(), operation_timeout, contact)
    }

    /// How many requests it has had.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }

    fn answer<T: Send + 'static>(
        &self,
        convert: impl FnOnce(Vec<u8>, Stat) -> T + Send + 'static,
        none: Option<T>,
    ) -> BoxFuture<'static, DriverResult<T>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let reply = lock(&self.script).pop_front();
        Box::pin(async move {
            match (reply, none) {
                (Some(Reply::Stat(data, stat)), _) => Ok(convert(data, stat)),
                (Some(Reply::None), Some(none)) => Ok(none),
                (Some(Reply::Fail(error)), _) => Err(error),
                (Some(Reply::None), None) => panic!("this operation has no such answer"),
                // A driver that breaks its contract: it does not even keep the deadline.
                (None, _) => std::future::pending().await,
            }
        })
    }
}

impl Driver for Fake {
    fn kind(&self) -> DriverKind {
        DriverKind::ZookeeperClient
    }

    fn session_id(&self) -> SessionId {
        SESSION
    }

    fn granted_timeout(&self) -> Duration {
        self.granted
    }

    fn get(
        &self,
        _: &str,
        _: Option<WatchToken>,
        _: BootTime,
    ) -> BoxFuture<'static, DriverResult<(Vec<u8>, Stat)>> {
        self.answer(|data, stat| (data, stat), None)
    }

    fn exists(
        &self,
        _: &str,
        _: Option<WatchToken>,
        _: BootTime,
    ) -> BoxFuture<'static, DriverResult<Option<Stat>>> {
        self.answer(|_, stat| Some(stat), Some(None))
    }

    fn children(
        &self,
        _: &str,
        _: Option<WatchToken>,
        _: BootTime,
    ) -> BoxFuture<'static, DriverResult<(Vec<String>, Stat)>> {
        self.answer(|_, stat| (Vec::new(), stat), None)
    }

    fn create(
        &self,
        path: &str,
        _: &[u8],
        _: CreateMode,
        _: bool,
        _: BootTime,
    ) -> BoxFuture<'static, DriverResult<(String, Stat)>> {
        let path = path.to_owned();
        self.answer(|_, stat| (path, stat), None)
    }

    fn set(&self, _: &str, _: &[u8], _: Option<i32>, _: BootTime) -> BoxFuture<'static, DriverResult<Stat>> {
        self.answer(|_, stat| stat, None)
    }

    fn delete(&self, _: &str, _: Option<i32>, _: BootTime) -> BoxFuture<'static, DriverResult<()>> {
        self.answer(|_, _| (), Some(()))
    }

    fn barrier(&self, _: BootTime) -> BoxFuture<'static, DriverResult<()>> {
        self.answer(|_, _| (), Some(()))
    }

    fn forget(&self, _: WatchToken) {}

    fn close(&self, _: BootTime) -> BoxFuture<'static, CloseAnswer> {
        Box::pin(async { CloseAnswer::Unknown })
    }

    fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
    }
}
