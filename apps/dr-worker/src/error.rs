//! The program's errors and exit codes.

use election_admin::{AdminError, ReadError};
use election_core::internals::record::RecordError;
use zk_session::{ConnectError, OpError};

use crate::{advice, config::Problems, host_fault::HostFault};

/// The exit codes. Scripts and service managers rely on these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ExitCode {
    /// Done.
    Done = 0,
    /// The request was carried out and failed.
    Failed = 1,
    /// Bad usage.
    Usage = 64,
    /// ZooKeeper was not reachable in time.
    Unreachable = 69,
    /// A bug.
    Internal = 70,
    /// Not now; try again.
    NotNow = 75,
    /// Bad configuration.
    Config = 78,
}

impl ExitCode {
    /// All codes, each with its meaning in few words, as the help texts have it.
    const ALL: [(Self, &str); 7] = [
        (Self::Done, "done"),
        (Self::Failed, "carried out and failed"),
        (Self::Usage, "bad usage"),
        (Self::Unreachable, "ZooKeeper not reachable in time"),
        (Self::Internal, "internal error"),
        (Self::NotNow, "not now, try again"),
        (Self::Config, "bad configuration"),
    ];

    /// Whether the same may succeed later.
    pub(crate) const fn may_pass(self) -> bool {
        matches!(self, Self::Unreachable | Self::NotNow)
    }

    /// All codes with their meanings, on one line.
    pub(crate) fn summary() -> String {
        let all = Self::ALL.map(|(code, meaning)| format!("{} {meaning}", code as u8));
        format!("Exit codes: {}.", all.join("; "))
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

/// Why the program fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The request was carried out and failed, or was refused.
    #[error("{0}")]
    Failed(String),
    /// The command line is invalid.
    #[error("{0}")]
    Usage(String),
    /// ZooKeeper was not reachable in time.
    #[error("{0}")]
    Unreachable(String),
    /// A bug.
    #[error("{0}")]
    Internal(String),
    /// The result is printed, and explains this exit code; the text sums it up.
    #[error("{1}")]
    Reported(ExitCode, String),
    /// It may succeed later, or is still in progress.
    #[error("{0}")]
    NotNow(String),
    /// The configuration can't be used.
    #[error(transparent)]
    Config(#[from] Problems),
    /// The value of one key can't be used.
    #[error("{key}: {message}")]
    Setting {
        /// The key.
        key: &'static str,
        /// What is wrong with it and what to do.
        message: String,
    },
    /// What one key names can't be used on this host, which may be healed without another configuration.
    #[error("{key}: {message}")]
    Host {
        /// The key.
        key: &'static str,
        /// What is wrong with it and what to do.
        message: String,
    },
}

impl Error {
    /// The exit code of the program.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Failed(_) => ExitCode::Failed,
            Self::Usage(_) => ExitCode::Usage,
            Self::Unreachable(_) => ExitCode::Unreachable,
            Self::Internal(_) => ExitCode::Internal,
            Self::Reported(code, _) => *code,
            Self::NotNow(_) | Self::Host { .. } => ExitCode::NotNow,
            Self::Config(problems) if problems.may_pass() => ExitCode::NotNow,
            Self::Config(_) | Self::Setting { .. } => ExitCode::Config,
        }
    }

    /// What the value of this key names can't be used.
    pub(crate) fn on_host(key: &'static str, fault: HostFault) -> Self {
        match fault.may_pass {
            true => Self::Host { key, message: fault.why },
            false => Self::Setting { key, message: fault.why },
        }
    }

    /// The same with the source of the key, which `problem` adds.
    #[must_use]
    pub(crate) fn located(self, problem: impl FnOnce(&str, HostFault) -> Problems) -> Self {
        match self {
            Self::Setting { key, message } => Self::Config(problem(key, message.into())),
            Self::Host { key, message } => Self::Config(problem(key, HostFault::absent(message))),
            other => other,
        }
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        let message = error.to_string();
        let key = match error {
            ConnectError::InvalidConnectString { .. } => "zookeeper.connect",
            ConnectError::AuthFailed { .. } => "zookeeper.auth",
            ConnectError::Tls { .. } => "zookeeper.tls",
            ConnectError::TimeoutTooShort { .. } => "zookeeper.session_timeout",
            ConnectError::InvalidSetting { .. } => "zookeeper",
            _ => {
                let hint = "check zookeeper.connect and that the servers have a majority";
                return Self::Unreachable(format!("{message}; {hint}"));
            }
        };
        Self::Setting { key, message }
    }
}

impl From<OpError> for Error {
    fn from(error: OpError) -> Self {
        match error {
            OpError::Unavailable { .. } | OpError::SessionOver => Self::Unreachable(error.to_string()),
            OpError::AuthFailed { .. } => Self::Setting { key: "zookeeper.auth", message: error.to_string() },
            // Who made the znode can change its list, and a server may not have seen that yet.
            OpError::NoAuth { .. } => Self::Host {
                key: "zookeeper.auth",
                message: format!("{error}; its access list requires other credentials"),
            },
            OpError::Unknown { .. } => {
                Self::NotNow(format!("{error}; check `dr-worker list` before you try again"))
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Session(error) => error.into(),
            ReadError::NoElection(_) => {
                Self::Usage(format!("unknown job: {error}; `dr-worker list` shows all jobs"))
            }
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<AdminError> for Error {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Session(error) => error.into(),
            AdminError::Read(error) => error.into(),
            AdminError::Token(_) => Self::Usage(error.to_string()),
            AdminError::NotNow(why) => Self::NotNow(advice::on(&why)),
            AdminError::TooManyRaces => Self::NotNow(error.to_string()),
            AdminError::Closed => Self::Unreachable(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::compare;

    #[test]
    fn each_kind_of_failure_has_the_code_that_scripts_know() {
        let code = |error: Error| error.exit_code() as u8;
        assert_eq!(code(Error::Failed(String::new())), 1);
        assert_eq!(code(Error::Usage(String::new())), 64);
        assert_eq!(code(OpError::SessionOver.into()), 69);
        assert_eq!(code(Error::Internal(String::new())), 70);
        assert_eq!(code(Error::NotNow(String::new())), 75);
        assert_eq!(code(Error::Setting { key: "node.id", message: String::new() }), 78);
        assert_eq!(code(Error::Host { key: "node.id", message: String::new() }), 75);
        assert_eq!(code(OpError::NoAuth { path: "/dr".into() }.into()), 75);
        assert_eq!(code(ReadError::NoElection("/dr/x".into()).into()), 64);
    }

    const TITLE: &str = "# Exit codes

The exit codes of all [commands](commands.md), of `dr-worker run` too. From 64 on they are those of `sysexits.h`. The reason is on
standard error; with `--output json` it is also the object `error` on standard output. An error of an [HTTP endpoint](http.md) has
the code of the command of the same name.

| code | meaning | what to do |
|---|---|---|
";

    #[test]
    fn the_reference_has_each_exit_code() {
        let rows = ExitCode::ALL.map(|(code, meaning)| {
            let action = match code {
                ExitCode::Done => "",
                ExitCode::Failed => "read the reason: the request was refused, or what was asked did not come true",
                ExitCode::Usage => "correct the command line; `dr-worker COMMAND --help` shows it",
                ExitCode::Unreachable => {
                    "check `zookeeper.connect`, and whether the servers have a quorum \
                     ([docs/lost-quorum.md](../lost-quorum.md)); then try again"
                }
                ExitCode::Internal => "report it; the message is about a fault of the program",
                ExitCode::NotNow => {
                    "wait and try again, or look at the state with `dr-worker list`: the request may still be in progress. Of \
                     `dr-worker run` and `config check`: another process has the id or the recipe of a job, or this \
                     host lacks what a key names: a program, a file, a directory, a user, an address. It may come with a later \
                     mount or network, and systemd starts the worker again until it is there. Of any command: an access list in \
                     ZooKeeper denies access; correct `zookeeper.auth`, or the list"
                }
                ExitCode::Config => {
                    "correct the file, line and key that are named, or what is wrong with the file that the key names; \
                     `dr-worker config check` reports all errors at once. systemd does not start the worker again after it"
                }
            };
            format!("| {} | {meaning} | {action} |\n", code as u8)
        });
        compare("exit-codes.md", &format!("{TITLE}{}", rows.concat()));
    }
}
