//! Waiting for conditions.

use std::time::Duration;

use tokio::time::Instant;

/// For anything that takes some seconds on a quiet machine. No test's meaning rests on it: it only bounds
/// how long a failing one takes.
pub const SOON: Duration = Duration::from_secs(40);

const LOOK_AGAIN: Duration = Duration::from_millis(25);

/// What a look at a condition found: the awaited, or in words what was there instead.
pub type Wait<T> = Result<T, String>;

/// Looks again and again until it is there.
///
/// # Panics
/// When the time is up, with what was awaited and what was there instead at the last look.
pub async fn wait_for<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Wait<T>) -> T {
    let deadline = Instant::now() + within;
    loop {
        match look().await {
            Ok(there) => return there,
            Err(instead) if Instant::now() >= deadline => {
                panic!("awaited for {within:?} in vain: {what}\ninstead: {instead}")
            }
            Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}
