//! What the servers have answered about a session, and what follows from it for the whole ensemble.
//!
//! One server's answer is about that server: it may have another configuration than the others, or no quorum, or belong to
//! another ensemble. So an attempt ends for what one server says only if a majority of them says it, or each of them does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::refusal::Refusal;
use crate::driver_kind::DriverKind;
use crate::error::ConnectError;
use crate::lease::SHORTEST;
use crate::servers::hosts::{Host, Server};

/// The last answer of each address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers(BTreeMap<Server, Name>);

/// What is behind one name.
#[derive(Clone, Debug, Default)]
struct Name {
    addresses: BTreeMap<SocketAddr, Refusal>,
    /// Why none of them was asked.
    failure: Option<String>,
}

impl Name {
    /// How many servers have answered so. A server usually has an address of each family, and one of the two may be of no
    /// use.
    fn count(&self, is_so: impl Fn(&Refusal) -> bool) -> usize {
        let those = |v6| {
            self.addresses.iter().filter(|(address, said)| address.is_ipv6() == v6 && is_so(said)).count()
        };
        those(false).max(those(true))
    }

    /// How many servers there are, by the family in which servers have answered.
    fn servers(&self) -> usize {
        let has_answered = |v6: bool| {
            self.addresses.iter().any(|(address, said)| address.is_ipv6() == v6 && said.is_verdict())
        };
        let of = |v6| self.addresses.keys().filter(|address| address.is_ipv6() == v6).count();
        let answering = [false, true].into_iter().filter(|v6| has_answered(*v6)).map(of).max();
        answering.unwrap_or_else(|| of(false).max(of(true))).max(1)
    }

    fn reason(&self) -> Option<String> {
        let last = self.addresses.values().max_by_key(|said| said.is_verdict()).map(Refusal::to_string);
        last.or_else(|| self.failure.clone())
    }
}

impl Answers {
    /// None has answered yet.
    pub(super) fn awaited(hosts: &[Host], nameless: Vec<(Server, String)>) -> Self {
        let mut answers = Self::default();
        for host in hosts {
            answers.note(host, Refusal::Unavailable("no session in time".to_owned()));
        }
        for (server, reason) in nameless {
            answers.failed(server, reason);
        }
        answers
    }

    /// That server was not asked.
    pub(super) fn failed(&mut self, server: Server, reason: String) {
        self.0.entry(server).or_default().failure = Some(reason);
    }

    pub(super) fn note(&mut self, host: &Host, refusal: Refusal) {
        self.0.entry(host.server.clone()).or_default().addresses.insert(host.address, refusal);
    }

    /// Adds those of a later attempt. A server that was silent then has answered before.
    pub(crate) fn extend(&mut self, later: Self) {
        for (server, name) in later.0 {
            let known = self.0.entry(server).or_default();
            known.failure = name.failure;
            for (address, said) in name.addresses {
                if said.is_verdict() || known.addresses.get(&address).is_none_or(|said| !said.is_verdict()) {
                    known.addresses.insert(address, said);
                }
            }
        }
    }

    fn servers(&self) -> usize {
        self.0.values().map(Name::servers).sum()
    }

    fn count(&self, is_so: impl Fn(&Refusal) -> bool + Copy) -> usize {
        self.0.values().map(|name| name.count(is_so)).sum()
    }

    fn has_majority(&self, is_so: impl Fn(&Refusal) -> bool + Copy) -> bool {
        self.count(is_so) * 2 > self.servers()
    }

    /// A quorum reports that the session is over, or one server has ended it by a shorter timeout.
    pub(super) fn is_expired(&self) -> bool {
        self.count(|said| matches!(said, Refusal::Shorter(_))) > 0
            || self.has_majority(|said| matches!(said, Refusal::Expired))
    }

    /// A quorum consists of servers that end a session with its connection.
    pub(super) fn is_keeper(&self) -> bool {
        self.has_majority(|said| matches!(said, Refusal::Keeper))
    }

    /// Whether a quorum has decided, or consists of servers that grant a new session less than was asked for: other servers
    /// need not be asked.
    pub(super) fn are_decisive(&self) -> bool {
        self.is_expired() || self.is_keeper() || self.has_majority(|said| matches!(said, Refusal::Less(_)))
    }

    /// The error of an attempt if each server has refused it: another attempt would end in the same way.
    pub(crate) fn unanimous(&self, driver: DriverKind) -> Option<ConnectError> {
        if self.count(Refusal::is_verdict) >= self.servers() { self.verdict(driver) } else { None }
    }

    /// The error after all attempts: what a majority has answered and no server has contradicted.
    pub(crate) fn at_last(&self, driver: DriverKind) -> Option<ConnectError> {
        if self.has_majority(Refusal::is_verdict) { self.verdict(driver) } else { None }
    }

    fn verdict(&self, driver: DriverKind) -> Option<ConnectError> {
        let (mut expired, mut auth, mut tls, mut granted) = (false, Vec::new(), Vec::new(), None::<Duration>);
        for (server, name) in &self.0 {
            for said in name.addresses.values() {
                match said {
                    Refusal::Unavailable(_) => {}
                    // They grant sessions.
                    Refusal::Keeper | Refusal::Less(_) => return None,
                    Refusal::Expired | Refusal::Shorter(_) => expired = true,
                    Refusal::AuthFailed(reason) => auth.push(format!("{server}: {reason}")),
                    Refusal::Tls(reason) => tls.push(format!("{server}: {reason}")),
                    Refusal::TooShort(timeout) => granted = granted.max(Some(*timeout)),
                }
            }
        }
        auth.dedup();
        tls.dedup();
        match (expired, auth.is_empty(), tls.is_empty(), granted) {
            (true, true, true, None) => Some(ConnectError::Expired),
            (true, ..) => None,
            (false, false, ..) => Some(ConnectError::AuthFailed { reason: auth.join("; ") }),
            (false, true, false, _) => Some(ConnectError::Tls { reason: tls.join("; ") }),
            (false, true, true, granted) => {
                granted.map(|granted| ConnectError::TimeoutTooShort { granted, needed: SHORTEST, driver })
            }
        }
    }

    /// The last answer of a server.
    pub(crate) fn reason(&self, server: &Server) -> Option<String> {
        self.0.get(server).and_then(Name::reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts as `name=address`, and an answer of some of them after `/`: `x` expired, `a` credentials, `t` TLS.
    fn answers(hosts: &str) -> Answers {
        let (mut all, mut said) = (Vec::new(), Vec::new());
        for host in hosts.split(' ') {
            let (name, rest) = host.split_once('=').unwrap();
            let (address, answer) = rest.split_once('/').unwrap_or((rest, ""));
            let server = Server { name: name.to_owned(), port: 1 };
            let host = Host { server, address: SocketAddr::new(address.parse().unwrap(), 1) };
            all.push(host.clone());
            match answer {
                "" => {}
                "x" => said.push((host, Refusal::Expired)),
                "a" => said.push((host, Refusal::AuthFailed("user unknown".to_owned()))),
                "t" => said.push((host, Refusal::Tls("issuer unknown".to_owned()))),
                other => panic!("{other}"),
            }
        }
        let mut answers = Answers::awaited(&all, Vec::new());
        said.into_iter().for_each(|(host, refusal)| answers.note(&host, refusal));
        answers
    }

    #[test]
    fn a_session_is_over_where_a_majority_of_the_servers_says_so() {
        for (hosts, is_over) in [
            ("a=1.1.1.1/x", true),
            ("a=1.1.1.1/x b=1.1.1.2", false),
            ("a=1.1.1.1/x b=1.1.1.2 c=1.1.1.3", false),
            ("a=1.1.1.1/x b=1.1.1.2 c=1.1.1.3/x", true),
            ("a=1.1.1.1/x b=1.1.1.2/a c=1.1.1.3/a", false),
            // All of them behind one name.
            ("a=1.1.1.1/x a=1.1.1.2 a=1.1.1.3", false),
            ("a=1.1.1.1/x a=1.1.1.2/x a=1.1.1.3", true),
            // Two addresses of one server; one of them is of no use.
            ("a=1.1.1.1/x a=::1", true),
            ("a=1.1.1.1/x a=::1 b=1.1.1.2 b=::2", false),
            ("a=1.1.1.1/x a=::1/x b=1.1.1.2 b=::2", false),
            ("a=1.1.1.1/x a=::1 b=1.1.1.2 b=::2/x", true),
            ("a=1.1.1.1/x a=::1 a=::2 a=::3", true),
        ] {
            assert_eq!(answers(hosts).is_expired(), is_over, "{hosts}");
        }
        assert!(!Answers::default().is_expired());
    }

    #[test]
    fn an_attempt_is_refused_at_once_by_all_and_at_last_by_a_majority() {
        for (hosts, at_once, at_last) in [
            ("a=1.1.1.1 b=1.1.1.2 c=1.1.1.3", None, None),
            ("a=1.1.1.1/a b=1.1.1.2 c=1.1.1.3", None, None),
            ("a=1.1.1.1/a b=1.1.1.2/a c=1.1.1.3", None, Some("credentials")),
            ("a=1.1.1.1/a b=1.1.1.2/t c=1.1.1.3", None, Some("credentials")),
            ("a=1.1.1.1/t b=1.1.1.2/t c=1.1.1.3/t", Some("TLS"), Some("TLS")),
            ("a=1.1.1.1/x b=1.1.1.2/x c=1.1.1.3/x", Some("expired"), Some("expired")),
            // Of one session they can't both be true.
            ("a=1.1.1.1/x b=1.1.1.2/a c=1.1.1.3/a", None, None),
            ("a=1.1.1.1/a a=::1", Some("credentials"), Some("credentials")),
        ] {
            let answers = answers(hosts);
            for (error, expected) in [
                (answers.unanimous(DriverKind::Native), at_once),
                (answers.at_last(DriverKind::Native), at_last),
            ] {
                let error = error.map(|error| error.to_string());
                let is_as_expected = match (&error, expected) {
                    (Some(error), Some(part)) => error.contains(part),
                    (error, expected) => error.is_none() && expected.is_none(),
                };
                assert!(is_as_expected, "{hosts}: {error:?}");
            }
        }
    }

    #[test]
    fn a_server_that_is_silent_later_has_answered_before() {
        let mut all = answers("a=1.1.1.1/a b=1.1.1.2");
        all.extend(answers("a=1.1.1.1 b=1.1.1.2/a"));
        assert!(all.unanimous(DriverKind::Native).is_some());
        all.extend(answers("a=1.1.1.1/x b=1.1.1.2/x"));
        assert_eq!(all.at_last(DriverKind::Native), Some(ConnectError::Expired), "the last answers count");
        let server = Server { name: "a".to_owned(), port: 1 };
        assert_eq!(all.reason(&server).as_deref(), Some("it does not have this session"));
    }
}
