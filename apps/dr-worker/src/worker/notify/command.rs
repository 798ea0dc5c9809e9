//! Runs a command for a notification: its JSON on standard input, no shell.
//!
//! It needs no guard: it is no part of a job, and may outlive a lease.

use std::{io, process::Stdio, time::Duration};

use nix::sys::signal::{Signal, killpg};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
};

use super::notification::Notification;
use crate::config::NotifyCommand;

/// How much of its standard error is kept.
const TAIL: usize = 2048;

/// How long its standard error may stay open after its end, in another process that it started.
const DRAIN: Duration = Duration::from_millis(200);

/// What a service manager gives to the worker alone.
const OURS: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// Runs it, and kills it and its process group after its timeout.
///
/// # Errors
/// Why it has failed, with the end of its standard error.
pub(crate) async fn run(command: &NotifyCommand, notification: &Notification) -> Result<(), String> {
    let (program, arguments) = command.command.split_first().ok_or("it names no program")?;
    let mut program = Command::new(program);
    for name in OURS {
        program.env_remove(name);
    }
    program.args(arguments).envs(&notification.env).process_group(0).kill_on_drop(true);
    program.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let (mut child, group) =
        job_guard::start_child(&mut program).map_err(|why| format!("it can't be started: {why}"))?;
    let mut stderr = Vec::new();
    let ended =
        tokio::time::timeout(command.timeout, watch(&mut child, &notification.body, &mut stderr)).await;
    if ended.is_err() {
        // What it has started ends with it.
        let _ = killpg(group, Signal::SIGKILL);
        let _ = child.wait().await;
    }
    let said = String::from_utf8_lossy(&stderr);
    let said = said.trim_end();
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("it ended with {status}{said}")),
        Ok(Err(why)) => Err(format!("its end was not seen: {why}")),
        Err(_) => Err(format!(
            "it did not end within {} and was killed{said}",
            humantime::format_duration(command.timeout)
        )),
    }
}

async fn watch(child: &mut Child, body: &str, said: &mut Vec<u8>) -> io::Result<std::process::ExitStatus> {
    let (mut stdin, mut stderr) = (child.stdin.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin.take() {
            // It need not read it.
            let _ = stdin.write_all(body.as_bytes()).await;
        }
    };
    let read = async {
        let mut buffer = [0; 1024];
        while let Some(stderr) = &mut stderr {
            match stderr.read(&mut buffer).await {
                Ok(count @ 1..) => {
                    said.extend_from_slice(&buffer[..count]);
                    let excess = said.len().saturating_sub(TAIL);
                    said.drain(..excess);
                }
                Ok(0) | Err(_) => return,
            }
        }
    };
    let mut read = std::pin::pin!(read);
    let mut is_read = false;
    let mut write = std::pin::pin!(write);
    let mut is_written = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            () = &mut read, if !is_read => is_read = true,
            () = &mut write, if !is_written => is_written = true,
        }
    };
    if !is_read {
        let _ = tokio::time::timeout(DRAIN, read).await;
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use nix::unistd::Pid;

    use super::*;

    async fn ran(script: &str, timeout: Duration) -> Result<(), String> {
        let command = NotifyCommand {
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            events: Vec::new(),
            timeout,
        };
        let env = [("DR_EVENT".to_owned(), "test".to_owned())].into();
        let notification =
            Notification { id: "1".to_owned(), event: "test", body: "{\"a\":1}".to_owned(), env };
        run(&command, &notification).await
    }

    #[tokio::test]
    async fn a_command_gets_the_json_and_the_environment() {
        let long = Duration::from_secs(30);
        let script =
            "test \"$DR_EVENT\" = test && test \"$(cat)\" = '{\"a\":1}' && test -z \"${NOTIFY_SOCKET+set}\"";
        assert_eq!(ran(script, long).await, Ok(()));
        let failed = ran("echo no such pager >&2; exit 3", long).await.unwrap_err();
        assert!(failed.contains("exit status: 3: no such pager"), "{failed}");
        // What it started holds its standard error, and is not waited for.
        assert_eq!(ran("sleep 20 & exit 0", long).await, Ok(()));
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_killed_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let failed = ran(&script, Duration::from_secs(3)).await.unwrap_err();
        assert!(failed.contains("did not end within 3s and was killed"), "{failed}");
        let pid = std::fs::read_to_string(&file).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap());
        let by = std::time::Instant::now() + Duration::from_secs(10);
        let is_there = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        while is_there() {
            assert!(std::time::Instant::now() < by, "process {pid} is left");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
