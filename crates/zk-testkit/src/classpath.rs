//! Finds Java and ZooKeeper's jars on this machine.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

/// Where Debian's packages put their jars, below the root or wherever they were unpacked.
const DEBIAN_JARS: &str = "usr/share/java";

/// What a server needs of Debian's jars. `slf4j-simple` writes the log to standard error and is
/// the only binding that needs no file to be set up. ZooKeeper's own come last: their manifests
/// name the jars of this machine, which may be of another version, and those come right after
/// the jar that names them.
const DEBIAN_NEEDED: [&str; 13] = [
    "slf4j-api.jar",
    "slf4j-simple.jar",
    "metrics-core.jar",
    "snappy-java.jar",
    "commons-cli.jar",
    "commons-io.jar",
    "netty-common.jar",
    "netty-buffer.jar",
    "netty-transport.jar",
    "netty-transport-native-epoll.jar",
    "netty-handler.jar",
    "zookeeper-jute.jar",
    "zookeeper.jar",
];

/// The additional jars for TLS (`NettyServerCnxnFactory`).
const DEBIAN_FOR_TLS: [&str; 3] =
    ["netty-codec.jar", "netty-resolver.jar", "netty-transport-native-unix-common.jar"];

/// The additional jars for the AdminServer. Debian's package of ZooKeeper depends on theirs.
const DEBIAN_FOR_ADMIN: [&str; 11] = [
    "jetty9-server.jar",
    "jetty9-servlet.jar",
    "jetty9-util.jar",
    "jetty9-util-ajax.jar",
    "jetty9-http.jar",
    "jetty9-io.jar",
    "jetty9-security.jar",
    "servlet-api.jar",
    "jackson-core.jar",
    "jackson-databind.jar",
    "jackson-annotations.jar",
];

/// A Java runtime and a class path that together can start a ZooKeeper server.
#[derive(Debug, Clone)]
pub struct Installation {
    java: PathBuf,
    jars: Jars,
}

#[derive(Debug, Clone)]
struct Jars {
    class_path: OsString,
    version: Option<String>,
}

impl Installation {
    /// Finds both: Java in `JAVA_HOME`, then on `PATH`; ZooKeeper in
    /// `ZOOKEEPER_HOME`, then among Debian's jars.
    ///
    /// # Errors
    /// [`Error::JavaMissing`], [`Error::JarsMissing`], [`Error::NotAZookeeperHome`],
    /// each with what to install or to set.
    pub fn find() -> Result<Self, Error> {
        if let Some(home) = std::env::var_os("ZOOKEEPER_HOME").filter(|home| !home.is_empty()) {
            return Self::at(Path::new(&home));
        }
        let dir = Path::new("/").join(DEBIAN_JARS);
        match debian(&dir) {
            Ok(jars) => Self::of(jars),
            Err(missing) => Err(Error::JarsMissing { dir, missing }),
        }
    }

    /// ZooKeeper in that directory: an unpacked release of Apache ZooKeeper (its `lib/*.jar`),
    /// or unpacked packages of Debian's, as `/` is where they are installed. Java as for
    /// [`find`](Self::find).
    ///
    /// # Errors
    /// [`Error::NotAZookeeperHome`], [`Error::JavaMissing`].
    pub fn at(home: &Path) -> Result<Self, Error> {
        let lib = home.join("lib");
        Self::of(match version_in(&lib) {
            Some(version) => Jars { class_path: lib.join("*").into_os_string(), version: Some(version) },
            None => debian(&home.join(DEBIAN_JARS))
                .map_err(|_| Error::NotAZookeeperHome { home: home.to_path_buf() })?,
        })
    }

    fn of(jars: Jars) -> Result<Self, Error> {
        Ok(Self { java: java()?, jars })
    }

    /// The Java launcher.
    #[must_use]
    pub fn java(&self) -> &Path {
        &self.java
    }

    /// What `java -cp` needs.
    #[must_use]
    pub fn class_path(&self) -> &OsString {
        &self.jars.class_path
    }

    /// ZooKeeper's version, such as `3.8.0`, if the name of a jar has it.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.jars.version.as_deref()
    }
}

fn java() -> Result<PathBuf, Error> {
    let java = std::env::var_os("JAVA_HOME")
        .map(|home| Path::new(&home).join("bin/java"))
        .filter(|java| java.is_file())
        .unwrap_or_else(|| PathBuf::from("java"));
    // Debian leaves a dangling alternative behind when a runtime is removed, so
    // only starting it shows that. `-version` loads no class and takes some 30 ms.
    let tried = Command::new(&java)
        .arg("-version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match tried {
        Ok(status) if status.success() => Ok(java),
        Ok(status) => Err(Error::JavaMissing { reason: format!("{} -version: {status}", java.display()) }),
        Err(error) => Err(Error::JavaMissing { reason: format!("{}: {error}", java.display()) }),
    }
}

/// By `zookeeper-3.9.3.jar`; Debian has that name, too, as a link or behind one.
fn version_in(jars: &Path) -> Option<String> {
    let names = std::fs::read_dir(jars).ok()?.flatten().map(|entry| entry.file_name());
    names
        .filter_map(|name| {
            let version = name.to_str()?.strip_prefix("zookeeper-")?.strip_suffix(".jar")?;
            version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
        })
        .max()
}

/// The names of what is missing otherwise.
fn debian(dir: &Path) -> Result<Jars, Vec<String>> {
    let is_there = |jar: &&str| dir.join(jar).is_file();
    let missing: Vec<String> =
        DEBIAN_NEEDED.iter().filter(|jar| !is_there(jar)).map(ToString::to_string).collect();
    if !missing.is_empty() {
        return Err(missing);
    }
    let more = DEBIAN_FOR_TLS.into_iter().chain(DEBIAN_FOR_ADMIN);
    let jars = more.filter(is_there).chain(DEBIAN_NEEDED);
    let jars: Vec<OsString> = jars.map(|jar| dir.join(jar).into_os_string()).collect();
    Ok(Jars { class_path: jars.join(OsStr::new(":")), version: version_in(dir) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_each_missing_jar_and_the_package() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("zookeeper.jar"), b"").unwrap();
        let missing = debian(dir.path()).unwrap_err();
        let said = Error::JarsMissing { dir: dir.path().to_path_buf(), missing }.to_string();
        assert!(said.contains("zookeeper-jute.jar"), "{said}");
        assert!(!said.contains(" zookeeper.jar"), "{said}");
        assert!(said.contains("apt-get install libzookeeper-java"), "{said}");
    }
}
