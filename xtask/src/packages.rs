//! Installs missing packages.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use zk_testkit::{Error, Installation};

use crate::cargo;

/// The servers' jars and a Java runtime without a desktop. (The package
/// `zookeeper` would add a daemon's scripts and X11 libraries.)
const PACKAGES: [&str; 2] = ["libzookeeper-java", "default-jre-headless"];

/// The packages of a server, apart from Java: ZooKeeper, its logging, metrics and command line, TLS.
const OF_A_SERVER: [&str; 7] = [
    "libzookeeper-java",
    "libslf4j-java",
    "libdropwizard-metrics-java",
    "libsnappy-java",
    "libnetty-java",
    "libcommons-cli-java",
    "libcommons-io-java",
];

/// A release of ZooKeeper that the tests run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Release {
    #[value(name = "3.8")]
    V3_8,
    #[value(name = "3.9")]
    V3_9,
}

impl Release {
    fn name(self) -> &'static str {
        match self {
            Self::V3_8 => "3.8",
            Self::V3_9 => "3.9",
        }
    }

    /// The Debian suite that has it.
    fn suite(self) -> &'static str {
        match self {
            Self::V3_8 => "bookworm",
            Self::V3_9 => "trixie",
        }
    }

    /// Whether a version such as `3.9.3` belongs to it.
    pub(crate) fn has(self, version: &str) -> bool {
        version.strip_prefix(self.name()).is_some_and(|rest| rest.starts_with('.'))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Makes sure that ZooKeeper servers can be started: uses an installation, else installs Debian's packages.
///
/// # Errors
/// What is missing and how to get it, if it can't be installed.
pub(crate) async fn ensure_zookeeper() -> anyhow::Result<Installation> {
    ensure(Installation::find).await
}

/// A directory for `ZOOKEEPER_HOME` with that release: the one that is set, that of Debian's packages on this machine, or
/// one below the target directory, into which Debian's packages are fetched once.
///
/// # Errors
/// What is missing and what to do, if it can't be fetched.
pub(crate) async fn ensure_release(release: Release) -> anyhow::Result<PathBuf> {
    let fetched = cargo::target_directory()?.join(format!("zookeeper-{release}"));
    let set = std::env::var_os("ZOOKEEPER_HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    for home in set.into_iter().chain([PathBuf::from("/"), fetched.clone()]) {
        if has(&home, release).await? {
            return Ok(home);
        }
    }
    fetch(release, &fetched).await.with_context(|| {
        format!(
            "there is no ZooKeeper {release} on this machine, and Debian's could not be fetched: unpack a release of \
             Apache ZooKeeper {release} and set ZOOKEEPER_HOME to its directory"
        )
    })?;
    Ok(fetched)
}

async fn has(home: &Path, release: Release) -> anyhow::Result<bool> {
    match Installation::at(home) {
        Err(Error::NotAZookeeperHome { .. }) => Ok(false),
        _ => {
            let installation = ensure(|| Installation::at(home)).await?;
            Ok(installation.version().is_some_and(|version| release.has(version)))
        }
    }
}

/// Unpacks Debian's packages below the directory, without an installation. apt-get has its own root for that, and uses
/// this machine's mirror.
async fn fetch(release: Release, home: &Path) -> anyhow::Result<()> {
    let suite = release.suite();
    eprintln!("fetching ZooKeeper {release} of Debian {suite} into {}", home.display());
    let target = cargo::target_directory()?;
    std::fs::create_dir_all(&target)?;
    let work = tempfile::Builder::new().prefix("zookeeper-").tempdir_in(&target)?;
    let at = |name: &str| work.path().join(name);
    for dir in ["none", "lists/partial", "archives/partial", "debs", "tree"] {
        std::fs::create_dir_all(at(dir))?;
    }
    std::fs::write(at("status"), "")?;
    let sources = format!("deb [signed-by={DEBIAN_KEYS}] {} {suite} main\n", mirror());
    std::fs::write(at("sources.list"), sources)?;
    let apt_get = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        for (setting, name) in APT_ROOT {
            command.arg("-o").arg(format!("{setting}={}", at(name).display()));
        }
        command.args(["-o", "APT::Sandbox::User=", "-o", "Acquire::Languages=none", "-qq"]);
        command.args(args).current_dir(at("debs"));
        command
    };
    succeed(&mut apt_get(&["update"])).await?;
    succeed(apt_get(&["download"]).args(OF_A_SERVER)).await?;
    for deb in std::fs::read_dir(at("debs"))? {
        succeed(Command::new("dpkg-deb").arg("--extract").arg(deb?.path()).arg(at("tree"))).await?;
    }
    if !has(&at("tree"), release).await? {
        bail!("Debian {suite} has another release of ZooKeeper");
    }
    // The rename is atomic; another process may have been faster.
    match std::fs::rename(at("tree"), home) {
        Err(_) if has(home, release).await? => Ok(()),
        renamed => renamed.with_context(|| format!("cannot make {}", home.display())),
    }
}

const DEBIAN_KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The files and directories of apt-get's own root.
const APT_ROOT: [(&str, &str); 8] = [
    ("Dir::Etc::sourcelist", "sources.list"),
    ("Dir::Etc::sourceparts", "none"),
    ("Dir::Etc::preferences", "none"),
    ("Dir::Etc::preferencesparts", "none"),
    ("Dir::State", "."),
    ("Dir::State::lists", "lists"),
    ("Dir::State::status", "status"),
    ("Dir::Cache", "."),
];

/// This machine's mirror of Debian, if it has one.
fn mirror() -> String {
    let sources = std::fs::read_to_string("/etc/apt/sources.list.d/debian.sources").unwrap_or_default();
    let named = sources.lines().find_map(|line| line.strip_prefix("URIs:")?.split_whitespace().next());
    named.unwrap_or("http://deb.debian.org/debian").to_owned()
}

/// The result of `find`, after the installation of Debian's packages if those are missing.
async fn ensure(find: impl Fn() -> Result<Installation, Error>) -> anyhow::Result<Installation> {
    let missing = match find() {
        Err(error @ (Error::JarsMissing { .. } | Error::JavaMissing { .. })) => error,
        found => return Ok(found?),
    };
    if !has_apt_get() {
        bail!("{missing}\nthis machine has no apt-get: install them another way");
    }
    // If ZooKeeper is there, only Java can be missing.
    let wanted = match &missing {
        Error::JarsMissing { .. } => &PACKAGES[..],
        _ => &PACKAGES[1..],
    };
    eprintln!("installing {}: {missing}", wanted.join(" and "));
    install(wanted).await?;
    find().context("after apt-get has installed the packages")
}

/// The packages of Curator's and kazoo's contenders, which take part in elections of the tests.
const CONTENDERS: [&str; 3] = ["default-jdk-headless", "libcurator-recipes-java", "python3-kazoo"];

/// Installs the packages for the tests with other implementations, if it can. Those tests are skipped with a message
/// without them, so a failure is no error.
pub(crate) async fn offer_contenders() {
    if contenders_are_there() || !has_apt_get() {
        return;
    }
    eprintln!("installing {}, for tests with other implementations", CONTENDERS.join(", "));
    if let Err(error) = install(&CONTENDERS).await {
        eprintln!("tests with other implementations are skipped: {error:#}");
    }
}

/// Installs the package of a program, if it can.
pub(crate) async fn offer(package: &str, program: &str) {
    if !Path::new(program).exists()
        && has_apt_get()
        && let Err(error) = install(&[package]).await
    {
        eprintln!("{error:#}");
    }
}

fn contenders_are_there() -> bool {
    let succeeds = |program: &str, args: &[&str]| {
        Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
    };
    let has_kazoo = |python| succeeds(python, &["-c", "import kazoo"]);
    succeeds("javac", &["-version"])
        && Path::new("/usr/share/java/curator-recipes.jar").exists()
        && (has_kazoo("python3") || has_kazoo("/usr/bin/python3"))
}

fn has_apt_get() -> bool {
    Path::new("/usr/bin/apt-get").exists()
}

async fn install(packages: &[&str]) -> anyhow::Result<()> {
    apt_get(&["update", "--quiet"]).await?;
    let install = ["install", "--yes", "--quiet", "--no-install-recommends"];
    apt_get(&[&install[..], packages].concat()).await
}

async fn apt_get(args: &[&str]) -> anyhow::Result<()> {
    let mut command = if nix::unistd::geteuid().is_root() {
        Command::new("apt-get")
    } else if sudo_without_password() {
        let mut sudo = Command::new("sudo");
        // sudo drops the environment.
        sudo.args(["-n", "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        sudo
    } else {
        bail!(
            "installing needs root, and sudo asks for a password here; run this first:\n  \
             sudo apt-get update && sudo apt-get install --no-install-recommends {}",
            PACKAGES.join(" ")
        );
    };
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    succeed(&mut command).await
}

async fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    cargo::succeed(command, &line).await
}

fn sudo_without_password() -> bool {
    Command::new("sudo").args(["-n", "true"]).output().is_ok_and(|output| output.status.success())
}
