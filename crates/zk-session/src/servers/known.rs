//! What earlier attempts have shown about the addresses of the servers: which were silent, which have answered, and how
//! long that took.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use crate::servers::hosts::{Host, Server};
use crate::servers::preference::Preference;
use crate::time::BootTime;

/// How long an address is asked after all others because it was silent.
pub(crate) const SILENT_FOR: Duration = Duration::from_secs(600);
/// One after the other gets another chance, for so long.
const TURN: Duration = Duration::from_secs(10);

/// The last attempt at each address. A silent one is asked after all others until it answers, or its time has passed. Then
/// only one of those has its usual place again, each in its turn: many dead addresses must not delay one search together.
#[derive(Debug, Default)]
pub(crate) struct Known(HashMap<SocketAddr, Address>);

#[derive(Debug, Default)]
struct Address {
    last: Option<Last>,
    /// How long the last handshake that moved the session took, or the check for which it was left, and when that ended.
    handshake: Option<(Duration, BootTime)>,
    /// The longest session timeout that it grants, if it has granted less than was asked for.
    grants: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Silent { since: BootTime },
    Answered,
}

impl Known {
    fn of(&mut self, address: SocketAddr) -> &mut Address {
        self.0.entry(address).or_default()
    }

    /// Others were asked because it had not answered.
    pub(crate) fn silent(&mut self, address: SocketAddr, since: BootTime) {
        self.of(address).last = Some(Last::Silent { since });
    }

    pub(crate) fn answered(&mut self, address: SocketAddr) {
        self.of(address).last = Some(Last::Answered);
    }

    /// Forgets the addresses of no server.
    pub(crate) fn retain(&mut self, hosts: &[Host]) {
        self.0.retain(|address, _| hosts.iter().any(|host| host.address == *address));
    }

    /// It granted less than was asked for, or as much.
    pub(crate) fn grants(&mut self, address: SocketAddr, less: Option<Duration>) {
        self.of(address).grants = less;
    }

    /// Whether it is known to grant less than that: it would end a session that has such a timeout.
    pub(crate) fn grants_less(&self, address: SocketAddr, timeout: Duration) -> bool {
        self.0.get(&address).and_then(|known| known.grants).is_some_and(|granted| granted < timeout)
    }

    /// It has accepted the session, or was left because it had not answered for so long.
    pub(crate) fn took(&mut self, address: SocketAddr, handshake: Duration, now: BootTime) {
        self.of(address).handshake = Some((handshake, now));
    }

    /// How long it took the last time, if that is no longer ago than `recently`.
    pub(crate) fn takes(&self, address: SocketAddr, now: BootTime, recently: Duration) -> Option<Duration> {
        let (took, ended) = self.0.get(&address)?.handshake?;
        (now.duration_since(ended) <= recently).then_some(took)
    }

    /// The last attempt at each.
    fn last(&self) -> impl Iterator<Item = (SocketAddr, Last)> {
        self.0.iter().filter_map(|(address, known)| Some((*address, known.last?)))
    }

    /// Whether it is to be asked after all others.
    pub(crate) fn is_silent(&self, address: SocketAddr, now: BootTime) -> bool {
        let last = self.0.get(&address).and_then(|known| known.last);
        matches!(last, Some(Last::Silent { .. })) && self.tried_again(now) != Some(address)
    }

    /// The address that is tried again though it was silent.
    fn tried_again(&self, now: BootTime) -> Option<SocketAddr> {
        let is_due = |last: &Last| matches!(last, Last::Silent { since } if now >= *since + SILENT_FOR);
        let due = self.last().filter(|(_, last)| is_due(last)).map(|(address, _)| address);
        let due: BTreeSet<SocketAddr> = due.collect();
        let turns = now.as_duration().as_secs() / TURN.as_secs();
        let turn = usize::try_from(turns).unwrap_or_default().checked_rem(due.len())?;
        due.into_iter().nth(turn)
    }

    /// Sorts them for an attempt: servers that disagree with the quorum come last, those that were silent before them, then
    /// avoided ones, and one address of each name first, of a family in which servers have answered. Equal ones stay in
    /// their order.
    pub(crate) fn sort(&self, hosts: &mut [Host], preference: &Preference, now: BootTime) {
        let answered =
            |v6: bool| self.last().any(|(address, last)| address.is_ipv6() == v6 && last == Last::Answered);
        let (v4, v6) = (answered(false), answered(true));
        let is_other_family = |address: SocketAddr| v4 != v6 && address.is_ipv6() != v6;
        hosts.sort_by_key(|host| (self.is_silent(host.address, now), is_other_family(host.address)));
        let mut of_name: HashMap<Server, usize> = HashMap::new();
        hosts.sort_by_cached_key(|host| {
            let number = of_name.entry(host.server.clone()).or_default();
            *number += 1;
            let (is_distrusted, is_avoided, is_not_preferred) = preference.rank(host);
            (is_distrusted, self.is_silent(host.address, now), is_avoided, *number, is_not_preferred)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, address: &str) -> Host {
        Host {
            server: Server { name: name.to_owned(), port: 1 },
            address: SocketAddr::new(address.parse().unwrap(), 1),
        }
    }

    /// Three names with an address that answers, and four that are dead.
    fn dual_stack() -> Vec<Host> {
        let all = ["a", "b", "c"].into_iter().zip(1..).flat_map(|(name, n)| {
            let dead = (1..=4).map(move |m| host(name, &format!("2001:db8::{n}{m}")));
            dead.chain([host(name, &format!("10.0.0.{n}"))])
        });
        all.collect()
    }

    fn at(seconds: u64) -> BootTime {
        BootTime::from_duration(Duration::from_secs(1000 + seconds))
    }

    fn order(known: &Known, hosts: Vec<Host>, preference: &Preference) -> Vec<String> {
        order_at(at(0), known, hosts, preference)
    }

    fn order_at(now: BootTime, known: &Known, mut hosts: Vec<Host>, preference: &Preference) -> Vec<String> {
        known.sort(&mut hosts, preference, now);
        hosts.iter().map(|host| host.address.ip().to_string()).collect()
    }

    #[test]
    fn one_address_of_each_name_comes_first() {
        let known = Known::default();
        let first = order(&known, dual_stack(), &Preference::default());
        assert_eq!(first[..4], ["2001:db8::11", "2001:db8::21", "2001:db8::31", "2001:db8::12"]);
        let preference = Preference { preferred: vec![host("b", "::1").server], ..Preference::default() };
        assert_eq!(order(&known, dual_stack(), &preference)[..2], ["2001:db8::21", "2001:db8::11"]);
    }

    #[test]
    fn a_family_in_which_a_server_has_answered_comes_first() {
        let mut known = Known::default();
        known.answered(host("b", "10.0.0.2").address);
        let first = order(&known, dual_stack(), &Preference::default());
        assert_eq!(first[..4], ["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::11"]);
    }

    #[test]
    fn how_long_a_server_took_is_known_for_a_while() {
        let mut known = Known::default();
        let hosts = ["10.0.0.1", "10.0.0.2"].map(|address| host(address, address));
        let (took, recently) = (Duration::from_millis(720), Duration::from_secs(16));
        known.took(hosts[0].address, took, at(0));
        let takes = |known: &Known, n: usize, now: u64| known.takes(hosts[n].address, at(now), recently);
        assert_eq!(
            (takes(&known, 0, 16), takes(&known, 0, 17), takes(&known, 1, 0)),
            (Some(took), None, None)
        );
        known.retain(&hosts[1..]);
        assert_eq!(takes(&known, 0, 0), None);
    }

    #[test]
    fn what_was_silent_comes_last_until_it_answers() {
        let mut known = Known::default();
        let hosts = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|address| host(address, address)).to_vec();
        let preference = Preference {
            preferred: vec![hosts[0].server.clone()],
            avoided: vec![hosts[1].address.ip()],
            ..Preference::default()
        };
        assert_eq!(order(&known, hosts.clone(), &preference), ["10.0.0.1", "10.0.0.3", "10.0.0.2"]);
        known.silent(hosts[0].address, at(0));
        assert_eq!(order(&known, hosts.clone(), &preference), ["10.0.0.3", "10.0.0.2", "10.0.0.1"]);
        known.answered(hosts[0].address);
        assert_eq!(order(&known, hosts.clone(), &preference)[0], "10.0.0.1");
        known.silent(hosts[2].address, at(0));
        known.retain(&hosts[..2]);
        assert!(!known.is_silent(hosts[2].address, at(0)));
    }

    #[test]
    fn what_was_silent_long_ago_has_its_place_again_one_address_at_a_time() {
        let mut known = Known::default();
        let hosts = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"].map(|address| host(address, address));
        let order = |known: &Known, now| order_at(now, known, hosts.to_vec(), &Preference::default());
        hosts[..3].iter().for_each(|host| known.silent(host.address, at(0)));
        let (before, over) = (at(SILENT_FOR.as_secs() - 1), SILENT_FOR.as_secs());
        assert_eq!(order(&known, before)[0], "10.0.0.4");
        let mut tried = BTreeSet::new();
        for turn in 0..3 {
            let order = order(&known, at(over) + TURN * turn);
            // It comes before the one that answers, because it does so in the list.
            assert_eq!(order[1], "10.0.0.4", "{order:?}");
            tried.insert(order[0].clone());
        }
        assert_eq!(tried.len(), 3, "each has its turn");
        // It was silent again.
        known.silent(hosts[0].address, at(over));
        for turn in 0..3 {
            assert_ne!(order(&known, at(over) + TURN * turn)[0], "10.0.0.1");
        }
    }
}
