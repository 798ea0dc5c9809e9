//! A minimal HTTP client for workers on this machine.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// GET by HTTP/1.0: the answer ends with the connection. Returns its status code and body.
pub(crate) async fn get(address: SocketAddr, path: &str) -> anyhow::Result<(u16, String)> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let context = || format!("GET http://{address}{path}");
    let answer =
        tokio::time::timeout(ANSWER_WITHIN, asked).await.with_context(context)?.with_context(context)?;
    parse(&String::from_utf8_lossy(&answer)).with_context(context)
}

fn parse(answer: &str) -> anyhow::Result<(u16, String)> {
    let parts = answer.split_once("\r\n\r\n");
    let (head, body) = parts.with_context(|| format!("no HTTP answer: {answer:?}"))?;
    let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    Ok((status.with_context(|| format!("no status in {head:?}"))?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_status_and_body() {
        let answer = parse("HTTP/1.0 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        assert_eq!(answer, (503, "{}".to_owned()));
        assert!(parse("SSH-2.0-OpenSSH\r\n").is_err());
    }
}
