use std::{fmt, path::PathBuf};

use super::{
    parse::{Mismatch, Parse},
    reader::Section,
    tree::Node,
};

/// `[http]`: the worker's own endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Where they listen.
    pub listen: HostPort,
    /// The file of the tokens that allow control; without it control is closed.
    pub token_file: Option<PathBuf>,
}

impl HttpConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let listen = HostPort { host: "127.0.0.1".to_owned(), port: 7080 };
        let listen = section.or("listen", listen);
        section.not_yet(&["tls"]);
        Self { listen, token_file: section.optional("token_file") }
    }
}

/// A host's name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A name or an address, without brackets.
    pub host: String,
    /// 0 lets the system choose.
    pub port: u16,
}

impl HostPort {
    /// Whether it means all addresses of this host. Other nodes cannot connect to it.
    pub fn is_wildcard(&self) -> bool {
        self.host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_unspecified())
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Parse for HostPort {
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        let text = String::parse(node)?;
        let wrong = || Mismatch::from(format!("{text:?} is not a host:port, such as \"127.0.0.1:7080\""));
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }

    fn show(&self) -> String {
        self.to_string().show()
    }

    #[cfg(test)]
    fn schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::schema(generator)
    }
}
