//! Installs what a fresh machine lacks.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use zk_testkit::{Error, Installation};

use crate::cargo;

/// The servers' jars and a Java runtime without a desktop. (The package
/// `zookeeper` would add a daemon's scripts and X11 libraries.)
const PACKAGES: [&str; 2] = ["libzookeeper-java", "default-jre-headless"];

/// Makes sure that ZooKeeper servers can be started: uses what is there, else
/// installs Debian's packages.
///
/// # Errors
/// What is missing and how to get it, where it can't be installed from here.
pub(crate) async fn ensure_zookeeper() -> anyhow::Result<()> {
    let missing = match Installation::find() {
        Ok(_) => return Ok(()),
        Err(error @ (Error::JarsMissing { .. } | Error::JavaMissing { .. })) => error,
        Err(error) => return Err(error.into()),
    };
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!("{missing}\nThere is no apt-get on this machine, so install them another way.");
    }
    // With ZOOKEEPER_HOME only Java can be missing.
    let wanted = match &missing {
        Error::JarsMissing { .. } => &PACKAGES[..],
        _ => &PACKAGES[1..],
    };
    eprintln!("installing {}, because: {missing}", wanted.join(" and "));
    apt_get(&["update", "--quiet"]).await?;
    let mut install = vec!["install", "--yes", "--quiet", "--no-install-recommends"];
    install.extend(wanted);
    apt_get(&install).await?;
    Installation::find().context("apt-get has installed the packages, and yet")?;
    Ok(())
}

/// What contenders of Curator's and kazoo's are made of, which share elections with ours in tests.
const CONTENDERS: [&str; 3] = ["default-jdk-headless", "libcurator-recipes-java", "python3-kazoo"];

/// Installs what the tests with other implementations need, if it can. Those tests skip
/// without it, and say so; so nothing here is an error.
pub(crate) async fn offer_contenders() {
    if contenders_are_there() || !Path::new("/usr/bin/apt-get").exists() {
        return;
    }
    eprintln!("installing {}, for tests with other implementations", CONTENDERS.join(", "));
    let mut install = vec!["install", "--yes", "--quiet", "--no-install-recommends"];
    install.extend(CONTENDERS);
    let installed = async {
        apt_get(&["update", "--quiet"]).await?;
        apt_get(&install).await
    };
    if let Err(error) = installed.await {
        eprintln!("tests with other implementations will be skipped: {error:#}");
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
    let status = cargo::run(&mut command).await?;
    if !status.success() {
        bail!("apt-get {}: {status}", args.join(" "));
    }
    Ok(())
}

fn sudo_without_password() -> bool {
    Command::new("sudo").args(["-n", "true"]).output().is_ok_and(|output| output.status.success())
}
