//! The hosts and addresses of the workers of a cluster.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use zk_testkit::{Ensemble, Host, PortReservation};

use crate::delays::Delays;
use crate::setup::{Place, Setup};

/// On a separate host no other program takes a port.
const PORT: u16 = 7080;

pub(crate) struct Places {
    /// One for each worker of the setup.
    pub(crate) seats: Vec<Seat>,
    pub(crate) ports: Option<PortReservation>,
    pub(crate) delays: Option<Delays>,
}

pub(crate) struct Seat {
    /// The address for the test.
    pub(crate) http: SocketAddr,
    /// Its `http.listen`.
    pub(crate) listen: SocketAddr,
    /// Its `node.address`: the address for other workers.
    pub(crate) address: IpAddr,
    pub(crate) host: Option<Home>,
}

/// The host of a worker.
#[derive(Debug)]
pub(crate) enum Home {
    Own(Host),
    /// That of a server.
    Server(Arc<Ensemble>, usize),
}

impl Home {
    fn of(setup: &Setup, id: &str, ensemble: &Arc<Ensemble>) -> Self {
        let beside = setup.beside.iter().find(|(known, _)| *known == id);
        if let Some((_, server)) = beside {
            return Self::Server(Arc::clone(ensemble), *server);
        }
        let network = ensemble.network().expect("the setup asks for an ensemble in namespaces");
        Self::Own(network.host().expect("a host"))
    }

    pub(crate) fn host(&self) -> &Host {
        match self {
            Self::Own(host) => host,
            Self::Server(ensemble, server) => {
                ensemble.server(*server).host().expect("a server in a namespace")
            }
        }
    }
}

impl Places {
    pub(crate) async fn of(setup: &Setup, ensemble: &Arc<Ensemble>) -> Self {
        if setup.place == Place::Here {
            let ports = PortReservation::take(setup.workers.len()).expect("free ports");
            let here = |port: &u16| {
                let http = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
                Seat { http, listen: http, address: http.ip(), host: None }
            };
            let seats = ports.ports().iter().map(here).collect();
            return Self { seats, ports: Some(ports), delays: None };
        }
        let hosts: Vec<_> =
            setup.workers.iter().map(|(id, _)| (*id, Home::of(setup, id, ensemble))).collect();
        if setup.place == Place::Hosts {
            let at = |(_, host): (&str, Home)| {
                let http = SocketAddr::from((host.host().ip(), PORT));
                Seat { http, listen: http, address: http.ip(), host: Some(host) }
            };
            return Self { seats: hosts.into_iter().map(at).collect(), ports: None, delays: None };
        }
        let all: Vec<_> = hosts.iter().map(|(id, host)| (*id, host.host().ip())).collect();
        let own = ensemble.network().expect("hosts are in a network").own_address();
        let (delays, ports) = Delays::start(own, &all).await;
        let at = |((_, host), port): ((&str, Home), u16)| Seat {
            http: SocketAddr::from((host.host().ip(), port)),
            // The published address is `address`, the relay's.
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            address: IpAddr::V4(own),
            host: Some(host),
        };
        Self { seats: hosts.into_iter().zip(ports).map(at).collect(), ports: None, delays: Some(delays) }
    }
}
