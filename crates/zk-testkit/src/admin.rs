//! ZooKeeper's four-letter words.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than any word takes on a machine that is merely busy.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// What a server says it is, in the `Mode:` line of `srvr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The only server of its ensemble.
    Standalone,
    /// The leader of the ensemble's quorum.
    Leader,
    /// A follower.
    Follower,
    /// An observer.
    Observer,
}

impl Mode {
    fn in_srvr(answer: &str) -> Option<Self> {
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode:"))?;
        match mode.trim() {
            "standalone" => Some(Self::Standalone),
            "leader" => Some(Self::Leader),
            "follower" => Some(Self::Follower),
            "observer" => Some(Self::Observer),
            _ => None,
        }
    }
}

/// Sends a word and gives the whole answer, within two seconds.
pub(crate) async fn ask(address: SocketAddr, word: &str) -> std::io::Result<String> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    match tokio::time::timeout(ANSWER_WITHIN, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            format!("no answer to '{word}' within {ANSWER_WITHIN:?}"),
        )),
    }
}

/// What the server at `address` is, or what it said instead.
///
/// Only the `Mode:` line counts as serving: `ruok` answers `imok` before there
/// is a quorum.
pub(crate) async fn mode(address: SocketAddr) -> Result<Mode, String> {
    match ask(address, "srvr").await {
        Ok(answer) => Mode::in_srvr(&answer).ok_or_else(|| match answer.trim() {
            "" => "an empty answer".to_owned(),
            said => said.to_owned(),
        }),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_mode() {
        assert_eq!(Mode::in_srvr("Zxid: 0x0\nMode: follower\nNode count: 5\n"), Some(Mode::Follower));
    }

    #[test]
    fn a_server_without_quorum_has_none() {
        let said = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(Mode::in_srvr(said), None);
    }
}
