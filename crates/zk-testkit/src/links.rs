//! The links between servers, where they can be cut.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use crate::server::Ports;
use crate::{Error, Proxy};

/// One proxy for each ordered pair of servers, by their indices: the first follows the
/// second through it. All of a follower's traffic with its leader goes over the one
/// connection to the leader's quorum port; the election messages of the servers use other connections and stay
/// open, because they change no data.
#[derive(Debug)]
pub(crate) struct Links(BTreeMap<(usize, usize), Proxy>);

impl Links {
    pub(crate) async fn between(servers: &[Ports]) -> Result<Self, Error> {
        let mut links = BTreeMap::new();
        for follower in 0..servers.len() {
            for (leader, ports) in servers.iter().enumerate().filter(|(leader, _)| *leader != follower) {
                let target = SocketAddr::from((Ipv4Addr::LOCALHOST, ports.quorum));
                links.insert((follower, leader), Proxy::start_unframed(target).await?);
            }
        }
        Ok(Self(links))
    }

    /// The port at which `follower` finds `leader`.
    pub(crate) fn port(&self, follower: usize, leader: usize) -> Option<u16> {
        Some(self.0.get(&(follower, leader))?.addr().port())
    }

    /// Blocks or unblocks all bytes between a server and the others.
    pub(crate) fn isolate(&self, server: usize, isolate: bool) {
        for ((follower, leader), proxy) in &self.0 {
            if *follower == server || *leader == server {
                proxy.black_hole(isolate);
            }
        }
    }
}
