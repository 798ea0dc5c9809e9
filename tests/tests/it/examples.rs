//! The examples that need programs of several packages, or root: each starts by its one command, does what it prints, and ends
//! by Ctrl-C without a process left.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use e2e::{SOON, children, program, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use zk_testkit::{Network, PortReservation};

/// A script of `examples/` that runs, and what it has printed.
struct Example {
    child: Option<Child>,
    dir: tempfile::TempDir,
}

impl Example {
    fn start(script: &str, ports: &[u16]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(script);
        let mut command = Command::new(script.canonicalize().unwrap());
        command.env("PORTS", ports.join(" ")).env("TMPDIR", dir.path());
        command.env("WORKER", program("dr-worker")).env("LEDGER", program("ledger"));
        command.stdin(Stdio::null()).stdout(File::create(dir.path().join("shown")).unwrap());
        Self { child: Some(command.spawn().unwrap()), dir }
    }

    fn shown(&self) -> String {
        fs::read_to_string(self.dir.path().join("shown")).unwrap()
    }

    /// Types the printed command that contains this, until it ends with 0 and has printed `wanted`.
    async fn types(&self, part: &str, wanted: &str) {
        let line = wait_for(&format!("a command with {part:?}"), SOON, async || {
            let shown = self.shown();
            let mut lines = shown.lines().filter(|line| line.starts_with("  "));
            lines.find(|line| line.contains(part)).map(str::to_owned).ok_or(shown)
        })
        .await;
        wait_for(&format!("{wanted:?} of {line}"), SOON, async || {
            let output = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            if output.status.success() && said.contains(wanted) { Ok(()) } else { Err(said) }
        })
        .await;
    }

    /// Ctrl-C in its terminal: all of its processes get the signal.
    fn interrupt(mut self) {
        let mut child = self.child.take().unwrap();
        let mut all = vec![child.id()];
        let mut next = 0;
        while let Some(&pid) = all.get(next) {
            all.extend(children(pid));
            next += 1;
        }
        for pid in &all {
            // It may have ended.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGINT);
        }
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(128 + Signal::SIGINT as i32), "{status}");
        // The directory of the logs is gone too.
        let left: Vec<PathBuf> =
            fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [self.dir.path().join("shown")]);
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            println!("{}", self.shown());
            let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
            let _ = child.wait();
        }
    }
}

#[tokio::test]
async fn the_ledger_runs_under_two_workers_and_books_each_order_once() {
    let ports = PortReservation::take(3).unwrap();
    let example = Example::start("ledger/run.sh", ports.ports());
    example.types(" status ", "\"member\":\"east-1\"").await;
    example.types(" switchover ", "west-1").await;
    example.types(" status ", "\"member\":\"west-1\"").await;
    example.types(" wait ", "").await;
    example.types(" check ", "Every order is booked once").await;
    example.interrupt();
    for port in ports.ports() {
        assert!(
            std::net::TcpStream::connect(("127.0.0.1", *port)).is_err(),
            "the port {port} is still in use"
        );
    }
}

#[tokio::test]
async fn the_virtual_address_moves_between_two_hosts_of_the_example() {
    if !Path::new("/dev/net/tun").exists() {
        return zk_testkit::skip("there is no /dev/net/tun");
    }
    if !Network::available_or_skip() {
        return;
    }
    let example = Example::start("vip/run.sh", &[]);
    example.types(" curl ", "east-1 leads orders in term 1").await;
    example.types(" switchover ", "west-1").await;
    example.types(" curl ", "west-1 leads orders in term 2").await;
    example.interrupt();
}
