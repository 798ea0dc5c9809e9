//! The next time at which a task is to be woken.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use zk_session::{BootTime, sleep_until};

type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A timer that exists while there is a time to wait for.
#[derive(Default)]
pub(super) struct Clock(Option<(BootTime, Sleep)>);

impl Clock {
    /// Whether that time has come. The task is woken then, unless it asks for another time meanwhile.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, at: Option<BootTime>) -> Poll<()> {
        let Some(at) = at else {
            self.0 = None;
            return Poll::Pending;
        };
        if self.0.as_ref().is_none_or(|(known, _)| *known != at) {
            self.0 = Some((at, Box::pin(sleep_until(at))));
        }
        if let Some((_, sleep)) = &mut self.0 {
            ready!(sleep.as_mut().poll(cx));
        }
        self.0 = None;
        Poll::Ready(())
    }
}
