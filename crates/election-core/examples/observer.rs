//! Follows who leads, without taking part: `observer SERVERS [PATH]`.

use election_core::{Leaders, Paths, session::Session, status::LeaderChange};

pub(crate) async fn run(
    servers: &str,
    path: &str,
    mut report: impl FnMut(LeaderChange),
) -> Result<(), Box<dyn std::error::Error>> {
    let session = Session::builder(servers).connect().await?;
    let mut leaders = Leaders::follow(&session, Paths::at(path)?);
    while let Some(change) = leaders.next().await {
        report(change?);
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [servers, path @ ..] = &arguments[..] else { return Err("usage: observer SERVERS [PATH]".into()) };
    let path = path.first().map_or("/examples/latch", String::as_str);
    run(servers, path, |change| match change.leader {
        Some(leader) => println!("{} leads with fencing token {}", leader.member, leader.fencing_token),
        None => println!("no member leads"),
    })
    .await
}
