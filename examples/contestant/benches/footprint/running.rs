//! A process of a contender.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use election_bench::Usage;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, Command},
    sync::oneshot,
    time::timeout,
};

/// The longest wait for a leadership, and for an end.
const PATIENCE: Duration = Duration::from_secs(120);

/// How a process is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By SIGTERM.
    Gently,
    /// By SIGKILL.
    Hard,
}

/// A command, and how it is ended.
pub(crate) struct Start {
    pub(crate) command: Command,
    pub(crate) end: End,
}

/// The process. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    begun: Instant,
    end: End,
    leads: oneshot::Receiver<Result<Instant, String>>,
}

impl Running {
    /// Starts it. It leads once it prints a line that contains `leads`.
    pub(crate) async fn start(start: Start, leads: &'static str) -> Result<Self, String> {
        let Start { mut command, end } = start;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let begun = Instant::now();
        let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        if let Some(input) = &mut child.stdin {
            // Curator's program waits for a line. The others do not read.
            let _ = input.write_all(b"go\n").await;
        }
        let (tell, told) = oneshot::channel();
        let outputs = child.stdout.take().zip(child.stderr.take()).ok_or("started without pipes")?;
        tokio::spawn(async move {
            let (mut out, mut err) = (BufReader::new(outputs.0).lines(), BufReader::new(outputs.1).lines());
            let (mut tell, mut printed) = (Some(tell), String::new());
            // To the end, so that the process never waits for a reader.
            loop {
                let line = tokio::select! {
                    Ok(Some(line)) = out.next_line() => line,
                    Ok(Some(line)) = err.next_line() => line,
                    else => break,
                };
                if line.contains(leads)
                    && let Some(tell) = tell.take()
                {
                    let _ = tell.send(Ok(Instant::now()));
                } else if tell.is_some() {
                    printed.push_str(&line);
                    printed.push('\n');
                }
            }
            if let Some(tell) = tell {
                let _ = tell.send(Err(format!("it has ended before it led:\n{printed}")));
            }
        });
        Ok(Self { child, begun, end, leads: told })
    }

    /// The time from its start until it led.
    pub(crate) async fn leads_after(&mut self) -> Result<Duration, String> {
        match timeout(PATIENCE, &mut self.leads).await {
            Ok(Ok(at)) => Ok(at?.duration_since(self.begun)),
            _ => Err(format!("it does not lead after {PATIENCE:?}")),
        }
    }

    /// What it uses, with its children of that name.
    pub(crate) fn usage(&self, helper: Option<&str>) -> Result<Usage, String> {
        Usage::of(self.child.id().ok_or("it has ended")?, helper)
    }

    pub(crate) async fn end(mut self) -> Result<(), String> {
        match (self.end, self.child.id()) {
            (End::Gently, Some(pid)) => {
                kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM).map_err(|error| error.to_string())?;
            }
            _ => self.child.start_kill().map_err(|error| error.to_string())?,
        }
        let ended = timeout(PATIENCE, self.child.wait()).await;
        ended
            .map_err(|_| format!("it does not end within {PATIENCE:?}"))?
            .map_err(|error| error.to_string())?;
        Ok(())
    }
}
