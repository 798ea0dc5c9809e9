//! Members of one of our elections: `contestant`.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::members::Members;

/// The longest wait for one more line, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Killed when dropped.
pub(crate) struct Ours {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    leader: usize,
}

impl Ours {
    pub(crate) async fn start(
        recipe: &str,
        witness: bool,
        connect: &str,
        number: usize,
    ) -> Result<Self, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_contestant"));
        command.args(["--connect", connect, "--path", "/herd/election", "--session", "40000"]);
        command.args(["--n", &number.to_string(), "--mode", "cand", "--recipe", recipe]);
        if witness {
            command.arg("--witness");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("contestant can't be started: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("contestant was started without pipes".to_owned());
        };
        let mut ours = Self { child, input, lines: BufReader::new(output).lines(), leader: 0 };
        ours.leader = ours.hear("LEADER").await?;
        Ok(ours)
    }

    async fn say(&mut self, words: &str) -> Result<(), String> {
        let said = self.input.write_all(format!("{words}\n").as_bytes()).await;
        said.map_err(|error| format!("contestant: {error}"))
    }

    /// Waits for a line and skips all others. Returns its candidate.
    async fn hear(&mut self, wanted: &str) -> Result<usize, String> {
        loop {
            let line = match timeout(PATIENCE, self.lines.next_line()).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) => return Err("contestant has ended before its time".to_owned()),
                Ok(Err(error)) => return Err(format!("contestant: {error}")),
                Err(_) => return Err(format!("contestant does not say {wanted} within {PATIENCE:?}")),
            };
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["ERR", ..] => return Err(format!("contestant: {line}")),
                [word, candidate, _] if word == wanted => {
                    return candidate.parse().map_err(|error| format!("contestant: {line}: {error}"));
                }
                _ => {}
            }
        }
    }
}

impl Members for Ours {
    async fn release(&mut self) -> Result<usize, String> {
        let old = self.leader;
        self.say(&format!("release {old}")).await?;
        self.leader = self.hear("LEADER").await?;
        Ok(old)
    }

    async fn rejoin(&mut self, member: usize) -> Result<(), String> {
        self.say(&format!("rejoin {member}")).await
    }

    async fn end(mut self) {
        let _ = self.child.kill().await;
    }
}
