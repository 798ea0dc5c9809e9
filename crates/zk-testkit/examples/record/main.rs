//! Records what other clients and real servers say to each other, for the tests of zk-proto:
//! `cargo run -p zk-testkit --example record`.
//!
//! It starts the servers that [`Installation::find`] finds (another version by `ZOOKEEPER_HOME`), lets ZooKeeper's own
//! client and kazoo talk to them through a relay, and writes every frame to `crates/zk-proto/tests/recorded/`. It does
//! not use zk-proto, whose errors the recordings are to show. It needs a JDK, not only a runtime, and python3-kazoo.

use std::error::Error;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use zk_testkit::{Ensemble, EnsembleBuilder, Installation};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/record");
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../zk-proto/tests/recorded");
/// Longer 'lengths' are the first bytes of a four-letter word.
const LONGEST: u32 = 4 << 20;

/// For SASL on both sides.
const JAAS: &str = r#"
Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_bob="secret"; };
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="bob" password="secret"; };
Wrong { org.apache.zookeeper.server.auth.DigestLoginModule required username="bob" password="wrong"; };
"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let installation = Installation::find()?;
    let files = tempfile::tempdir()?;
    let jaas = files.path().join("jaas.conf");
    std::fs::write(&jaas, JAAS)?;
    let jaas = format!("-Djava.security.auth.login.config={}", jaas.display());

    let one = Ensemble::builder().servers(1).with(|settings| settings.ttl_nodes = true);
    record("java", one.clone(), java(&installation, "java", &[])).await?;
    record("kazoo", one.clone(), kazoo()).await?;
    let provider =
        "-Dzookeeper.authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
    let server = one.jvm_flag(&jaas).jvm_flag(provider);
    record("sasl", server, java(&installation, "sasl", &[&jaas])).await?;
    let three = Ensemble::builder()
        .servers(3)
        .setting("reconfigEnabled", "true")
        .jvm_flag("-Dzookeeper.skipACL=yes")
        .with(|settings| settings.read_only_mode = true);
    record("ensemble", three, java(&installation, "ensemble", &[])).await
}

/// The program that makes a part of the requests; the addresses are appended.
fn java(installation: &Installation, part: &str, flags: &[&str]) -> Command {
    let mut command = Command::new(installation.java());
    command.args(flags).arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=off").arg("-cp");
    command.arg(installation.class_path()).arg(Path::new(PROGRAMS).join("Everything.java")).arg(part);
    command
}

fn kazoo() -> Command {
    // Debian's own Python, which sees Debian's packages.
    let mut command = Command::new("/usr/bin/python3");
    command.arg(Path::new(PROGRAMS).join("everything.py"));
    command
}

async fn record(name: &str, servers: EnsembleBuilder, mut program: Command) -> Result<()> {
    let ensemble = servers.start().await?;
    let server = ensemble.addresses()[0];
    let said = ensemble.admin(0, "srvr").await?;
    let version = version(&said).ok_or_else(|| format!("srvr names no version: {said}"))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let mut relay = Relay { server, connections: JoinSet::new(), opened: 0, cut: false, log: Log::default() };
    let mut program = program
        .arg(listener.local_addr()?.to_string())
        .arg(server.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (Some(mut answers), Some(orders)) = (program.stdin.take(), program.stdout.take()) else {
        return Err("a program without pipes".into());
    };
    let mut orders = BufReader::new(orders).lines();
    loop {
        tokio::select! {
            accepted = listener.accept() => relay.accept(accepted?.0),
            order = orders.next_line() => {
                let Some(order) = order? else { break };
                match order.as_str() {
                    "cut" => {
                        relay.cut = true;
                        relay.connections.shutdown().await;
                    }
                    "heal" => relay.cut = false,
                    "alone" => {
                        for other in 1..ensemble.servers().len() {
                            ensemble.stop(other).await?;
                        }
                    }
                    step => {
                        let step = step.strip_prefix("step ").ok_or_else(|| format!("no such order: {step}"))?;
                        relay.log.line(format_args!("# {step}"));
                    }
                }
                answers.write_all(b"done\n").await?;
            }
        }
    }
    let status = program.wait().await?;
    if !status.success() {
        return Err(format!("{name}: {status}\n{}", ensemble.server(0).log_tail()).into());
    }
    // What is still under way from the server, like the reply to the last close.
    while relay.connections.join_next().await.is_some() {}
    let file = Path::new(RECORDED).join(format!("{version}.{name}.txt"));
    std::fs::create_dir_all(RECORDED)?;
    std::fs::write(&file, relay.log.text())?;
    println!("{}", file.display());
    Ok(())
}

/// `3.8.0` in `Zookeeper version: 3.8.0-5a02a05, built on ...`.
fn version(said: &str) -> Option<&str> {
    said.split_once("version: ")?.1.split(['-', ',', ' ', '\n']).next()
}

/// Lines: `# STEP`, or a connection's number, who speaks (`>` the client), and a frame with its length in hexadecimal.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn line(&self, line: std::fmt::Arguments<'_>) {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a String does not fail.
        let _ = writeln!(text, "{line}");
    }

    fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Relay {
    server: SocketAddr,
    connections: JoinSet<()>,
    opened: usize,
    cut: bool,
    log: Log,
}

impl Relay {
    fn accept(&mut self, client: TcpStream) {
        if self.cut {
            return;
        }
        let (number, server, log) = (self.opened, self.server, self.log.clone());
        self.opened += 1;
        self.connections.spawn(async move {
            let Ok(server) = TcpStream::connect(server).await else { return };
            let ((client, to_client), (server, to_server)) = (client.into_split(), server.into_split());
            // Either side may close first; what the other one sends after that is recorded, too.
            let (_, _) = tokio::join!(
                pass(client, to_server, number, '>', &log),
                pass(server, to_client, number, '<', &log)
            );
        });
    }
}

/// A frame is recorded before it is passed on, so that no answer comes before its question.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    connection: usize,
    who: char,
    log: &Log,
) -> std::io::Result<()> {
    loop {
        let length = from.read_u32().await?;
        if length > LONGEST {
            return Ok(());
        }
        let mut frame = vec![0; 4 + length as usize];
        let (prefix, body) = frame.split_at_mut(4);
        prefix.copy_from_slice(&length.to_be_bytes());
        from.read_exact(body).await?;
        let mut hex = String::new();
        for byte in &frame {
            // Writing to a String does not fail.
            let _ = write!(hex, "{byte:02x}");
        }
        log.line(format_args!("{connection} {who} {hex}"));
        to.write_all(&frame).await?;
    }
}
