//! A file that is rotated by size and age: `PATH` is renamed to `PATH.1`, `PATH.1` to `PATH.2`, and so on.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use crate::{config::RotatedFile, own_file::existing};

/// Output can hold what is not for all users.
const MODE: u32 = 0o640;

/// How often it is checked whether the path still names the open file, so that it may be moved away.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often this process was told that files were moved away.
static MOVED: AtomicU64 = AtomicU64::new(0);

/// What is to be done with some lines.
#[derive(Debug, PartialEq, Eq)]
enum Placement {
    /// Write the first bytes of them to the present file.
    Write(usize),
    /// Begin another file first.
    Rotate,
}

impl RotatedFile {
    /// Decides about `lines` when the file has this size and age. A line is not divided between two files, and one that is
    /// longer than a file may be gets a file of its own.
    fn step(&self, size: u64, age: Duration, lines: &[u8]) -> Placement {
        let is_old = !self.max_age.is_zero() && age >= self.max_age;
        if size > 0 && is_old {
            return Placement::Rotate;
        }
        let room = usize::try_from(self.max_size.0.saturating_sub(size)).unwrap_or(usize::MAX);
        if lines.len() <= room {
            return Placement::Write(lines.len());
        }
        match lines[..room].iter().rposition(|&byte| byte == b'\n') {
            Some(end) => Placement::Write(end + 1),
            None if size > 0 => Placement::Rotate,
            None => Placement::Write(
                lines.iter().position(|&byte| byte == b'\n').map_or(lines.len(), |end| end + 1),
            ),
        }
    }

    fn older(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// Renames the present file and the older ones; the oldest one goes.
    fn rotate(&self) -> io::Result<()> {
        if self.keep == 0 {
            return fs::remove_file(&self.path);
        }
        for number in (1..self.keep).rev() {
            existing(fs::rename(self.older(number), self.older(number + 1)))?;
        }
        existing(fs::rename(&self.path, self.older(1))).map(drop)
    }
}

/// Writes to such a file. Blocks as its disk does.
#[derive(Debug)]
pub struct RotatingFile {
    settings: RotatedFile,
    open: Option<Open>,
    /// Whether the last write has failed, and so may have ended within a line.
    is_torn: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    size: u64,
    since: SystemTime,
    /// Which file it is; `None` for a device or a pipe, which is not rotated.
    identity: Option<(u64, u64)>,
    looked: SystemTime,
    /// [`MOVED`] then.
    moved: u64,
}

/// Has each [`RotatingFile`] of this process opened again by its path at its next write, for what has moved it away. Without
/// that, one notices it within a second.
pub fn reopen_rotating_files() {
    MOVED.fetch_add(1, Ordering::Relaxed);
}

impl RotatingFile {
    /// Opens nothing before the first write.
    pub fn new(settings: RotatedFile) -> Self {
        Self { settings, open: None, is_torn: false }
    }

    /// The present file.
    pub fn path(&self) -> &Path {
        &self.settings.path
    }

    /// Writes lines. After an error the next call opens the file again.
    ///
    /// # Errors
    /// As the file system has them; a part of the lines may have been written.
    pub fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let done = self.write_at(lines, SystemTime::now());
        self.is_torn |= done.is_err();
        if done.is_err() {
            self.open = None;
        }
        done
    }

    fn write_at(&mut self, mut lines: &[u8], now: SystemTime) -> io::Result<()> {
        while !lines.is_empty() {
            let is_torn = self.is_torn;
            let settings = &self.settings;
            if self.open.as_mut().is_some_and(|open| !open.is_at(&settings.path, now)) {
                self.open = None;
            }
            let open = match &mut self.open {
                Some(open) => open,
                none => none.insert(Open::new(&settings.path, now)?),
            };
            let size = if open.identity.is_some() { open.size } else { 0 };
            // A clock that was set back makes no file old.
            let age = now.duration_since(open.since).unwrap_or_default();
            let count = match settings.step(size, age, lines) {
                Placement::Write(count) => count,
                Placement::Rotate => {
                    settings.rotate()?;
                    self.open = None;
                    continue;
                }
            };
            if is_torn && open.size > 0 {
                open.file.write_all(b"\n")?;
            }
            self.is_torn = false;
            open.file.write_all(&lines[..count])?;
            open.size += count as u64;
            lines = &lines[count..];
        }
        Ok(())
    }
}

impl Open {
    fn new(path: &Path, now: SystemTime) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(MODE).open(path)?;
        let metadata = file.metadata()?;
        let since = metadata.created().unwrap_or(now);
        let identity = metadata.is_file().then(|| identity(&metadata));
        let moved = MOVED.load(Ordering::Relaxed);
        Ok(Self { file, size: metadata.len(), since, identity, looked: now, moved })
    }

    /// Whether it is still what the path names.
    fn is_at(&mut self, path: &Path, now: SystemTime) -> bool {
        let Some(own) = self.identity else { return true };
        if MOVED.load(Ordering::Relaxed) != self.moved {
            return false;
        }
        if now.duration_since(self.looked).is_ok_and(|since| since < LOOK_AGAIN) {
            return true;
        }
        self.looked = now;
        fs::metadata(path).is_ok_and(|metadata| identity(&metadata) == own)
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Size;

    const HOUR: Duration = Duration::from_secs(3600);

    fn settings(dir: &Path) -> RotatedFile {
        RotatedFile { path: dir.join("job.log"), max_size: Size(10), max_age: HOUR, keep: 2 }
    }

    fn read(dir: &Path) -> Vec<(String, String)> {
        let mut all: Vec<_> = fs::read_dir(dir)
            .expect("a directory")
            .flatten()
            .map(|entry| {
                let text = fs::read(entry.path()).expect("a file");
                (
                    entry.file_name().to_string_lossy().into_owned(),
                    String::from_utf8_lossy(&text).into_owned(),
                )
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn lines_stay_whole_and_fill_a_file_no_further_than_allowed() {
        let settings = settings(Path::new(""));
        let young = Duration::ZERO;
        for (size, age, lines, step) in [
            (0, young, "one\ntwo\n", Placement::Write(8)),
            (8, young, "x\n", Placement::Write(2)),
            (8, young, "xy\n", Placement::Rotate),
            (4, young, "x\nlonger\n", Placement::Write(2)),
            (0, young, "a line that is too long\nx\n", Placement::Write(24)),
            (0, young, "no end of a line", Placement::Write(16)),
            (1, young, "a line that is too long\n", Placement::Rotate),
            (1, HOUR, "x\n", Placement::Rotate),
            (0, HOUR, "x\n", Placement::Write(2)),
            (20, young, "x\n", Placement::Rotate),
        ] {
            assert_eq!(settings.step(size, age, lines.as_bytes()), step, "{lines:?} after {size} bytes");
        }
        let forever = RotatedFile { max_age: Duration::ZERO, ..settings };
        assert_eq!(forever.step(1, 1000 * HOUR, b"x\n"), Placement::Write(2));
    }

    #[test]
    fn the_oldest_files_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut file = RotatingFile::new(settings(dir.path()));
        file.write(b"one\ntwo\nthree\nfour\nfive\nsix\n").expect("room");
        file.write(b"seven\neight\n").expect("room");
        let kept = [("job.log", "eight\n"), ("job.log.1", "six\nseven\n"), ("job.log.2", "four\nfive\n")];
        assert_eq!(read(dir.path()), kept.map(|(name, text)| (name.to_owned(), text.to_owned())));
        let none = RotatedFile { keep: 0, ..settings(dir.path()) };
        RotatingFile::new(none).write(b"nine\nten\n").expect("room");
        assert_eq!(fs::read_to_string(dir.path().join("job.log")).expect("a file"), "nine\nten\n");
    }

    #[test]
    fn an_old_file_of_an_earlier_worker_is_rotated_and_a_young_one_continued() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut file = RotatingFile::new(settings(dir.path()));
        let now = SystemTime::now();
        file.write_at(b"a\n", now).expect("room");
        let mut file = RotatingFile::new(settings(dir.path()));
        file.write_at(b"b\n", now).expect("room");
        file.write_at(b"c\n", now + 2 * HOUR).expect("room");
        assert_eq!(
            read(dir.path()),
            [("job.log".to_owned(), "c\n".to_owned()), ("job.log.1".to_owned(), "a\nb\n".to_owned())]
        );
    }

    #[test]
    fn a_file_that_was_moved_away_is_begun_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut file = RotatingFile::new(settings(dir.path()));
        let now = SystemTime::now();
        file.write_at(b"a\n", now).expect("room");
        fs::rename(dir.path().join("job.log"), dir.path().join("moved")).expect("a file");
        file.write_at(b"b\n", now + LOOK_AGAIN).expect("room");
        assert_eq!(
            read(dir.path()),
            [("job.log".to_owned(), "b\n".to_owned()), ("moved".to_owned(), "a\n".to_owned())]
        );
        // At once, if this process is told.
        fs::remove_file(dir.path().join("job.log")).expect("a file");
        reopen_rotating_files();
        file.write_at(b"c\n", now + LOOK_AGAIN).expect("room");
        assert_eq!(fs::read_to_string(dir.path().join("job.log")).expect("a file"), "c\n");
    }

    #[test]
    fn a_full_disk_is_an_error_each_time_and_no_rotation() {
        let settings = RotatedFile { path: "/dev/full".into(), ..settings(Path::new("")) };
        let mut file = RotatingFile::new(settings);
        for _ in 0..2 {
            let error = file.write(b"a line that is too long for a file\n").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
    }
}
