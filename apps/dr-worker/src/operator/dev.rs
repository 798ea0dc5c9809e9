//! `dev`: an embedded server and a worker in one process, to try it.

use std::{fs, net::TcpListener, path::PathBuf, time::Duration};

use clap::Args;
use strategies::Registry;
use tempfile::TempDir;
use zk_testkit::TestServer;

use super::{
    global::{Global, block_on},
    output,
};
use crate::{
    config::{Config, Sources},
    error::Error,
    program::program,
    tls::scheme,
    worker::run,
};

/// The server's tick: short, to allow short sessions.
const TICK: Duration = Duration::from_millis(500);
/// The session timeouts that it grants.
const GRANTED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The default job.
const SHOWS: [&str; 3] = [
    "/bin/sh",
    "-c",
    "trap 'echo \"$DR_JOB: asked to stop\"; exit 0' TERM; \
     while :; do echo \"$DR_JOB: $DR_MEMBER leads, fencing token $DR_FENCING_TOKEN\"; sleep 2 & wait $!; done",
];

#[derive(Debug, Args)]
pub(super) struct DevArguments {
    /// Port of the server on 127.0.0.1 [default: a free one].
    #[arg(long, value_name = "P")]
    port: Option<u16>,
    /// Program and arguments of the job `dev`.
    ///
    /// By default one that prints a line every two seconds.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// `dev`
pub(super) fn run(dev: &DevArguments, global: &Global, registry: &Registry) -> Result<(), Error> {
    let mut server = TestServer::builder().tick_time(TICK).session_timeouts(GRANTED.0, GRANTED.1);
    if let Some(port) = dev.port {
        server.base_port = Some(port);
    }
    let server = server.start_on_thread().map_err(|e| Error::Failed(format!("no server: {e}")))?;
    let dir = tempfile::Builder::new()
        .prefix("dr-worker-dev-")
        .tempdir()
        .map_err(|e| Error::Failed(format!("no directory for the worker's state: {e}")))?;
    let sources = sources(dev, global, &server, &dir)?.with_registry(registry.clone());
    let config = Config::load(&sources)?;
    config.check_node()?;
    let http = &config.http.listen;
    output::print_warning(
        "not for production: the embedded server in this process replaces ZooKeeper, keeps \
         nothing, and ends with the worker",
    );
    output::print_progress(format_args!(
        "ZooKeeper  {connect}\nworker     {scheme}://{http}/\n\nFrom another terminal:\n  \
         {program} --set zookeeper.connect={connect} list\n  \
         {program} --set zookeeper.connect={connect} history\n  \
         {program} --set node.id={id} --set node.state_dir={state} logs {job}\n\nCtrl-C ends both.\n",
        connect = server.connect_string(),
        scheme = scheme(config.http.has_tls()),
        program = program(),
        id = config.node.id,
        state = config.node.state_dir.display(),
        job = config.jobs.first().map_or("dev", |job| job.name()),
    ));
    block_on(run::run(config, sources, run::Beginning::StartFixed))
}

/// The usual port of a worker, or another one if it is taken.
fn free_port() -> Result<u16, Error> {
    let free = |port| TcpListener::bind(("127.0.0.1", port))?.local_addr();
    let address = free(7080).or_else(|_| free(0));
    address.map(|address| address.port()).map_err(|e| Error::Failed(format!("no free port: {e}")))
}

/// The given settings over the defaults of `dev`.
fn sources(
    dev: &DevArguments,
    global: &Global,
    server: &TestServer,
    dir: &TempDir,
) -> Result<Sources, Error> {
    let mut paths: Vec<PathBuf> = vec![dir.path().join("dev.toml")];
    let mut settings = toml_edit::DocumentMut::new();
    settings["node"]["id"] = "dev-1".into();
    settings["node"]["site"] = "dev".into();
    settings["node"]["address"] = "127.0.0.1".into();
    settings["node"]["state_dir"] = dir.path().join("state").display().to_string().into();
    settings["http"]["listen"] = format!("127.0.0.1:{}", free_port()?).into();
    settings["zookeeper"]["session_timeout"] = "6s".into();
    settings["zookeeper"]["tick_time"] = format!("{}ms", TICK.as_millis()).into();
    if global.paths.is_empty() || !dev.command.is_empty() {
        let shows = SHOWS.map(str::to_owned);
        let command = if dev.command.is_empty() { &shows[..] } else { &dev.command[..] };
        settings["job"]["dev"]["command"] = command.iter().collect::<toml_edit::Array>().into();
        settings["job"]["dev"]["stop_timeout"] = "2s".into();
    }
    fs::write(&paths[0], settings.to_string())
        .map_err(|e| Error::Failed(format!("can't write {}: {e}", paths[0].display())))?;
    paths.extend(global.paths.iter().cloned());
    let mut sets = global.sets.clone();
    // The one setting that can't be changed.
    sets.push(format!("zookeeper.connect={}", server.connect_string()));
    Ok(Sources::with_environment(paths, sets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_another_port_where_the_usual_one_is_taken() {
        // Here, or by another process of this machine.
        let _taken = TcpListener::bind("127.0.0.1:7080");
        assert!(free_port().is_ok_and(|port| port != 7080));
    }
}
