use std::{fmt, path::PathBuf, str::FromStr};

use super::{
    parse::{choice, text},
    reader::Section,
    table::{derived, nested, nested_as, optional, table, value},
};
use crate::tls::{Contents, PairFiles, Tls, TlsFiles, Unusable, WITHOUT_TLS};

table! {
    /// `[http]`: the worker's own endpoints.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct HttpConfig {
        /// Address of the HTTP endpoints, from the status page at / to /metrics; /openapi.json lists them.
        /// Port 0: the system chooses, and the log shows it.
        pub listen: HostPort = HostPort { host: "127.0.0.1".to_owned(), port: 7080 } => value();
        /// File of tokens, one per line, of 16 characters or more: a POST with one of them changes the state. Readable by
        /// its owner, and by its group if you allow that. It is read again for each request.
        pub token_file: Option<PathBuf> = None => optional().applied().example("\"/etc/dr-worker/http-tokens\"");
        /// TLS of the endpoints, 1.2 or later. All files are PEM, and are read again within seconds of a change.
        pub tls: TlsFiles = TlsFiles::default() => nested_as(TlsKeys::default());
        /// Who may use the endpoints. /leader, /standby, /liveness and /readiness are always open, for health checks.
        pub access: HttpAccess = HttpAccess::default() => nested();
    }
    check HttpConfig::check;
}

table! {
    /// `[http.access]`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HttpAccess {
        /// Reading the state: "open", "token" (of http.token_file) or "certificate" (of http.tls.client_ca_file).
        pub status: StatusAccess = StatusAccess::Open => value();
        /// Changing the state, and /config: "closed", "token" or "certificate". Default: "token" with http.token_file, else
        /// "closed".
        pub control: ControlAccess = ControlAccess::Closed => derived().example("\"token\"");
    }
}

table! {
    #[derive(Clone)]
    struct TlsKeys {
        /// The worker's certificate with its chain, valid for the host of http.listen (of 0.0.0.0 and [::]: for
        /// node.address).
        cert_file: Option<PathBuf> = None => optional().example("\"/etc/dr-worker/worker.pem\"");
        /// Its key, readable as token_file.
        key_file: Option<PathBuf> = None => optional().example("\"/etc/dr-worker/worker.key\"");
        /// The authorities of client certificates.
        client_ca_file: Option<PathBuf> = None => optional().example("\"/etc/dr-worker/clients.pem\"");
        /// The authorities of the other workers' certificates. Default: client_ca_file. Set it on workers without TLS too.
        ca_file: Option<PathBuf> = None => optional().example("\"/etc/dr-worker/ca.pem\"");
    }
    check TlsKeys::check;
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
}

impl HttpConfig {
    fn check(&mut self, section: &mut Section<'_>) {
        if cfg!(not(feature = "tls")) && section.has("tls") {
            section.problem("tls", WITHOUT_TLS);
        }
        let (has_tokens, has_ca) = (self.token_file.is_some(), self.tls.client_ca_file.is_some());
        section.again("access", |section| {
            let HttpAccess { status, control } = &mut self.access;
            if !section.has("control") && has_tokens {
                *control = ControlAccess::Token;
            }
            section.show_unless_set("control", control);
            for (key, word) in [("status", status.as_str()), ("control", control.as_str())] {
                let needs = match word {
                    "token" if !has_tokens => "http.token_file",
                    "certificate" if !has_ca => "http.tls.client_ca_file",
                    _ => continue,
                };
                section.problem(key, format!("{word:?} needs {needs}, which is not set"));
            }
        });
    }

    /// Whether the port has TLS.
    pub fn has_tls(&self) -> bool {
        self.tls.pair.is_some()
    }

    /// Whether this worker shows its certificate to other workers: they ask for one as it does itself.
    pub(crate) fn presents(&self) -> bool {
        self.access.status == StatusAccess::Certificate
    }

    /// What is made of the files for TLS. It blocks.
    ///
    /// # Errors
    /// Which one can't be used.
    pub(crate) fn load_tls(&self) -> Result<Tls, Unusable> {
        Contents::read(&self.tls)?.load(self.presents())
    }
}

impl TlsKeys {
    fn check(&mut self, section: &mut Section<'_>) {
        for (key, needs) in [
            ("cert_file", &["key_file"][..]),
            ("key_file", &["cert_file"]),
            ("client_ca_file", &["cert_file", "key_file"]),
        ] {
            if let Some(missing) = needs.iter().find(|other| section.has(key) && !section.has(other)) {
                section.problem(key, format!("it needs {missing} too"));
            }
        }
    }
}

impl From<TlsKeys> for TlsFiles {
    fn from(TlsKeys { cert_file, key_file, client_ca_file, ca_file }: TlsKeys) -> Self {
        let pair = cert_file.zip(key_file).map(|(cert_file, key_file)| PairFiles { cert_file, key_file });
        Self { pair, client_ca_file, ca_file }
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

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a host:port, such as \"127.0.0.1:7080\"");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

text!(HostPort);
