//! The contenders that open the elections, each in a process of its own.

use std::{path::Path, time::Duration};

use election_bench::Contestant;
use tokio::process::Command;

/// The requested session timeout.
const SESSION_MS: &str = "20000";

/// The contenders that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Elector,
    Queue,
    Single,
    Curator,
}

impl Kind {
    /// The reference for the ratios comes last.
    pub(crate) const ALL: [Self; 4] = [Self::Elector, Self::Queue, Self::Single, Self::Curator];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Elector => "recipe elector",
            Self::Queue => "recipe queue",
            Self::Single => "recipe single",
            Self::Curator => "Curator's LeaderLatch",
        }
    }

    /// The name of the recipe; `None` for Curator.
    pub(crate) const fn recipe(self) -> Option<&'static str> {
        match self {
            Self::Elector => Some("elector"),
            Self::Queue => Some("queue"),
            Self::Single => Some("single"),
            Self::Curator => None,
        }
    }

    fn command(self, connect: &str, elections: usize, driver: &str, classes: &Path) -> Command {
        let number = elections.to_string();
        let Some(recipe) = self.recipe() else {
            let mut command = Command::new("java");
            command.args(["-XX:+UseSerialGC", "-cp", &class_path(classes), "Latches"]);
            command.args([connect, "/many", SESSION_MS, &number]);
            return command;
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_contestant"));
        command.args(["--connect", connect, "--path", "/many", "--session", SESSION_MS, "--n", &number]);
        command.args(["--mode", "many", "--recipe", recipe, "--driver", driver]);
        command
    }
}

/// Starts it, connected and with no election yet.
pub(crate) async fn start(
    kind: Kind,
    connect: &str,
    elections: usize,
    driver: &str,
    classes: &Path,
) -> Result<Contestant, String> {
    let mut contestant = Contestant::start(kind.name(), kind.command(connect, elections, driver, classes))?;
    contestant.hear("CONNECTED").await?;
    Ok(contestant)
}

/// Opens the elections. Returns how long it takes until all have a leader.
pub(crate) async fn open(contestant: &mut Contestant, elections: usize) -> Result<Duration, String> {
    contestant.say("go").await?;
    let begun = contestant.hear("START").await?.at;
    let mut last = begun;
    let mut led = 0;
    while led < elections {
        let line = contestant.next().await?;
        match line.word.as_str() {
            "LEADER" => {
                led += 1;
                last = last.max(line.at);
            }
            "LOST" => return Err(format!("a leadership was lost: {line:?}")),
            _ => {}
        }
    }
    Ok(last.since(begun))
}

/// The memory that is the process's own, in bytes.
pub(crate) fn resident(contestant: &Contestant) -> Result<u64, String> {
    let pid = contestant.pid().ok_or("the contestant has ended")?;
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1024).ok_or_else(|| format!("{path} has no VmRSS"))
}

/// The jars of Debian that Curator's recipes need.
const JARS: [&str; 14] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "zookeeper",
    "zookeeper-jute",
    "guava",
    "slf4j-api",
    "slf4j-nop",
    "netty-buffer",
    "netty-common",
    "netty-handler",
    "netty-transport",
    "netty-codec",
    "netty-resolver",
];

fn class_path(classes: &Path) -> String {
    let jars: Vec<_> = JARS.iter().map(|jar| format!("/usr/share/java/{jar}.jar")).collect();
    format!("{}:{}", classes.display(), jars.join(":"))
}

/// Compiles Curator's program, or returns why that is not possible.
pub(crate) fn compile_curator(classes: &Path) -> Result<(), String> {
    let hint = "on Debian: apt-get install default-jdk-headless libcurator-recipes-java";
    if !Path::new("/usr/share/java/curator-recipes.jar").exists() {
        return Err(format!("Curator's jars are not in /usr/share/java; {hint}"));
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/elections/Latches.java");
    let compiled = std::process::Command::new("javac")
        .args(["-cp", &class_path(classes), "-d"])
        .args([classes.as_os_str(), source.as_ref()])
        .output();
    match compiled {
        Err(error) => Err(format!("javac: {error}; {hint}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("javac: {}", String::from_utf8_lossy(&output.stderr))),
    }
}
