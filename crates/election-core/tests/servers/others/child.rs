//! A contender of another implementation, in a process of its own.

use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use zk_session::BootTime;
use zk_testkit::curator_jars;

use super::SOON;

/// A process that reads commands and prints lines. It is killed when it is dropped.
pub(crate) struct Other {
    what: &'static str,
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Other {
    pub(crate) fn start(what: &'static str, command: &mut Command) -> Self {
        let mut child = spawn(what, command.stdout(Stdio::piped()));
        let output = child.stdout.take().unwrap();
        Self::listen(what, child, output)
    }

    /// A process that prints its lines on standard error.
    pub(crate) fn start_on_stderr(what: &'static str, command: &mut Command) -> Self {
        let mut child = spawn(what, command.stdout(Stdio::null()).stderr(Stdio::piped()));
        let output = child.stderr.take().unwrap();
        Self::listen(what, child, output)
    }

    fn listen(what: &'static str, mut child: Child, output: impl Read + Send + 'static) -> Self {
        let input = child.stdin.take().unwrap();
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut other = Self { what, child, input, lines };
        other.hear("CONNECTED");
        other
    }

    pub(crate) fn say(&mut self, word: &str) {
        writeln!(self.input, "{word}").unwrap();
    }

    /// The next line, which must begin like that.
    pub(crate) fn hear(&mut self, line: &str) -> String {
        let said = self.lines.recv_timeout(SOON);
        match said {
            Ok(said) if said.starts_with(line) => said,
            Ok(said) => panic!("{} says {said:?}, and {line:?} was awaited", self.what),
            Err(_) => panic!("{} does not say {line:?}", self.what),
        }
    }

    /// It prints nothing: it does not lead.
    pub(crate) fn is_silent(&mut self) {
        match self.lines.recv_timeout(Duration::ZERO) {
            Ok(said) => panic!("{} says {said:?}", self.what),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("{} has ended", self.what),
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn spawn(what: &str, command: &mut Command) -> Child {
    let spawned = command.stdin(Stdio::piped()).spawn();
    spawned.unwrap_or_else(|error| panic!("{what} does not start: {error}"))
}

impl Drop for Other {
    fn drop(&mut self) {
        // Dead already, or ours to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Why a tool that a test needs is not there, unless it is; with `CI` set that is a failure.
pub(crate) fn missing(why: &str, package: &str) -> Option<()> {
    zk_testkit::skip(format_args!("{why}; on Debian: apt-get install {package}"));
    None
}

/// A Python that has kazoo.
pub(crate) fn python() -> Option<&'static str> {
    let has_kazoo = |python: &&&str| {
        let tried = Command::new(python).args(["-c", "import kazoo"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let found = ["python3", "/usr/bin/python3"].iter().find(has_kazoo).copied();
    if found.is_none() {
        missing("no Python on this machine has kazoo", "python3-kazoo")?;
    }
    found
}

/// Compiles Curator's contender into `dir`; the class path that it runs with.
pub(crate) fn compile_curator(dir: &Path) -> Option<String> {
    let jars = curator_jars();
    if !jars[0].exists() {
        missing("Curator's jars are not in /usr/share/java", "libcurator-recipes-java")?;
    }
    let jars: Vec<_> = jars.iter().map(|jar| jar.display().to_string()).collect();
    let class_path = format!("{}:{}", dir.display(), jars.join(":"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/others/Contender.java");
    let compiled = Command::new("javac").args(["-cp", &class_path, "-d"]).arg(dir).arg(source).output();
    match compiled {
        Err(error) => missing(&format!("javac: {error}"), "default-jdk-headless").map(|()| String::new()),
        Ok(output) => {
            assert!(output.status.success(), "javac: {}", String::from_utf8_lossy(&output.stderr));
            Some(class_path)
        }
    }
}

/// Waits for a condition.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = BootTime::now() + SOON;
    while !condition() {
        assert!(BootTime::now() < deadline, "waited {SOON:?} in vain: {what}");
        // Between two looks.
        thread::sleep(Duration::from_millis(10));
    }
}
