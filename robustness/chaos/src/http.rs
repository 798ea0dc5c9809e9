//! A minimal HTTP client.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Asks by HTTP/1.0, so the answer ends with the connection. Returns the status code and the body.
///
/// # Errors
/// Without an answer within this time; whether the request has arrived is not known then.
pub(crate) async fn ask(address: SocketAddr, request: &str, within: Duration) -> io::Result<(u16, String)> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(within, asked).await??;
    let parsed = answer.split_once("\r\n\r\n").and_then(|(head, body)| {
        let code = head.split_whitespace().nth(1)?.parse().ok()?;
        Some((code, body.to_owned()))
    });
    parsed.ok_or_else(|| io::Error::other(format!("no HTTP answer: {answer:?}")))
}

pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")
}

pub(crate) fn post(address: SocketAddr, path: &str, token: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}
