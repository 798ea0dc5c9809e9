//! Where Java and ZooKeeper's jars are on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

/// Where Debian puts the jars of its packages.
const DEBIAN_JARS: &str = "/usr/share/java";

/// What a server needs of Debian's jars. The manifest of `zookeeper.jar` names
/// the others (netty, metrics, snappy); `slf4j-simple` writes the log to
/// standard error and is the only binding that needs no file to be set up.
const DEBIAN_NEEDED: [&str; 4] = ["zookeeper.jar", "zookeeper-jute.jar", "slf4j-api.jar", "slf4j-simple.jar"];

/// What TLS needs besides (`NettyServerCnxnFactory`), and the manifest does not
/// name; a server without TLS does without them.
const DEBIAN_FOR_TLS: [&str; 3] =
    ["netty-codec.jar", "netty-resolver.jar", "netty-transport-native-unix-common.jar"];

/// A Java runtime and a class path that together can start a ZooKeeper server.
#[derive(Debug, Clone)]
pub struct Installation {
    java: PathBuf,
    class_path: OsString,
    origin: PathBuf,
}

impl Installation {
    /// Looks for both: Java in `JAVA_HOME`, then on `PATH`; ZooKeeper in
    /// `ZOOKEEPER_HOME` (its `lib/*.jar`), then among Debian's jars.
    ///
    /// # Errors
    /// [`Error::JavaMissing`], [`Error::JarsMissing`], [`Error::NotAZookeeperHome`],
    /// each saying what to install or to set.
    pub fn find() -> Result<Self, Error> {
        let home = std::env::var_os("ZOOKEEPER_HOME").filter(|home| !home.is_empty());
        let (class_path, origin) = match home {
            Some(home) => (release(Path::new(&home))?, PathBuf::from(home)),
            None => (debian(Path::new(DEBIAN_JARS))?, PathBuf::from(DEBIAN_JARS)),
        };
        Ok(Self { java: java()?, class_path, origin })
    }

    /// The Java launcher.
    #[must_use]
    pub fn java(&self) -> &Path {
        &self.java
    }

    /// The directory that the jars were found in.
    #[must_use]
    pub fn origin(&self) -> &Path {
        &self.origin
    }

    /// What `java -cp` needs.
    #[must_use]
    pub fn class_path(&self) -> &OsString {
        &self.class_path
    }
}

fn java() -> Result<PathBuf, Error> {
    let java = std::env::var_os("JAVA_HOME")
        .map(|home| Path::new(&home).join("bin/java"))
        .filter(|java| java.is_file())
        .unwrap_or_else(|| PathBuf::from("java"));
    // Debian leaves a dangling alternative behind when a runtime is removed, so
    // only starting it tells. `-version` loads no class and takes some 30 ms.
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

fn release(home: &Path) -> Result<OsString, Error> {
    let lib = home.join("lib");
    let is_release = std::fs::read_dir(&lib).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("zookeeper-") && name.ends_with(".jar")
        })
    });
    if !is_release {
        return Err(Error::NotAZookeeperHome { home: home.to_path_buf() });
    }
    Ok(lib.join("*").into_os_string())
}

fn debian(dir: &Path) -> Result<OsString, Error> {
    let missing: Vec<String> =
        DEBIAN_NEEDED.iter().filter(|jar| !dir.join(jar).is_file()).map(ToString::to_string).collect();
    if !missing.is_empty() {
        return Err(Error::JarsMissing { dir: dir.to_path_buf(), missing });
    }
    let mut class_path = OsString::new();
    let for_tls = DEBIAN_FOR_TLS.into_iter().filter(|jar| dir.join(jar).is_file());
    for jar in DEBIAN_NEEDED.into_iter().chain(for_tls) {
        if !class_path.is_empty() {
            class_path.push(":");
        }
        class_path.push(dir.join(jar));
    }
    Ok(class_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_each_missing_jar_and_the_package() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("zookeeper.jar"), b"").unwrap();
        let said = debian(dir.path()).unwrap_err().to_string();
        assert!(said.contains("zookeeper-jute.jar"), "{said}");
        assert!(!said.contains("zookeeper.jar,"), "{said}");
        assert!(said.contains("apt-get install libzookeeper-java"), "{said}");
    }

    #[test]
    fn refuses_a_home_without_a_release() {
        let dir = tempfile::tempdir().unwrap();
        let said = release(dir.path()).unwrap_err().to_string();
        assert!(said.contains("ZOOKEEPER_HOME is"), "{said}");
    }

    #[test]
    fn takes_all_jars_of_a_release() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("lib")).unwrap();
        std::fs::write(dir.path().join("lib/zookeeper-3.9.3.jar"), b"").unwrap();
        let class_path = release(dir.path()).unwrap();
        assert!(class_path.to_string_lossy().ends_with("/lib/*"));
    }
}
