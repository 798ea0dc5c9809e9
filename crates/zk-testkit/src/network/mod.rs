//! Hosts for a test: network namespaces, connected by a switch.

mod cuts;
mod host;
mod reaper;
mod run;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, Ordering};

use cuts::INTERFACE;
pub use host::Host;
use reaper::NetworkReaper;
use run::{on_host, run};

use crate::Error;

/// The number of /24 networks in 198.18.0.0/15, which RFC 2544 reserves for such tests: neither sites nor
/// containers use these addresses.
const NETWORKS: u16 = 512;
/// The last part of this process's own address on the network.
const OWN: u8 = 254;

/// A network of hosts for a test, each a Linux network namespace with one address, connected by a switch to
/// each other and to this process. Packets between them can be dropped silently, which is not possible on
/// loopback: see [`Host`]. Servers are started on hosts by
/// [`EnsembleBuilder::in_namespaces`](crate::EnsembleBuilder::in_namespaces); [`host`](Self::host) makes more
/// of them, for the programs under test.
///
/// It needs root (in a container the capabilities `NET_ADMIN` and `SYS_ADMIN`) and the
/// programs `ip` and `iptables-restore`. Everything except one interface is in namespaces of its own, so the
/// machine's own firewall and bridges are hardly involved. Networks of other tests and processes have other
/// names and addresses.
///
/// Dropping it ends every process that still runs on its hosts and removes the namespaces and
/// interfaces, also on a panic; if this process is killed instead, a helper process does the same
/// within about two seconds. Its methods block for as long as `ip` takes: some 10 ms for each
/// host, less than that for a cut.
#[derive(Debug)]
pub struct Network {
    name: String,
    number: u16,
    hosts: AtomicU8,
    _reaper: NetworkReaper,
}

impl Network {
    /// Makes a network without any hosts.
    ///
    /// # Errors
    /// [`Error::NoNamespaces`] with what to do, if this machine or this user can't make one.
    pub fn new() -> Result<Self, Error> {
        // Start anywhere, so that processes that start together rarely try the same one.
        let first = fastrand::u16(..NETWORKS);
        for number in (0..NETWORKS).map(|offset| (first + offset) % NETWORKS) {
            let network = format!("{}/24", address(number, 0));
            if !run(&["ip", "-4", "-o", "addr", "show", "to", &network])?.is_empty() {
                continue; // Another program uses these addresses.
            }
            let name = format!("zkt{number}");
            if let Some(reaper) = NetworkReaper::of(&name)? {
                let network = Self { name, number, hosts: AtomicU8::new(0), _reaper: reaper };
                network.lay()?;
                return Ok(network);
            }
        }
        Err(Error::NoNamespaces {
            reason: format!(
                "all of the {NETWORKS} networks zkt0, zkt1, ... are taken; `ip netns list` shows them"
            ),
        })
    }

    /// Whether tests on this machine may have networks. If not, the reason is printed to
    /// standard error as that of a test that is skipped:
    ///
    /// ```no_run
    /// # fn a_leader_that_is_cut_off_is_replaced() {
    /// if !zk_testkit::Network::available_or_skip() {
    ///     return;
    /// }
    /// # }
    /// ```
    ///
    /// # Panics
    /// If not, and the environment variable `CI` is set: a test that CI skips is never run.
    #[must_use]
    pub fn available_or_skip() -> bool {
        let Err(error) = Self::new().and_then(|network| network.host().map(drop)) else { return true };
        crate::skip(error);
        false
    }

    /// Makes one more host, which stays as long as the network. It reaches the others of this
    /// network and this process, and nothing else.
    ///
    /// # Errors
    /// [`Error::NoNamespaces`]; [`Error::Settings`] if there are 253 hosts already.
    pub fn host(&self) -> Result<Host, Error> {
        let number = self.hosts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |hosts| {
            (hosts + 1 < OWN).then_some(hosts + 1)
        });
        let number =
            number.map_err(|_| Error::Settings(format!("a network has {} hosts at most", OWN - 1)))? + 1;
        let (switch, namespace, port) = (&self.name, format!("{}-{number}", self.name), format!("p{number}"));
        let ip = address(self.number, number);
        run(&["ip", "netns", "add", &namespace])?;
        let ends = ["link", "add", "name", &port, "type", "veth", "peer", "name", INTERFACE];
        on_host(switch, &[&ends[..], &["netns", &namespace]].concat())?;
        on_host(switch, &["link", "set", &port, "master", "switch", "up"])?;
        on_host(&namespace, &["addr", "add", &format!("{ip}/24"), "dev", INTERFACE])?;
        on_host(&namespace, &["link", "set", INTERFACE, "up"])?;
        on_host(&namespace, &["link", "set", "lo", "up"])?;
        Host::new(namespace, ip)
    }

    /// The address at which hosts find this process, if it listens there (or on all addresses),
    /// and the source of its packets to them.
    #[must_use]
    pub fn own_address(&self) -> Ipv4Addr {
        address(self.number, OWN)
    }

    /// The switch, and the cable to this process.
    fn lay(&self) -> Result<(), Error> {
        let switch = &self.name;
        on_host(switch, &["link", "add", "name", "switch", "type", "bridge"])?;
        on_host(switch, &["link", "set", "switch", "up"])?;
        run(&["ip", "link", "add", "name", switch, "type", "veth", "peer", "name", "own", "netns", switch])?;
        on_host(switch, &["link", "set", "own", "master", "switch", "up"])?;
        run(&["ip", "addr", "add", &format!("{}/24", self.own_address()), "dev", switch])?;
        run(&["ip", "link", "set", switch, "up"])?;
        Ok(())
    }
}

fn address(network: u16, host: u8) -> Ipv4Addr {
    let [high, low] = network.to_be_bytes();
    Ipv4Addr::new(198, 18 + high, low, host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_networks_are_those_set_aside_for_tests() {
        assert_eq!(address(0, 1), Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!(address(NETWORKS - 1, OWN), Ipv4Addr::new(198, 19, 255, 254));
    }
}
