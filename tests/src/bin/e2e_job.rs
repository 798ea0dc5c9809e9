//! A job that stamps the boot clock into a journal while it acts, with options for faults:
//!
//! ```text
//! e2e-job --journal FILE [--ignore-term] [--stop-takes MS] [--offspring] [--listen ADDRESS]
//! ```
//!
//! `--listen` accepts connections at this address, and answers HTTP, as a service would.
//!
//! Rehearsed (`DR_REHEARSAL`), it listens and waits for SIGTERM, and writes nothing.
//!
//! `--offspring` starts three more processes that act and ignore SIGTERM: a child, a child with its own session, and
//! one that was forked twice and has its own session.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use e2e::{Event, PACE, Stamp};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::setsid;
use zk_session::BootTime;

/// The limit for a client's question.
const ASKS_WITHIN: Duration = Duration::from_millis(200);

#[derive(Default)]
struct Options {
    journal: PathBuf,
    ignore_term: bool,
    stop_takes: Duration,
    offspring: bool,
    listen: Option<String>,
    /// This process is offspring.
    born: Option<Born>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Born {
    /// Into the job's process group.
    Plain,
    /// With its own session.
    Apart,
    /// Forks again and ends.
    Midwife,
}

const BIRTHS: [(Born, &str); 3] =
    [(Born::Plain, "--born-plain"), (Born::Apart, "--born-apart"), (Born::Midwife, "--born-midwife")];

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("e2e-job: {wrong}");
            return ExitCode::from(64);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("e2e-job: {error}");
            ExitCode::from(70)
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--journal" => options.journal = value()?.into(),
            "--ignore-term" => options.ignore_term = true,
            "--stop-takes" => {
                let ms = value()?;
                options.stop_takes = Duration::from_millis(ms.parse().map_err(|e| format!("{ms:?}: {e}"))?);
            }
            "--offspring" => options.offspring = true,
            "--listen" => options.listen = Some(value()?),
            other => match BIRTHS.iter().find(|(_, word)| *word == other) {
                Some((born, _)) => options.born = Some(*born),
                None => return Err(format!("no such option: {other}")),
            },
        }
    }
    if options.journal.as_os_str().is_empty() {
        return Err("--journal FILE is missing".to_owned());
    }
    Ok(options)
}

fn run(options: &Options) -> io::Result<()> {
    match options.born {
        Some(Born::Midwife) => return give_birth(options, Born::Apart),
        Some(Born::Apart) => {
            setsid()?;
        }
        Some(Born::Plain) | None => {}
    }
    // Blocked, so that it is polled between two acts; a job that ignores it never does.
    let mut term = SigSet::empty();
    term.add(Signal::SIGTERM);
    term.thread_block()?;
    let signals = SignalFd::with_flags(&term, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;

    if let Some(address) = &options.listen {
        let listener = TcpListener::bind(address)?;
        std::thread::spawn(move || {
            for client in listener.incoming() {
                // The client may have gone.
                let _ = client.and_then(answer);
            }
        });
    }
    if std::env::var_os("DR_REHEARSAL").is_some() {
        while signals.read_signal()?.is_none() {
            std::thread::sleep(PACE);
        }
        return Ok(());
    }
    let mut stamper = Stamper::open(options)?;
    stamper.stamp(Event::Begin)?;
    if options.offspring {
        for (born, _) in BIRTHS {
            give_birth(options, born)?;
        }
    }
    let mut end_at = None;
    loop {
        if end_at.is_none() && matches!(signals.read_signal(), Ok(Some(_))) {
            stamper.stamp(Event::Asked)?;
            if !options.ignore_term {
                end_at = Some(BootTime::now() + options.stop_takes);
            }
        }
        if end_at.is_some_and(|at| BootTime::now() >= at) {
            return stamper.stamp(Event::End);
        }
        std::thread::sleep(PACE);
        stamper.stamp(Event::Act)?;
    }
}

/// Answers a client that asks; others want to see that a connection is accepted.
fn answer(mut client: TcpStream) -> io::Result<()> {
    client.set_read_timeout(Some(ASKS_WITHIN))?;
    if client.read(&mut [0; 4096])? > 0 {
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    }
    Ok(())
}

/// Starts one more process of the job, which ignores SIGTERM. It is never waited for: the tests check who reaps and
/// ends it.
#[allow(clippy::zombie_processes, reason = "the guard of the job reaps its children")]
fn give_birth(options: &Options, born: Born) -> io::Result<()> {
    let word = BIRTHS.iter().find(|(known, _)| *known == born).map_or("", |(_, word)| word);
    let this = std::env::current_exe()?;
    Command::new(this).arg("--journal").arg(&options.journal).args(["--ignore-term", word]).spawn()?;
    Ok(())
}

struct Stamper {
    file: File,
    is_main: bool,
    job: String,
    slot: usize,
    member: String,
    term: u64,
    token: u64,
}

impl Stamper {
    fn open(options: &Options) -> io::Result<Self> {
        let variable = |name: &str| {
            std::env::var(name)
                .map_err(|error| io::Error::other(format!("{name} in the environment: {error}")))
        };
        let number = |name: &str| {
            let text = variable(name)?;
            text.parse().map_err(|error| io::Error::other(format!("{name}={text}: {error}")))
        };
        Ok(Self {
            file: OpenOptions::new().create(true).append(true).open(&options.journal)?,
            is_main: options.born.is_none(),
            job: variable("DR_JOB")?,
            slot: variable("DR_SLOT")?.parse().map_err(io::Error::other)?,
            member: variable("DR_MEMBER")?,
            term: number("DR_TERM")?,
            token: number("DR_FENCING_TOKEN")?,
        })
    }

    /// One line in one write, so lines of several processes never mix.
    fn stamp(&mut self, event: Event) -> io::Result<()> {
        let stamp = Stamp {
            at: BootTime::now(),
            event,
            pid: std::process::id(),
            is_main: self.is_main,
            job: self.job.clone(),
            slot: self.slot,
            member: self.member.clone(),
            term: self.term,
            token: self.token,
        };
        self.file.write_all(format!("{stamp}\n").as_bytes())
    }
}
