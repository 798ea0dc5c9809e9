//! The signals that end a process, and those that must not.

use std::{
    collections::BTreeSet,
    future::poll_fn,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, OnceLock},
    task::Poll,
};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal as Name, raise};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Real-time signals. They are sent to a worker only by mistake.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// Signals that would end or stop a process by default, and have no meaning for a worker. Excluded: signals of faults,
/// signals that can't be caught, and SIGTTIN and SIGTTOU, which the terminal would send endlessly.
const IGNORED: [Name; 13] = [
    Name::SIGHUP,
    Name::SIGQUIT,
    Name::SIGTRAP,
    Name::SIGABRT,
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

/// Asks a worker to upgrade itself in place.
pub(crate) const UPGRADE: Name = Name::SIGUSR1;

/// Asks a worker to open its log files again, after they were moved away.
pub(crate) const REOPEN: Name = Name::SIGUSR2;

/// From now on only SIGTERM, SIGINT and signals that can't be caught end this process: a leader must not be lost to a
/// signal that was meant for another program. Programs that it starts get the default actions: the signals are caught,
/// not ignored, and `exec` resets handlers.
///
/// # Errors
/// If the kernel refuses a handler.
pub(crate) fn ignore_signals() -> io::Result<()> {
    for name in IGNORED.into_iter().chain([UPGRADE, REOPEN]) {
        signal_hook::flag::register(name as i32, Arc::default())?;
    }
    for number in REAL_TIME {
        // Some may be reserved by the C library.
        let _ = signal_hook::flag::register(number, Arc::default());
    }
    Ok(())
}

/// The signals that a worker obeys.
const OBEYED: [Name; 4] = [Name::SIGTERM, Name::SIGINT, Name::SIGHUP, UPGRADE];

/// The signals of this name that have come and were not obeyed yet: for each a byte, which the handler has written.
#[derive(Debug)]
struct Unobeyed {
    name: Name,
    bytes: UnixStream,
}

/// The next program of this process inherits them. A signal that comes in the last moment before the execution is handled by
/// this program, which does nothing any more.
static UNOBEYED: OnceLock<Vec<Unobeyed>> = OnceLock::new();

/// From now on the signals that a worker obeys are kept until they are [`obeyed`], for the next program of this process.
///
/// # Errors
/// If the kernel refuses a handler, or no descriptor is left.
pub(crate) fn keep_unobeyed() -> io::Result<()> {
    if UNOBEYED.get().is_some() {
        return Ok(());
    }
    let keep = |name: Name| {
        let (bytes, handler) = UnixStream::pair()?;
        bytes.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(name as i32, handler)?;
        Ok(Unobeyed { name, bytes })
    };
    let kept = OBEYED.into_iter().map(keep).collect::<io::Result<Vec<_>>>()?;
    UNOBEYED.get_or_init(|| kept);
    Ok(())
}

/// Marks the signals of this name that have come so far as obeyed.
pub(crate) fn obeyed(name: Name) {
    for kept in UNOBEYED.get().into_iter().flatten().filter(|kept| kept.name == name) {
        drain(&kept.bytes);
    }
}

/// What the next program of this process needs for [`raise_again`]: each signal with its descriptor.
pub(crate) fn unobeyed() -> impl Iterator<Item = (Name, BorrowedFd<'static>)> {
    UNOBEYED.get().into_iter().flatten().map(|kept| (kept.name, kept.bytes.as_fd()))
}

/// Sends this process the signals that the program before this one was sent and has not obeyed, and those that came before this
/// program was able to obey. Call it once that is.
pub(crate) fn raise_again(inherited: impl IntoIterator<Item = (i32, OwnedFd)>) {
    let inherited = inherited.into_iter().filter(|(_, bytes)| drain(bytes));
    let names = inherited.filter_map(|(number, _)| Name::try_from(number).ok());
    let early = UNOBEYED.get().into_iter().flatten().filter(|kept| drain(&kept.bytes)).map(|kept| kept.name);
    // Both are taken before one is sent.
    for name in names.chain(early).collect::<BTreeSet<_>>() {
        if let Err(error) = raise(name) {
            tracing::warn!(%error, signal = name.as_str(), "a signal that has come too early is lost");
        }
    }
}

/// Takes all bytes. Returns whether there was one.
fn drain(bytes: impl AsFd) -> bool {
    let (mut some, mut was_one) = ([0; 64], false);
    loop {
        match nix::unistd::read(&bytes, &mut some) {
            Ok(1..) => was_one = true,
            Err(Errno::EINTR) => {}
            Ok(0) | Err(_) => return was_one,
        }
    }
}

/// SIGHUP, which asks the daemon to read its configuration again.
pub(crate) struct Reloads(Signal);

impl Reloads {
    pub(crate) fn new() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// The next one. Those that come during a reload count as one. Cancel safe.
    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
        // One that comes before this is handled with what is read from now on.
        obeyed(Name::SIGHUP);
    }
}

/// The signals that ask the daemon to end.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on these signals do not end the process by themselves.
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

/// Blocks all signals in this thread, which is about to execute another program: they wait until that handles them.
///
/// # Errors
/// If the kernel refuses it.
pub(crate) fn block() -> io::Result<SigSet> {
    Ok(SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?)
}

/// Ends the block of the program before this one in this process, in this thread: the kernel gives signals to any thread that
/// does not block them.
pub(crate) fn unblock_all() {
    unblock(&SigSet::empty());
}

/// Restores what [`block`] has changed.
pub(crate) fn unblock(before: &SigSet) {
    // It fails only for an invalid argument.
    let _ = before.thread_set_mask();
}

/// Calls `obey` at each signal of this name that comes after this call, until it is dropped.
pub(crate) fn on(name: Name, obey: impl Fn()) -> impl Future<Output = ()> {
    let asked = signal(SignalKind::from_raw(name as i32));
    async move {
        match asked {
            Ok(mut asked) => {
                while asked.recv().await.is_some() {
                    obey();
                }
            }
            Err(error) => tracing::warn!(%error, signal = name.as_str(), "can't receive a signal"),
        }
    }
}

/// Logs each ignored signal, until it is dropped.
///
/// # Errors
/// If the signals can't be received.
pub(crate) async fn log_ignored() -> io::Result<()> {
    let mut heard = IGNORED
        .into_iter()
        // A reload logs itself.
        .filter(|name| *name != Name::SIGHUP)
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
            Name::SIGTSTP => tracing::warn!(
                signal = "SIGTSTP",
                "ignored: a stopped worker loses its leadership; SIGSTOP stops it"
            ),
            name => tracing::warn!(signal = name.as_str(), "ignored: use SIGTERM to stop a worker"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_was_not_obeyed_reaches_the_next_program_once() {
        keep_unobeyed().expect("handlers");
        let inherited = || {
            let kept = unobeyed().filter(|(name, _)| *name == Name::SIGHUP);
            kept.map(|(name, fd)| (name as i32, fd.try_clone_to_owned().expect("a descriptor")))
        };
        let waits = || {
            let (_, bytes) = inherited().next().expect("SIGHUP is kept");
            drain(bytes)
        };
        assert!(!waits());
        raise(Name::SIGHUP).expect("a signal");
        obeyed(Name::SIGHUP);
        assert!(!waits(), "an obeyed one is kept");
        raise(Name::SIGHUP).expect("a signal");
        raise(Name::SIGHUP).expect("a signal");
        raise_again(inherited());
        assert!(waits(), "it is not sent again");
        assert!(!waits(), "it is sent more than once");
    }
}
