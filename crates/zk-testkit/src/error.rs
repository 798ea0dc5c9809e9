use std::path::PathBuf;
use std::time::Duration;

/// Errors of ensembles, embedded servers and proxies.
/// The text is for the reader of a failed test: it names the server, the file and, if something has to be
/// installed, the command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no Java runtime to start a server with.
    #[error(
        "no Java runtime: neither $JAVA_HOME/bin/java nor `java` on PATH can be started ({reason}); \
         on Debian: apt-get install default-jre-headless"
    )]
    JavaMissing {
        /// The error of the attempt to start it.
        reason: String,
    },

    /// `ZOOKEEPER_HOME` is not set and Debian's jars are not there either.
    #[error(
        "no ZooKeeper to start: ZOOKEEPER_HOME is not set, and these of Debian's jars are missing \
         in {dir}: {missing}; either set ZOOKEEPER_HOME to an unpacked release of Apache ZooKeeper \
         (it holds lib/zookeeper-*.jar) or, on Debian: apt-get install libzookeeper-java",
        dir = dir.display(),
        missing = missing.join(", ")
    )]
    JarsMissing {
        /// Where Debian's jars were searched.
        dir: PathBuf,
        /// The file names that were not found.
        missing: Vec<String>,
    },

    /// `ZOOKEEPER_HOME` is set to a directory without ZooKeeper.
    #[error(
        "ZOOKEEPER_HOME is {home}, but it has neither lib/zookeeper-*.jar nor all the jars of \
         usr/share/java that a server needs: set it to the directory of an unpacked release of Apache \
         ZooKeeper or of Debian's unpacked packages, or unset it",
        home = home.display()
    )]
    NotAZookeeperHome {
        /// The value of the variable.
        home: PathBuf,
    },

    /// This machine or this user can't make network namespaces.
    #[error("no network namespaces: {reason}")]
    NoNamespaces {
        /// The command that failed, its output, and what to do.
        reason: String,
    },

    /// The session does not exist, or has expired.
    #[error("there is no session 0x{session:x}")]
    NoSession {
        /// The id that was given.
        session: i64,
    },

    /// A setting of the builder is invalid.
    #[error("invalid settings: {0}")]
    Settings(String),

    /// A server's process ended unexpectedly.
    #[error("server {server} ended unexpectedly ({status}); the end of {log}:\n{tail}", log = log.display())]
    Exited {
        /// The index of the server.
        server: usize,
        /// How it ended.
        status: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of that file.
        tail: String,
    },

    /// A condition was not met in time.
    #[error("{what} did not happen within {within:?}{detail}")]
    Timeout {
        /// The condition.
        what: String,
        /// How long.
        within: Duration,
        /// The last observation; empty or starting with a separator.
        detail: String,
    },

    /// The operation needs a running server and this one is not running.
    #[error("server {server} is not running")]
    NotRunning {
        /// The index of the server.
        server: usize,
    },

    /// The operation needs a stopped server and this one is running.
    #[error("server {server} is running already, pid {pid}")]
    AlreadyRunning {
        /// The index of the server.
        server: usize,
        /// Its process id.
        pid: u32,
    },

    /// There is no ensemble in the directory.
    #[error("no ensemble in {dir}: {reason}", dir = dir.display())]
    NoEnsemble {
        /// The directory looked at.
        dir: PathBuf,
        /// What was missing or unreadable.
        reason: String,
    },

    /// A requested port, or every port that was tried, is taken.
    #[error("{0}")]
    Ports(String),

    /// The operating system refused something.
    #[error("{context}: {error}")]
    Io {
        /// The action and its object.
        context: String,
        /// The system's error. Part of this error's text, so not its source.
        error: std::io::Error,
    },
}

/// Adds the action to an error of the operating system.
pub(crate) trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Context<T> for std::io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|error| Error::Io { context: what(), error })
    }
}
