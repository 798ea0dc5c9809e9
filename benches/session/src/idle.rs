//! The cost of idle sessions.

use std::time::Duration;

use tokio::time::sleep;

use crate::client::Kind;
use crate::process::Process;

/// Growth is even after the first sessions, which create the shared parts.
pub(crate) const FIRST: usize = 10;

pub(crate) struct Idle {
    /// The bytes of memory of one more session, by the growth of a process from few sessions to many.
    pub(crate) memory: f64,
    /// The additional threads, compared with the process without a session: with one session, and with all.
    pub(crate) threads: [usize; 2],
}

pub(crate) async fn measure(kind: Kind, address: &str, sessions: usize) -> Result<Idle, String> {
    let mut process = Process::start(kind, address).await?;
    settled(&process).await?;
    let one = process.threads()?;
    process.sessions(FIRST).await?;
    let before = settled(&process).await?;
    process.sessions(FIRST + sessions).await?;
    let after = settled(&process).await?;
    let threads = [one, process.threads()?];
    process.end().await;
    Ok(Idle { memory: (after - before) / sessions as f64, threads })
}

/// The memory once it is stable.
async fn settled(process: &Process) -> Result<f64, String> {
    let mut last = process.resident()?;
    for _ in 0..20 {
        sleep(Duration::from_millis(250)).await;
        let now = process.resident()?;
        if (now - last).abs() < 256.0 * 1024.0 {
            return Ok(now);
        }
        last = now;
    }
    Ok(last)
}
