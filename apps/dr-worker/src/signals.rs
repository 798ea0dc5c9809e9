//! The signals that end a process, and those that must not.

use std::{future::poll_fn, io, sync::Arc, task::Poll};

use nix::sys::signal::Signal as Name;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Real-time signals. No one sends them to a worker but by mistake.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// What would end or stop a process that does not expect it, and has no meaning for a worker. Not here: what a fault
/// sends, what can't be caught, and SIGTTIN and SIGTTOU, for a terminal that is written to all the same would send them
/// without end.
const IGNORED: [Name; 15] = [
    Name::SIGHUP,
    Name::SIGQUIT,
    Name::SIGTRAP,
    Name::SIGABRT,
    Name::SIGUSR1,
    Name::SIGUSR2,
    Name::SIGALRM,
    Name::SIGSTKFLT,
    Name::SIGTSTP,
    Name::SIGXCPU,
    Name::SIGXFSZ,
    Name::SIGVTALRM,
    Name::SIGPROF,
    Name::SIGIO,
    Name::SIGPWR,
];

/// From now on only SIGTERM, SIGINT and what can't be caught end this process: a leader must not be lost to a signal
/// that was meant for another program. What it starts gets the default actions back: the signals are caught, not
/// ignored, and `exec` resets those.
///
/// # Errors
/// If the kernel refuses a handler.
pub(crate) fn ignore_signals() -> io::Result<()> {
    for name in IGNORED {
        signal_hook::flag::register(name as i32, Arc::default())?;
    }
    for number in REAL_TIME {
        // Some may be the C library's own.
        let _ = signal_hook::flag::register(number, Arc::default());
    }
    Ok(())
}

/// The signals that ask the daemon to end.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on they don't end the process by themselves.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The name of the next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            Some(()) = self.terminate.recv() => "SIGTERM",
            Some(()) = self.interrupt.recv() => "SIGINT",
            else => std::future::pending().await,
        }
    }
}

/// Logs each signal that is ignored, for ever.
///
/// # Errors
/// If they can't be heard of.
pub(crate) async fn log_ignored() -> io::Result<()> {
    let mut heard = IGNORED
        .into_iter()
        .map(|name| Ok((name, signal(SignalKind::from_raw(name as i32))?)))
        .collect::<io::Result<Vec<_>>>()?;
    loop {
        let next = poll_fn(|context| {
            let ready = heard
                .iter_mut()
                .find_map(|(name, signal)| signal.poll_recv(context).is_ready().then_some(*name));
            ready.map_or(Poll::Pending, Poll::Ready)
        });
        match next.await {
            Name::SIGHUP => tracing::info!(
                signal = "SIGHUP",
                "the configuration is not read again while a worker runs; restart it to change that"
            ),
            Name::SIGTSTP => tracing::warn!(
                signal = "SIGTSTP",
                "ignored: a worker that is stopped loses its leadership; SIGSTOP stops it nevertheless"
            ),
            name => tracing::warn!(signal = name.as_str(), "ignored: SIGTERM ends a worker"),
        }
    }
}
