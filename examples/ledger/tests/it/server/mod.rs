//! A PostgreSQL server for the tests, which leaves nothing behind when they end.

use std::fs::File;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use postgres::{Client, NoTls};

/// A running server that listens on a Unix socket in its own directory, so that no other process can take its port
/// meanwhile.
pub struct Server {
    directory: tempfile::TempDir,
    databases: AtomicU32,
    /// Closed to stop the server.
    stop: Option<mpsc::Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

/// The server of the present tests: the first test starts it, the last one stops it.
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

impl Server {
    /// The shared server, or why there can be none.
    pub fn shared() -> Result<Arc<Self>, String> {
        // A test that failed to start it has poisoned nothing that matters.
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(server) = shared.upgrade() {
            return Ok(server);
        }
        let server = Arc::new(Self::start(&find_programs()?)?);
        *shared = Arc::downgrade(&server);
        Ok(server)
    }

    fn start(programs: &Path) -> Result<Self, String> {
        let account = ServerAccount::choose()?;
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        account.own(directory.path())?;
        let data = directory.path().join("data");
        let log = directory.path().join("log");

        let initdb = account
            .command(&programs.join("initdb"))
            .args([
                "--auth=trust",
                "--username=postgres",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
                "-D",
            ])
            .arg(&data)
            .current_dir(directory.path())
            .output()
            .map_err(|error| format!("initdb can't be run: {error}"))?;
        if !initdb.status.success() {
            return Err(format!("initdb failed: {}", String::from_utf8_lossy(&initdb.stderr)));
        }

        let mut command = account.command(&programs.join("postgres"));
        let log_file = File::create(&log).map_err(|error| error.to_string())?;
        command
            // The data does not have to survive the test, so it does not have to reach the disk.
            .args(["-c", "fsync=off", "-c", "listen_addresses=", "-c", "max_connections=60", "-k"])
            .arg(directory.path())
            .arg("-D")
            .arg(&data)
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(log_file.try_clone().map_err(|error| error.to_string())?)
            .stderr(log_file);
        let (stop, keeper) = keep(command)?;
        let server = Self { directory, databases: AtomicU32::new(0), stop: Some(stop), keeper: Some(keeper) };
        server.wait_ready(&log)?;
        Ok(server)
    }

    fn wait_ready(&self, log: &Path) -> Result<(), String> {
        let started = Instant::now();
        while let Err(error) = self.connect("postgres") {
            if started.elapsed() > Duration::from_secs(30) {
                let log = std::fs::read_to_string(log).unwrap_or_default();
                return Err(format!("the server does not answer: {error}; its log: {log}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Creates an empty database and returns its name.
    pub fn new_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.connect("postgres").unwrap().batch_execute(&format!("CREATE DATABASE {name}")).unwrap();
        name
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres:///{database}?user=postgres&host={}", self.directory.path().display())
    }

    pub fn connect(&self, database: &str) -> Result<Client, postgres::Error> {
        Client::connect(&self.url(database), NoTls)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// Runs the server in a thread of its own, until the sender is dropped.
///
/// The server is set to die with its parent, in case this process is killed. For the kernel the parent is the thread
/// that started it, and a test's own thread may end before the server.
fn keep(mut command: Command) -> Result<(mpsc::Sender<()>, JoinHandle<()>), String> {
    let (stop, stopped) = mpsc::channel::<()>();
    let (report, started) = mpsc::channel();
    let keeper = std::thread::spawn(move || {
        let child = command.spawn();
        match child {
            Ok(child) => {
                let _ = report.send(Ok(()));
                // Ends when the sender is dropped.
                let _ = stopped.recv();
                end(child);
            }
            Err(error) => {
                let _ = report.send(Err(format!("postgres can't be run: {error}")));
            }
        }
    });
    started.recv().map_err(|error| error.to_string())??;
    Ok((stop, keeper))
}

/// SIGQUIT: the server ends its own children and stops at once. SIGKILL would
/// leave them behind.
fn end(mut server: Child) {
    let _ = kill(Pid::from_raw(i32::try_from(server.id()).unwrap()), Signal::SIGQUIT);
    let _ = server.wait();
}

/// The user that the server runs as: it refuses to be root.
enum ServerAccount {
    Mine,
    Other(User),
}

impl ServerAccount {
    fn choose() -> Result<Self, String> {
        if !Uid::effective().is_root() {
            return Ok(Self::Mine);
        }
        match User::from_name("postgres") {
            Ok(Some(user)) => Ok(Self::Other(user)),
            _ => Err("this is root, and there is no user `postgres` to run the server as".into()),
        }
    }

    fn own(&self, directory: &Path) -> Result<(), String> {
        match self {
            Self::Mine => Ok(()),
            Self::Other(user) => chown(directory, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
                .map_err(|error| format!("{}: {error}", directory.display())),
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "QUIT"]);
        if let Self::Other(user) = self {
            command
                .arg(format!("--reuid={}", user.uid))
                .arg(format!("--regid={}", user.gid))
                .arg("--clear-groups");
        }
        command.arg("--").arg(program);
        command
    }
}

/// The directory of `initdb` and `postgres`: in PATH, or Debian's newest.
fn find_programs() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    versions.sort_by_key(number);
    std::env::split_paths(&path)
        .chain(versions.into_iter().rev().map(|version| version.join("bin")))
        .find(|directory| directory.join("initdb").is_file() && directory.join("postgres").is_file())
        .ok_or_else(|| "neither PATH nor /usr/lib/postgresql/*/bin holds initdb and postgres".into())
}
