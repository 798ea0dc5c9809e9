//! Which servers a session prefers, and which it avoids.

use std::net::{IpAddr, SocketAddr};

use crate::servers::hosts::{Host, Server};
use crate::time::BootTime;

/// An order of servers. Of equal servers any is as good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preference {
    /// As written in the connect string.
    pub(crate) preferred: Vec<Server>,
    pub(crate) avoided: Vec<IpAddr>,
    /// Those that disagree with the quorum, and until when they are avoided for it.
    pub(crate) distrusted: Vec<(SocketAddr, BootTime)>,
}

impl Preference {
    pub(crate) fn is_empty(&self) -> bool {
        self.preferred.is_empty() && self.avoided.is_empty() && self.distrusted.is_empty()
    }

    /// The better, the lower. What is distrusted counts before what is avoided, and that before what is preferred.
    pub(crate) fn rank(&self, host: &Host) -> (bool, bool, bool) {
        let is_distrusted = self.distrusted.iter().any(|(address, _)| *address == host.address);
        let is_avoided = self.avoided.contains(&host.address.ip().to_canonical());
        (is_distrusted, is_avoided, !self.preferred.contains(&host.server))
    }

    /// Those of the hosts that are better than the present one, which may not be among them: then all are.
    pub(crate) fn better_than(&self, present: SocketAddr, mut hosts: Vec<Host>) -> Vec<Host> {
        let here = hosts.iter().filter(|host| host.address == present).map(|host| self.rank(host)).min();
        hosts.retain(|host| here.is_none_or(|here| self.rank(host) < here));
        hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> Host {
        let server = Server { name: format!("zk{number}"), port: 2181 };
        Host { server, address: SocketAddr::from(([10, 0, 0, number], 2181)) }
    }

    fn better(preference: &Preference, present: u8) -> Vec<String> {
        let hosts = preference.better_than(host(present).address, [1, 2, 3].map(host).to_vec());
        hosts.into_iter().map(|host| host.server.name).collect()
    }

    #[test]
    fn an_avoided_server_is_worse_than_one_of_another_site() {
        let none = Preference::default();
        assert!(none.is_empty() && better(&none, 1).is_empty());
        assert_eq!(better(&none, 9).len(), 3, "the present one is no longer in the list");
        let preferred = vec![host(1).server];
        let home = Preference { preferred: preferred.clone(), ..Preference::default() };
        assert_eq!(better(&home, 2), ["zk1"]);
        assert!(better(&home, 1).is_empty());
        let avoided = |numbers: &[u8]| Preference {
            preferred: preferred.clone(),
            avoided: numbers.iter().map(|number| host(*number).address.ip()).collect(),
            ..Preference::default()
        };
        assert_eq!(better(&avoided(&[1]), 1), ["zk2", "zk3"]);
        assert!(better(&avoided(&[1]), 2).is_empty());
        assert_eq!(better(&avoided(&[1, 2]), 2), ["zk1", "zk3"]);
        assert!(better(&avoided(&[1, 2, 3]), 1).is_empty(), "there is no choice");
        let until = BootTime::from_duration(std::time::Duration::MAX);
        let distrusted = Preference { distrusted: vec![(host(1).address, until)], ..avoided(&[2, 3]) };
        assert_eq!(better(&distrusted, 1), ["zk2", "zk3"], "any other is better than one that disagrees");
        assert!(better(&distrusted, 2).is_empty());
    }
}
