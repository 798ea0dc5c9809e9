//! Settings of a session, checked before anything is done.

use std::time::Duration;
#[cfg(any(feature = "tls", feature = "sasl"))]
use std::{
    fmt, io,
    path::Path,
    sync::{Arc, Mutex},
};

use zk_proto::Limits;

use crate::acl::Acl;
use crate::driver_kind::DriverKind;
use crate::error::ConnectError;
use crate::instruments::Instruments;
use crate::servers::hosts::ConnectString;

pub(crate) mod dial;
#[cfg(any(feature = "tls", feature = "sasl"))]
pub(crate) mod renewed;
pub(crate) mod secret;
#[cfg(feature = "tls")]
pub(crate) mod tls;

use dial::Dial;
#[cfg(any(feature = "tls", feature = "sasl"))]
use renewed::InUse;
use secret::Auth;
#[cfg(feature = "sasl")]
use secret::Secret;
#[cfg(feature = "tls")]
use tls::Tls;

#[cfg(any(feature = "tls", feature = "sasl"))]
type Read = dyn Fn(&Path) -> io::Result<Vec<u8>> + Send + Sync;

/// How files of TLS and SASL are read.
#[cfg(any(feature = "tls", feature = "sasl"))]
#[derive(Clone)]
pub(crate) struct ReadFile(pub(crate) Arc<Read>);

#[cfg(any(feature = "tls", feature = "sasl"))]
impl fmt::Debug for ReadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadFile(..)")
    }
}

/// Where the user of SASL DIGEST-MD5 comes from.
#[cfg(feature = "sasl")]
#[derive(Clone, Debug)]
pub(crate) enum SaslDigest {
    User(SaslUser),
    /// With `user:password`.
    File(std::path::PathBuf),
}

#[cfg(feature = "sasl")]
impl SaslDigest {
    /// What is missing.
    fn problem(&self) -> Option<&'static str> {
        match self {
            Self::User(sasl) if sasl.user.is_empty() => Some("sasl_digest: the user is empty"),
            Self::User(sasl) if std::str::from_utf8(sasl.password.expose()).is_err() => {
                Some("sasl_digest: the password is not UTF-8")
            }
            Self::File(path) if path.as_os_str().is_empty() => Some("sasl_digest_file: the path is empty"),
            _ => None,
        }
    }
}

/// A user of SASL DIGEST-MD5.
#[cfg(feature = "sasl")]
#[derive(Clone, Debug)]
pub(crate) struct SaslUser {
    pub(crate) user: String,
    pub(crate) password: Secret,
}

/// Settings as given: [`check`](Self::check) validates them.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) connect: String,
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) operation_timeout: Option<Duration>,
    pub(crate) tick_time: Duration,
    pub(crate) suspect_after: Option<Duration>,
    /// As in the connect string.
    pub(crate) prefer: String,
    pub(crate) driver: DriverKind,
    pub(crate) auth: Vec<Auth>,
    pub(crate) acl: Acl,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
    #[cfg(feature = "tls")]
    pub(crate) tls_in_use: Arc<Mutex<Option<InUse<Arc<rustls::ClientConfig>>>>>,
    #[cfg(feature = "sasl")]
    pub(crate) sasl: Option<SaslDigest>,
    #[cfg(feature = "sasl")]
    pub(crate) sasl_in_use: Arc<Mutex<Option<InUse<SaslUser>>>>,
    #[cfg(any(feature = "tls", feature = "sasl"))]
    pub(crate) read_file: ReadFile,
    pub(crate) dial: Dial,
    pub(crate) max_request: usize,
    /// By the name of the session.
    pub(crate) instruments: Instruments,
}

impl Settings {
    pub(crate) fn new(connect: String) -> Self {
        Self {
            connect,
            session_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(15),
            operation_timeout: None,
            tick_time: Duration::from_secs(2),
            suspect_after: None,
            prefer: String::new(),
            driver: DriverKind::default(),
            auth: Vec::new(),
            acl: Acl::default(),
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tls")]
            tls_in_use: Arc::default(),
            #[cfg(feature = "sasl")]
            sasl: None,
            #[cfg(feature = "sasl")]
            sasl_in_use: Arc::default(),
            #[cfg(any(feature = "tls", feature = "sasl"))]
            read_file: ReadFile(Arc::new(|path| std::fs::read(path))),
            dial: Dial::default(),
            max_request: Limits::default().request,
            instruments: Instruments::new("default".to_owned()),
        }
    }

    pub(crate) fn operation_timeout(&self) -> Duration {
        self.operation_timeout.unwrap_or(self.session_timeout)
    }

    pub(crate) fn check(&self) -> Result<ConnectString, ConnectError> {
        let connect = ConnectString::parse(&self.connect)?;
        for (name, value) in [
            ("session_timeout", self.session_timeout),
            ("connect_timeout", self.connect_timeout),
            ("operation_timeout", self.operation_timeout()),
            ("tick_time", self.tick_time),
        ] {
            if value < MIN || value > MAX {
                return invalid(format!("{name} is {value:?}: it must be from {MIN:?} to {MAX:?}"));
            }
        }
        if let Some(after) = self.suspect_after.filter(|after| !(MIN_SUSPICION..=MAX).contains(after)) {
            return invalid(format!(
                "suspect_after is {after:?}: it must be from {MIN_SUSPICION:?} to {MAX:?} (with less, each short delay \
                 would move the session)"
            ));
        }
        if !(MIN_REQUEST..=MAX_REQUEST).contains(&self.max_request) {
            return invalid(format!(
                "max_request is {}: it must be from {MIN_REQUEST} to {MAX_REQUEST} bytes, as the servers' jute.maxbuffer",
                self.max_request
            ));
        }
        #[cfg(feature = "tls")]
        if let Some(problem) = self.tls.as_ref().and_then(Tls::problem) {
            return invalid(problem);
        }
        #[cfg(feature = "sasl")]
        if let Some(problem) = self.sasl.as_ref().and_then(SaslDigest::problem) {
            return invalid(problem);
        }
        if self.acl.names_creator() && !self.has_credentials() {
            return invalid(format!(
                "acl is {:?}, but the session has no credentials to identify the creator: add some, for example by auth",
                self.acl
            ));
        }
        Ok(connect)
    }

    /// Whether the servers may know this client by something.
    fn has_credentials(&self) -> bool {
        #[cfg(feature = "tls")]
        if self.tls.as_ref().is_some_and(Tls::has_certificate) {
            return true;
        }
        #[cfg(feature = "sasl")]
        if self.sasl.is_some() {
            return true;
        }
        !self.auth.is_empty()
    }
}

fn invalid<T>(reason: impl Into<String>) -> Result<T, ConnectError> {
    Err(ConnectError::InvalidSetting { reason: reason.into() })
}

/// Shorter durations are mistakes: a server's tick, the smallest of them, is some hundred milliseconds.
const MIN: Duration = Duration::from_millis(10);
/// A server's answer to a ping takes as long from time to time.
const MIN_SUSPICION: Duration = Duration::from_millis(50);
/// ZooKeeper sends a session timeout as milliseconds in 31 bits; nothing here needs to be longer than a day.
const MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Smaller than any server's limit in practice, and large enough for the session's own requests.
const MIN_REQUEST: usize = 64 << 10;
const MAX_REQUEST: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::{AclEntry, Id, permission};

    #[test]
    fn driver_names_go_both_ways() {
        for kind in DriverKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "zookeeper".parse::<DriverKind>().unwrap_err();
        assert!(error.to_string().contains("\"zookeeper\""), "{error}");
    }

    #[test]
    fn a_setting_out_of_range_is_named() {
        let settings = || Settings::new("localhost".to_owned());
        type Set = fn(&mut Settings, Duration);
        let durations: [(&str, Set); 5] = [
            ("session_timeout", |settings, time| settings.session_timeout = time),
            ("connect_timeout", |settings, time| settings.connect_timeout = time),
            ("operation_timeout", |settings, time| settings.operation_timeout = Some(time)),
            ("tick_time", |settings, time| settings.tick_time = time),
            ("suspect_after", |settings, time| settings.suspect_after = Some(time)),
        ];
        let refused = |name: &str, change: &dyn Fn(&mut Settings)| {
            let mut changed = settings();
            change(&mut changed);
            let error = changed.check().unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        };
        for (name, set) in durations {
            for time in
                [Duration::ZERO, Duration::from_nanos(1), MAX + Duration::from_nanos(1), Duration::MAX]
            {
                refused(name, &|settings| set(settings, time));
            }
        }
        for bytes in [0, usize::MAX] {
            refused("max_request", &|settings| settings.max_request = bytes);
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn the_file_of_the_authorities_is_not_to_be_left_out() {
        let mut settings = Settings::new("localhost".to_owned());
        settings.tls = Some(Tls::Options(tls::TlsOptions::new("")));
        let error = settings.check().unwrap_err();
        assert!(matches!(error, ConnectError::InvalidSetting { .. }), "{error}");
    }

    #[test]
    fn an_access_list_for_the_creator_needs_to_know_who_that_is() {
        let auth = AclEntry { permissions: permission::READ, id: Id::new("auth", "") };
        for acl in [Acl::CreatorAll, Acl::CreatorAllWorldRead, Acl::Entries([auth].into())] {
            let mut settings = Settings::new("localhost".to_owned());
            settings.acl = acl;
            let error = settings.check().unwrap_err();
            assert!(error.to_string().contains("credentials"), "{error}");
            settings.auth.push(Auth { scheme: "digest".to_owned(), secret: Secret::from("user:hunter2") });
            assert!(settings.check().is_ok());
        }
    }
}
