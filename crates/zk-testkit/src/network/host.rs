//! One host of a network.

use std::ffi::OsStr;
use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, setns};

use super::cuts::Cuts;
use super::run::feed;
use crate::Error;
use crate::error::Context as _;

/// A host of a [`Network`](super::Network): a network namespace with one address.
/// Start processes on it by [`command`](Self::command), and threads of this process by [`spawn`](Self::spawn).
/// A cut drops packets in both directions silently: no connection is reset or refused. It is made at one host
/// and ended there, by [`heal`](Self::heal). Two hosts reach each other while neither of them is cut off from
/// the other.
#[derive(Debug)]
pub struct Host {
    namespace: String,
    ip: Ipv4Addr,
    cuts: Mutex<Cuts>,
}

impl Host {
    pub(super) fn new(namespace: String, ip: Ipv4Addr) -> Result<Self, Error> {
        let host = Self { namespace, ip, cuts: Mutex::default() };
        // A machine without iptables fails now, and not at the first cut.
        host.heal()?;
        Ok(host)
    }

    /// Its address.
    #[must_use]
    pub fn ip(&self) -> Ipv4Addr {
        self.ip
    }

    /// The name of its namespace, for `ip netns exec`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A command that runs on this host. Its process id is that of the program itself, which
    /// is killed when the network is dropped, if it still runs.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }

    /// Runs `work` on a new thread of this process that is on this host: its sockets and the threads that it
    /// starts are there, too. So is a tokio runtime that `work` builds:
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let network = zk_testkit::Network::new()?;
    /// let client = network.host()?;
    /// let thread = client.spawn(|| {
    ///     let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    ///     runtime.block_on(async { tokio::net::TcpStream::connect("198.18.0.1:2181").await })
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    /// The thread ends with `work`, which should end before the network.
    ///
    /// # Errors
    /// [`Error::Io`] if the thread can't be started, or the network has been dropped.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, Error> {
        let path = format!("/run/netns/{}", self.namespace);
        let namespace = File::open(&path).context(|| format!("cannot open {path}"))?;
        let (tell, told) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(self.namespace.clone()).spawn(move || {
            let entered = setns(namespace, CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from);
            let stays_out = entered.is_err();
            // Who started it waits for this.
            let _ = tell.send(entered);
            if stays_out {
                std::panic::resume_unwind(Box::new("not on its host"));
            }
            work()
        });
        let thread = thread.context(|| format!("cannot start a thread on {}", self.namespace))?;
        let entered = told.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::BrokenPipe.into()));
        entered.context(|| format!("a thread of this process cannot enter {path}"))?;
        Ok(thread)
    }

    /// Drops all packets from and to these addresses, from now on, in one step: those of other hosts, or
    /// [`Network::own_address`](super::Network::own_address).
    ///
    /// # Errors
    /// [`Error::NoNamespaces`] if `iptables` refuses; nothing has changed then.
    pub fn cut_from(&self, others: &[Ipv4Addr]) -> Result<(), Error> {
        self.change(|cuts| cuts.some.extend(others))
    }

    /// Drops all packets except those to itself, as if its cable were pulled.
    ///
    /// # Errors
    /// [`Error::NoNamespaces`] if `iptables` refuses; nothing has changed then.
    pub fn unplug(&self) -> Result<(), Error> {
        self.change(|cuts| cuts.all = true)
    }

    /// Drops all packets that it sends to others, and none that it receives.
    ///
    /// # Errors
    /// [`Error::NoNamespaces`] if `iptables` refuses; nothing has changed then.
    pub fn mute(&self) -> Result<(), Error> {
        self.change(|cuts| cuts.mute = true)
    }

    /// Drops so many of a hundred packets that it receives, at random: 99 at most.
    ///
    /// # Errors
    /// [`Error::NoNamespaces`] if `iptables` refuses; nothing has changed then.
    pub fn lose(&self, percent: u8) -> Result<(), Error> {
        self.change(|cuts| cuts.lost = percent)
    }

    /// Ends all cuts that were made at this host. Dropped data arrives when the sender retries: TCP does after
    /// a pause that doubles with each attempt.
    ///
    /// # Errors
    /// [`Error::NoNamespaces`] if `iptables` refuses; nothing has changed then.
    pub fn heal(&self) -> Result<(), Error> {
        self.change(|cuts| *cuts = Cuts::default())
    }

    fn change(&self, change: impl FnOnce(&mut Cuts)) -> Result<(), Error> {
        // Held over the command: the last one to change the cuts is the last one to apply them.
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = cuts.clone();
        change(&mut changed);
        feed(&["ip", "netns", "exec", &self.namespace, "iptables-restore", "-w"], &changed.table())?;
        *cuts = changed;
        Ok(())
    }
}
