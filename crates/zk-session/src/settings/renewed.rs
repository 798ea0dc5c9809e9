//! What is read from files for each connection.

use std::sync::Mutex;

use tokio::task::spawn_blocking;
use tracing::{info, warn};

use crate::lock::lock;

/// What was made of the files last, and why the present ones are not in use.
#[derive(Debug)]
pub(crate) struct InUse<T> {
    last: Option<T>,
    problem: Option<String>,
}

impl<T> Default for InUse<T> {
    fn default() -> Self {
        Self { last: None, problem: None }
    }
}

/// Reads `what` by `read`, for one connection. Returns what was read last if it can't be used now.
///
/// # Errors
/// Why it can't be used, if it never was.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn renewed<T: Clone + Send + 'static>(
    what: &str,
    in_use: &Mutex<InUse<T>>,
    read: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let read = spawn_blocking(read).await;
    let read = read.unwrap_or_else(|_| Err("cannot read the files".to_owned()));
    let mut in_use = lock(in_use);
    match (read, &in_use.last) {
        (Ok(new), _) => {
            if in_use.problem.take().is_some() {
                info!("the {what} for ZooKeeper can be used again");
            }
            in_use.last = Some(new.clone());
            Ok(new)
        }
        (Err(reason), Some(last)) => {
            let last = last.clone();
            if in_use.problem.as_ref() != Some(&reason) {
                warn!(%reason, "the {what} for ZooKeeper can't be used now: what was read last is used");
                in_use.problem = Some(reason);
            }
            Ok(last)
        }
        (Err(reason), None) => Err(reason),
    }
}
