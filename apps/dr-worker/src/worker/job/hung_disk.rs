//! Whether the disk of the state directory hangs.
//!
//! Nothing waits for a disk between a fact and its report. What can be known before is known: a worker tries the disk all the
//! time, is not ready while it hangs, and starts no job, so that another member takes over at once.

use std::{fs, path::Path, time::Duration};

use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{sleep, timeout},
};

use job_guard::{StateLock, own_file};

/// How often the disk is tried.
const PAUSE: Duration = Duration::from_secs(2);

/// A disk that has not answered within this time hangs.
const PATIENCE: Duration = Duration::from_secs(3);

/// Which disk hangs, as a sentence; `None` while it answers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct HungDisk(watch::Receiver<Option<String>>);

impl HungDisk {
    /// Follows the disk of the state directory, by a task that ends when it is dropped everywhere.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn watch(lock: &StateLock) -> Self {
        let (sender, receiver) = watch::channel(None);
        let path = lock.path().with_extension("alive");
        tokio::spawn(async move {
            while !sender.is_closed() {
                let file = path.clone();
                // Only whether it answers counts: a full disk does.
                let mut tried = spawn_blocking(move || try_disk(&file));
                if timeout(PATIENCE, &mut tried).await.is_err() {
                    let directory = path.parent().unwrap_or(Path::new("/")).display();
                    let sentence =
                        format!("the disk of {directory} hangs: it has not answered within {PATIENCE:?}");
                    tracing::error!("{sentence}; no job is started here before it does");
                    sender.send_replace(Some(sentence));
                    let _ = tried.await;
                    tracing::warn!("the disk of {directory} answers again");
                    sender.send_replace(None);
                }
                sleep(PAUSE).await;
            }
        });
        Self(receiver)
    }

    /// What hangs now.
    pub(crate) fn now(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Waits until it hangs.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn hangs(&self) -> String {
        let mut disk = self.0.clone();
        let sentence = disk.wait_for(Option::is_some).await.ok().and_then(|sentence| sentence.clone());
        match sentence {
            Some(sentence) => sentence,
            None => std::future::pending().await,
        }
    }
}

fn try_disk(file: &Path) {
    let _ = own_file::replace(file, b"").and_then(|()| fs::remove_file(file));
}
