//! A task that runs on one node at a time, and goes on elsewhere when that node is lost: `singleton_task SERVERS MEMBER`.

use std::time::Duration;

use election_core::{Candidate, ElectionConfig, Leadership, session::Session};

/// Ten steps; the store that a step writes to would refuse an older token.
async fn steps(member: &str, leadership: &Leadership) -> Result<u32, std::io::Error> {
    for step in 1..=10 {
        println!("{member} does step {step} with fencing token {}", leadership.fencing_token());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(10)
}

pub(crate) async fn run(servers: &str, member: &str) -> Result<u32, Box<dyn std::error::Error>> {
    let session = Session::builder(servers).connect().await?;
    let config = ElectionConfig::queue("/examples/singleton-task", member)?;
    let mut candidate = Candidate::new(&session, config);
    // When leadership is lost, the steps are dropped, and begin again with the next leadership.
    let done = candidate.run_while_leading(async |leadership| steps(member, leadership).await).await?;
    // Leadership is released in the background, which the end of the program would cut short.
    if let Some(election) = candidate.election() {
        election.leave().await;
    }
    println!("{member} has done {done} steps");
    Ok(done)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [servers, member] = &arguments[..] else { return Err("usage: singleton_task SERVERS MEMBER".into()) };
    run(servers, member).await.map(drop)
}
