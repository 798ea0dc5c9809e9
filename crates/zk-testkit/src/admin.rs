//! ZooKeeper's four-letter words.

use std::io;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::server::Launch;

/// Longer than any word takes on a busy machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// By TLS, which takes a Java runtime.
const ANSWER_BY_TLS_WITHIN: Duration = Duration::from_secs(10);

/// The mode of a server, from the `Mode:` line of `srvr`.
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
    /// Without a quorum, serving reads:
    /// [`EnsembleBuilder::read_only_mode`](crate::EnsembleBuilder::read_only_mode).
    ReadOnly,
}

/// Sends a word and returns the whole answer, within two seconds, or ten by TLS.
pub(crate) async fn ask(address: SocketAddr, word: &str, with: &Launch) -> io::Result<String> {
    let within = if with.tls.is_some() { ANSWER_BY_TLS_WITHIN } else { ANSWER_WITHIN };
    let answer = async {
        let Some(tls) = &with.tls else { return in_plain_text(address, word).await };
        let mut command = client_by_tls(address, word, with, tls);
        in_output(tokio::task::spawn_blocking(move || command.output()).await?)
    };
    let late = format!("no answer to '{word}' within {within:?}");
    tokio::time::timeout(within, answer).await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, late))?
}

async fn in_plain_text(address: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// ZooKeeper's own client, with the server's files: it needs nothing beyond those. It gives up by itself after
/// five seconds.
fn client_by_tls(address: SocketAddr, word: &str, with: &Launch, tls: &[(String, String)]) -> Command {
    let mut command = Command::new(with.installation.java());
    command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
    command.args(tls.iter().map(|(key, value)| format!("-Dzookeeper.{key}={value}")));
    // It is reached by its address, which need not be in the certificate.
    command.arg("-Dzookeeper.ssl.hostnameVerification=false");
    command.arg("-cp").arg(with.installation.class_path());
    command.arg("org.apache.zookeeper.client.FourLetterWordMain");
    command.args([&address.ip().to_string(), &address.port().to_string(), word, "true"]);
    command.stdin(Stdio::null());
    command
}

fn in_output(output: io::Result<Output>) -> io::Result<String> {
    let output = output?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = said.lines().find(|line| line.contains("Exception")).unwrap_or_default();
    Err(io::Error::other(reason.to_owned()))
}

/// The mode of a server by its answer to `srvr`, or its other answer.
///
/// Only the `Mode:` line counts as serving: `ruok` answers `imok` before there
/// is a quorum.
pub(crate) fn mode_in(answer: io::Result<String>) -> Result<Mode, String> {
    let answer = answer.map_err(|error| error.to_string())?;
    match answer.lines().find_map(|line| line.strip_prefix("Mode:")).map(str::trim) {
        Some("standalone") => Ok(Mode::Standalone),
        Some("leader") => Ok(Mode::Leader),
        Some("follower") => Ok(Mode::Follower),
        Some("observer") => Ok(Mode::Observer),
        Some("read-only") => Ok(Mode::ReadOnly),
        _ if answer.trim().is_empty() => Err("an empty answer".to_owned()),
        _ => Err(answer.trim().to_owned()),
    }
}
