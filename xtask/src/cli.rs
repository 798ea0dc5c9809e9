//! What can be asked for.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::packages::Release;

/// The chores of this workspace.
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) chore: Chore,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Chore {
    /// Run the tests: of every kind, those on a real ensemble and the doctests included.
    ///
    /// A test that exists for several drivers or servers runs with one of each, unless
    /// --full is given; tests/README.md lists those doubles, and what each can find.
    ///
    /// Installs Debian's ZooKeeper and a Java runtime first if neither they nor
    /// ZOOKEEPER_HOME are there. A release that is asked for is that of ZOOKEEPER_HOME or
    /// of Debian's packages on this machine; or else Debian's, which is fetched into the
    /// target directory and installed nowhere. Uses cargo-nextest if it is installed, else
    /// `cargo test`. The last line gives the totals; skipped are those that only --full
    /// runs. A test that can't find what it needs fails where CI=true.
    Test(TestArgs),
    /// Show the main job: two sites, two workers each, a job that fails over.
    ///
    /// Starts four workers on this machine, kills the leading one, takes a site away
    /// and brings it back, forces a failover, and then counts: exit code 0 only if
    /// every order was booked exactly once. Needs nothing installed: a server in the
    /// demo's process stands in for ZooKeeper. Ctrl-C ends everything.
    Demo(DemoArgs),
    /// Start, look at, or end a real ZooKeeper ensemble on loopback.
    #[command(subcommand)]
    Ensemble(EnsembleChore),
    /// Run a benchmark, or all of them.
    Bench(BenchArgs),
    /// Print what it takes to build the libraries: how many crates each is made of.
    BuildFigures(BuildFiguresArgs),
    /// Print the size of each crate as a Markdown table: lines, public items, the largest files, files in circles.
    Figures(FiguresArgs),
    /// Check the election engine in every order of events, with a bounded number of
    /// faults, and print how many states that took.
    ///
    /// Takes about half an hour. A trace follows where a promise does not hold, and
    /// the exit code is not 0. docs/model.md says what is modelled.
    Model(ModelArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Only the tests that start servers of Apache ZooKeeper, on this release; with
    /// a filter, those that fit it.
    #[arg(long, value_name = "RELEASE")]
    pub(crate) zookeeper: Option<Release>,
    /// The ignored tests too: each driver, each kind of server, more seeds and cuts. Without a
    /// filter also each other release of ZooKeeper for what can depend on it
    /// (xtask/src/test/starts.rs), each feature of zk-session alone, cargo-deny if it is
    /// installed, and .ci/run on a bare Debian. Takes some hours.
    #[arg(long)]
    pub(crate) full: bool,
    /// Part of a test's name, a package, or a file such as
    /// crates/zk-testkit/tests/proxy.rs; several widen the choice.
    pub(crate) filter: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// On three servers of Apache ZooKeeper; installs Debian's package first if it
    /// isn't there.
    #[arg(long)]
    pub(crate) real: bool,
    /// When the demo is over leave everything running, until Ctrl-C, and print
    /// what to try.
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The benchmark's name; all of them without one.
    pub(crate) name: Option<String>,
    /// Handed to the benchmark.
    #[arg(last = true)]
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BuildFiguresArgs {
    /// Build each, from nothing in an empty directory, and print the seconds that takes.
    #[arg(long)]
    pub(crate) build: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FiguresArgs {
    /// Print each circle of modules and folders, and the lines of code that are its edges.
    #[arg(long)]
    pub(crate) circles: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Part of the name of a run; all of them without one.
    pub(crate) run: Option<String>,
    /// How many faults may happen, in the place of what the run has.
    #[arg(long, value_name = "N")]
    pub(crate) faults: Option<u8>,
    /// How often something may overtake what is to happen before it, in the place of
    /// what the run has.
    #[arg(long, value_name = "N")]
    pub(crate) overtakes: Option<u8>,
    /// No more states than so many; a run that has more fails.
    #[arg(long, value_name = "N")]
    pub(crate) states: Option<usize>,
    /// A rule of the engine that is switched off, such as Lease.
    #[arg(long, value_name = "RULE")]
    pub(crate) without: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EnsembleChore {
    /// Start the servers, wait until they serve, print the connect string. They
    /// run on until `down`.
    Up(EnsembleUp),
    /// End the servers. Their data stays unless --wipe is given.
    Down(EnsembleDown),
    /// Print each server's address, process and mode. Exit code 1 unless all of
    /// them serve.
    Status(EnsembleDir),
}

#[derive(Debug, Args)]
pub(crate) struct EnsembleDir {
    /// Where the servers' configuration, data, logs and process ids are; by
    /// default .ensemble in the workspace.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct EnsembleUp {
    #[command(flatten)]
    pub(crate) at: EnsembleDir,
    /// How many servers.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) servers: usize,
    /// With n servers, clients connect to P .. P+n-1; the 2n ports after those
    /// are the servers' own.
    #[arg(long, value_name = "P", default_value_t = 21811)]
    pub(crate) base_port: u16,
}

#[derive(Debug, Args)]
pub(crate) struct EnsembleDown {
    #[command(flatten)]
    pub(crate) at: EnsembleDir,
    /// Remove the data and the logs too.
    #[arg(long)]
    pub(crate) wipe: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
