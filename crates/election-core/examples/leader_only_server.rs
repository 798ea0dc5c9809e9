//! A web server in which only the leader serves: `leader_only_server SERVERS MEMBER [ADDRESS]`. The others answer 503,
//! as a load balancer's health check expects of a node that is not to get requests, and name the leader.

use axum::{Router, extract::State, http::StatusCode, routing::get};
use election_core::{ElectionConfig, Latch, session::Session};
use tokio::net::TcpListener;

async fn work(State(latch): State<Latch>) -> (StatusCode, String) {
    match latch.fencing_token() {
        // Whatever is written on behalf of the request takes the token along.
        Some(token) => (StatusCode::OK, format!("done with fencing token {token}\n")),
        None => {
            let leaders = latch.status().now().leaders;
            let leader = leaders.iter().flatten().next().map_or("none".to_owned(), |l| l.member.to_string());
            (StatusCode::SERVICE_UNAVAILABLE, format!("the leader is {leader}\n"))
        }
    }
}

pub(crate) async fn run(
    servers: &str,
    member: &str,
    http: TcpListener,
) -> Result<(), Box<dyn std::error::Error>> {
    let session = Session::builder(servers).connect().await?;
    let latch = Latch::join(&session, ElectionConfig::single("/examples/leader-only-server", member)?);
    let router = Router::new().route("/", get(work)).with_state(latch.clone());
    let interrupted = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(http, router).with_graceful_shutdown(interrupted).await?;
    // After the last request, so that the next leader does not serve beside this one.
    latch.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [servers, member, address @ ..] = &arguments[..] else {
        return Err("usage: leader_only_server SERVERS MEMBER [ADDRESS]".into());
    };
    let http = TcpListener::bind(address.first().map_or("127.0.0.1:0", String::as_str)).await?;
    println!("{member} listens on http://{}/", http.local_addr()?);
    run(servers, member, http).await
}
