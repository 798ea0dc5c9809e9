//! The last output of each job, kept in the state directory wherever the output goes.
//!
//! One thread writes all of it, so a slow disk blocks neither a job nor the worker. Lines wait in memory; what is more
//! than a file may hold is dropped from its beginning, as it would be from the file.

use std::{
    collections::{HashMap, VecDeque},
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufRead as _, BufReader, ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Condvar, LazyLock, Mutex, MutexGuard, Once, PoisonError},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use crate::{
    guard::frames::Stream,
    job::{
        guards::Guards,
        lock::{file_name, lock_path},
    },
    own_file,
};

/// The size of a file. The present one and the one before are kept.
const SIZE: usize = 128 * 1024;

/// How much is kept of a line, so that long ones do not displace all others.
const LONGEST: usize = 2048;

/// The pause between two writes, so that a job that writes endlessly costs little.
const PAUSE: Duration = Duration::from_millis(50);

/// A line, and where it is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLine {
    /// Milliseconds since 1970.
    #[serde(rename = "t")]
    pub at_ms: u64,
    /// `None`: this crate, about a start or an end.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Stream>,
    /// The line; a long one is cut.
    #[serde(rename = "l")]
    pub line: String,
}

/// The files of the jobs of one member.
#[derive(Clone, Debug)]
pub struct KeptOutput {
    dir: PathBuf,
}

impl KeptOutput {
    /// The most that is kept of a job, in bytes.
    pub const MOST: usize = 2 * SIZE;

    /// Those of `member`.
    pub fn of(state_dir: &Path, member: &str) -> Self {
        Self::beside(&lock_path(state_dir, member))
    }

    /// Those of the member with this lock.
    fn beside(lock: &Path) -> Self {
        Self { dir: lock.with_extension("output") }
    }

    /// Those of the worker with these guards, if it has a lock.
    pub(crate) fn of_guards(guards: &Guards) -> Option<Self> {
        guards.lock.as_ref().map(|lock| Self::beside(lock.path()))
    }

    fn file(&self, job: &str) -> PathBuf {
        self.dir.join(format!("{}.jsonl", file_name(job)))
    }

    /// The names of jobs that begin like this, and of which lines are kept, in their order.
    ///
    /// # Errors
    /// If the directory can't be read, with its path.
    pub fn names_with(&self, beginning: &str) -> io::Result<Vec<String>> {
        let failed =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.dir.display()));
        let mut names = Vec::new();
        for entry in own_file::existing(fs::read_dir(&self.dir)).map_err(failed)?.into_iter().flatten() {
            let file = entry.map_err(failed)?.file_name();
            let rest = file.to_str().and_then(|name| name.strip_prefix(&*file_name(beginning)));
            // A file without another suffix, so the name ends without one that had to be escaped.
            let rest =
                rest.and_then(|rest| rest.strip_suffix(".jsonl")).filter(|rest| !rest.contains(['.', '%']));
            names.extend(rest.map(|rest| format!("{beginning}{rest}")));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Adds a line. Does not block.
    pub(crate) fn add(&self, job: &str, stream: Option<Stream>, line: &[u8]) {
        let mut kept = String::from_utf8_lossy(&line[..line.len().min(LONGEST)]).into_owned();
        if line.len() > LONGEST {
            kept.push_str("...");
        }
        let line = kept;
        WRITER.add(self.file(job), &KeptLine { at_ms: now_ms(), stream, line });
    }

    /// What is kept of a job, to be followed.
    ///
    /// # Errors
    /// If the files can't be read, with the path.
    pub fn follow(&self, job: &str) -> io::Result<Followed> {
        let path = self.file(job);
        let file = open(&previous(&path))?.map(BufReader::new);
        Ok(Followed { path, file, part: Vec::new() })
    }

    /// The last `count` lines of a job, oldest first; `None` if there is no file of it.
    ///
    /// # Errors
    /// If the files can't be read, with the path.
    pub fn last(&self, job: &str, count: usize) -> io::Result<Option<Vec<KeptLine>>> {
        let path = self.file(job);
        let (mut present, before) = (open(&path)?, open(&previous(&path))?);
        if let (Some(one), Some(other)) = (&present, &before)
            && one.metadata()?.ino() == other.metadata()?.ino()
        {
            // It was renamed in between.
            present = open(&path)?;
        }
        if present.is_none() && before.is_none() {
            return Ok(None);
        }
        let mut last = VecDeque::new();
        for file in [before, present].into_iter().flatten() {
            for line in BufReader::new(file).split(b'\n') {
                // A line that a full disk has cut.
                let Ok(line) = serde_json::from_slice(&line?) else { continue };
                last.push_back(line);
                if last.len() > count {
                    last.pop_front();
                }
            }
        }
        Ok(Some(last.into()))
    }
}

/// Reads what is kept of a job's output, and what is added then.
pub struct Followed {
    path: PathBuf,
    /// The file that is read; `None` before there is one.
    file: Option<BufReader<File>>,
    /// The beginning of a line whose end is not written yet.
    part: Vec<u8>,
}

impl Followed {
    /// The lines that were not returned before. The first time these are all that are kept.
    ///
    /// # Errors
    /// If the files can't be read, with the path.
    pub fn more(&mut self) -> io::Result<Vec<KeptLine>> {
        let mut lines = Vec::new();
        loop {
            let present = open(&self.path)?;
            let Some(file) = &mut self.file else {
                let Some(present) = present else { return Ok(lines) };
                self.file = Some(BufReader::new(present));
                continue;
            };
            let is_renamed = match &present {
                Some(present) => present.metadata()?.ino() != file.get_ref().metadata()?.ino(),
                None => false,
            };
            while file.read_until(b'\n', &mut self.part)? > 0 && self.part.ends_with(b"\n") {
                // A line that a full disk has cut is left out.
                lines.extend(serde_json::from_slice(&self.part).ok());
                self.part.clear();
            }
            if !is_renamed {
                return Ok(lines);
            }
            // Another file has followed before this one was read to its end.
            self.part.clear();
            self.file = present.map(BufReader::new);
        }
    }
}

fn open(path: &Path) -> io::Result<Option<File>> {
    own_file::existing(own_file::open_own(path, OpenOptions::new().read(true)))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn previous(path: &Path) -> PathBuf {
    path.with_extension("1.jsonl")
}

/// Waits until all lines that were added before are written, but no longer than `within`.
pub(super) fn flush(within: Duration) {
    let state = WRITER.lock();
    let unwritten = |state: &mut KeptLines| state.is_writing || !state.waiting.is_empty();
    let _ = WRITER.written.wait_timeout_while(state, within, unwritten);
}

static WRITER: LazyLock<KeptWriter> = LazyLock::new(|| KeptWriter {
    state: Mutex::default(),
    filled: Condvar::new(),
    written: Condvar::new(),
    started: Once::new(),
});

struct KeptWriter {
    state: Mutex<KeptLines>,
    filled: Condvar,
    written: Condvar,
    started: Once,
}

#[derive(Default)]
struct KeptLines {
    waiting: HashMap<PathBuf, Vec<u8>>,
    is_writing: bool,
}

impl KeptWriter {
    fn add(&'static self, file: PathBuf, line: &KeptLine) {
        self.started.call_once(|| {
            let started = thread::Builder::new().name("kept-output".to_owned()).spawn(|| self.run());
            if let Err(error) = started {
                tracing::warn!(%error, "the output of jobs is not kept for `logs`: can't start a thread");
            }
        });
        let mut state = self.lock();
        let waiting = state.waiting.entry(file).or_default();
        // Writing to a vector does not fail.
        let _ = serde_json::to_writer(&mut *waiting, line);
        waiting.push(b'\n');
        if waiting.len() > 2 * SIZE {
            keep_end(waiting);
        }
        self.filled.notify_one();
    }

    fn run(&self) {
        let mut is_failing = false;
        loop {
            let state = self.lock();
            let mut state = self
                .filled
                .wait_while(state, |state| state.waiting.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            let waiting = std::mem::take(&mut state.waiting);
            state.is_writing = true;
            drop(state);
            for (path, mut lines) in waiting {
                keep_end(&mut lines);
                let failed = write(&path, &lines).err();
                if let Some(error) = failed.as_ref().filter(|_| !is_failing) {
                    let path = path.display();
                    tracing::warn!(%error, "can't keep the last output of a job in {path}: `logs` will not show it");
                }
                is_failing = failed.is_some();
            }
            self.lock().is_writing = false;
            self.written.notify_all();
            thread::sleep(PAUSE);
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeptLines> {
        // No code panics while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wall clock, in milliseconds since 1970.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Drops the oldest lines beyond the size of a file.
fn keep_end(lines: &mut Vec<u8>) {
    let Some(excess) = lines.len().checked_sub(SIZE) else { return };
    let end =
        lines[excess..].iter().position(|&byte| byte == b'\n').map_or(lines.len(), |end| excess + end + 1);
    lines.drain(..end);
}

fn write(path: &Path, lines: &[u8]) -> io::Result<()> {
    match path.parent().map(|dir| DirBuilder::new().mode(0o750).create(dir)) {
        Some(Err(error)) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => path.parent().map_or(Ok(()), own_file::no_link)?,
    }
    if fs::symlink_metadata(path).is_ok_and(|file| file.len() + lines.len() as u64 > SIZE as u64) {
        fs::rename(path, previous(path))?;
    }
    // Output can hold what is not for all users.
    let mut file = own_file::open_own(path, OpenOptions::new().append(true).create(true).mode(0o640))?;
    file.write_all(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_no_more_than_two_files_hold() {
        let dir = tempfile::tempdir().expect("a directory");
        let kept = KeptOutput::of(dir.path(), "east/1");
        assert_eq!(kept.last("orders", 10).expect("readable"), None);
        for number in 0..20_000 {
            kept.add("orders", Some(Stream::Stderr), format!("line {number}").as_bytes());
        }
        kept.add("orders", None, b"ended: exit code 1");
        kept.add("orders", Some(Stream::Stdout), b"\xff\x00binary");
        flush(Duration::from_secs(30));
        let last = kept.last("orders", 3).expect("readable").expect("kept");
        let last: Vec<_> = last.iter().map(|kept| (kept.stream, kept.line.as_str())).collect();
        assert_eq!(
            last,
            [
                (Some(Stream::Stderr), "line 19999"),
                (None, "ended: exit code 1"),
                (Some(Stream::Stdout), "\u{fffd}\0binary"),
            ]
        );
        let size: u64 = fs::read_dir(dir.path().join("east%2f1.output"))
            .expect("a directory")
            .map(|file| file.expect("a file").metadata().expect("a file").len())
            .sum();
        assert!(size <= 2 * SIZE as u64 + 1024, "{size}");
        assert!(kept.last("orders", usize::MAX).expect("readable").expect("kept").len() > 1000);

        // Followed from the first line on, over each change of the file.
        let mut followed = kept.follow("orders").expect("readable");
        assert_eq!(
            followed.more().expect("readable").len(),
            kept.last("orders", usize::MAX).expect("readable").expect("kept").len()
        );
        for round in 0..20 {
            for number in 0..100 {
                kept.add("orders", None, format!("round {round}, {number}, {}", "x".repeat(120)).as_bytes());
            }
            flush(Duration::from_secs(30));
            let more = followed.more().expect("readable");
            assert_eq!(
                (more.len(), more[0].line.starts_with(&format!("round {round}, 0,"))),
                (100, true),
                "round {round}"
            );
        }
    }
}
