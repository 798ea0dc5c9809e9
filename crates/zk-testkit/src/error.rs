use std::path::PathBuf;
use std::time::Duration;

/// Why an ensemble, a test server or a proxy could not do what it was asked to.
///
/// The text is meant for whoever reads a failed test: it names the server, the
/// file and, where something has to be installed, the command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no Java runtime to start a server with.
    #[error(
        "no Java runtime: neither $JAVA_HOME/bin/java nor `java` on PATH can be started ({reason}); \
         on Debian: apt-get install default-jre-headless"
    )]
    JavaMissing {
        /// What the attempt to start it said.
        reason: String,
    },

    /// `ZOOKEEPER_HOME` is not set and Debian's jars are not there either.
    #[error(
        "no ZooKeeper to start: ZOOKEEPER_HOME is not set, and of Debian's jars these are missing \
         in {dir}: {missing}; either set ZOOKEEPER_HOME to an unpacked release of Apache ZooKeeper \
         (it holds lib/zookeeper-*.jar) or, on Debian: apt-get install libzookeeper-java",
        dir = dir.display(),
        missing = missing.join(", ")
    )]
    JarsMissing {
        /// Where Debian's jars were looked for.
        dir: PathBuf,
        /// The file names that were not found.
        missing: Vec<String>,
    },

    /// `ZOOKEEPER_HOME` is set, but to something that holds no ZooKeeper.
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

    /// This machine makes no network namespaces, or not for this user.
    #[error("no network namespaces: {reason}")]
    NoNamespaces {
        /// Which command failed, what it said, and what helps.
        reason: String,
    },

    /// There is no such session, or no longer.
    #[error("there is no session 0x{session:x}")]
    NoSession {
        /// The id that was given.
        session: i64,
    },

    /// A setting of the builder makes no sense.
    #[error("bad ensemble settings: {0}")]
    Settings(String),

    /// A server's process ended although nobody asked it to.
    #[error("server {server} ended by itself ({status}); the end of {log}:\n{tail}", log = log.display())]
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

    /// Something was awaited and did not come in time.
    #[error("{what} did not happen within {within:?}{detail}")]
    Timeout {
        /// What was awaited.
        what: String,
        /// How long.
        within: Duration,
        /// What was seen instead; empty or starting with a separator.
        detail: String,
    },

    /// The operation needs a running server and this one is not running.
    #[error("server {server} is not running")]
    NotRunning {
        /// The index of the server.
        server: usize,
    },

    /// The operation needs a stopped server and this one runs.
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

    /// A port that was asked for, or every port that was tried, is taken.
    #[error("{0}")]
    Ports(String),

    /// The operating system refused something.
    #[error("{context}: {error}")]
    Io {
        /// What was being done, to what.
        context: String,
        /// The system's own words. Part of this error's text, so not its source.
        error: std::io::Error,
    },
}

/// Adds what was being done to an error of the operating system.
pub(crate) trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Context<T> for std::io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|error| Error::Io { context: what(), error })
    }
}
