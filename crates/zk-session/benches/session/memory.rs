//! What one session more takes.

use std::time::Duration;

use tokio::time::sleep;

use crate::client::Kind;
use crate::process::Process;

/// Growth is even once those of the first sessions are there which all sessions share.
const FIRST: usize = 10;

/// Bytes, by the growth of a process from few sessions to many.
pub(crate) async fn per_session(kind: Kind, address: &str, sessions: usize) -> Result<f64, String> {
    let mut process = Process::start(kind, address).await?;
    process.sessions(FIRST).await?;
    let before = settled(&process).await?;
    process.sessions(FIRST + sessions).await?;
    let after = settled(&process).await?;
    process.end().await;
    Ok((after - before) / sessions as f64)
}

/// Memory once it no longer changes much.
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
