//! The job: acts, and writes to the store, and records both.
//!
//! ```text
//! chaos-job --history DIR --store ADDRESS --ends prompt|slow|child
//! ```

use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use boot_time::BootTime;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use robustness::history::{Answer, Call, Event, Leadership, Recorder, STALE};

/// Set for the process that a job leaves.
const CHILD: &str = "CHAOS_CHILD";
/// The time between two acts.
const PACE: Duration = Duration::from_millis(20);
/// The time between two operations of the store.
const WRITES_EACH: Duration = Duration::from_millis(60);
/// How long a slow job acts after SIGTERM: less than its stop timeout.
const SLOW: Duration = Duration::from_millis(700);
/// How long the store may take.
const PATIENCE: Duration = Duration::from_secs(1);

fn now() -> u64 {
    u64::try_from(BootTime::now().as_duration().as_nanos()).unwrap_or(u64::MAX)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [_, history, _, store, _, ends] = &words[..] else {
        return Err("chaos-job --history DIR --store ADDRESS --ends prompt|slow|child".into());
    };
    let store: SocketAddr = store.parse()?;
    let number = |name: &str| -> Result<u64, Box<dyn Error>> { Ok(std::env::var(name)?.parse()?) };
    let leadership = Leadership {
        job: std::env::var("DR_JOB")?,
        slot: number("DR_SLOT")?,
        member: std::env::var("DR_MEMBER")?,
        term: number("DR_TERM")?,
        token: number("DR_FENCING_TOKEN")?,
    };
    // Blocked, so that it is polled between two acts.
    let mut term = SigSet::empty();
    term.add(Signal::SIGTERM);
    term.thread_block()?;
    let signals = SignalFd::with_flags(&term, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;

    let by = format!("{} {} {}", leadership.member, std::process::id(), now());
    let file = Path::new(history).join(format!("{}.jsonl", by.replace(' ', "-")));
    let recorder = Arc::new(Recorder::create(&file, &by)?);
    let is_child = std::env::var_os(CHILD).is_some();
    if !is_child {
        recorder.record(now(), Event::Lead(leadership.clone()))?;
    }
    let leaves_a_child = ends == "child" && !is_child;
    if leaves_a_child {
        // In a group of its own: signals to the job's group do not reach it.
        Command::new(std::env::current_exe()?).args(&words).env(CHILD, "").process_group(0).spawn()?;
    }
    let writer = Arc::clone(&recorder);
    let (job, token) = (leadership.job.clone(), leadership.token);
    thread::spawn(move || {
        loop {
            // It tries again: the store was not reached, or did not answer.
            let _ = write_on(&writer, store, &job, token);
            thread::sleep(WRITES_EACH);
        }
    });
    let mut last = None;
    while last.is_none_or(|last| now() < last) {
        if last.is_none() && !is_child && matches!(signals.read_signal(), Ok(Some(_))) {
            last = Some(now() + if ends == "slow" { u64::try_from(SLOW.as_nanos())? } else { 0 });
            continue;
        }
        recorder.record(now(), Event::Act(leadership.clone()))?;
        thread::sleep(PACE);
    }
    if !leaves_a_child {
        recorder.record(now(), Event::End(leadership))?;
    }
    Ok(())
}

/// Claims its token, and then writes and reads by one connection, until that fails.
fn write_on(recorder: &Recorder, store: SocketAddr, job: &str, token: u64) -> io::Result<()> {
    let stream = TcpStream::connect_timeout(&store, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(&stream).lines();
    let mut ask = |call: Call, line: &str| -> io::Result<()> {
        let op = recorder.next_op();
        recorder.record(now(), Event::Invoke { op, call })?;
        let answered = writeln!(&mut &stream, "{line}")
            .and_then(|()| answers.next().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into())));
        let event = match &answered {
            Ok(answer) if answer == "stale" => Event::Fail { op, reason: STALE.to_owned() },
            Ok(answer) => match answer.strip_prefix("ok ").and_then(|count| count.parse().ok()) {
                Some(count) => Event::Ok { op, answer: Answer::Count { count } },
                None => Event::Ok { op, answer: Answer::Done },
            },
            Err(error) => Event::Unknown { op, reason: error.to_string() },
        };
        recorder.record(now(), event)?;
        answered.map(drop)
    };
    ask(Call::Claim { store: job.to_owned(), token }, &format!("claim {token}"))?;
    loop {
        let value = fastrand::u64(..);
        ask(Call::Write { store: job.to_owned(), token, value }, &format!("write {token} {value}"))?;
        thread::sleep(WRITES_EACH);
        if fastrand::u8(..5) == 0 {
            ask(Call::Read { store: job.to_owned() }, "read")?;
        }
    }
}
