//! A bounded queue of lines, and the thread that writes them.
//!
//! `tracing-appender`'s `non_blocking` is not used: it limits the number of lines and not of bytes, reserves no part,
//! does not log dropped lines, and can't be flushed before the process aborts.

use std::{
    io::{self, Write},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::sync::Notify;

/// Bytes reserved for the line that reports dropped lines.
const FOR_NOTICES: usize = 4096;

/// The source of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineSource {
    /// The worker.
    Own,
    /// A job or another program.
    Output,
    /// The report of dropped lines.
    Notice,
}

/// Lines that the log lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// They did not fit.
    Dropped(u64),
    /// They could not be written.
    Unwritten(u64),
}

#[derive(Debug)]
pub(super) struct Queue {
    /// The size, in bytes.
    bound: usize,
    state: Mutex<QueueState>,
    /// Notified when lines wait to be written.
    filled: Condvar,
    /// Notified when all lines are written.
    written: Condvar,
    /// Notified when the thread has taken the waiting lines.
    room: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: Vec<u8>,
    is_writing: bool,
    /// Dropped lines since the last report.
    dropped: u64,
}

impl Queue {
    pub(super) fn new(bound: usize) -> Queue {
        Queue {
            bound,
            state: Mutex::default(),
            filled: Condvar::new(),
            written: Condvar::new(),
            room: Notify::new(),
        }
    }

    /// Starts the thread. `report` logs which lines are missing, as soon as there is room for that. `unwritten` counts those
    /// that could not be written.
    ///
    /// # Errors
    /// If the thread can't be started.
    pub(super) fn start(
        &'static self,
        mut to: impl Write + Send + 'static,
        report: impl Fn(Missing) + Send + 'static,
        unwritten: impl Fn(u64) + Send + 'static,
    ) -> io::Result<()> {
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            let (mut batch, mut lost) = (Vec::new(), 0);
            loop {
                let dropped = self.take(&mut batch);
                self.room.notify_waiters();
                if dropped > 0 {
                    report(Missing::Dropped(dropped));
                }
                match to.write_all(&batch).and_then(|()| to.flush()) {
                    Ok(()) if lost > 0 => report(Missing::Unwritten(std::mem::take(&mut lost))),
                    Ok(()) => {}
                    // It may be temporary (a full disk), and can't be logged now.
                    Err(_) => {
                        let lines = batch.iter().filter(|&&byte| byte == b'\n').count() as u64;
                        lost += lines;
                        unwritten(lines);
                    }
                }
                self.mark_written();
            }
        })?;
        Ok(())
    }

    /// Appends a line. False if it did not fit and was dropped.
    pub(super) fn push(&self, line: &[u8], lane: LineSource) -> bool {
        let mut state = self.lock();
        let bound = match lane {
            LineSource::Own | LineSource::Output => self.bound - FOR_NOTICES,
            LineSource::Notice => self.bound,
        };
        if state.waiting.len() + line.len() > bound {
            state.dropped += 1;
            return false;
        }
        state.waiting.extend_from_slice(line);
        self.filled.notify_one();
        true
    }

    /// Whether less than half is used.
    pub(super) fn has_room(&self) -> bool {
        self.lock().waiting.len() < self.bound / 2
    }

    /// Waits until less than half is used.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn room(&self) {
        loop {
            let mut taken = std::pin::pin!(self.room.notified());
            // Registered before the check, so that no notification is missed between check and wait.
            taken.as_mut().enable();
            if self.has_room() {
                return;
            }
            taken.await;
        }
    }

    /// Waits until all lines that were pushed before are written, at most `within`.
    pub(super) fn flush(&self, within: Duration) {
        let state = self.lock();
        let unwritten = |state: &mut QueueState| state.is_writing || !state.waiting.is_empty();
        // Lines that are left after that are lost with the process.
        let _ = self.written.wait_timeout_while(state, within, unwritten);
    }

    /// Waits for lines, and takes them and the number of dropped lines.
    fn take(&self, batch: &mut Vec<u8>) -> u64 {
        batch.clear();
        let state = self.lock();
        let mut state = self
            .filled
            .wait_while(state, |state| state.waiting.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.waiting, batch);
        state.is_writing = true;
        std::mem::take(&mut state.dropped)
    }

    fn mark_written(&self) {
        self.lock().is_writing = false;
        self.written.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No code panics while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Writes as much as it is allowed to, and passes it on.
    struct Gate {
        open: mpsc::Receiver<()>,
        written: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.open.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.written.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Fails until it is told that it works.
    struct Broken(mpsc::Receiver<bool>, mpsc::Sender<Vec<u8>>);

    impl Write for Broken {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.0.recv().unwrap_or(false) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.1.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn what_can_not_be_written_is_counted_at_once_and_reported_when_it_can() {
        let queue: &'static Queue = Box::leak(Box::new(Queue::new(3 * FOR_NOTICES)));
        let (works, is_working) = mpsc::channel();
        let (sender, written) = mpsc::channel();
        let (counts, counted) = mpsc::channel();
        let report = |lines| assert!(queue.push(format!("{lines:?}\n").as_bytes(), LineSource::Notice));
        let unwritten = move |lines| counts.send(lines).expect("the test lives");
        queue.start(Broken(is_working, sender), report, unwritten).expect("a thread");
        works.send(false).expect("the thread lives");
        queue.push(b"one\ntwo\n", LineSource::Own);
        assert_eq!(counted.recv_timeout(PATIENCE), Ok(2));
        works.send(true).expect("the thread lives");
        works.send(true).expect("the thread lives");
        queue.push(b"three\n", LineSource::Own);
        assert_eq!(written.recv_timeout(PATIENCE).expect("written"), b"three\n");
        assert_eq!(written.recv_timeout(PATIENCE).expect("written"), b"Unwritten(2)\n");
    }

    #[test]
    fn what_does_not_fit_is_dropped_counted_and_reported_when_there_is_room() {
        let queue: &'static Queue = Box::leak(Box::new(Queue::new(3 * FOR_NOTICES)));
        let (open, gate) = mpsc::channel();
        let (sender, written) = mpsc::channel();
        let report = |lines| assert!(queue.push(format!("{lines:?}\n").as_bytes(), LineSource::Notice));
        let lost = |lines| panic!("{lines} lines are lost");
        queue.start(Gate { open: gate, written: sender }, report, lost).expect("a thread");

        // The thread takes the first one, and then waits at the gate.
        queue.push(b"first\n", LineSource::Own);
        while !queue.lock().is_writing {
            thread::yield_now();
        }
        let line = vec![b'x'; FOR_NOTICES];
        assert!(queue.has_room());
        assert_eq!([(); 5].map(|()| queue.push(&line, LineSource::Own)), [true, true, false, false, false]);
        assert!(!queue.has_room());
        queue.flush(Duration::from_millis(10));

        open.send(()).expect("the thread lives");
        assert_eq!(written.recv_timeout(PATIENCE).expect("written"), b"first\n");
        open.send(()).expect("the thread lives");
        assert_eq!(written.recv_timeout(PATIENCE).expect("written").len(), 2 * FOR_NOTICES);
        open.send(()).expect("the thread lives");
        assert_eq!(written.recv_timeout(PATIENCE).expect("written"), b"Dropped(3)\n");
        queue.flush(PATIENCE);
        assert!(queue.has_room() && !queue.lock().is_writing);
    }
}
