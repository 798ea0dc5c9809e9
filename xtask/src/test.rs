//! `cargo xtask test`.

mod bare;
mod filter;
mod full;
mod starts;
mod totals;

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum as _;
use tempfile::NamedTempFile;
use zk_testkit::Ensemble;

use crate::cargo::{self, Stream, Target, cargo};
use crate::cli::TestArgs;
use crate::packages::{self, Release};
use filter::{Choice, Program};
use totals::Totals;

pub(crate) async fn run(args: &TestArgs) -> anyhow::Result<ExitCode> {
    let targets = cargo::targets()?;
    let choice = match args.zookeeper {
        Some(_) if args.filter.is_empty() => Choice::on_servers(starts::all(), args.full),
        _ => Choice::of(&args.filter, &targets),
    };
    let whole = choice.is_everything();
    let mut runs = vec![Run::prepare(choice, args.zookeeper, args.full, &targets).await?];
    if args.full && whole && args.zookeeper.is_none() {
        let again = Choice::Programs(starts::on_either_server());
        runs.push(Run { on_apache: true, ..Run::prepare(again, None, true, &targets).await? });
        let first = packages::ensure_zookeeper().await?;
        let others = Release::value_variants().iter().copied();
        for release in others.filter(|release| !first.version().is_some_and(|version| release.has(version))) {
            let on_servers = Choice::on_servers(starts::by_release(), false);
            runs.push(Run::prepare(on_servers, Some(release), true, &targets).await?);
        }
    }
    let choice = &runs[0].choice;
    let packages = choice.packages();
    if packages.as_ref().is_none_or(|packages| packages.contains("election-tests")) {
        packages::offer_contenders().await;
    }
    if packages.as_ref().is_none_or(|packages| packages.contains("dr-worker")) {
        // Tests that need one are skipped with a message without it.
        packages::offer("prometheus", "/usr/bin/promtool").await;
        packages::offer("haproxy", "/usr/sbin/haproxy").await;
        packages::offer("rsync", "/usr/bin/rsync").await;
        packages::offer("chromium", "/usr/bin/chromium").await;
    }
    if packages.as_ref().is_none_or(|packages| packages.contains("e2e")) {
        packages::offer("postgresql", "/usr/lib/postgresql").await;
        packages::offer("dpkg-dev", "/usr/bin/dpkg-shlibdeps").await;
        packages::offer("systemd", "/usr/bin/systemd-analyze").await;
        packages::offer("curl", "/usr/bin/curl").await;
    }
    let starts_programs = |packages: &BTreeSet<&str>| packages.contains("e2e");
    if packages.as_ref().is_none_or(starts_programs) {
        // The whole workspace at once, so that the features are those of the tests.
        let mut build = cargo(["build", "--workspace", "--bins", "--all-features"]);
        if !cargo::run(&mut build).await?.success() {
            bail!("cannot build the workspace");
        }
    }
    if !has_nextest() {
        eprintln!("{WITHOUT_NEXTEST}");
    }
    let (mut totals, mut sound, mut complaints) = (Totals::default(), true, BTreeSet::new());
    for run in &runs {
        let (more, passed) = run.run().await?;
        complaints.extend(run.complaints()?);
        if runs.len() > 1 {
            println!("{}: {more}", run.name());
        }
        sound &= passed && !more.is_empty();
        totals = totals + more;
    }
    if args.full && whole {
        complaints.extend(full::checks().await?);
    }
    if totals.is_empty() {
        let ignored = if args.full { "" } else { "; --full runs ignored tests too" };
        eprintln!("no test matches {}{ignored}", args.filter.join(" "));
    }
    if whole && !args.full {
        let left_out = starts::on_either_server();
        totals.skipped += listed(&left_out)?;
        println!(
            "{} tests were left out: doubles and long runs; tests/README.md lists them, and `cargo xtask test --full` \
             runs them",
            totals.skipped
        );
    }
    // Last, below the output of the run.
    for complaint in &complaints {
        eprintln!("error: {complaint}");
    }
    println!("{totals}");
    Ok(if sound && complaints.is_empty() && totals.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

const WITHOUT_NEXTEST: &str = "\
cargo-nextest is not installed: `cargo test` runs the test programs one after the other, which takes about twice as \
long, and a test that hangs is not ended. `cargo install --locked cargo-nextest` builds it; \
https://nexte.st/docs/installation has binaries.";

/// Of the shared servers: short, so that short sessions are granted.
const TICK: Duration = Duration::from_millis(500);

/// Tests at a time for each core: most tests wait for a server.
const THREADS_PER_CORE: usize = 4;

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether its tests run several busy processes.
fn is_busy(program: &Target) -> bool {
    program.package == "e2e" || program.name.starts_with("job_")
}

/// The number of tests in these programs.
fn listed(programs: &[Program]) -> anyhow::Result<u64> {
    let mut command = cargo(["test", "--quiet", "--workspace", "--all-features"]);
    command.args(programs.iter().flat_map(|program| ["--test", &program.name]));
    let output = command.args(["--", "--list", "--format", "terse"]).output()?;
    if !output.status.success() {
        bail!("cannot list tests: {}", String::from_utf8_lossy(&output.stderr));
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    Ok(lines.lines().filter(|line| line.ends_with(": test")).count() as u64)
}

fn has_nextest() -> bool {
    Command::new("cargo-nextest")
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Tests on one release of ZooKeeper, or on the installed one.
struct Run<'a> {
    choice: Choice,
    release: Option<Release>,
    home: Option<PathBuf>,
    /// With the ignored tests: doubles and long runs.
    full: bool,
    /// Tests for either kind of server run on Apache ZooKeeper.
    on_apache: bool,
    targets: &'a [Target],
    /// The file in which its tests record the servers that they start.
    starts: NamedTempFile,
}

impl<'a> Run<'a> {
    async fn prepare(
        choice: Choice,
        release: Option<Release>,
        full: bool,
        targets: &'a [Target],
    ) -> anyhow::Result<Self> {
        let home = match release {
            Some(release) => Some(packages::ensure_release(release).await?),
            None => packages::ensure_zookeeper().await.map(|_| None)?,
        };
        let (full, on_apache) = (full || release.is_some(), release.is_some());
        Ok(Self { choice, release, home, full, on_apache, targets, starts: NamedTempFile::new()? })
    }

    /// Servers for end-to-end tests that do not disturb them. They end with this process.
    async fn shared_ensemble(&self) -> anyhow::Result<Option<Ensemble>> {
        let is_wanted = self.choice.packages().is_none_or(|packages| packages.contains("e2e"));
        if self.release.is_some() || self.on_apache || !is_wanted {
            return Ok(None);
        }
        let builder = Ensemble::builder().servers(3).tick_time(TICK);
        builder.start().await.map(Some).context("the ensemble of the end-to-end tests")
    }

    fn name(&self) -> String {
        match (self.release, self.on_apache) {
            (Some(release), _) => format!("on ZooKeeper {release}"),
            (None, true) => "again, on Apache ZooKeeper".to_owned(),
            (None, false) => "all tests".to_owned(),
        }
    }

    async fn run(&self) -> anyhow::Result<(Totals, bool)> {
        let shared = self.shared_ensemble().await?;
        let command = |args: &[&str]| {
            let mut command = cargo(args);
            command.env(starts::VARIABLE, self.starts.path());
            command.envs(shared.as_ref().map(|ensemble| ("E2E_ENSEMBLE", ensemble.dir())));
            command.envs(self.home.as_ref().map(|home| ("ZOOKEEPER_HOME", home)));
            if self.on_apache {
                command.env("TEST_SERVERS", "apache");
            }
            if self.full {
                let set = |name: &str| std::env::var_os(name).is_some();
                command.envs(full::LONG.into_iter().filter(|(name, _)| !set(name)));
            }
            command
        };
        let (mut totals, mut sound) =
            if has_nextest() { self.nextest(command).await? } else { self.plain(command).await? };
        if has_nextest() && self.choice.is_everything() {
            // cargo-nextest can't run them; `cargo test` has done so above.
            let mut doctests = command(&["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"]);
            let (more, passed) = counted(&mut doctests, Stream::Stdout, Totals::add_libtest_line).await?;
            totals = totals + more;
            sound &= passed;
        }
        Ok((totals, sound))
    }

    /// Differences between the servers that its tests have started and the tables of `starts`.
    fn complaints(&self) -> anyhow::Result<Vec<String>> {
        starts::complaints(self.starts.path(), self.targets, &self.choice, self.release)
    }

    async fn nextest(&self, command: impl Fn(&[&str]) -> Command) -> anyhow::Result<(Totals, bool)> {
        let mut command = command(&["nextest", "run", "--all-features", "--no-tests", "pass"]);
        match self.choice.packages() {
            Some(packages) => command.args(packages.iter().flat_map(|name| ["--package", name])),
            None => command.arg("--workspace"),
        };
        if std::io::stderr().is_terminal() {
            command.args(["--color", "always"]);
        }
        // Tests on embedded servers mostly wait; .config/nextest.toml lists those that need more than one thread.
        let threads = cores() * if self.on_apache { 1 } else { THREADS_PER_CORE };
        command.args(["--test-threads", &threads.to_string()]);
        if self.full {
            command.args(["--run-ignored", "all"]);
        }
        if let Some(expression) = self.choice.nextest_expression() {
            command.args(["--filterset", &expression]);
        }
        let (totals, success) = counted(&mut command, Stream::Stderr, Totals::add_nextest_line).await?;
        // Tests outside of the filter do not count as skipped.
        let skipped = if self.choice.is_everything() { totals.skipped } else { 0 };
        Ok((Totals { skipped, ..totals }, success))
    }

    /// Arguments for `cargo test`, and the number of threads.
    fn cargo_test_arguments(&self) -> Vec<(Vec<String>, usize)> {
        if !self.choice.is_everything() {
            return self.choice.cargo_test_arguments().into_iter().map(|args| (args, cores())).collect();
        }
        let (busy, waiting): (Vec<&Target>, Vec<&Target>) =
            self.targets.iter().filter(|target| target.is_test()).partition(|target| is_busy(target));
        let programs = |targets: &[&Target]| {
            let names: BTreeSet<&str> = targets.iter().map(|target| target.name.as_str()).collect();
            names.into_iter().flat_map(|name| ["--test".to_owned(), name.to_owned()]).collect::<Vec<_>>()
        };
        let with = |first: &[&str], programs: Vec<String>| {
            let first = ["--workspace"].iter().chain(first).map(ToString::to_string);
            first.chain(programs).collect::<Vec<_>>()
        };
        vec![
            (with(&["--lib", "--bins", "--examples"], programs(&waiting)), 2 * cores()),
            (with(&[], programs(&busy)), cores()),
            (with(&["--doc"], Vec::new()), cores()),
        ]
    }

    async fn plain(&self, command: impl Fn(&[&str]) -> Command) -> anyhow::Result<(Totals, bool)> {
        let mut all = (Totals::default(), true);
        for (mut args, threads) in self.cargo_test_arguments() {
            if self.full {
                let separated = args.iter().any(|arg| arg == "--");
                args.extend((!separated).then(|| "--".to_owned()));
                args.push("--include-ignored".to_owned());
            }
            let mut command = command(&["test", "--all-features", "--no-fail-fast"]);
            command.args(args).env("RUST_TEST_THREADS", threads.to_string());
            let (totals, success) = counted(&mut command, Stream::Stdout, Totals::add_libtest_line).await?;
            all = (all.0 + totals, all.1 && success);
        }
        Ok(all)
    }
}

async fn counted(
    command: &mut Command,
    stream: Stream,
    add: fn(&mut Totals, &str),
) -> anyhow::Result<(Totals, bool)> {
    let totals = Arc::new(Mutex::new(Totals::default()));
    let counting = Arc::clone(&totals);
    let look = move |line: &str| {
        add(&mut counting.lock().unwrap_or_else(PoisonError::into_inner), line);
    };
    let status = cargo::run_and_read(command, stream, look).await?;
    let totals = *totals.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((totals, status.success()))
}
