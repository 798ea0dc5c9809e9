//! Patroni, with a PostgreSQL server of its own.

use std::{
    fs,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    process,
};

use tokio::process::Command;
use zk_session::Session;

use crate::{
    contender::{Contender, printed},
    running::{End, Running, Start},
};

/// PostgreSQL refuses to run as root. Debian's package has this user.
const USER: &str = "postgres";

/// The session timeout, and the time between two looks, in seconds: the defaults.
const TTL: u32 = 30;
const LOOP_WAIT: u32 = 10;

/// The znodes below this one are those of the cluster.
const ROOT: &str = "/service/footprint";

/// What is installed into Patroni's environment. The driver of PostgreSQL is that of Patroni's documentation.
const PACKAGES: [&str; 2] = ["patroni[zookeeper]", "psycopg2-binary"];

pub(crate) struct Patroni {
    /// The virtual environment.
    environment: PathBuf,
    version: String,
    python: String,
    postgres: PathBuf,
    directory: PathBuf,
    session: Session,
}

impl Patroni {
    /// Installs it, and starts it once, so that the cluster exists.
    pub(crate) async fn prepare(directory: &Path, connect: &str) -> Result<Self, String> {
        let postgres = find_postgres()?;
        let environment = install()?;
        let version = printed(process::Command::new(environment.join("bin/patroni")).arg("--version"))?;
        let python = printed(process::Command::new(environment.join("bin/python")).arg("--version"))?;
        fs::create_dir_all(directory).map_err(|error| error.to_string())?;
        let ports = [free_port()?, free_port()?];
        let text = configuration(directory, &postgres, connect, ports);
        fs::write(directory.join("patroni.yml"), text).map_err(|error| error.to_string())?;
        if is_root() {
            printed(process::Command::new("chown").args(["-R", USER]).arg(directory))?;
            // The user has to reach it.
            let above = directory.parent().ok_or("no directory")?;
            printed(process::Command::new("chmod").arg("a+x").arg(above))?;
        }
        let session = Session::builder(connect).connect().await.map_err(|error| error.to_string())?;
        let patroni =
            Self { environment, version, python, postgres, directory: directory.to_owned(), session };
        let mut first = Running::start(patroni.command(0), "initialized a new cluster").await?;
        first.leads_after().await?;
        first.end().await?;
        Ok(patroni)
    }

    /// A command of PostgreSQL or Patroni, as the user that may run it.
    fn command_of(&self, program: &Path) -> process::Command {
        let mut command = if is_root() {
            let mut command = process::Command::new("setpriv");
            command.args(["--reuid", USER, "--regid", USER, "--init-groups"]).arg(program);
            command
        } else {
            process::Command::new(program)
        };
        command.current_dir(&self.directory);
        command
    }
}

impl Contender for Patroni {
    fn name(&self) -> String {
        self.version.replace("patroni", "Patroni")
    }

    fn note(&self) -> String {
        format!(
            "its process, without PostgreSQL, which runs already at a start; ttl {TTL} s, loop_wait {LOOP_WAIT} s (its defaults); its Python \
             packages, without Python ({})",
            self.python
        )
    }

    fn command(&self, _: u32) -> Start {
        let mut command = self.command_of(&self.environment.join("bin/patroni"));
        command.arg("patroni.yml");
        // PostgreSQL goes on.
        Start { command: Command::from(command), end: End::Hard }
    }

    fn leads(&self) -> &'static str {
        "acquired session lock as a leader"
    }

    fn bytes(&self) -> Result<u64, String> {
        let packages = self.environment.join("lib");
        let size = printed(
            process::Command::new("du")
                .args(["-sb", "--exclude=pip*", "--exclude=setuptools*"])
                .arg(packages),
        )?;
        size.split_whitespace().next().and_then(|size| size.parse().ok()).ok_or_else(|| format!("du: {size}"))
    }

    fn clear<'a>(&'a mut self) -> Pin<Box<dyn Future<Output = Result<(), String>> + 'a>> {
        Box::pin(async {
            for name in ["leader", "members/node-1"] {
                // Those of a killed process stay until the end of its session.
                let _ = self.session.delete(&format!("{ROOT}/{name}"), None).await;
            }
            Ok(())
        })
    }
}

impl Drop for Patroni {
    fn drop(&mut self) {
        if !self.directory.join("data/postmaster.pid").exists() {
            return;
        }
        let mut stop = self.command_of(&self.postgres.join("pg_ctl"));
        let stopped = stop.args(["stop", "--silent", "--mode", "immediate", "--pgdata", "data"]).output();
        if let Ok(output) = stopped
            && !output.status.success()
        {
            eprintln!("PostgreSQL was not stopped: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The newest PostgreSQL of Debian.
fn find_postgres() -> Result<PathBuf, String> {
    let all = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let all = all.map(|entry| entry.path().join("bin")).filter(|bin| bin.join("pg_ctl").is_file());
    all.max().ok_or_else(|| {
        "there is no PostgreSQL in /usr/lib/postgresql; on Debian: apt-get install postgresql".to_owned()
    })
}

/// The virtual environment in the target directory, which is made once. Another user has to be able to run its Python, so it
/// is that of the system if that exists.
fn install() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = this.ancestors().nth(3).ok_or("no target directory")?;
    let (environment, done) = (target.join("patroni"), target.join("patroni/installed"));
    if done.exists() {
        return Ok(environment);
    }
    eprintln!("installing {} from PyPI into {}", PACKAGES.join(" and "), environment.display());
    let system = Path::new("/usr/bin/python3");
    let python = if system.exists() { system } else { Path::new("python3") };
    printed(process::Command::new(python).args(["-m", "venv", "--clear"]).arg(&environment))?;
    printed(process::Command::new(environment.join("bin/pip")).args(["install", "--quiet"]).args(PACKAGES))?;
    fs::write(done, "").map_err(|error| error.to_string())?;
    Ok(environment)
}

fn free_port() -> Result<u16, String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    Ok(listener.local_addr().map_err(|error| error.to_string())?.port())
}

fn configuration(directory: &Path, postgres: &Path, connect: &str, [http, sql]: [u16; 2]) -> String {
    let (directory, postgres) = (directory.display(), postgres.display());
    let hosts: Vec<_> = connect.split(',').map(|host| format!("'{host}'")).collect();
    format!(
        "scope: footprint\n\
         name: node-1\n\
         zookeeper:\n  hosts: [{}]\n\
         restapi:\n  listen: 127.0.0.1:{http}\n  connect_address: 127.0.0.1:{http}\n\
         bootstrap:\n  dcs: {{ttl: {TTL}, loop_wait: {LOOP_WAIT}}}\n  initdb: [encoding: UTF8]\n\
         postgresql:\n  listen: 127.0.0.1:{sql}\n  connect_address: 127.0.0.1:{sql}\n  \
           data_dir: {directory}/data\n  bin_dir: {postgres}\n  pgpass: {directory}/pgpass\n  \
           authentication:\n    \
             superuser: {{username: postgres, password: only-here}}\n    \
             replication: {{username: replicator, password: only-here}}\n  \
           parameters: {{unix_socket_directories: {directory}}}\n",
        hosts.join(", ")
    )
}
