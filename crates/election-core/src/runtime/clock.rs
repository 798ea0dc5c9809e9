//! The next time at which a task is to be woken.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::time::{Instant, Sleep, sleep};
use zk_session::BootTime;

/// A timer that exists while there is a time to wait for. It waits as [`zk_session::sleep_until`] does, and is set again
/// where that would be made again: a lease moves on with each heartbeat.
#[derive(Default)]
pub(super) struct Clock(Option<(BootTime, Pin<Box<Sleep>>)>);

impl Clock {
    /// Whether that time has come. The task is woken then, unless it asks for another time meanwhile.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, at: Option<BootTime>) -> Poll<()> {
        let Some(at) = at else {
            self.0 = None;
            return Poll::Pending;
        };
        loop {
            if let Some((known, timer)) = &mut self.0
                && *known == at
            {
                ready!(timer.as_mut().poll(cx));
            }
            let Some(nap) = at.next_nap() else {
                self.0 = None;
                return Poll::Ready(());
            };
            match &mut self.0 {
                Some((known, timer)) => {
                    *known = at;
                    timer.as_mut().reset(Instant::now() + nap);
                }
                None => self.0 = Some((at, Box::pin(sleep(nap)))),
            }
        }
    }
}
