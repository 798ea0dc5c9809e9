use std::{fmt, path::PathBuf};

use super::{
    parse::{Mismatch, Parse, choice},
    reader::Section,
    tree::Node,
};
use crate::tls::{Contents, PairFiles, Tls, TlsFiles, Unusable};

/// `[http]`: the worker's own endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Where they listen.
    pub listen: HostPort,
    /// The file of the tokens that are accepted.
    pub token_file: Option<PathBuf>,
    /// The files for TLS.
    pub tls: TlsFiles,
    /// Who may read.
    pub status: StatusAccess,
    /// Who may change the state, and read the configuration.
    pub control: ControlAccess,
}

choice! {
    /// Who may use the endpoints that read the state, apart from those for health checks.
    pub enum StatusAccess {
        /// Everyone.
        Open = "open",
        /// Who has a token of `http.token_file`.
        Token = "token",
        /// Who has a certificate of `http.tls.client_ca_file`.
        Certificate = "certificate",
    }
    later: []
}

choice! {
    /// Who may use the endpoints that change the state, and `/config`.
    pub enum ControlAccess {
        /// No client.
        Closed = "closed",
        /// Who has a token of `http.token_file`.
        Token = "token",
        /// Who has a certificate of `http.tls.client_ca_file`.
        Certificate = "certificate",
    }
    later: []
}

impl HttpConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let listen = HostPort { host: "127.0.0.1".to_owned(), port: 7080 };
        let listen = section.or("listen", listen);
        let token_file: Option<PathBuf> = section.optional("token_file");
        let tls = section.optional_table("tls", read_tls).unwrap_or_default();
        if cfg!(not(feature = "tls")) && section.has("tls") {
            section.problem("tls", "this dr-worker was built without TLS; build it with the feature tls");
        }
        let (has_tokens, has_ca) = (token_file.is_some(), tls.client_ca_file.is_some());
        let (status, control) = section.table("access", |access| {
            let status = access.or("status", StatusAccess::Open);
            let closed = if has_tokens { ControlAccess::Token } else { ControlAccess::Closed };
            let control = access.or("control", closed);
            for (key, word) in [("status", status.as_str()), ("control", control.as_str())] {
                let needs = match word {
                    "token" if !has_tokens => "http.token_file",
                    "certificate" if !has_ca => "http.tls.client_ca_file",
                    _ => continue,
                };
                access.problem(key, format!("{word:?} needs {needs}, which is not set"));
            }
            (status, control)
        });
        Self { listen, token_file, tls, status, control }
    }

    /// Whether the port has TLS.
    pub fn has_tls(&self) -> bool {
        self.tls.pair.is_some()
    }

    /// Whether this worker shows its certificate to other workers: they ask for one as it does itself.
    pub(crate) fn presents(&self) -> bool {
        self.status == StatusAccess::Certificate
    }

    /// What is made of the files for TLS. It blocks.
    ///
    /// # Errors
    /// Which one can't be used.
    pub(crate) fn load_tls(&self) -> Result<Tls, Unusable> {
        Contents::read(&self.tls)?.load(self.presents())
    }
}

fn read_tls(section: &mut Section<'_>) -> TlsFiles {
    let (cert_file, key_file) = (section.optional("cert_file"), section.optional("key_file"));
    let (client_ca_file, ca_file) = (section.optional("client_ca_file"), section.optional("ca_file"));
    for (key, needs) in [
        ("cert_file", &["key_file"][..]),
        ("key_file", &["cert_file"]),
        ("client_ca_file", &["cert_file", "key_file"]),
    ] {
        if let Some(missing) = needs.iter().find(|other| section.has(key) && !section.has(other)) {
            section.problem(key, format!("it needs {missing} too"));
        }
    }
    let pair = cert_file.zip(key_file).map(|(cert_file, key_file)| PairFiles { cert_file, key_file });
    TlsFiles { pair, client_ca_file, ca_file }
}

/// What a command needs to ask workers. Whatever is wrong with it is reported when the worker reads it.
pub(super) fn read_for_operators(section: &mut Section<'_>) -> TlsFiles {
    section.leave_rest();
    let mut presents = false;
    section.optional_table("access", |access| {
        access.leave_rest();
        presents = access.usable("status") == Some(StatusAccess::Certificate);
    });
    let tls = section.optional_table("tls", |tls| {
        tls.leave_rest();
        let pair = tls.usable("cert_file").zip(tls.usable("key_file"));
        TlsFiles {
            pair: pair.filter(|_| presents).map(|(cert_file, key_file)| PairFiles { cert_file, key_file }),
            client_ca_file: tls.usable("client_ca_file"),
            ca_file: tls.usable("ca_file"),
        }
    });
    tls.unwrap_or_default()
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
