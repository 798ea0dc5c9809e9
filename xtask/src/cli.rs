//! The command line.

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
    /// Run tests of every kind, including those on a real ensemble and the doctests.
    ///
    /// A test that exists for several drivers or servers runs with one of each, unless
    /// --full is given; tests/README.md lists the doubles and their purpose.
    ///
    /// Installs Debian's ZooKeeper and a Java runtime first if they are missing and
    /// ZOOKEEPER_HOME is not set. A requested release is that of ZOOKEEPER_HOME or of
    /// Debian's packages on this machine; otherwise Debian's is fetched into the target
    /// directory, without an installation. Test programs run side by side. The last line shows
    /// the totals; the skipped tests are those that only --full runs. With CI=true a test
    /// that can't find what it needs fails.
    Test(TestArgs),
    /// Run the demo: two sites, two workers each, a job that fails over.
    ///
    /// Starts four workers on this machine, kills the leading one, stops and restarts a
    /// site, forces a failover, and checks the result: exit code 0 only if every order was
    /// booked exactly once. Uses an embedded ZooKeeper server. Ctrl-C ends everything.
    Demo(DemoArgs),
    /// Build the Debian package of dr-worker, or the RPM package, and print its path.
    ///
    /// Builds the program with the profile `dist`, and has it write its manual pages and
    /// completions. The package is as [package.metadata.deb] in apps/dr-worker/Cargo.toml
    /// describes it. Needs dpkg, dpkg-dev and gzip; for an RPM package, rpmbuild and gzip.
    Dist(DistArgs),
    /// Make the files of a release, and print their checksums.
    ///
    /// Makes both packages, an archive and the bill of materials, all of them twice, and compares them byte for
    /// byte. The program of the archive needs no library of the system if the target x86_64-unknown-linux-musl is
    /// installed. Publishes nothing. Needs what `dist` needs, and readelf.
    Release(ReleaseArgs),
    /// Start, show, or end a real ZooKeeper ensemble on loopback.
    #[command(subcommand)]
    Ensemble(EnsembleChore),
    /// Run a benchmark, or all of them.
    ///
    /// `postgres` runs only if it is named: it compares failovers of PostgreSQL under Patroni and dr-worker. It needs
    /// root, `ip`, PostgreSQL and pip, and installs Patroni from PyPI into a temporary directory. `--rounds N` sets the
    /// number of rounds of each event, `--sync` makes commits wait for the standby, `--worker FILE` uses a program that
    /// is already built.
    Bench {
        /// The benchmark's name; by default all.
        name: Option<String>,
        /// Arguments of the benchmark, such as `--help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Print the number of crates that each library needs.
    BuildFigures {
        /// Build each in an empty directory, and print the seconds.
        #[arg(long)]
        build: bool,
    },
    /// Print the size of each crate as a Markdown table.
    ///
    /// The table shows lines, public items, the largest files, and files in circles.
    Figures {
        /// Print each circle of modules and folders, with the lines that are its edges.
        #[arg(long)]
        circles: bool,
    },
    /// Write the table in docs/metrics.md and the Grafana dashboard.
    ///
    /// Both are made from dr-worker's list of metrics.
    Dashboard,
    /// Build the documentation as a site, and print the path of its first page.
    ///
    /// Uses mdBook's library. The site needs no server and no other host. Fails if a link has no target.
    Book,
    /// Check the election engine in every order of events, with a few faults.
    ///
    /// The number of faults is bounded. Prints the number of states. Takes about half an
    /// hour. If an invariant is broken, prints the trace, and the exit code is not 0.
    /// docs/model.md describes the model.
    Model(ModelArgs),
    /// Break a whole deployment by a random schedule, and check what it promises.
    ///
    /// The schedule is drawn from a seed. The deployment: four workers of two sites and three servers of Apache
    /// ZooKeeper, each on a host of its own; jobs that write to a store; operators. Needs root, `ip` and
    /// `iptables-restore`. The directory of a run, by default chaos/SEED in the target directory, contains its
    /// schedule, its history, the logs and the report. Exit code 1 if a promise was broken.
    /// docs/reliability.md describes it.
    Chaos(ChaosArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ChaosArgs {
    /// Break a rule of dr-worker on purpose, in a copy; `all` breaks each in turn.
    ///
    /// Succeeds if the check for this rule notices. Without ARGS, follows the schedule that was written for it, in
    /// robustness/chaos/sabotages.
    #[arg(long, value_name = "NAME")]
    pub(crate) sabotage: Option<String>,
    /// Arguments of the program `chaos`: --seed N, --minutes M, --dir DIR, replay DIR.
    ///
    /// `replay DIR` repeats the schedule of an earlier run.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Run only tests that can depend on the release of Apache ZooKeeper, on this one.
    ///
    /// With a filter, runs those that match it and do not run on the embedded server.
    #[arg(long, value_name = "RELEASE")]
    pub(crate) zookeeper: Option<Release>,
    /// Also run ignored tests: each driver, each kind of server, more seeds and cuts.
    ///
    /// Without a filter, also tests the other release of ZooKeeper where a test can depend on it
    /// (xtask/src/test/filter.rs), each feature of zk-session alone and the packages of all crates, and
    /// runs cargo-deny if it is installed. Does not include the long runs of the model: use `cargo xtask model`.
    /// Takes about an hour on two cores.
    #[arg(long)]
    pub(crate) full: bool,
    /// Print where the minutes went: building, and each file of tests.
    #[arg(long)]
    pub(crate) timings: bool,
    /// Part of a test's name, a package, or a file; several filters add up.
    ///
    /// A file is given by its path, such as crates/zk-testkit/tests/it/proxy.rs.
    pub(crate) filter: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Use three servers of Apache ZooKeeper.
    ///
    /// Installs Debian's package first if it is missing.
    #[arg(long)]
    pub(crate) real: bool,
    /// Keep everything running after the demo until Ctrl-C; print commands to try.
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DistArgs {
    /// Use a program that is already built.
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
    /// Build an RPM package instead of a Debian one, with the same files.
    #[arg(long)]
    pub(crate) rpm: bool,
    /// The directory of the package; by default `deb` or `rpm` in the target directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// The last part of the package's version.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) revision: u32,
    /// Do not compress the package.
    #[arg(long)]
    pub(crate) fast: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// Allow any commit.
    ///
    /// Without it, the commit must have the tag of the version, and Cargo.toml must contain no placeholder.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Use a program that is already built.
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Part of the name of a run; by default all.
    pub(crate) run: Option<String>,
    /// The number of faults that may happen, instead of the run's own.
    #[arg(long, value_name = "N")]
    pub(crate) faults: Option<u8>,
    /// How often an event may overtake an earlier one, instead of the run's own number.
    #[arg(long, value_name = "N")]
    pub(crate) overtakes: Option<u8>,
    /// The maximum number of states; a run with more fails.
    #[arg(long, value_name = "N")]
    pub(crate) states: Option<usize>,
    /// A rule of the engine to drop, such as Lease.
    #[arg(long, value_name = "RULE")]
    pub(crate) without: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EnsembleChore {
    /// Start the servers, wait until they serve, and print the connect string.
    ///
    /// They run until `down`.
    Up(EnsembleUp),
    /// End the servers. Their data stays unless --wipe is given.
    Down(EnsembleDown),
    /// Print each server's address, process and mode. Exit code 1 unless all serve.
    Status(EnsembleDir),
}

#[derive(Debug, Args)]
pub(crate) struct EnsembleDir {
    /// The directory of the servers; by default .ensemble in the workspace.
    ///
    /// It contains their configuration, data, logs and process ids.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct EnsembleUp {
    #[command(flatten)]
    pub(crate) at: EnsembleDir,
    /// The number of servers.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) servers: usize,
    /// The first port: with n servers, clients connect to ports P .. P+n-1.
    ///
    /// Among themselves the servers use the 2n ports after those.
    #[arg(long, value_name = "P", default_value_t = 21811)]
    pub(crate) base_port: u16,
}

#[derive(Debug, Args)]
pub(crate) struct EnsembleDown {
    #[command(flatten)]
    pub(crate) at: EnsembleDir,
    /// Also remove the data and the logs.
    #[arg(long)]
    pub(crate) wipe: bool,
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use clap::CommandFactory as _;

    use super::*;
    use crate::cargo;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// The words after each `cargo xtask` of a text: up to the end of the code or of the line, or to a choice in brackets.
    fn chores(text: &str) -> Vec<Vec<&str>> {
        let lines = text.split("cargo xtask ").skip(1);
        let lines = lines.filter_map(|rest| rest.split(['`', '#', '|', ')', '[', '\n']).next());
        lines.map(words).collect()
    }

    /// The words of a line. What is between quotes is one word.
    fn words(line: &str) -> Vec<&str> {
        let parts = line.trim_end_matches(" -->").split('\'').enumerate();
        let words = parts.flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        });
        words.collect()
    }

    #[test]
    fn the_chores_that_documents_name_are_chores() -> anyhow::Result<()> {
        let documents = cargo::root().join("docs");
        let summary = std::fs::read_to_string(documents.join("SUMMARY.md"))?;
        let pages = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let (mut wrong, mut count) = (Vec::new(), 0);
        for page in pages.filter(|page| !page.is_empty()) {
            let text = std::fs::read_to_string(documents.join(page)).with_context(|| page.to_owned())?;
            for words in chores(&text) {
                count += 1;
                let parsed = Cli::try_parse_from(["xtask"].iter().chain(&words));
                if let Err(error) = parsed {
                    wrong.push(format!("{page}: {}: {error}", words.join(" ")));
                }
                let is_missing = |word: &&&str| word.ends_with(".rs") && !cargo::root().join(word).is_file();
                let missing = words.iter().filter(is_missing);
                wrong.extend(missing.map(|word| format!("{page}: there is no {word}")));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(count > 50, "only {count} were found");
        Ok(())
    }
}
