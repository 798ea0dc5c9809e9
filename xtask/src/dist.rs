//! `cargo xtask dist`.

mod deb;
mod package;
mod pages;
mod rpm;
mod third_party;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};
use nix::sys::stat::{Mode, umask};

use crate::cargo::{self, cargo};
use crate::cli::DistArgs;

pub(crate) use package::entries;

/// The program, and its package.
pub(crate) const NAME: &str = "dr-worker";

/// Where each shell of Debian looks for completions.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "dr-worker"), ("zsh", "_dr-worker"), ("fish", "dr-worker.fish")];

pub(crate) async fn run(args: &DistArgs) -> anyhow::Result<ExitCode> {
    // The directories of a package have the modes with which they are made here.
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    let target = cargo::target_directory()?;
    let program = match &args.program {
        Some(program) => std::path::absolute(program)?,
        None => built(&target).await?,
    };
    let out = args.out.clone().unwrap_or_else(|| target.join(if args.rpm { "rpm" } else { "deb" }));
    let out = std::path::absolute(out)?;
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let work = tempfile::tempdir().context("cannot make a temporary directory")?;
    let generated = work.path().join("generated");
    generate(&program, &generated).await?;
    fs::write(generated.join("THIRD-PARTY"), third_party::made()?)?;
    let package = package::Package::read(NAME, args.revision)?;
    let root = work.path().join("root");
    let installed = package.install(&program, &generated, &root)?;
    let file = if args.rpm {
        let parts = work.path().join("parts");
        fs::create_dir(&parts)?;
        package.build_rpm(&root, &out, &parts, args.fast).await?
    } else {
        package.build_deb(installed, &root, &out, args.fast).await?
    };
    println!("{}", file.display());
    Ok(ExitCode::SUCCESS)
}

async fn built(target: &Path) -> anyhow::Result<PathBuf> {
    let mut build = cargo(["build", "--locked", "--profile", "dist", "-p", NAME]);
    cargo::succeed(&mut build, &format!("cargo cannot build {NAME}")).await?;
    Ok(target.join("dist").join(NAME))
}

/// The files that the program writes about itself: manual pages and completions.
async fn generate(program: &Path, dir: &Path) -> anyhow::Result<()> {
    let pages = dir.join("man");
    fs::create_dir_all(&pages)?;
    succeed(Command::new(program).arg("man").arg(&pages)).await?;
    for page in fs::read_dir(&pages)? {
        succeed(Command::new("gzip").args(["--best", "--no-name"]).arg(page?.path())).await?;
    }
    for (shell, name) in COMPLETIONS {
        let script = output(Command::new(program).args(["completions", shell]))?;
        let dir = dir.join(shell);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(name), script)?;
    }
    Ok(())
}

pub(crate) async fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    cargo::succeed(command, &program).await
}

/// The standard output of a command that succeeds.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| {
        format!("cannot start {program}; on Debian, install dpkg, dpkg-dev, rpm and gzip first")
    })?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}: {}", output.status, errors.trim());
    Ok(String::from_utf8(output.stdout)?)
}
