//! The lock file of a member: locked while the member's worker or one of its guards is alive.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use boot_time::{BootTime, sleep_until};

use crate::{guard::record, own_file};

/// How often a taken lock is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// How long a taken lock is tried at least: [`StateLock::holder`] takes it for a moment.
const BRIEFLY: Duration = Duration::from_millis(50);

/// The lock on a member's name in its state directory, held by the worker and by each of its
/// guards.
///
/// The kernel releases it when the last of them has ended. Then no worker of this member runs on this host, and no guard
/// that has an order. No job of it runs either, unless worker and guard were killed together, which the guards' records
/// show ([`sweep`](crate::sweep)).
///
/// It is never unlocked explicitly: that would release it for the guards too.
#[derive(Clone, Debug)]
pub struct StateLock {
    file: Arc<File>,
    path: PathBuf,
    /// The directory of the guards' records.
    runs: PathBuf,
}

impl StateLock {
    /// Acquires the lock of `member` in `state_dir`, which is created if it is missing.
    ///
    /// # Errors
    /// [`LockError::Held`], within 50 ms, if another process holds it; [`LockError::Io`] with the path.
    pub fn acquire(state_dir: &Path, member: &str) -> Result<StateLock, LockError> {
        let by = BootTime::now() + BRIEFLY;
        loop {
            match StateLock::try_acquire(state_dir, member) {
                Err(LockError::Held { .. }) if BootTime::now() < by => std::thread::sleep(BRIEFLY / 10),
                done => return done,
            }
        }
    }

    fn try_acquire(state_dir: &Path, member: &str) -> Result<StateLock, LockError> {
        let path = lock_path(state_dir, member);
        let io = |source| LockError::Io { path: path.clone(), source: Arc::new(source) };
        let runs = path.with_extension("runs");
        if let Some(owner) = own_file::foreign_owner(state_dir) {
            let why =
                format!("{} belongs to user {owner}, who could replace the files in it", state_dir.display());
            return Err(io(io::Error::new(io::ErrorKind::PermissionDenied, why)));
        }
        own_file::create_dir(&runs).map_err(io)?;
        let mut options = OpenOptions::new();
        // Not truncated: before it is locked it is another's.
        options.read(true).write(true).create(true).truncate(false).mode(own_file::OWN_FILE);
        let mut file = own_file::open_own(&path, &mut options).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut written = String::new();
                // The holder may not have written its pid yet.
                let _ = (&file).take(32).read_to_string(&mut written);
                return Err(LockError::Held { path, pid: written.trim().parse().ok() });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        // The pid is for people; only the lock counts.
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(io)?;
        if own_file::is_shared(state_dir) {
            tracing::warn!(
                state_dir = %state_dir.display(),
                "other users can write to this directory, and so replace the files in it; run chmod 700 on it"
            );
        }
        Ok(StateLock { file: Arc::new(file), path, runs })
    }

    /// As [`StateLock::acquire`], but waits until `by` for the holder to end: after a crash of the
    /// worker its guard needs up to the stop timeout to end the job.
    ///
    /// # Errors
    /// As [`StateLock::acquire`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn acquire_by(state_dir: &Path, member: &str, by: BootTime) -> Result<StateLock, LockError> {
        let by = by.max(BootTime::now() + BRIEFLY);
        loop {
            match StateLock::try_acquire(state_dir, member) {
                Err(LockError::Held { .. }) if BootTime::now() < by => {
                    sleep_until((BootTime::now() + RETRY).min(by)).await;
                }
                done => return done,
            }
        }
    }

    /// Takes the lock that the program before this one has handed over.
    ///
    /// # Errors
    /// If it is not the lock of `member` in `state_dir`.
    pub fn adopt(state_dir: &Path, member: &str, lock: OwnedFd) -> Result<StateLock, LockError> {
        let (path, file) = (lock_path(state_dir, member), File::from(lock));
        let is_same = fs::symlink_metadata(&path).and_then(|named| {
            let held = file.metadata()?;
            Ok((named.dev(), named.ino()) == (held.dev(), held.ino()))
        });
        let changed = || io::Error::other("the lock that was handed over is that of another file");
        match is_same.and_then(|same| if same { Ok(()) } else { Err(changed()) }) {
            Ok(()) => Ok(StateLock { file: Arc::new(file), runs: path.with_extension("runs"), path }),
            Err(source) => Err(LockError::Io { path, source: Arc::new(source) }),
        }
    }

    /// The process id of the worker of `member` in `state_dir`; `None` if no process has the lock.
    ///
    /// # Errors
    /// If the lock file can't be read.
    pub fn holder(state_dir: &Path, member: &str) -> io::Result<Option<i32>> {
        let opened = own_file::open_own(&lock_path(state_dir, member), OpenOptions::new().read(true));
        let Some(file) = own_file::existing(opened)? else { return Ok(None) };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => {
                let mut written = String::new();
                (&file).take(32).read_to_string(&mut written)?;
                Ok(written.trim().parse().ok())
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// A descriptor of the lock that the next program of this process inherits.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub fn hand_over(&self) -> io::Result<OwnedFd> {
        self.fd().try_clone_to_owned()
    }

    /// The lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new path for a guard's record.
    ///
    /// # Errors
    /// If `/proc` can't be read.
    pub(super) fn new_record(&self) -> io::Result<PathBuf> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (now, number) = (BootTime::now().as_duration().as_millis(), NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(self.runs.join(record::name([std::process::id().into(), now, number.into()])?))
    }

    /// The guards' records. A partly written one is removed: its program was not started, or has another record.
    pub(super) fn records(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.runs)? {
            let path = entry?.path();
            match path.extension() {
                None => found.push(path),
                Some(_) => fs::remove_file(path)?,
            }
        }
        Ok(found)
    }

    /// The descriptor, for guards.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The path of the lock file of `member`.
pub fn lock_path(state_dir: &Path, member: &str) -> PathBuf {
    state_dir.join(format!("{}.lock", file_name(member)))
}

/// A member's name as a unique file name: characters that could change the path are escaped.
pub fn file_name(member: &str) -> String {
    use std::fmt::Write as _;
    let mut name = String::new();
    for (index, character) in member.chars().enumerate() {
        let plain = character.is_ascii_alphanumeric()
            || matches!(character, '-' | '_')
            || (character == '.' && index > 0);
        if plain {
            name.push(character);
        } else {
            // Writing to a string does not fail.
            let _ = write!(name, "%{:x}", u32::from(character));
        }
    }
    name
}

/// The lock was not acquired.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another worker of this member holds it, or a guard that is still ending its job.
    #[error(
        "{} is locked{}: another worker with this member id runs on this host, or the guard of a \
         worker that has ended is still stopping its job; give each worker its own id and state_dir",
        .path.display(),
        .pid.map(|pid| format!(" by process {pid} or its guards")).unwrap_or_default()
    )]
    Held {
        /// The lock file.
        path: PathBuf,
        /// The pid in the file; that worker may have ended since.
        pid: Option<u32>,
    },
    /// The file could not be created, locked or written.
    #[error("can't lock {}: {source}", .path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The error of the system.
        source: Arc<io::Error>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_learns_who_has_it() {
        let dir = tempfile::tempdir().expect("tempdir");
        let state = dir.path().join("state");
        let lock = StateLock::acquire(&state, "east-1").expect("free");
        assert!(StateLock::acquire(&state, "east-2").is_ok(), "another member");
        match StateLock::acquire(&state, "east-1") {
            Err(error @ LockError::Held { .. }) => {
                let message = error.to_string();
                assert!(message.contains("east-1.lock"), "{message}");
                assert!(message.contains(&std::process::id().to_string()), "{message}");
            }
            other => panic!("{other:?}"),
        }
        drop(lock);
        assert!(StateLock::acquire(&state, "east-1").is_ok());
    }

    /// As while [`StateLock::holder`] looks.
    #[tokio::test]
    async fn a_lock_that_is_taken_for_a_moment_is_free() {
        let dir = tempfile::tempdir().expect("tempdir");
        drop(StateLock::acquire(dir.path(), "m").expect("free"));
        let look = || {
            let file = File::open(lock_path(dir.path(), "m")).expect("a file");
            file.try_lock_shared().expect("free");
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(10));
                drop(file);
            })
        };
        let looking = look();
        drop(StateLock::acquire(dir.path(), "m").expect("free soon"));
        looking.join().expect("it has looked");
        let looking = look();
        drop(StateLock::acquire_by(dir.path(), "m", BootTime::now()).await.expect("free soon"));
        looking.join().expect("it has looked");
    }

    #[test]
    fn a_handed_on_descriptor_keeps_the_lock() {
        let dir = tempfile::tempdir().expect("tempdir");
        let lock = StateLock::acquire(dir.path(), "east-1").expect("free");
        let handed_on = lock.fd().try_clone_to_owned().expect("dup");
        drop(lock);
        assert!(StateLock::acquire(dir.path(), "east-1").is_err());
        drop(handed_on);
        assert!(StateLock::acquire(dir.path(), "east-1").is_ok());
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let error = StateLock::acquire(Path::new("/proc/nowhere"), "m").unwrap_err();
        assert!(error.to_string().contains("/proc/nowhere"), "{error}");
    }

    #[test]
    fn no_member_id_leaves_the_directory() {
        assert_eq!(file_name("east-1.dc_2"), "east-1.dc_2");
        assert_eq!(file_name("../x"), "%2e.%2fx");
        assert_ne!(file_name("a/b"), file_name("a%2fb"));
        assert_ne!(file_name("a.b"), file_name("a_b"));
    }

    #[tokio::test]
    async fn waiting_ends_with_the_deadline_or_the_holder() {
        let dir = tempfile::tempdir().expect("tempdir");
        let lock = StateLock::acquire(dir.path(), "m").expect("free");
        let soon = BootTime::now() + Duration::from_millis(20);
        assert!(StateLock::acquire_by(dir.path(), "m", soon).await.is_err());
        let later = BootTime::now() + Duration::from_secs(10);
        let (waited, ()) = tokio::join!(StateLock::acquire_by(dir.path(), "m", later), async {
            drop(lock);
        });
        assert!(waited.is_ok());
    }
}
