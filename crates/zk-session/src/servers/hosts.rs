//! The connect string: hosts with ports, and a chroot.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};

use crate::error::ConnectError;

/// ZooKeeper's own port for clients.
const DEFAULT_PORT: u16 = 2181;

/// A parsed `host:port,host:port/chroot`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectString {
    /// Never empty, without duplicates.
    pub(crate) servers: Vec<Server>,
    /// Empty, or an absolute path without a slash at its end.
    pub(crate) chroot: String,
}

/// A server by name, not yet resolved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

/// Checks that [`Session::builder`](crate::Session::builder) takes this: `host:port,host:port`, with a path behind it where the
/// session lives below one. Names are not resolved.
///
/// # Errors
/// [`ConnectError::InvalidConnectString`].
pub fn check_connect(connect: &str) -> Result<(), ConnectError> {
    ConnectString::parse(connect).map(drop)
}

impl ConnectString {
    pub(crate) fn parse(connect: &str) -> Result<Self, ConnectError> {
        let fail =
            |reason: String| ConnectError::InvalidConnectString { connect: connect.to_owned(), reason };
        let (hosts, chroot) = connect.split_at(connect.find('/').unwrap_or(connect.len()));
        let chroot = if chroot == "/" { "" } else { chroot };
        if !chroot.is_empty() {
            crate::path::judge(chroot).map_err(|reason| fail(format!("the chroot {chroot:?}: {reason}")))?;
        }
        let servers = parse_servers(hosts).map_err(fail)?;
        Ok(Self { servers, chroot: chroot.to_owned() })
    }
}

/// The servers that a session prefers, as in the connect string; none in an empty string.
pub(crate) fn parse_preferred(servers: &str) -> Result<Vec<Server>, ConnectError> {
    if servers.is_empty() {
        return Ok(Vec::new());
    }
    parse_servers(servers)
        .map_err(|reason| ConnectError::InvalidSetting { reason: format!("preferred servers: {reason}") })
}

fn parse_servers(hosts: &str) -> Result<Vec<Server>, String> {
    let mut servers = Vec::new();
    for part in hosts.split(',') {
        let server = parse_server(part.trim()).map_err(|reason| format!("{:?}: {reason}", part.trim()))?;
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    Ok(servers)
}

fn parse_server(part: &str) -> Result<Server, String> {
    if part.is_empty() {
        return Err("a host is missing: write host:port,host:port".to_owned());
    }
    let (name, port) = if let Some(rest) = part.strip_prefix('[') {
        let (name, rest) = rest.split_once(']').ok_or("no ']' after '['")?;
        name.parse::<Ipv6Addr>().map_err(|_| "no IPv6 address between '[' and ']'")?;
        if !rest.is_empty() && !rest.starts_with(':') {
            return Err("only ':port' may follow ']'".to_owned());
        }
        (name, rest.strip_prefix(':'))
    } else {
        let (name, port) = part.split_once(':').map_or((part, None), |(name, port)| (name, Some(port)));
        if port.is_some_and(|port| port.contains(':')) {
            return Err("more than one ':': write an IPv6 address as [address]:port".to_owned());
        }
        (name, port)
    };
    if name.is_empty() {
        return Err("the host name is empty".to_owned());
    }
    if name.chars().any(|c| c.is_whitespace() || c.is_control() || c == '@') {
        return Err("the host name has an invalid character".to_owned());
    }
    let port = match port.map(|port| (port, port.parse())) {
        None => DEFAULT_PORT,
        Some((_, Ok(port @ 1..))) => port,
        Some((port, _)) => return Err(format!("{port:?} is not a port: use a number from 1 to 65535")),
    };
    Ok(Server { name: name.to_owned(), port })
}

/// One server of the ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// As written in the connect string. Its name is what a certificate has to carry.
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(connect: &str) -> Vec<String> {
        let parsed = ConnectString::parse(connect).unwrap();
        parsed.servers.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn hosts_ports_and_root() {
        assert_eq!(servers("a:1, b ,[::1]:3,[::2]"), ["a:1", "b:2181", "[::1]:3", "[::2]:2181"]);
        assert_eq!(servers("a:1,a:1"), ["a:1"]);
        assert_eq!(ConnectString::parse("a:1,b:2/x/y").unwrap().chroot, "/x/y");
        assert_eq!(ConnectString::parse("a/").unwrap().chroot, "");
    }

    #[test]
    fn preferred_servers_are_compared_with_those_of_the_connect_string() {
        assert_eq!(parse_preferred("").unwrap(), []);
        let connect = ConnectString::parse("a:1,b,c:3").unwrap();
        assert_eq!(
            parse_preferred("b:2181, a:1").unwrap(),
            [connect.servers[1].clone(), connect.servers[0].clone()]
        );
        assert!(parse_preferred("a:0").unwrap_err().to_string().contains("is not a port"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (connect, part) in [
            ("", "a host is missing"),
            ("a,,b", "a host is missing"),
            ("a:0", "is not a port"),
            ("a:x", "is not a port"),
            ("a:99999", "is not a port"),
            ("::1", "write an IPv6 address as"),
            ("[::1", "no ']'"),
            ("[x]:1", "no IPv6 address"),
            ("[::1]x", "only ':port'"),
            (":1", "host name is empty"),
            ("a b:1", "invalid character"),
            ("a:1/x/", "the chroot"),
        ] {
            let error = ConnectString::parse(connect).unwrap_err().to_string();
            assert!(error.contains(part), "{connect:?}: {error}");
        }
    }
}
