//! A hundred elections on one session, as for the shards of a service: `many_elections SERVERS MEMBER`. Started on two
//! hosts, the second one leads what the first one leaves.

use election_core::{ElectionConfig, Latch, session::Session};

const SHARDS: usize = 100;

pub(crate) async fn run(servers: &str, member: &str) -> Result<Vec<Latch>, Box<dyn std::error::Error>> {
    let session = Session::builder(servers).connect().await?;
    let mut shards = Vec::with_capacity(SHARDS);
    for shard in 0..SHARDS {
        let config = ElectionConfig::queue(&format!("/examples/shards/shard-{shard}"), member)?;
        shards.push(Latch::join(&session, config));
    }
    for (shard, latch) in shards.iter().enumerate() {
        let token = latch.leading().await?;
        println!("{member} leads shard {shard} with fencing token {token}");
    }
    Ok(shards)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [servers, member] = &arguments[..] else { return Err("usage: many_elections SERVERS MEMBER".into()) };
    let shards = run(servers, member).await?;
    tokio::signal::ctrl_c().await?;
    for latch in shards {
        latch.close().await;
    }
    Ok(())
}
