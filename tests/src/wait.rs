//! Waiting for conditions.

use std::time::Duration;

use tokio::time::Instant;

/// The limit for what takes some seconds on an idle machine. It bounds only the duration of a failing test.
pub const SOON: Duration = Duration::from_secs(40);

const LOOK_AGAIN: Duration = Duration::from_millis(25);

/// The result of one poll: the awaited value, or a description of the present state.
pub type Wait<T> = Result<T, String>;

/// Polls until the condition holds.
///
/// # Panics
/// At the deadline, with the condition and the last state.
pub async fn wait_for<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Wait<T>) -> T {
    let deadline = Instant::now() + within;
    loop {
        match look().await {
            Ok(there) => return there,
            Err(instead) if Instant::now() >= deadline => {
                panic!("waited {within:?} for {what}\nlast state: {instead}")
            }
            Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}
