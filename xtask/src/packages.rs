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
