//! The real program, started with settings of the test's own and ended with the test.

pub(crate) mod browser;
#[path = "../../../../../crates/job-guard/tests/support/cgroup_root.rs"]
pub(crate) mod cgroup_root;
#[path = "../../../../../crates/job-guard/tests/support/frozen.rs"]
pub(crate) mod frozen;
pub(crate) mod own_server;
#[cfg(feature = "tls")]
pub(crate) mod pki;
pub(crate) mod stage;
pub(crate) mod terminal;

use std::{
    io::{BufRead, BufReader, Read as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use nix::unistd::Pid;

/// Longer than anything here takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Whether a program of Debian's package is there. If not, the test is skipped; with `CI` set it fails.
pub(crate) fn is_there(program: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian has some programs where only root's PATH leads.
    let mut dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let is_there = dirs.any(|dir| dir.join(program).is_file());
    if !is_there {
        zk_testkit::skip(format_args!(
            "there is no {program}: apt-get install --no-install-recommends {package}"
        ));
    }
    is_there
}

/// A file of the workspace.
pub(crate) fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
        .canonicalize()
        .expect("a file of the workspace")
}

/// A script of `examples/` that runs. It is ended as by Ctrl-C, also if the test fails.
pub(crate) struct Example(Child);

impl Example {
    pub(crate) fn start(script: &str, ports: &str) -> Self {
        let mut command = Command::new(at(script));
        command.env("PORTS", ports).env("WORKER", env!("CARGO_BIN_EXE_dr-worker"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        Self(command.spawn().expect("the example"))
    }

    /// Ctrl-C in its terminal: all of its processes get the signal. It ends as the shell expects of an interrupted program.
    #[track_caller]
    pub(crate) fn interrupt(mut self) {
        let mut all = vec![Pid::from_raw(self.0.id().cast_signed())];
        let mut next = 0;
        while let Some(pid) = all.get(next) {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            all.extend(
                children
                    .unwrap_or_default()
                    .split_ascii_whitespace()
                    .map(|pid| Pid::from_raw(pid.parse().expect("a pid"))),
            );
            next += 1;
        }
        for pid in all {
            // It may have ended.
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT);
        }
        let status = self.0.wait().expect("its own child");
        assert_eq!(status.code(), Some(128 + nix::sys::signal::Signal::SIGINT as i32), "{status}");
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.0.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// `dr-worker` without anything of the test's own environment that it would read.
pub(crate) fn dr_worker() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dr-worker"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("DR_") {
            command.env_remove(name);
        }
    }
    // Wide, so that no table is folded.
    command.stdin(Stdio::null()).env("NO_COLOR", "1").env("COLUMNS", "1000");
    command
}

/// `--set` for each.
pub(crate) fn set(command: &mut Command, settings: &[&str]) {
    for setting in settings {
        command.args(["--set", setting]);
    }
}

/// What a command that ends by itself came to.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Outcome {
    /// Runs it to its end.
    pub(crate) fn of(command: &mut Command) -> Self {
        let begun = Instant::now();
        let Output { status, stdout, stderr } = command.output().expect("dr-worker can be started");
        Self {
            code: status.code(),
            stdout: String::from_utf8(stdout).expect("text on standard output"),
            stderr: String::from_utf8(stderr).expect("text on standard error"),
            took: begun.elapsed(),
        }
    }

    #[track_caller]
    pub(crate) fn assert(&self, code: i32, parts: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.stdout, self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in:\n{}", self.stderr);
        }
        self
    }
}

/// Sends a signal to a process. After SIGSTOP it has stopped.
pub(crate) fn send(pid: Pid, signal: nix::sys::signal::Signal) -> std::io::Result<()> {
    if signal == nix::sys::signal::Signal::SIGSTOP {
        return zk_testkit::freeze(pid.as_raw().cast_unsigned());
    }
    Ok(nix::sys::signal::kill(pid, signal)?)
}

/// A command that has not ended yet.
pub(crate) struct Background(Child, Instant);

impl Background {
    pub(crate) fn of(command: &mut Command) -> Self {
        let begun = Instant::now();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Self(child.expect("dr-worker can be started"), begun)
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        send(Pid::from_raw(self.0.id().cast_signed()), signal).expect("it lives");
    }

    /// What it came to, once it has ended.
    pub(crate) fn outcome(self) -> Outcome {
        let Output { status, stdout, stderr } = self.0.wait_with_output().expect("its own child");
        Outcome {
            code: status.code(),
            stdout: String::from_utf8(stdout).expect("text on standard output"),
            stderr: String::from_utf8(stderr).expect("text on standard error"),
            took: self.1.elapsed(),
        }
    }
}

/// A worker that runs until the test ends.
pub(crate) struct Running {
    child: Child,
    /// The port that its endpoints listen at.
    pub(crate) port: u16,
    /// How to reach them if they have TLS.
    #[cfg(feature = "tls")]
    pub(crate) https: Option<pki::Https>,
}

impl Running {
    /// Starts it, with `http.listen` at a port that the system chooses.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::start_as(command, &["run"])
    }

    /// The same with another verb, and what belongs to it.
    pub(crate) fn start_as(command: &mut Command, verb: &[&str]) -> Self {
        set(command, &["http.listen=127.0.0.1:0"]);
        Self::start_where_configured(command, verb)
    }

    /// The same, with `http.listen` as in the files of its configuration.
    pub(crate) fn start_where_configured(command: &mut Command, verb: &[&str]) -> Self {
        let (log, stderr) = std::io::pipe().expect("a pipe");
        let mut log = BufReader::new(log);
        let (worker, _) = Self::spawn(command.stderr(stderr), verb, &mut log);
        // Read on, so that the worker never waits for a reader.
        std::thread::spawn(move || {
            let mut rest = Vec::new();
            let _ = log.read_to_end(&mut rest);
        });
        worker
    }

    /// Starts it with a standard error of the test's own, which is read from `log` no further than needed.
    pub(crate) fn start_logging_to(command: &mut Command, log: &mut impl BufRead) -> Self {
        set(command, &["http.listen=127.0.0.1:0"]);
        Self::spawn(command, &["run"], log).0
    }

    /// The worker, and what was read of its log.
    fn spawn(command: &mut Command, verb: &[&str], log: &mut impl BufRead) -> (Self, String) {
        let mut child = command.args(verb).spawn().expect("dr-worker can be started");
        // The command keeps its ends of pipes, and with them a log that would end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut text = String::new();
        let port = loop {
            let from = text.len();
            if log.read_line(&mut text).unwrap_or(0) == 0 {
                let _ = child.kill();
                panic!("the worker ended: {:?}\n{text}", child.wait());
            }
            if let Some(port) = port_of(&text[from..]) {
                break port;
            }
        };
        let worker = Self {
            child,
            port,
            #[cfg(feature = "tls")]
            https: None,
        };
        (worker, text)
    }

    /// The same, whose endpoints have TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn over(mut self, https: &pki::Https) -> Self {
        self.https = Some(https.clone());
        self
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Its children: guards, and nothing else.
    pub(crate) fn children(&self) -> Vec<Pid> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it lives");
        tasks
            .flat_map(|task| {
                let children = task.expect("a thread").path().join("children");
                let children = std::fs::read_to_string(children).unwrap_or_default();
                children.split_ascii_whitespace().map(|pid| pid.parse().expect("a pid")).collect::<Vec<i32>>()
            })
            .map(Pid::from_raw)
            .collect()
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        send(self.pid(), signal).expect("it lives");
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().expect("its own child") {
                return status;
            }
            assert!(Instant::now() < deadline, "the worker has not ended");
            // Between two looks.
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the worker and all of its guards, so that none of them sees another's end.
    pub(crate) fn kill_with_guards(&mut self) {
        use nix::sys::signal::Signal;
        let mut victims = self.children();
        victims.push(self.pid());
        for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
            for &pid in &victims {
                // The guard of a probe may have ended meanwhile.
                let sent = send(pid, signal);
                let is_gone = |error: &std::io::Error| error.raw_os_error() == Some(nix::libc::ESRCH);
                assert!(sent.as_ref().err().is_none_or(is_gone), "{sent:?}");
            }
        }
        self.ended();
    }

    /// One request to its endpoints: the head and the body.
    pub(crate) fn http(&self, method: &str, path: &str) -> (String, String) {
        self.http_with(method, path, &[], "")
    }

    /// The same with headers and a body.
    pub(crate) fn http_with(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: &str,
    ) -> (String, String) {
        let stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        #[cfg(feature = "tls")]
        if let Some(https) = &self.https {
            return request(https.over(stream), method, path, headers, body).expect("it answers");
        }
        request(stream, method, path, headers, body).expect("it answers")
    }

    /// The status code of a GET.
    pub(crate) fn code(&self, path: &str) -> u16 {
        code_of(&self.http("GET", path).0)
    }
}

/// One request to a server on this machine: the head and the body.
pub(crate) fn http(port: u16, method: &str, path: &str) -> std::io::Result<(String, String)> {
    let stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LONG))?;
    request(stream, method, path, &[], "")
}

/// One request on a new connection: the head and the body.
pub(crate) fn request(
    mut stream: impl std::io::Read + std::io::Write,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &str,
) -> std::io::Result<(String, String)> {
    let mut headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let given = headers.to_lowercase();
    if method == "POST" && !given.contains("content-type:") {
        headers += "Content-Type: application/json\r\n";
    }
    if !given.contains("host:") {
        headers += "Host: localhost\r\n";
    }
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nConnection: close\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    Ok((head.to_owned(), body.to_owned()))
}

/// The status code in the head of an answer.
pub(crate) fn code_of(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status code")
}

fn port_of(line: &str) -> Option<u16> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    line["http"].as_str()?.rsplit_once(':')?.1.parse().ok()
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A script that writes ten thousand short lines a second to each stream, and leaves the processor to others in between.
pub(crate) const WRITES_MUCH: &str = "lines=$(yes 0123456789 | head -n 500); \
     while :; do echo \"$lines\"; echo \"$lines\" >&2; sleep 0.05; done";

/// Waits until `is` says yes.
#[track_caller]
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < LONG, "not within {LONG:?}: {what}");
        // The longer it takes, the longer: a look costs processor time that what is awaited needs.
        let pause = begin.elapsed() / 16;
        std::thread::sleep(pause.clamp(Duration::from_millis(20), Duration::from_millis(100)));
    }
}

/// The log of a worker, from its first line on.
#[derive(Clone)]
pub(crate) struct Log(std::sync::Arc<std::sync::Mutex<String>>);

impl Log {
    /// Starts a worker, and reads its log.
    pub(crate) fn of(command: &mut Command) -> (Running, Self) {
        let (log, stderr) = std::io::pipe().expect("a pipe");
        let mut log = BufReader::new(log);
        set(command, &["http.listen=127.0.0.1:0"]);
        let (worker, begin) = Running::spawn(command.stderr(stderr), &["run"], &mut log);
        let lines = Self(std::sync::Arc::new(begin.into()));
        let kept = lines.clone();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                kept.0.lock().expect("no panic").push_str(&format!("{line}\n"));
            }
        });
        (worker, lines)
    }

    pub(crate) fn has(&self, part: &str) -> bool {
        self.0.lock().expect("no panic").contains(part)
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().expect("no panic").clone()
    }
}

/// A port that somebody else listens at, as long as this lives.
pub(crate) fn taken_port() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    (listener, port)
}
