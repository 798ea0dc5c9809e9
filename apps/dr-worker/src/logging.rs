//! The log: on standard error or in a file, for people on a terminal and as JSON for machines.
//!
//! A daemon's log never blocks. Its lines go to a bounded queue, which a thread of its own writes to standard error, so
//! a paused terminal (Ctrl-S) or a pipe without a reader blocks that thread only. Lines that do not fit are dropped and
//! counted. A command writes its log directly, because it must not lose lines.
//!
//! Passwords in URLs are masked, except in the output of jobs, which is passed on unchanged.

mod json;
mod queue;

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    borrow::Cow,
    io::{self, IsTerminal as _, Write},
    panic,
    sync::OnceLock,
    time::Duration,
};

use anstream::{AutoStream, ColorChoice, adapter::strip_str};
use clap::ValueEnum;
use job_guard::RotatingFile;
use metrics::counter;
use tracing::{Level, Metadata, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer as _, Registry,
    filter::{Targets, filter_fn},
    fmt::MakeWriter,
    layer::SubscriberExt as _,
    reload,
    util::SubscriberInitExt as _,
};

use crate::{config::LogConfig, mask::mask};
use json::Labelled;
pub(crate) use json::{identify, set_term};
use queue::{LineSource, Missing, Queue};

/// The target of a client crate that logs a session's password when it connects.
const TELLS_PASSWORD: &str = "zookeeper_async";

/// The target of the lines that jobs, hooks and probes write. They are logged at `info` whatever the level of the
/// worker's own lines is, unless the levels name this target (`warn,job=off`).
pub(crate) const OUTPUT: &str = "job";

/// The target of the line that reports dropped lines. A part of the queue is reserved for it.
const DROPPED: &str = "dr_worker::logging::dropped";

/// The size of the queue, in bytes.
const QUEUED: usize = 1 << 20;

/// The queue of a daemon.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// The levels of a daemon, unless its command line has them.
static LEVELS: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Whether the log goes to a file.
static HAS_FILE: OnceLock<()> = OnceLock::new();

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// The default level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usual {
    /// A daemon logs its actions.
    Daemon,
    /// A command logs only problems.
    Command,
}

/// The levels to be logged, the usual ones if none are given.
fn levels_of(levels: Option<Targets>, usual: Usual) -> Targets {
    let levels = levels.unwrap_or_else(|| match usual {
        Usual::Daemon => Targets::new().with_default(Level::INFO).with_target("zookeeper", Level::WARN),
        Usual::Command => Targets::new().with_default(LevelFilter::ERROR),
    });
    let has_output = levels.iter().any(|(target, _)| target == OUTPUT);
    if has_output { levels } else { levels.with_target(OUTPUT, Level::INFO) }
}

/// Changes the levels of a daemon's log to those of its configuration. Returns whether they are in force: those of the
/// command line go before them.
pub(crate) fn set_levels(levels: Option<Targets>) -> bool {
    LEVELS.get().is_some_and(|handle| handle.reload(levels_of(levels, Usual::Daemon)).is_ok())
}

/// Starts the log. Call it once in a process. Without a `format` a terminal gets text, and all else JSON. `levels` are those
/// of the command line; without them a daemon has those of its configuration, which may change. A daemon writes to the file
/// of its configuration, if there is one.
///
/// # Errors
/// If the thread that writes a daemon's log can't be started.
pub(crate) fn init(
    levels: Option<Targets>,
    usual: Usual,
    format: Option<LogFormat>,
    config: LogConfig,
) -> io::Result<()> {
    let file = config.file;
    let is_terminal = file.is_none() && io::stderr().is_terminal();
    let is_fixed = levels.is_some();
    let (levels, handle) = reload::Layer::new(levels_of(levels.or(config.levels), usual));
    if !is_fixed && usual == Usual::Daemon {
        LEVELS.get_or_init(|| handle);
    }
    // Whatever levels are set.
    let safe = filter_fn(|metadata| {
        !metadata.target().starts_with(TELLS_PASSWORD) || *metadata.level() <= Level::WARN
    });
    let to = match usual {
        Usual::Daemon => {
            let queue = QUEUE.get_or_init(|| Queue::new(QUEUED));
            let report = |missing| match missing {
                Missing::Dropped(lines) => {
                    tracing::warn!(target: DROPPED, lines, "{lines} lines of the log were dropped: it was blocked");
                }
                Missing::Unwritten(lines) => {
                    tracing::warn!(target: DROPPED, lines, "{lines} lines of the log were lost: it could not be written");
                }
            };
            let unwritten = |lines| counter!("dr_log_lines_dropped_total").increment(lines);
            match file {
                Some(file) => {
                    HAS_FILE.get_or_init(|| ());
                    queue.start(LogFile(RotatingFile::new(file)), report, unwritten)?;
                }
                None => queue.start(io::stderr(), report, unwritten)?,
            }
            panic::set_hook(Box::new(log_panic));
            To::Queue(queue)
        }
        Usual::Command => To::Stderr,
    };
    let usual_format = if is_terminal || usual == Usual::Command { LogFormat::Text } else { LogFormat::Json };
    let layer = tracing_subscriber::fmt::layer().with_writer(to);
    let layer = match format.unwrap_or(usual_format) {
        LogFormat::Text => {
            let colours = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
            layer.with_ansi(colours).with_target(false).boxed()
        }
        LogFormat::Json => {
            let form = tracing_subscriber::fmt::format().json().flatten_event(true);
            layer.json().event_format(Labelled(form)).boxed()
        }
    };
    tracing_subscriber::registry().with(layer.with_filter(levels).with_filter(safe)).init();
    Ok(())
}

/// Writes a line to standard error unchanged: in a daemon through the queue of the log. If that goes to a file, the line
/// is written to both.
pub(crate) fn print(line: &str) {
    if HAS_FILE.get().is_some() {
        anstream::eprintln!("{line}");
    }
    match QUEUE.get() {
        Some(queue) => {
            let is_plain =
                HAS_FILE.get().is_some() || AutoStream::choice(&io::stderr()) == ColorChoice::Never;
            let line = if is_plain { strip_str(line).to_string() } else { line.to_owned() };
            queue.push(format!("{line}\n").as_bytes(), LineSource::Own);
        }
        None => anstream::eprintln!("{line}"),
    }
}

/// Waits until all that was logged before is written, but no longer than `within`.
pub(crate) fn flush(within: Duration) {
    if let Some(queue) = QUEUE.get() {
        queue.flush(within);
    }
}

/// Waits until there is room for a job's line. These get at most half of the queue, so that a job that writes endlessly
/// does not displace the worker's own lines.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn room_for_output() {
    if let Some(queue) = QUEUE.get() {
        queue.room().await;
    }
}

/// The line without passwords in URLs, if it has any.
fn masked(line: &[u8]) -> Option<Vec<u8>> {
    match mask(str::from_utf8(line).ok()?) {
        Cow::Borrowed(_) => None,
        Cow::Owned(masked) => Some(masked.into_bytes()),
    }
}

/// The default panic hook writes to standard error, and so may block.
fn log_panic(panic: &panic::PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(backtrace, "{panic}");
}

/// The file of a daemon's log.
struct LogFile(RotatingFile);

impl Write for LogFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.0.write(lines)?;
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The destination of lines.
#[derive(Clone, Copy)]
enum To {
    Queue(&'static Queue),
    Stderr,
}

/// A line, which is written as a whole.
enum Line {
    Queued(&'static Queue, LineSource),
    Direct(io::Stderr),
}

impl<'a> MakeWriter<'a> for To {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        match self {
            To::Queue(queue) => Line::Queued(queue, LineSource::Own),
            To::Stderr => Line::Direct(io::stderr()),
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line {
        match self {
            To::Queue(queue) if metadata.target() == DROPPED => Line::Queued(queue, LineSource::Notice),
            To::Queue(queue) if metadata.target() == OUTPUT => Line::Queued(queue, LineSource::Output),
            _ => self.make_writer(),
        }
    }
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Line::Queued(queue, lane) => {
                let masked = match lane {
                    // The output of a job is passed on unchanged.
                    LineSource::Output => None,
                    LineSource::Own | LineSource::Notice => masked(line),
                };
                if !queue.push(masked.as_deref().unwrap_or(line), *lane) {
                    counter!("dr_log_lines_dropped_total").increment(1);
                }
                Ok(line.len())
            }
            Line::Direct(stderr) => {
                stderr.write_all(masked(line).as_deref().unwrap_or(line))?;
                Ok(line.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
