//! Where a job's lines go besides the log: a file, or the journal.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::PathBuf,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{net::UnixDatagram, sync::mpsc};

use crate::{config::RotatedFile, guard::frames::Stream, job::reporter::Reporter, rotating::RotatingFile};

/// How many batches of lines wait for a file: together about 1 MiB.
const WAITING: usize = 16;

/// Lines for a file, and who counts those that can't be written.
struct Batch {
    lines: Vec<u8>,
    reporter: Arc<dyn Reporter>,
}

/// How many batches are not written yet.
static UNWRITTEN: AtomicUsize = AtomicUsize::new(0);

/// The pause between two looks at that number, at the end of the worker.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Waits until all files are written, but no longer than `within`.
pub(super) fn flush(within: Duration) {
    let began = Instant::now();
    while UNWRITTEN.load(Ordering::Acquire) > 0 && began.elapsed() < within {
        thread::sleep(LOOK_AGAIN);
    }
}

/// The writers of files. One for each file, however often the job is started: if a disk hangs, one thread hangs.
static FILES: LazyLock<Mutex<HashMap<PathBuf, FileWriter>>> = LazyLock::new(Mutex::default);

/// The writer of a file that is rotated like this. It ends when the last sender is dropped.
struct FileWriter {
    file: RotatedFile,
    batches: mpsc::Sender<Batch>,
}

/// A file, written by a thread of its own.
pub(super) struct FileSink {
    batches: mpsc::Sender<Batch>,
    lines: Vec<u8>,
}

impl FileSink {
    pub(super) fn open(job: &str, file: &RotatedFile) -> io::Result<Self> {
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let batches = match files.get(&file.path).filter(|writer| writer.file == *file) {
            Some(writer) => writer.batches.clone(),
            None => {
                let (sender, batches) = mpsc::channel(WAITING);
                let (job, to) = (job.to_owned(), RotatingFile::new(file.clone()));
                thread::Builder::new()
                    .name("job-output".to_owned())
                    .spawn(move || write(&job, to, batches))?;
                let writer = FileWriter { file: file.clone(), batches: sender.clone() };
                files.insert(file.path.clone(), writer);
                sender
            }
        };
        Ok(Self { batches, lines: Vec::new() })
    }

    pub(super) fn push(&mut self, line: &[u8]) {
        self.lines.extend_from_slice(line);
        self.lines.push(b'\n');
    }

    pub(super) fn waiting(&self) -> usize {
        count(&self.lines)
    }

    pub(super) fn discard(&mut self) {
        self.lines.clear();
    }

    /// Passes the lines on, and waits for room.
    ///
    /// # Cancel safety
    /// Cancel safe: the lines remain.
    pub(super) async fn flush(&mut self, reporter: &Arc<dyn Reporter>) {
        if let Ok(room) = self.batches.reserve().await {
            UNWRITTEN.fetch_add(1, Ordering::AcqRel);
            room.send(Batch { lines: std::mem::take(&mut self.lines), reporter: Arc::clone(reporter) });
        }
    }
}

fn count(lines: &[u8]) -> usize {
    lines.iter().filter(|&&byte| byte == b'\n').count()
}

/// Writes until the worker ends.
fn write(job: &str, mut to: RotatingFile, mut batches: mpsc::Receiver<Batch>) {
    let mut lost = 0;
    while let Some(batch) = batches.blocking_recv() {
        let path = to.path().display().to_string();
        match to.write(&batch.lines) {
            Ok(()) if lost > 0 => {
                let lines = std::mem::take(&mut lost);
                tracing::warn!(
                    job,
                    lines,
                    "{lines} lines of its output were dropped; {path} can be written again"
                );
            }
            Ok(()) => {}
            Err(error) => {
                if lost == 0 {
                    tracing::error!(job, %error, "can't write its output to {path}; lines are dropped until writing succeeds");
                }
                let lines = count(&batch.lines) as u64;
                lost += lines;
                batch.reporter.lines_dropped(job, lines);
            }
        }
        UNWRITTEN.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The systemd journal, by its native protocol.
pub(super) struct JournalSink {
    socket: PathBuf,
    /// What each entry has besides the line.
    fields: Vec<u8>,
    /// The field with the stream of a line.
    stream_field: String,
    connected: Option<UnixDatagram>,
}

impl JournalSink {
    pub(super) fn new(
        socket: PathBuf,
        job: &str,
        more: &BTreeMap<String, String>,
        stream_field: &str,
    ) -> Self {
        let mut fields = Vec::new();
        field(&mut fields, "SYSLOG_IDENTIFIER", job.as_bytes());
        for (name, value) in more.iter().filter(|(_, value)| !value.is_empty()) {
            field(&mut fields, name, value.as_bytes());
        }
        Self { socket, fields, stream_field: stream_field.to_owned(), connected: None }
    }

    /// Sends a line. Waits while the journal's queue is full.
    ///
    /// # Errors
    /// If there is no journal.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn send(&mut self, stream: Stream, line: &[u8]) -> io::Result<()> {
        let mut entry = self.fields.clone();
        field(&mut entry, "PRIORITY", b"6");
        field(&mut entry, &self.stream_field, stream.as_str().as_bytes());
        field(&mut entry, "MESSAGE", line);
        let socket = match self.connected.take() {
            Some(socket) => socket,
            None => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(&self.socket)?;
                socket
            }
        };
        // Connected, because only then the kernel reports when there is room again.
        socket.send(&entry).await?;
        self.connected = Some(socket);
        Ok(())
    }
}

/// The form for any bytes: the name, the length in eight bytes, the value.
fn field(to: &mut Vec<u8>, name: &str, value: &[u8]) {
    to.extend_from_slice(name.as_bytes());
    to.push(b'\n');
    to.extend((value.len() as u64).to_le_bytes());
    to.extend_from_slice(value);
    to.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_journal_gets_the_line_unchanged_and_is_found_again_after_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let env = [("DR_JOB", "orders"), ("DR_TERM", "7"), ("DR_CAUSE", "")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let mut journal = JournalSink::new(path.clone(), "orders", &env, "DR_STREAM");
        assert!(journal.send(Stream::Stdout, b"lost").await.is_err());
        for _ in 0..2 {
            let _ = std::fs::remove_file(&path);
            let listens = UnixDatagram::bind(&path).expect("a socket");
            // The first one after a restart can be lost.
            while journal.send(Stream::Stderr, b"two\nlines \xff").await.is_err() {}
            let mut entry = vec![0; 4096];
            let count = listens.recv(&mut entry).await.expect("an entry");
            let mut expected = Vec::new();
            for (name, value) in [
                ("SYSLOG_IDENTIFIER", &b"orders"[..]),
                ("DR_JOB", b"orders"),
                ("DR_TERM", b"7"),
                ("PRIORITY", b"6"),
                ("DR_STREAM", b"stderr"),
                ("MESSAGE", b"two\nlines \xff"),
            ] {
                field(&mut expected, name, value);
            }
            assert_eq!(&entry[..count], expected);
        }
    }
}
