//! `.ci/run` on a bare Debian, where it installs what it needs.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::totals::Totals;
use crate::cargo::{self, Stream};
use crate::packages;

/// Arguments: the root, the workspace, the toolchain (rustup's and cargo's directories). It runs in its own mount and
/// process namespaces, so nothing outlives the script. The root is bound to itself, because it has to be a mount point.
///
/// `pivot_root`, not `chroot`: `nsenter --mount`, with which tests enter the namespaces they make, leaves a chroot. The
/// shell stays, as the init process: it reaps orphans, which PostgreSQL else takes for running servers.
const ENTER: &str = r#"
set -eu
root=$1 workspace=$2 rustup=$3 cargo=$4
mount --make-rprivate /
mount --bind "$root" "$root"
mkdir -p "$root/workspace" "$root$rustup" "$root$cargo" "$root/target" "$root/former"
mount --bind "$workspace" "$root/workspace"
mount --bind "$rustup" "$root$rustup"
mount --bind "$cargo" "$root$cargo"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
[ ! -d /sys/fs/cgroup ] || mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/run"
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
cd "$root"
pivot_root . former
cd /
umount --lazy /former
rmdir /former
status=0
/usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM=dumb RUSTUP_HOME="$rustup" CARGO_HOME="$cargo" CARGO_TARGET_DIR=/target \
    PATH="$cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    /workspace/.ci/run || status=$?
exit "$status"
"#;

/// The packages that rustup needs, before `.ci/run` can install anything.
const INCLUDED: &str = "ca-certificates,gcc,libc6-dev";

/// The complaint, if there is one. If the check is impossible here, prints the reason and returns nothing.
///
/// # Errors
/// A program can't be started, or a directory can't be created.
pub(super) async fn check() -> anyhow::Result<Option<String>> {
    if let Some(why) = impossible().await {
        eprintln!("SKIPPED: .ci/run on a bare Debian: {why}");
        return Ok(None);
    }
    let target = cargo::target_directory()?;
    let root = tempfile::Builder::new().prefix("bare-").tempdir_in(&target)?;
    eprintln!("creating a bare Debian in {}", root.path().display());
    let mut debootstrap = Command::new("debootstrap");
    let include = format!("--include={INCLUDED}");
    debootstrap
        .args(["--variant=minbase", &include, packages::SUITE])
        .arg(root.path())
        .arg(packages::mirror());
    if !cargo::run(&mut debootstrap).await?.success() {
        eprintln!("SKIPPED: .ci/run on a bare Debian: debootstrap failed");
        return Ok(None);
    }
    let (totals, passed) = run(root.path()).await?;
    println!("on a bare Debian: {totals}");
    Ok((!passed).then(|| format!(".ci/run fails on a bare Debian: {totals}")))
}

async fn run(root: &Path) -> anyhow::Result<(Totals, bool)> {
    let home = |variable: &str, default: &str| {
        let given = std::env::var_os(variable).map(PathBuf::from);
        given.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(default)))
    };
    let rustup = home("RUSTUP_HOME", ".rustup").context("neither RUSTUP_HOME nor HOME is set")?;
    let cargo = home("CARGO_HOME", ".cargo").context("neither CARGO_HOME nor HOME is set")?;
    let mut script = tempfile::NamedTempFile::new()?;
    script.write_all(ENTER.as_bytes())?;
    let mut enter = Command::new("unshare");
    enter.args(["--mount", "--pid", "--fork", "--kill-child", "--", "sh"]).arg(script.path());
    enter.args([root, cargo::root(), &rustup, &cargo]);
    super::counted(&mut enter, Stream::Stdout, Totals::add_own_line).await
}

/// The reason why the check is impossible here.
async fn impossible() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("it needs root".to_owned());
    }
    if !packages::offer("debootstrap", "/usr/sbin/debootstrap").await {
        return Some("debootstrap is not installed".to_owned());
    }
    let unshare = Command::new("unshare").args(["--mount", "--pid", "--fork", "true"]).output();
    match unshare {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}
