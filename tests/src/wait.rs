//! Waiting for conditions.

use std::time::Duration;

use tokio::time::Instant;

/// The limit for what takes some seconds on an idle machine. It bounds only the duration of a failing test.
pub const SOON: Duration = Duration::from_secs(40);

/// The pauses between two looks: the longer it takes, the longer, because a look costs processor time that what is awaited needs.
const PAUSES: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(100));
const PART_OF_THE_WAIT: u32 = 16;

/// The result of one poll: the awaited value, or a description of the present state.
pub type Wait<T> = Result<T, String>;

/// Polls until the condition holds.
///
/// # Panics
/// At the deadline, with the condition and the last state.
pub async fn wait_for<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Wait<T>) -> T {
    let begin = Instant::now();
    let deadline = begin + within;
    loop {
        match look().await {
            Ok(there) => return there,
            Err(instead) if Instant::now() >= deadline => {
                panic!("waited {within:?} for {what}\nlast state: {instead}")
            }
            Err(_) => {
                let pause = begin.elapsed() / PART_OF_THE_WAIT;
                tokio::time::sleep(pause.clamp(PAUSES.0, PAUSES.1)).await;
            }
        }
    }
}
