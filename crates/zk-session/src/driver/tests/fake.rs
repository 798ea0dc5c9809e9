//! A driver for tests, with scripted answers, that counts its requests.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use zk_proto::{Reply, Request, Ticket, WatchId};

use crate::driver::close::CloseOutcome;
use crate::driver::{Along, Answer, BoxFuture, Driver, DriverResult};
use crate::lock::lock;
use crate::node::{Epoch, SessionId};
use crate::session::incarnation::Incarnation;
use crate::session::live::Live;
use crate::session::scope::Scope;
use crate::session::state::Event;
use crate::settings::Settings;
use crate::time::{BootTime, Moment};

pub(crate) const SESSION: SessionId = SessionId(0x77);
/// The newest change that the session has seen, whatever is answered.
pub(crate) const SEEN: i64 = 4;

pub(crate) struct Fake {
    granted: Duration,
    /// What the next requests get; once it is used up, they are not answered until the end.
    script: Mutex<VecDeque<DriverResult<Reply>>>,
    unanswered: Mutex<Vec<oneshot::Sender<DriverResult<Reply>>>>,
    asked: AtomicUsize,
    aborted: AtomicBool,
}

impl Fake {
    pub(crate) fn new(granted: Duration, script: impl IntoIterator<Item = DriverResult<Reply>>) -> Arc<Self> {
        Arc::new(Self {
            granted,
            script: Mutex::new(script.into_iter().collect()),
            unanswered: Mutex::default(),
            asked: AtomicUsize::new(0),
            aborted: AtomicBool::new(false),
        })
    }

    /// A session on it whose last contact was at `contact`.
    pub(crate) fn incarnation(
        self: &Arc<Self>,
        operation_timeout: Duration,
        contact: BootTime,
    ) -> Incarnation {
        let settings =
            Settings { operation_timeout: Some(operation_timeout), ..Settings::new(String::new()) };
        let live = Arc::new(Live::new(settings.instruments.clone()));
        let granted = self.granted;
        let connected = Event::Connected { epoch: Epoch(1), granted, contact, is_resumed: false };
        live.handle(None, contact, connected);
        let scope = Arc::new(Scope::new(String::new(), &settings.acl));
        Incarnation::new(Epoch(1), live, self.clone(), Arc::new(settings), scope)
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
        Ticket { session_id: SESSION, password: Vec::new(), timeout: self.granted, last_zxid: SEEN }
    }

    fn attached(&self) -> Moment {
        Moment::now()
    }

    fn server(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 2181))
    }

    fn send(&self, _: &Request<'_>, _: Along) -> Answer {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let (sender, answer) = oneshot::channel();
        match lock(&self.script).pop_front() {
            Some(result) => drop(sender.send(result)),
            None => lock(&self.unanswered).push(sender),
        }
        answer
    }

    fn forget(&self, _: WatchId) {}

    fn servers_changed(&self) {}

    fn close(&self, _: BootTime) -> BoxFuture<'static, CloseOutcome> {
        Box::pin(async { CloseOutcome::Unknown })
    }

    fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        lock(&self.unanswered).clear();
    }
}
