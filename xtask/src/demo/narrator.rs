//! Says what happens, and when.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::bail;

/// How often something awaited is looked at: also how exact the times are.
const LOOK: Duration = Duration::from_millis(50);

/// Time since the demo began, in front of every sentence.
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

    /// The beginning of an act.
    pub(crate) fn headline(&self, words: &str) {
        println!("\n          {words}\n          {}", "-".repeat(words.chars().count()));
    }

    /// Since the beginning.
    pub(crate) fn time(&self) -> String {
        seconds(self.begun.elapsed())
    }
}

/// To a tenth of a second.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// What a look at something awaited found.
pub(crate) enum Seen<T> {
    /// It is there.
    There(T),
    /// Not yet; what is there instead.
    NotYet(String),
}

/// Looks again and again until it is there.
///
/// # Errors
/// What was awaited, for how long, and what was seen last; and at once what the
/// look itself fails with.
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
            bail!("awaited for {}: {what}; instead: {instead}", seconds(within));
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_that_ends_in_vain_says_for_what_and_what_there_was() {
        let look = || async { anyhow::Ok(Seen::<()>::NotYet("nobody leads".to_owned())) };
        let error = until("a leader", Duration::ZERO, look).await.unwrap_err();
        assert_eq!(error.to_string(), "awaited for 0.0 s: a leader; instead: nobody leads");
    }
}
