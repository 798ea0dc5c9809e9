//! The contenders that open the elections, each in a process of its own.

use std::{path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// The longest wait for one more line, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

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

    fn command(self, connect: &str, elections: usize, classes: &Path) -> Command {
        let number = elections.to_string();
        let recipe = match self {
            Self::Elector => "elector",
            Self::Queue => "queue",
            Self::Single => "single",
            Self::Curator => {
                let mut command = Command::new("java");
                command.args(["-XX:+UseSerialGC", "-cp", &class_path(classes), "Latches"]);
                command.args([connect, "/many", SESSION_MS, &number]);
                return command;
            }
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_contestant"));
        command.args(["--connect", connect, "--path", "/many", "--session", SESSION_MS, "--n", &number]);
        command.args(["--mode", "many", "--recipe", recipe]);
        command
    }
}

/// Killed when dropped.
pub(crate) struct Contender {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Contender {
    pub(crate) async fn start(
        kind: Kind,
        connect: &str,
        elections: usize,
        classes: &Path,
    ) -> Result<Self, String> {
        let mut command = kind.command(connect, elections, classes);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let name = kind.name();
        let mut child = command.spawn().map_err(|error| format!("{name} can't be started: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{name} was started without pipes"));
        };
        let mut contender = Self { name, child, input, lines: BufReader::new(output).lines() };
        contender.hear("CONNECTED").await?;
        Ok(contender)
    }

    /// Opens the elections. Returns how long it takes until all have a leader.
    pub(crate) async fn open(&mut self, elections: usize) -> Result<Duration, String> {
        let sent = self.input.write_all(b"go\n").await;
        sent.map_err(|error| format!("{}: {error}", self.name))?;
        let begun = self.hear("START").await?;
        let mut last = begun;
        let mut led = 0;
        while led < elections {
            let (word, at) = self.line().await?;
            match word.as_str() {
                "LEADER" => {
                    led += 1;
                    last = last.max(at);
                }
                "LOST" | "ERR" => return Err(format!("{} says {word}", self.name)),
                _ => {}
            }
        }
        Ok(Duration::from_nanos(last.saturating_sub(begun)))
    }

    /// The memory that is the process's own, in bytes.
    pub(crate) fn resident(&self) -> Result<u64, String> {
        let pid = self.child.id().ok_or_else(|| format!("{} has ended", self.name))?;
        let path = format!("/proc/{pid}/status");
        let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.map(|kilobytes| kilobytes * 1024).ok_or_else(|| format!("{path} has no VmRSS"))
    }

    pub(crate) async fn kill(mut self) {
        let _ = self.child.kill().await;
    }

    async fn hear(&mut self, wanted: &str) -> Result<u64, String> {
        let (word, at) = self.line().await?;
        if word == wanted { Ok(at) } else { Err(format!("{} says {word} instead of {wanted}", self.name)) }
    }

    /// The first word of the next line, and its time in nanoseconds.
    async fn line(&mut self) -> Result<(String, u64), String> {
        let line = match timeout(PATIENCE, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => return Err(format!("{} has ended before its time", self.name)),
            Ok(Err(error)) => return Err(format!("{}: {error}", self.name)),
            Err(_) => return Err(format!("{} says nothing for {PATIENCE:?}", self.name)),
        };
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default().to_owned();
        if word == "ERR" {
            return Err(format!("{}: {line}", self.name));
        }
        let at = words.next_back().and_then(|at| at.parse().ok()).unwrap_or(0);
        Ok((word, at))
    }
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
