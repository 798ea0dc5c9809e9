//! What is read from files for each connection.

use std::sync::Mutex;

use tokio::task::spawn_blocking;
use tracing::{info, warn};

use crate::lock::lock;

/// What was made of the files last, and why the present ones are not in use.
#[derive(Debug)]
pub(crate) struct InUse<T> {
    last: T,
    problem: Option<String>,
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
    in_use: &Mutex<Option<InUse<T>>>,
    read: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let read = spawn_blocking(read).await;
    let read = read.unwrap_or_else(|_| Err("cannot read the files".to_owned()));
    let mut in_use = lock(in_use);
    match (read, &mut *in_use) {
        (Ok(new), in_use) => {
            let before = in_use.replace(InUse { last: new.clone(), problem: None });
            if before.is_some_and(|before| before.problem.is_some()) {
                info!("the {what} for ZooKeeper can be used again");
            }
            Ok(new)
        }
        (Err(reason), Some(InUse { last, problem })) => {
            if problem.as_ref() != Some(&reason) {
                warn!(%reason, "the {what} for ZooKeeper can't be used now: still using what was read last");
                *problem = Some(reason);
            }
            Ok(last.clone())
        }
        (Err(reason), None) => Err(reason),
    }
}
