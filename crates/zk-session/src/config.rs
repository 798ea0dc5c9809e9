//! Settings of a session, checked before anything is done.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use zk_proto::Limits;

use crate::acl::Acl;
use crate::driver::Auth;
use crate::error::ConnectError;
use crate::hosts::ConnectString;
use crate::secure::Secure;

/// What carries a session. The crate's documentation says what tells them apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DriverKind {
    /// This crate's own, over `zk-proto`.
    #[default]
    Native,
    /// The crate `zookeeper-async` over the same core. Needs the feature of that name.
    ZookeeperAsync,
}

impl DriverKind {
    /// All kinds, compiled in or not.
    pub const ALL: [Self; 2] = [Self::Native, Self::ZookeeperAsync];

    const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::ZookeeperAsync => "zookeeper-async",
        }
    }
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name is none of a driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no driver is called {0:?}: it is \"native\" or \"zookeeper-async\"")]
pub struct UnknownDriver(String);

impl FromStr for DriverKind {
    type Err = UnknownDriver;

    fn from_str(name: &str) -> Result<Self, UnknownDriver> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| UnknownDriver(name.to_owned()))
    }
}

/// Settings as given.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) connect: String,
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) operation_timeout: Option<Duration>,
    pub(crate) tick_time: Duration,
    pub(crate) driver: DriverKind,
    pub(crate) auth: Vec<Auth>,
    pub(crate) acl: Acl,
    pub(crate) secure: Secure,
    pub(crate) max_request: usize,
}

impl Settings {
    pub(crate) fn new(connect: String) -> Self {
        Self {
            connect,
            session_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(15),
            operation_timeout: None,
            tick_time: Duration::from_secs(2),
            driver: DriverKind::default(),
            auth: Vec::new(),
            acl: Acl::default(),
            secure: Secure::default(),
            max_request: Limits::default().request,
        }
    }

    pub(crate) fn check(self) -> Result<Config, ConnectError> {
        let connect = ConnectString::parse(&self.connect)?;
        let operation_timeout = self.operation_timeout.unwrap_or(self.session_timeout);
        for (name, value) in [
            ("session_timeout", self.session_timeout),
            ("connect_timeout", self.connect_timeout),
            ("operation_timeout", operation_timeout),
            ("tick_time", self.tick_time),
        ] {
            if value < MIN || value > MAX {
                let reason = format!("{name} is {value:?}: it must be from {MIN:?} to {MAX:?}");
                return Err(ConnectError::InvalidSetting { reason });
            }
        }
        if !(MIN_REQUEST..=MAX_REQUEST).contains(&self.max_request) {
            let reason = format!(
                "max_request is {}: it must be from {MIN_REQUEST} to {MAX_REQUEST} bytes, as the servers' jute.maxbuffer",
                self.max_request
            );
            return Err(ConnectError::InvalidSetting { reason });
        }
        self.secure.check()?;
        if self.acl.needs_identity() && self.auth.is_empty() && !self.secure.has_identity() {
            let reason = format!(
                "acl is {:?}, and the session has no credentials by which ZooKeeper could know the creator: add some, \
                 say by auth",
                self.acl
            );
            return Err(ConnectError::InvalidSetting { reason });
        }
        Ok(Config {
            connect,
            session_timeout: self.session_timeout,
            connect_timeout: self.connect_timeout,
            operation_timeout,
            tick_time: self.tick_time,
            driver: self.driver,
            auth: self.auth.into(),
            acl: self.acl,
            secure: self.secure,
            max_request: self.max_request,
        })
    }
}

/// Shorter durations are slips of the pen: a server's tick, the smallest of them, is some hundred milliseconds.
const MIN: Duration = Duration::from_millis(10);
/// ZooKeeper sends a session timeout as milliseconds in 31 bits; nothing here needs to be longer than a day.
const MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Smaller than any server is ever set up with: the session's own requests fit.
const MIN_REQUEST: usize = 64 << 10;
const MAX_REQUEST: usize = 1 << 30;

/// Settings that hold together.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) connect: ConnectString,
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) operation_timeout: Duration,
    pub(crate) tick_time: Duration,
    pub(crate) driver: DriverKind,
    pub(crate) auth: Arc<[Auth]>,
    pub(crate) acl: Acl,
    pub(crate) secure: Secure,
    pub(crate) max_request: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[test]
    fn driver_names_go_both_ways() {
        for kind in DriverKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "zookeeper".parse::<DriverKind>().unwrap_err();
        assert!(error.to_string().contains("\"zookeeper\""), "{error}");
    }

    #[test]
    fn a_secret_does_not_print_itself() {
        let mut settings = Settings::new("localhost".to_owned());
        settings.auth.push(Auth { scheme: "digest".to_owned(), secret: Secret::from("user:hunter2") });
        assert!(!format!("{settings:?}").contains("hunter2"));
    }

    #[test]
    fn a_setting_out_of_range_is_named() {
        let mut settings = Settings::new("localhost".to_owned());
        settings.tick_time = Duration::ZERO;
        let error = settings.check().unwrap_err();
        assert!(error.to_string().contains("tick_time"), "{error}");
    }

    #[test]
    fn an_access_list_for_the_creator_needs_to_know_who_that_is() {
        for acl in [Acl::CreatorAll, Acl::CreatorAllWorldRead] {
            let mut settings = Settings::new("localhost".to_owned());
            settings.acl = acl;
            let error = settings.clone().check().unwrap_err();
            assert!(error.to_string().contains("credentials"), "{error}");
            settings.auth.push(Auth { scheme: "digest".to_owned(), secret: Secret::from("user:hunter2") });
            assert_eq!(settings.check().unwrap().acl, acl);
        }
    }
}
