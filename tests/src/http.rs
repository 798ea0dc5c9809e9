//! A minimal HTTP client for workers on this machine.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The limit for an answer: a frozen worker accepts connections and does not answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// GET by HTTP/1.0: the answer ends with the connection. Returns the status code and the body.
pub(crate) async fn get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(ANSWER_WITHIN, asked).await??;
    let answer = String::from_utf8_lossy(&answer);
    let no_answer = || io::Error::new(io::ErrorKind::InvalidData, format!("no HTTP answer: {answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(no_answer)?;
    let code = head.split_whitespace().nth(1).and_then(|code| code.parse().ok()).ok_or_else(no_answer)?;
    Ok((code, body.to_owned()))
}
