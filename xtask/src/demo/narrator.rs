//! Prints each event with its time.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::bail;

/// The polling interval, and so the precision of the times.
const LOOK: Duration = Duration::from_millis(50);

/// Prints the time since the start of the demo before every sentence.
#[derive(Debug)]
pub(crate) struct Narrator {
    begun: Instant,
}

impl Narrator {
    pub(crate) fn start() -> Self {
        Self { begun: Instant::now() }
    }

    /// One sentence.
    pub(crate) fn say(&self, sentence: impl AsRef<str>) {
        let mut lines = sentence.as_ref().lines();
        println!("{:>8}  {}", self.time(), lines.next().unwrap_or_default());
        for line in lines {
            println!("{:>8}  {line}", "");
        }
    }

    /// The headline of an act.
    pub(crate) fn headline(&self, words: &str) {
        println!("\n          {words}\n          {}", "-".repeat(words.chars().count()));
    }

    /// The time since the start.
    pub(crate) fn time(&self) -> String {
        seconds(self.begun.elapsed())
    }
}

/// To a tenth of a second.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// The result of one poll.
pub(crate) enum Seen<T> {
    /// The condition holds.
    There(T),
    /// It does not hold; the present state.
    NotYet(String),
}

/// Polls until the condition holds.
///
/// # Errors
/// The condition, the time and the last state; or at once the error of a poll.
pub(crate) async fn until<T, F>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> F,
) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Seen<T>>>,
{
    let deadline = Instant::now() + within;
    loop {
        let instead = match look().await? {
            Seen::There(thing) => return Ok(thing),
            Seen::NotYet(instead) => instead,
        };
        if Instant::now() >= deadline {
            bail!("waited {} for {what}; last state: {instead}", seconds(within));
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_that_ends_in_vain_says_for_what_and_what_there_was() {
        let look = || async { anyhow::Ok(Seen::<()>::NotYet("no member leads".to_owned())) };
        let error = until("a leader", Duration::ZERO, look).await.unwrap_err();
        assert_eq!(error.to_string(), "waited 0.0 s for a leader; last state: no member leads");
    }
}
