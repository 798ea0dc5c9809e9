//! The links between servers, where they can be cut.

use std::net::{Ipv4Addr, SocketAddr};

use crate::server::Ports;
use crate::{Error, Proxy};

/// One proxy for each ordered pair of servers: the first follows the second
/// through it. All of a follower's traffic with its leader goes over the one
/// connection to the leader's quorum port; the notices by which servers elect
/// their leader take another way and stay open, as they change no data.
#[derive(Debug)]
pub(crate) struct Links(Vec<Link>);

#[derive(Debug)]
struct Link {
    follower: usize,
    leader: usize,
    proxy: Proxy,
}

impl Links {
    pub(crate) async fn between(servers: &[Ports]) -> Result<Self, Error> {
        let mut links = Vec::new();
        for follower in 0..servers.len() {
            for (leader, ports) in servers.iter().enumerate().filter(|(leader, _)| *leader != follower) {
                let target = SocketAddr::from((Ipv4Addr::LOCALHOST, ports.quorum));
                links.push(Link { follower, leader, proxy: Proxy::start_unframed(target).await? });
            }
        }
        Ok(Self(links))
    }

    /// The port at which `follower` finds `leader`.
    pub(crate) fn port(&self, follower: usize, leader: usize) -> Option<u16> {
        let link = self.0.iter().find(|link| link.follower == follower && link.leader == leader)?;
        Some(link.proxy.addr().port())
    }

    /// Lets nothing through between a server and all others, or everything again.
    pub(crate) fn isolate(&self, server: usize, isolate: bool) {
        for link in self.0.iter().filter(|link| link.follower == server || link.leader == server) {
            link.proxy.black_hole(isolate);
        }
    }
}
