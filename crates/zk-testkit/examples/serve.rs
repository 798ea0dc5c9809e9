//! A ZooKeeper to try things with, until its input ends:
//! `cargo run -p zk-testkit --example serve [servers]`.
//!
//! It keeps nothing, and listens on loopback only. It takes orders, one a line:
//! `expire SESSION` and `drop SESSION`, the session in hexadecimal.

use std::io::BufRead as _;

use zk_testkit::{Error, TestServer};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let servers = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1);
    let server = TestServer::builder().servers(servers).start().await?;
    println!("{}", server.connect_string());
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match order(&server, &line) {
            Ok(done) => println!("{done}"),
            Err(error) => println!("{error}"),
        }
    }
    Ok(())
}

fn order(server: &TestServer, line: &str) -> Result<String, Error> {
    let (verb, session) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let session = u64::from_str_radix(session.trim_start_matches("0x"), 16).unwrap_or(0).cast_signed();
    match verb {
        "expire" => server.faults().expire(session).map(|()| "expired".to_owned()),
        "drop" => Ok(format!("dropped {}", u8::from(server.faults().disconnect(session)))),
        _ => Ok("expire SESSION, or drop SESSION".to_owned()),
    }
}
