//! `cargo xtask test`.

mod changed;
mod classes;
mod filter;
mod full;
mod other_version;
mod output;
mod schedule;
mod timings;
mod totals;

use std::collections::BTreeSet;
use std::ops::Add as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum as _;
use tempfile::NamedTempFile;
use zk_testkit::Ensemble;

use crate::cargo::{self, Built, cargo};
use crate::cli::TestArgs;
use crate::packages::{self, Release};
use filter::Choice;
use schedule::{Done, Task};
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
    let mut runs = vec![Run::prepare(choice, args.zookeeper, args.full).await?];
    if args.full && whole {
        let again = Choice::on_either_server();
        runs.push(Run { on_apache: true, ..Run::prepare(again, None, true).await? });
        let first = packages::ensure_zookeeper().await?;
        let others = Release::value_variants().iter().copied();
        for release in others.filter(|release| !first.version().is_some_and(|version| release.has(version))) {
            let on_servers = Choice::by_release(&targets);
            runs.push(Run::prepare(on_servers, Some(release), true).await?);
        }
    }
    let untouched = if whole && !args.full { changed::untouched() } else { Vec::new() };
    if args.full && whole {
        runs[0].choice.leave_out([full::MODEL]);
    }
    runs[0].choice.leave_out(untouched.iter().flat_map(|(_, tests)| *tests).copied());
    offer_packages(&runs[0].choice).await;
    let prepared = Spent::since(begin)?;
    let programs = runs[0].build().await?;
    let built = Spent::since(begin)?;
    equip(&mut runs, args, whole).await?;
    let (mut totals, mut sound, mut complaints) = (Totals::default(), true, BTreeSet::new());
    let mut done = Vec::new();
    for run in &runs {
        let ended = run.run(&programs, skips.path(), args.timings).await?;
        let more = ended.iter().map(|program| program.totals).fold(Totals::default(), Totals::add);
        if runs.len() > 1 {
            println!("{}: {more}", run.name());
        }
        sound &= ended.iter().all(|program| program.has_succeeded) && !more.is_empty();
        totals = totals + more;
        done.extend(ended);
    }
    if args.full && whole {
        complaints.extend(full::checks().await?);
    }
    if totals.is_empty() {
        let ignored = if args.full { "" } else { "; --full runs ignored tests too" };
        eprintln!("no test matches {}{ignored}", args.filter.join(" "));
    }
    for (what, _) in &untouched {
        println!("left out the tests of {what}: nothing that they depend on has changed");
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
        print!("{}", timings::by_file(done.iter().map(|program| (&*program.name, &*program.cases)))?);
        println!("{}", built.row(prepared, "build"));
        println!("{}", ended.row(built, "tests"));
    }
    if print_skips(skips.path())? && std::env::var_os("CI").is_some() {
        complaints.insert("CI is set, and tests were skipped".to_owned());
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

/// Makes what the tests use beside their programs.
async fn equip(runs: &mut [Run], args: &TestArgs, whole: bool) -> anyhow::Result<()> {
    if args.full && runs[0].choice.may_choose(other_version::TESTS) {
        runs[0].other_version = other_version::build().await?;
    }
    // Only of the installed release.
    if args.zookeeper.is_none() {
        let classes = classes::archive(whole).await?;
        runs.iter_mut().filter(|run| run.home.is_none()).for_each(|run| run.classes.clone_from(&classes));
    }
    Ok(())
}

/// Offers the programs that tests need. Without one its tests are skipped with a message.
async fn offer_packages(choice: &Choice) {
    const NEEDED: [(&str, &str, &str); 11] = [
        ("dr-worker", "prometheus", "/usr/bin/promtool"),
        ("dr-worker", "haproxy", "/usr/sbin/haproxy"),
        ("dr-worker", "rsync", "/usr/bin/rsync"),
        ("dr-worker", "apparmor", "/usr/sbin/apparmor_parser"),
        ("dr-worker", "chromium", "/usr/bin/chromium"),
        ("dr-worker", "ansible-core", "/usr/bin/ansible-playbook"),
        ("e2e", "postgresql", "/usr/lib/postgresql"),
        ("e2e", "redis-server", "/usr/bin/redis-server"),
        ("e2e", "dpkg-dev", "/usr/bin/dpkg-shlibdeps"),
        ("e2e", "systemd", "/usr/bin/systemd-analyze"),
        ("e2e", "curl", "/usr/bin/curl"),
    ];
    let tested = choice.packages();
    let is_tested = |of: &str| tested.as_ref().is_none_or(|packages| packages.contains(of));
    if is_tested("election-tests") {
        packages::offer_contenders().await;
    }
    for (_, package, program) in NEEDED.into_iter().filter(|(of, ..)| is_tested(of)) {
        packages::offer(package, program).await;
    }
}

/// Prints why tests were skipped. Returns whether any was.
fn print_skips(file: &Path) -> anyhow::Result<bool> {
    let skips: BTreeSet<String> = std::fs::read_to_string(file)?.lines().map(str::to_owned).collect();
    if !skips.is_empty() {
        println!("some tests were skipped:");
        skips.iter().for_each(|why| println!("  {why}"));
    }
    Ok(!skips.is_empty())
}

/// Of the shared servers: short, so that short sessions are granted.
const TICK: Duration = Duration::from_millis(500);

/// Tests at a time for each core, beside those that compute: most tests wait for a server.
const THREADS_PER_CORE: usize = 3;

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Not the examples: tests have those that run as modules, and clippy sees all of them.
const TESTS: &str = "--tests";

/// All doctests. `--doc` overrules a manifest's `doctest = false`, and those of the mutated copy are election-core's.
const DOCTESTS: [&str; 7] =
    ["test", "--workspace", "--all-features", "--no-fail-fast", "--doc", "--exclude", "election-mutants"];

/// Tests on one release of ZooKeeper, or on the installed one.
struct Run {
    choice: Choice,
    release: Option<Release>,
    home: Option<PathBuf>,
    /// With the ignored tests: doubles and long runs.
    full: bool,
    /// Tests for either kind of server run on Apache ZooKeeper.
    on_apache: bool,
    /// The program that upgrades begin from.
    other_version: Option<PathBuf>,
    /// An archive of the servers' classes.
    classes: Option<PathBuf>,
}

impl Run {
    async fn prepare(choice: Choice, release: Option<Release>, full: bool) -> anyhow::Result<Self> {
        let home = match release {
            Some(release) => Some(packages::ensure_release(release).await?),
            None => packages::ensure_zookeeper().await.map(|_| None)?,
        };
        let (full, on_apache) = (full || release.is_some(), release.is_some());
        Ok(Self { choice, release, home, full, on_apache, other_version: None, classes: None })
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

    /// Builds everything at once, so that nothing is built again with other features.
    async fn build(&self) -> anyhow::Result<Vec<Built>> {
        let packages = self.choice.packages();
        if packages.as_ref().is_some_and(|packages| packages.contains("e2e")) {
            // Those that its tests start.
            cargo::build(&mut cargo(["build", "--workspace", "--bins", "--all-features"])).await?;
        }
        let mut tests = cargo(["test", "--all-features", TESTS, "--no-run"]);
        match packages {
            Some(packages) => tests.args(packages.iter().flat_map(|name| ["--package", name])),
            None => tests.arg("--workspace"),
        };
        let built = cargo::build(&mut tests).await?;
        Ok(built.into_iter().filter(|program| program.is_test).collect())
    }

    fn name(&self) -> String {
        match (self.release, self.on_apache) {
            (Some(release), _) => format!("on ZooKeeper {release}"),
            (None, true) => "again, on Apache ZooKeeper".to_owned(),
            (None, false) => "all tests".to_owned(),
        }
    }

    async fn run(&self, programs: &[Built], skips: &Path, with_times: bool) -> anyhow::Result<Vec<Done>> {
        let shared = self.shared_ensemble().await?;
        let environment = |command: &mut Command| {
            command.env("TEST_SKIPS", skips);
            command.envs(shared.as_ref().map(|ensemble| ("E2E_ENSEMBLE", ensemble.dir())));
            command.envs(self.home.as_ref().map(|home| ("ZOOKEEPER_HOME", home)));
            command.envs(self.classes.as_ref().map(|archive| (classes::VARIABLE, archive)));
            command.envs(self.other_version.as_ref().map(|program| (other_version::VARIABLE, program)));
            if self.on_apache {
                command.env("TEST_SERVERS", "apache");
            }
            if self.full {
                let set = |name: &str| std::env::var_os(name).is_some();
                command.envs(full::LONG.into_iter().filter(|(name, _)| !set(name)));
            }
        };
        // A server of Apache ZooKeeper takes a core to start.
        let threads = cores() * if self.on_apache { 1 } else { THREADS_PER_CORE };
        let mut tasks = Vec::new();
        for program in programs {
            let Some(choice) = self.choice.arguments(&program.target) else { continue };
            let (place, manner) = schedule::manner(&program.target.package, &program.target.name);
            let mut command = manner.command(program.executable.as_os_str());
            command.current_dir(&program.directory).env("CARGO_MANIFEST_DIR", &program.directory);
            command.args(choice).args(["--test-threads", &manner.threads(threads).to_string()]);
            command.args(self.full.then_some("--include-ignored"));
            if with_times {
                // The report of times is not stable.
                command.args(["-Zunstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1");
            }
            environment(&mut command);
            let name = format!("{}::{}", program.target.package, program.target.name);
            tasks.push((place, Task { name, manner, command }));
        }
        if self.choice.is_everything() {
            let mut command = cargo(DOCTESTS);
            // Its lines are read.
            command.env("CARGO_TERM_QUIET", "false").env("CARGO_TERM_COLOR", "never");
            environment(&mut command);
            let (place, manner) = schedule::manner("", "doctests");
            tasks.push((place, Task { name: "doctests".to_owned(), manner, command }));
        }
        tasks.sort_by_key(|(place, _)| *place);
        let tasks = tasks.into_iter().map(|(_, task)| task).collect();
        schedule::run(tasks, threads, schedule::patience(self.full), !self.choice.is_everything()).await
    }
}
