//! The parent: a client in a separate process.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::client::Kind;
use crate::load::{Load, Sample};

/// The limit, in addition to the time of the order itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ended when dropped.
pub(crate) struct Process {
    kind: Kind,
    child: Child,
    /// The threads of its runtime, before it was connected.
    own_threads: usize,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Returns once it is connected.
    pub(crate) async fn start(kind: Kind, address: &str) -> Result<Self, String> {
        let mut command = match kind {
            Kind::Kazoo => {
                let mut command = Command::new(find_kazoo()?);
                command.arg(script()).arg(address);
                command
            }
            _ => {
                let own = std::env::current_exe().map_err(|error| error.to_string())?;
                let mut command = Command::new(own);
                command.arg("--child").arg(kind.to_string()).arg(address);
                command
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("{kind} can't be started: {error}"))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{kind} was started without pipes"));
        };
        let answers = BufReader::new(answers).lines();
        let mut process = Self { kind, child, own_threads: 0, orders, answers };
        let threads = process.answer(Duration::ZERO).await?;
        process.own_threads = threads.parse().map_err(|error| format!("{kind}: {threads:?}: {error}"))?;
        Ok(process)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) async fn run(&mut self, load: Load, slice: Duration) -> Result<Sample, String> {
        let line = format!("{} {}\n", load.word(), slice.as_millis());
        self.order(&line, slice).await?.parse()
    }

    /// Makes it create so many more sessions, and keep them.
    pub(crate) async fn sessions(&mut self, number: usize) -> Result<(), String> {
        self.order(&format!("sessions {number}\n"), Duration::ZERO).await.map(drop)
    }

    /// Makes it create so many sessions, one after the other. Returns the median milliseconds until a session is
    /// created, and until it has read.
    pub(crate) async fn connect(&mut self, number: usize) -> Result<[f64; 2], String> {
        let said = self.order(&format!("connect {number}\n"), Duration::ZERO).await?;
        let millis: Result<Vec<f64>, _> = said.split_whitespace().map(str::parse).collect();
        let millis = millis.ok().and_then(|millis| millis.try_into().ok());
        millis.ok_or_else(|| format!("{}: not two numbers: {said:?}", self.kind))
    }

    /// The present threads, without those of its runtime.
    pub(crate) fn threads(&self) -> Result<usize, String> {
        threads(self.pid()?).map(|threads| threads.saturating_sub(self.own_threads))
    }

    /// The present bytes of its private memory.
    pub(crate) fn resident(&self) -> Result<f64, String> {
        let path = format!("/proc/{}/status", self.pid()?);
        let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kilobytes.map(|kilobytes| kilobytes * 1024.0).ok_or_else(|| format!("{path} has no VmRSS"))
    }

    fn pid(&self) -> Result<u32, String> {
        self.child.id().ok_or_else(|| format!("{} has ended", self.kind))
    }

    /// Returns when it has ended.
    pub(crate) async fn end(mut self) {
        drop(self.orders);
        if timeout(Duration::from_secs(5), self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }

    async fn order(&mut self, line: &str, takes: Duration) -> Result<String, String> {
        let sent = self.orders.write_all(line.as_bytes()).await;
        sent.map_err(|error| format!("{} takes no orders: {error}", self.kind))?;
        self.answer(takes).await
    }

    async fn answer(&mut self, takes: Duration) -> Result<String, String> {
        let kind = self.kind;
        match timeout(takes + PATIENCE, self.answers.next_line()).await {
            Err(_) => Err(format!("{kind} has not answered within {:?}", takes + PATIENCE)),
            Ok(Err(error)) => Err(format!("{kind}: {error}")),
            Ok(Ok(None)) => Err(format!("{kind} has ended before its time")),
            Ok(Ok(Some(line))) => match line.split_once(' ') {
                Some(("ok", said)) => Ok(said.to_owned()),
                _ => Err(format!("{kind}: {line}")),
            },
        }
    }
}

pub(crate) fn threads(pid: u32) -> Result<usize, String> {
    let path = format!("/proc/{pid}/task");
    std::fs::read_dir(&path).map(Iterator::count).map_err(|error| format!("{path}: {error}"))
}

/// The Python that has kazoo; if there is none, the reason. Only a distribution's own Python finds its kazoo.
pub(crate) fn find_kazoo() -> Result<&'static str, String> {
    let mut reasons = Vec::new();
    for python in ["python3", "/usr/bin/python3"] {
        match std::process::Command::new(python).args(["-c", "import kazoo"]).output() {
            Err(error) => reasons.push(format!("{python} can't be started: {error}")),
            Ok(output) if output.status.success() => return Ok(python),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                reasons.push(format!("{python} says: {}", said.lines().last().unwrap_or("nothing")));
            }
        }
    }
    Err(reasons.join("; "))
}

fn script() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "src", "kazoo_child.py"].iter().collect()
}
