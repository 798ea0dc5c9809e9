//! Upgrades the worker in place: this process executes the program that is on the disk now, and continues.
//!
//! ```text
//!   SIGUSR1 ─▶ ask the new program ─▶ wait for rest ─▶ hold elections and jobs ─▶ execute
//!                    │ refused           │ in vain         │ failed                 │
//!                    └───────────────────┴─────────────────┴──▶ the worker goes on  ▼
//!                                                            the new program: adopt the guards, re-attach the session,
//!                                                            lead on
//! ```
//!
//! - [`check`] asks the new program whether it can continue.
//! - [`transfer`] passes on what crosses, and executes the new program.
//! - [`report`] is the outcome, in a file beside the lock.

pub(crate) mod check;
pub(crate) mod report;
pub(crate) mod transfer;

use tokio::sync::Notify;

use crate::signals;

/// The format of what crosses, which includes the guard's protocol after its start. A program refuses any other.
pub(crate) const FORMAT: u32 = 1;

static REQUESTED: Notify = Notify::const_new();

/// Requests an upgrade at each signal for it, until it is dropped. Further requests before it begins have no effect.
pub(crate) fn at_signals() -> impl Future<Output = ()> {
    signals::on(signals::UPGRADE, || REQUESTED.notify_one())
}

/// Waits for a request.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn requested() {
    REQUESTED.notified().await;
    signals::obeyed(signals::UPGRADE);
}
