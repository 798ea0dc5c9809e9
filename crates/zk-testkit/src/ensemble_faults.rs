//! The faults of an ensemble of real servers.

use nix::sys::signal::Signal;

use crate::links::Links;
use crate::{Ensemble, Error, Host, Server};

impl Ensemble {
    /// Fault injection: servers that freeze, and servers that are cut off.
    #[must_use]
    pub fn faults(&self) -> EnsembleFaults<'_> {
        EnsembleFaults { ensemble: self }
    }
}

/// Fault injection for an [`Ensemble`]. From [`Ensemble::faults`].
///
/// Each method acts at once. Methods that take the index of a server panic if there is no such server, as a
/// slice does.
#[derive(Clone, Copy, Debug)]
pub struct EnsembleFaults<'a> {
    pub(crate) ensemble: &'a Ensemble,
}

impl<'a> EnsembleFaults<'a> {
    /// Freezes a server by SIGSTOP: its connections stay open and nothing is answered. The server has stopped
    /// when this returns, which blocks for as long as that takes, commonly less than a millisecond.
    ///
    /// # Errors
    /// [`Error::NotRunning`]; [`Error::Io`] if it has not stopped within 10 s.
    pub fn pause(self, index: usize) -> Result<(), Error> {
        self.ensemble.server(index).freeze()
    }

    /// Lets a frozen server continue, by SIGCONT.
    ///
    /// # Errors
    /// [`Error::NotRunning`].
    pub fn resume(self, index: usize) -> Result<(), Error> {
        self.ensemble.server(index).signal(Signal::SIGCONT)
    }

    /// Cuts a server off from the other servers, but not from its clients. A follower answers its clients, from
    /// older and older data, until `syncLimit` ticks have passed, while the other servers expire their sessions
    /// after the session timeout. No connection is closed or refused; the bytes don't arrive.
    ///
    /// With [`breakable_links`](crate::EnsembleBuilder::breakable_links), [pause](Self::pause) the ensemble's
    /// leader instead of isolating it: the election messages of the servers still pass, so the others might
    /// elect the isolated one again and again, and no server would serve. [In
    /// namespaces](crate::EnsembleBuilder::in_namespaces) no message passes, and the others replace the leader
    /// after `syncLimit` ticks.
    ///
    /// # Errors
    /// [`Error::Settings`] unless built with one of them; [`Error::NoNamespaces`] if `iptables` refuses.
    pub fn isolate(self, index: usize) -> Result<(), Error> {
        if let Some(host) = self.ensemble.server(index).host() {
            let others = self.ensemble.servers.iter().filter_map(Server::host).map(Host::ip);
            return host.cut_from(&others.filter(|ip| *ip != host.ip()).collect::<Vec<_>>());
        }
        self.links(index)?.isolate(index, true);
        Ok(())
    }

    /// Cuts a server off from the other servers and from all clients, as if its cable were pulled. Its process
    /// continues.
    ///
    /// # Errors
    /// [`Error::Settings`] unless built [`in_namespaces`](crate::EnsembleBuilder::in_namespaces);
    /// [`Error::NoNamespaces`] if `iptables` refuses.
    pub fn unplug(self, index: usize) -> Result<(), Error> {
        self.ensemble
            .server(index)
            .host()
            .ok_or_else(|| not_built_for("in_namespaces", "unplugged"))?
            .unplug()
    }

    /// Ends [`isolate`](Self::isolate) and [`unplug`](Self::unplug), and in namespaces any other cut made at
    /// that server's [`host`](Server::host). The server needs some seconds to find its leader again; see
    /// [`wait_serving`](Ensemble::wait_serving).
    ///
    /// # Errors
    /// [`Error::Settings`] unless built in namespaces or with breakable links; [`Error::NoNamespaces`] if
    /// `iptables` refuses.
    pub fn rejoin(self, index: usize) -> Result<(), Error> {
        if let Some(host) = self.ensemble.server(index).host() {
            return host.heal();
        }
        self.links(index)?.isolate(index, false);
        Ok(())
    }

    fn links(self, index: usize) -> Result<&'a Links, Error> {
        let _there_is_one = self.ensemble.server(index);
        let links = self.ensemble.links.as_ref();
        links.ok_or_else(|| not_built_for("in_namespaces or with breakable_links", "isolated"))
    }
}

fn not_built_for(settings: &str, what: &str) -> Error {
    Error::Settings(format!("a server can be {what} only in an ensemble that is built {settings}"))
}
