//! `cargo xtask release`: the files that are offered for download, made twice and compared.

mod sbom;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};

use crate::cargo::{self, cargo};
use crate::cli::ReleaseArgs;
use crate::dist::{NAME, entries, output, succeed};
use crate::published;

/// The packages have a program of this target.
const DYNAMIC: &str = "x86_64-unknown-linux-gnu";

/// The archive has one of this target, which needs no library of a system, if the target is installed.
const STATIC: &str = "x86_64-unknown-linux-musl";

/// What readelf says of a program that the kernel puts anywhere, and that can't write to its own tables.
const HARDENED: [(&str, &str); 3] = [("-hW", "DYN ("), ("-lW", "GNU_RELRO"), ("-dW", "NOW")];

pub(crate) async fn run(args: &ReleaseArgs) -> anyhow::Result<ExitCode> {
    let packages = published::packages()?;
    let package = packages.iter().find(|package| package["name"] == NAME).context("no package")?;
    let version = package["version"].as_str().context("no version")?;
    let git = |args: &[&str]| output(Command::new("git").args(args).current_dir(cargo::root()));
    if !args.dry_run {
        let tag = format!("v{version}");
        ensure!(git(&["tag", "--points-at", "HEAD"])?.lines().any(|line| line == tag), "no tag {tag} here");
        let page = package["homepage"].as_str().unwrap_or("example.org");
        ensure!(!page.contains("example.org"), "Cargo.toml has placeholders for repository and homepage");
    }
    let time = git(&["log", "-1", "--format=%ct"])?.trim().to_owned();
    let out = cargo::target_directory()?.join("release-files");
    let mut sums = Vec::new();
    for turn in ["first", "second"] {
        let dir = out.join(turn);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        let program = built(args, DYNAMIC, turn).await?;
        let of_archive = if has_static()? { built(args, STATIC, turn).await? } else { program.clone() };
        package_files(&dir, &program, &of_archive, version, &time).await?;
        fs::write(dir.join(format!("{NAME}-{version}.cdx.json")), sbom::made(DYNAMIC)?)?;
        sums.push(checksums(&dir)?);
    }
    print!("{}", sums[0]);
    ensure!(sums[0] == sums[1], "two builds differ; the second:\n{}", sums[1]);
    println!("{}", out.join("first").display());
    Ok(ExitCode::SUCCESS)
}

fn has_static() -> anyhow::Result<bool> {
    let root = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    Ok(Path::new(root.trim()).join("lib/rustlib").join(STATIC).is_dir())
}

/// Builds the program in a directory of its own, whose path is not in it.
async fn built(args: &ReleaseArgs, target: &str, turn: &str) -> anyhow::Result<PathBuf> {
    let program = match (&args.program, turn) {
        (Some(program), _) => std::path::absolute(program)?,
        (None, turn) => {
            let dir = cargo::target_directory()?.join("release-builds").join(turn);
            let home = std::env::var("CARGO_HOME")
                .or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"))?;
            let paths = format!(
                "--remap-path-prefix={}=/src --remap-path-prefix={home}=/cargo",
                cargo::root().display()
            );
            let mut build = cargo(["build", "--locked", "--profile", "dist", "-p", NAME, "--target", target]);
            succeed(build.arg("--target-dir").arg(&dir).env("RUSTFLAGS", paths)).await?;
            dir.join(target).join("dist").join(NAME)
        }
    };
    for (option, needed) in HARDENED {
        let shown = output(Command::new("readelf").arg(option).arg(&program))?;
        ensure!(shown.contains(needed), "readelf {option} {}: no {needed}", program.display());
    }
    Ok(program)
}

/// The packages, and an archive of the same files.
async fn package_files(
    dir: &Path,
    program: &Path,
    of_archive: &Path,
    version: &str,
    time: &str,
) -> anyhow::Result<()> {
    for kind in [None, Some("--rpm")] {
        let mut dist = Command::new(std::env::current_exe()?);
        dist.arg("dist").args(kind).arg("--program").arg(program).arg("--out").arg(dir);
        succeed(dist.env("SOURCE_DATE_EPOCH", time)).await?;
    }
    let root = tempfile::tempdir().context("cannot make a temporary directory")?;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            // rpmbuild's, with the name of the architecture.
            for file in fs::read_dir(&path)? {
                let file = file?;
                fs::rename(file.path(), dir.join(file.file_name()))?;
            }
            fs::remove_dir(&path)?;
        } else {
            succeed(Command::new("dpkg-deb").arg("-x").arg(path).arg(root.path())).await?;
        }
    }
    let program = root.path().join("usr/bin").join(NAME);
    fs::copy(of_archive, &program)?;
    // Not what the umask of the build has made of it.
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    // Without the directories of the system, to which tar would give the modes of the archive.
    let list = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let members = entries(root.path(), NAME)?.into_iter().map(|entry| format!("./{}\n", entry.display()));
    fs::write(list.path(), members.collect::<String>())?;
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime"]).arg(format!("@{time}"));
    tar.arg("-czf").arg(dir.join(format!("{NAME}-{version}-x86_64-linux.tar.gz"))).arg("-C").arg(root.path());
    succeed(tar.args(["--no-recursion", "--files-from"]).arg(list.path())).await
}

/// Writes `SHA256SUMS`, and returns it.
fn checksums(dir: &Path) -> anyhow::Result<String> {
    let names = fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names = names.collect::<Result<Vec<_>, _>>()?;
    names.sort();
    let sums = output(Command::new("sha256sum").args(names).current_dir(dir))?;
    fs::write(dir.join("SHA256SUMS"), &sums)?;
    Ok(sums)
}
