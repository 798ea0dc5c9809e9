//! Asks before each piece of work whether this member leads: `latch SERVERS MEMBER`.

use std::time::Duration;

use election_core::{ElectionConfig, Latch, session::Session};

pub(crate) async fn run(servers: &str, member: &str) -> Result<(), Box<dyn std::error::Error>> {
    let session = Session::builder(servers).connect().await?;
    let latch = Latch::join(&session, ElectionConfig::queue("/examples/latch", member)?);
    loop {
        if let Some(token) = latch.fencing_token() {
            println!("{member} does a piece of work with fencing token {token}");
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
            _ = tokio::signal::ctrl_c() => break,
            // Without this, a member whose session was closed would wait for ever.
            ended = latch.election().ended() => return Err(ended.into()),
        }
    }
    latch.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [servers, member] = &arguments[..] else { return Err("usage: latch SERVERS MEMBER".into()) };
    run(servers, member).await
}
