//! `cargo xtask test`.

mod changed;
mod filter;
mod full;
mod timings;
mod totals;

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::ValueEnum as _;
use tempfile::NamedTempFile;
use zk_testkit::Ensemble;

use crate::cargo::{self, Stream, Target, cargo};
use crate::cli::TestArgs;
use crate::packages::{self, Release};
use filter::Choice;
use timings::Spent;
use totals::Totals;

pub(crate) async fn run(args: &TestArgs) -> anyhow::Result<ExitCode> {
    let begin = Instant::now();
    let skips = NamedTempFile::new()?;
    let targets = cargo::targets()?;
    let whole = args.filter.is_empty() && args.zookeeper.is_none();
    let choice = match args.zookeeper {
        Some(_) if args.filter.is_empty() => Choice::by_release(&targets),
        Some(_) => Choice::of(&args.filter, &targets).on_servers(),
        None => Choice::of(&args.filter, &targets),
    };
    let mut runs = vec![Run::prepare(choice, args.zookeeper, args.full, &targets).await?];
    if args.full && whole {
        let again = Choice::on_either_server();
        runs.push(Run { on_apache: true, ..Run::prepare(again, None, true, &targets).await? });
        let first = packages::ensure_zookeeper().await?;
        let others = Release::value_variants().iter().copied();
        for release in others.filter(|release| !first.version().is_some_and(|version| release.has(version))) {
            let on_servers = Choice::by_release(&targets);
            runs.push(Run::prepare(on_servers, Some(release), true, &targets).await?);
        }
    }
    let untouched = if whole && !args.full { changed::untouched() } else { Vec::new() };
    if args.full && whole {
        runs[0].choice.leave_out([full::MODEL].into_iter());
    }
    runs[0].choice.leave_out(untouched.iter().map(|(_, expression)| *expression));
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
    let prepared = Spent::since(begin)?;
    if let Some(mut build) = runs[0].build()
        && !cargo::run(&mut build).await?.success()
    {
        bail!("cannot build the tests");
    }
    let built = Spent::since(begin)?;
    if !has_nextest() {
        eprintln!("{WITHOUT_NEXTEST}");
    }
    let (mut totals, mut sound, mut complaints) = (Totals::default(), true, BTreeSet::new());
    for run in &runs {
        let (more, passed) = run.run(skips.path()).await?;
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
    for (what, _) in &untouched {
        println!("left out, because nothing that they depend on has changed: tests of {what}");
    }
    if whole && !args.full {
        println!(
            "{} tests were left out: doubles and long runs; tests/README.md lists them, and `cargo xtask test --full` \
             runs them",
            totals.skipped
        );
    }
    if args.timings {
        let ended = Spent::since(begin)?;
        match timings::by_file() {
            Ok(table) => print!("{table}"),
            Err(error) => eprintln!("no times of tests, which cargo-nextest measures: {error:#}"),
        }
        println!("{}", built.row(prepared, "build"));
        println!("{}", ended.row(built, "tests"));
    }
    let skips: BTreeSet<String> = std::fs::read_to_string(skips.path())?.lines().map(str::to_owned).collect();
    if !skips.is_empty() {
        println!("some tests were skipped:");
        skips.iter().for_each(|why| println!("  {why}"));
        if std::env::var_os("CI").is_some() {
            complaints.insert("CI is set, and tests were skipped".to_owned());
        }
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

/// Not the examples: tests have those that run as modules, and clippy sees all of them.
const TESTS: &str = "--tests";

/// All doctests. `--doc` overrules a manifest's `doctest = false`, and those of the mutated copy are election-core's.
const DOCTESTS: [&str; 3] = ["--doc", "--exclude", "election-mutants"];

/// Test programs in which one test runs at a time: they measure their process, or find orphans of one another.
const ALONE: &str = "alone";

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
        Ok(Self { choice, release, home, full, on_apache, targets })
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

    /// What has to be built first: everything at once, so that nothing is built again with other features.
    fn build(&self) -> Option<Command> {
        if self.choice.is_everything() {
            return Some(cargo(["test", "--workspace", "--all-features", TESTS, "--no-run"]));
        }
        let starts_programs = self.choice.packages().is_none_or(|packages| packages.contains("e2e"));
        starts_programs.then(|| cargo(["build", "--workspace", "--bins", "--all-features"]))
    }

    fn name(&self) -> String {
        match (self.release, self.on_apache) {
            (Some(release), _) => format!("on ZooKeeper {release}"),
            (None, true) => "again, on Apache ZooKeeper".to_owned(),
            (None, false) => "all tests".to_owned(),
        }
    }

    async fn run(&self, skips: &Path) -> anyhow::Result<(Totals, bool)> {
        let shared = self.shared_ensemble().await?;
        let command = |args: &[&str]| {
            let mut command = cargo(args);
            command.env("TEST_SKIPS", skips);
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
            let mut doctests = command(&["test", "--workspace", "--all-features", "--no-fail-fast"]);
            doctests.args(DOCTESTS);
            let (more, passed) = counted(&mut doctests, Stream::Stdout, Totals::add_libtest_line).await?;
            totals = totals + more;
            sound &= passed;
        }
        Ok((totals, sound))
    }

    async fn nextest(&self, command: impl Fn(&[&str]) -> Command) -> anyhow::Result<(Totals, bool)> {
        let mut command = command(&["nextest", "run", "--all-features", TESTS, "--no-tests", "pass"]);
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
        let tests = self.targets.iter().filter(|target| target.is_test() && target.name != ALONE);
        let names: BTreeSet<&str> = tests.map(|target| target.name.as_str()).collect();
        let with = |kinds: &[&str], names: &mut dyn Iterator<Item = &str>| {
            let programs = names.flat_map(|name| ["--test".to_owned(), name.to_owned()]);
            let kinds = ["--workspace"].iter().chain(kinds).map(ToString::to_string);
            kinds.chain(programs).collect()
        };
        vec![
            (with(&["--lib", "--bins"], &mut names.into_iter()), 2 * cores()),
            (with(&[], &mut [ALONE].into_iter()), 1),
            (with(&DOCTESTS, &mut std::iter::empty()), cores()),
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
