//! What is compared.

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    process,
};

use election_bench::Curator;
use tokio::process::Command;

use crate::{
    patroni::Patroni,
    running::{End, Start},
};

/// The timeout of the sessions of `dr-worker` and Curator.
const SESSION_SECONDS: u32 = 10;

/// What can be prepared is boxed, since the kinds differ.
type Prepared = Pin<Box<dyn Future<Output = Result<Box<dyn Contender>, String>>>>;

/// How each is prepared, or why it can't be: with a directory for files, and the servers. The first one is the reference of the
/// ratios.
pub(crate) const ALL: [fn(&Path, &str) -> Prepared; 3] = [
    |directory, connect| {
        let worker = DrWorker::find(directory, connect);
        Box::pin(async { Ok(Box::new(worker?) as Box<dyn Contender>) })
    },
    |directory, connect| {
        let (directory, connect) = (directory.join("patroni"), connect.to_owned());
        Box::pin(async move {
            let patroni = Patroni::prepare(&directory, &connect).await;
            let patroni = patroni.map_err(|why| format!("Patroni: {why}"))?;
            Ok(Box::new(patroni) as Box<dyn Contender>)
        })
    },
    |directory, connect| {
        let latch = Latch::prepare(&directory.join("curator"), connect);
        Box::pin(async {
            Ok(Box::new(latch.map_err(|why| format!("Curator: {why}"))?) as Box<dyn Contender>)
        })
    },
];

/// A program that leads an election.
pub(crate) trait Contender {
    /// With its version.
    fn name(&self) -> String;
    /// What is counted, and its settings.
    fn note(&self) -> String;
    /// The command of this start, counted from 1.
    fn command(&self, number: u32) -> Start;
    /// A part of the line that it prints when it leads.
    fn leads(&self) -> &'static str;
    /// The name of its child processes that belong to it, and not to the job.
    fn helper(&self) -> Option<&'static str> {
        None
    }
    /// The size of what is installed, in bytes.
    fn bytes(&self) -> Result<u64, String>;
    /// Makes its election empty, before a start.
    fn clear<'a>(&'a mut self) -> Pin<Box<dyn Future<Output = Result<(), String>> + 'a>> {
        Box::pin(async { Ok(()) })
    }
}

/// `dr-worker run`, whose job sleeps.
struct DrWorker {
    program: PathBuf,
    version: String,
    directory: PathBuf,
    connect: String,
}

impl DrWorker {
    fn find(directory: &Path, connect: &str) -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        // Benchmarks are in a deeper directory than programs.
        let program =
            this.ancestors().skip(1).take(2).map(|dir| dir.join("dr-worker")).find(|path| path.is_file());
        let program = program.ok_or("dr-worker: it is not built; `cargo xtask bench footprint` builds it")?;
        let version = printed(process::Command::new(&program).arg("--version"))?;
        Ok(Self { program, version, directory: directory.join("dr-worker"), connect: connect.to_owned() })
    }
}

impl Contender for DrWorker {
    fn name(&self) -> String {
        self.version.clone()
    }

    fn note(&self) -> String {
        format!(
            "the worker with its HTTP endpoints, and the guard of its job, which sleeps; session timeout {SESSION_SECONDS} s; \
             its program without symbols"
        )
    }

    fn command(&self, number: u32) -> Start {
        let mut command = Command::new(&self.program);
        for set in [
            format!("zookeeper.connect={}", self.connect),
            format!("zookeeper.root=/footprint-{number}"),
            format!("zookeeper.session_timeout={SESSION_SECONDS}s"),
            format!("node.state_dir={}", self.directory.display()),
            "node.id=node-1".to_owned(),
            "node.site=here".to_owned(),
            "http.listen=127.0.0.1:0".to_owned(),
            "job.sleep.command=[\"/bin/sleep\",\"1000000\"]".to_owned(),
            // The others lead as soon as they may.
            "job.sleep.ready.after=0s".to_owned(),
        ] {
            command.arg("--set").arg(set);
        }
        command.arg("run").env("DR_LOG", "info");
        Start { command, end: End::Gently }
    }

    fn leads(&self) -> &'static str {
        "(READY, "
    }

    fn helper(&self) -> Option<&'static str> {
        Some("dr-guard")
    }

    fn bytes(&self) -> Result<u64, String> {
        let stripped = self.directory.join("stripped");
        printed(process::Command::new("strip").arg("-o").arg(&stripped).arg(&self.program))?;
        Ok(stripped.metadata().map_err(|error| error.to_string())?.len())
    }
}

/// Curator's `LeaderLatch`.
struct Latch {
    curator: Curator,
    java: String,
    connect: String,
}

impl Latch {
    fn prepare(classes: &Path, connect: &str) -> Result<Self, String> {
        std::fs::create_dir_all(classes).map_err(|error| error.to_string())?;
        let curator = Curator::compile(classes)?;
        let java = printed(process::Command::new("java").arg("--version"))?;
        Ok(Self { curator, java, connect: connect.to_owned() })
    }
}

impl Contender for Latch {
    fn name(&self) -> String {
        format!("Curator {}", self.curator.version().unwrap_or_default())
    }

    fn note(&self) -> String {
        format!(
            "one LeaderLatch in a Java program of its own; session timeout {SESSION_SECONDS} s; -XX:+UseSerialGC; its jars, without \
             Java ({})",
            self.java
        )
    }

    fn command(&self, number: u32) -> Start {
        let (path, session) = (format!("/footprint-curator-{number}"), format!("{}", SESSION_SECONDS * 1000));
        Start { command: self.curator.command(&self.connect, &path, &session, 1), end: End::Hard }
    }

    fn leads(&self) -> &'static str {
        "LEADER 0 "
    }

    fn bytes(&self) -> Result<u64, String> {
        Ok(self.curator.bytes())
    }
}

/// The first line that a command prints.
pub(crate) fn printed(command: &mut process::Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("{name}: {}: {error}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}
