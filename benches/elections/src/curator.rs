//! Curator's program `Latches`, with the jars of Debian.

use std::path::{Path, PathBuf};
use std::process;

use tokio::process::Command;
use zk_testkit::curator_jars;

/// Where Debian has jars.
const JAVA: &str = "/usr/share/java";

/// The compiled program.
#[derive(Clone, Debug)]
pub struct Curator {
    classes: PathBuf,
}

impl Curator {
    /// Compiles it into this directory.
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn compile(classes: &Path) -> Result<Self, String> {
        let hint = "on Debian: apt-get install default-jdk-headless libcurator-recipes-java";
        if !curator_jars()[0].exists() {
            return Err(format!("Curator's jars are not in {JAVA}; {hint}"));
        }
        let curator = Self { classes: classes.to_owned() };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/Latches.java");
        let compiled = process::Command::new("javac")
            .args(["-cp", &curator.class_path(), "-d"])
            .args([classes.as_os_str(), source.as_ref()])
            .output();
        match compiled {
            Err(error) => Err(format!("javac: {error}; {hint}")),
            Ok(output) if output.status.success() => Ok(curator),
            Ok(output) => Err(format!("javac: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// Latches of elections below this path, on one client. They begin with a line on standard input.
    #[must_use]
    pub fn command(&self, connect: &str, path: &str, session_ms: &str, elections: usize) -> Command {
        let mut command = Command::new("java");
        command.args(["-XX:+UseSerialGC", "-cp", &self.class_path(), "Latches"]);
        command.args([connect, path, session_ms, &elections.to_string()]);
        command
    }

    /// Curator's version, if Debian's file names have it.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let names = std::fs::read_dir(JAVA).ok()?.flatten().map(|entry| entry.file_name());
        let mut names = names.filter_map(|name| name.into_string().ok());
        names.find_map(|name| {
            let version = name.strip_prefix("curator-recipes-")?.strip_suffix(".jar")?;
            Some(version.to_owned())
        })
    }

    /// The size of its jars and of those that it needs, in bytes. Java itself is not counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        curator_jars().iter().filter_map(|jar| Some(jar.metadata().ok()?.len())).sum()
    }

    fn class_path(&self) -> String {
        let jars: Vec<_> = curator_jars().iter().map(|jar| jar.display().to_string()).collect();
        format!("{}:{}", self.classes.display(), jars.join(":"))
    }
}
