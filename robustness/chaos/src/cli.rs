//! The command line.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

/// Break a deployment by a schedule, and check what it promises.
#[derive(Debug, Parser)]
#[command(name = "chaos", bin_name = "cargo xtask chaos", disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// What the schedule is drawn from; by default a random one.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How long things are broken; starting, healing and checking take a minute more.
    #[arg(long, value_name = "M", default_value_t = 5.0)]
    minutes: f64,
    /// The directory of schedule, history, logs and report; by default chaos/SEED in the target directory. What is in it is
    /// removed.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The check that must find something, because the program under test is broken: the exit code is 0 if it does.
    #[arg(long, value_name = "CHECK")]
    pub(crate) expect: Option<String>,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Run the schedule of an earlier run again. Processes and networks have their own times, so the outcome can differ.
    Replay {
        /// Its directory.
        dir: PathBuf,
    },
}

impl Cli {
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| fastrand::u64(..1_000_000))
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some minutes")]
    pub(crate) fn length_ms(&self) -> u64 {
        (self.minutes.max(0.0) * 60_000.0) as u64
    }

    pub(crate) fn replayed(&self) -> Option<&Path> {
        match &self.what {
            Some(What::Replay { dir }) => Some(dir),
            None => None,
        }
    }

    /// Makes the directory of the run, without what an earlier run has left in it.
    pub(crate) fn directory(&self) -> anyhow::Result<PathBuf> {
        let exe = std::env::current_exe()?;
        let target = exe.ancestors().nth(2).unwrap_or(Path::new("."));
        let usual = || match (self.replayed(), self.seed) {
            (Some(_), _) => target.join("chaos/replay"),
            (None, Some(seed)) => target.join(format!("chaos/{seed}")),
            (None, None) => target.join("chaos/random"),
        };
        let dir = self.dir.clone().unwrap_or_else(usual);
        for known in ["history", "logs", "servers"] {
            let _ = fs::remove_dir_all(dir.join(known));
        }
        fs::create_dir_all(dir.join("history"))?;
        fs::create_dir_all(dir.join("logs"))?;
        Ok(fs::canonicalize(dir)?)
    }
}
