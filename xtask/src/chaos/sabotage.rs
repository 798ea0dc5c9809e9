//! `cargo xtask chaos --sabotage NAME`: dr-worker with one rule broken on purpose, which a check must notice.
//!
//! The sources are copied, the copy is edited and built, and the chaos program of the copy runs. Nothing of this is in the
//! production code. A schedule that was written for the sabotage is in `robustness/chaos/sabotages`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail, ensure};

use super::{built, exit_code};
use crate::cargo::{self, cargo};

/// The engine's rules, each with what drops it.
#[allow(dead_code, reason = "the tests of election-core use the rest")]
#[path = "../../../crates/election-core/tests/mutants/mutations.rs"]
mod mutations;

use mutations::{Edit, RULES, replace};

const ENGINE: &str = "crates/election-core/src/";
const SCHEDULES: &str = "robustness/chaos/sabotages";
/// Runs them all.
const ALL: &str = "all";

/// A broken rule.
struct Sabotage {
    name: &'static str,
    /// The check that must find something.
    check: &'static str,
    breaks: Breaks,
}

enum Breaks {
    /// Texts of these files, by their paths in the workspace.
    Texts(&'static [Edit]),
    /// A rule of the engine.
    Engine(&'static str),
}

use Breaks::{Engine, Texts};

const GUARD: &str = "crates/job-guard/src/guard/guard_loop.rs";
const LATE_GUARD: Edit =
    ("crates/job-guard/src/guard/plan.rs", "before(end, KILL_RESERVE)", "end + KILL_RESERVE * 100");

const SABOTAGES: [Sabotage; 7] = [
    // At the end of the lease the guard does nothing.
    Sabotage { name: "guard-does-not-kill", check: "one-actor", breaks: Texts(&[LATE_GUARD]) },
    // What the job has started lives on.
    Sabotage {
        name: "guard-kills-main-process-only",
        check: "one-actor",
        breaks: Texts(&[
            (GUARD, "let _ = cgroup::kill(own.dir());", "let _ = own;"),
            (GUARD, "tree::Sweep::default().kill(Pid::this(), &mut lingering)", "Ok::<(), io::Error>(())"),
        ]),
    },
    // A leadership ends, and the job is not asked to.
    Sabotage {
        name: "stop-ignored",
        check: "one-actor",
        breaks: Texts(&[
            (
                "apps/dr-worker/src/worker/run/work.rs",
                "slot.end(by).await; slot.hooks",
                "let _ = by; slot.hooks",
            ),
            (
                "apps/dr-worker/src/worker/run/work.rs",
                "self.slot.stop_in_time(spent).await;",
                "let _ = spent;",
            ),
        ]),
    },
    // The store, with late writes to refuse.
    Sabotage {
        name: "older-token-accepted",
        check: "store-is-fenced",
        breaks: Texts(&[
            LATE_GUARD,
            (
                "robustness/chaos/src/store.rs",
                "if token < contents.token",
                "if token < contents.token && false",
            ),
        ]),
    },
    // The leader znode is deleted while the job still ends.
    Sabotage { name: "release-before-stop", check: "one-actor", breaks: Engine("WorkEndsFirst") },
    // The answer of a server that is cut off from the others proves the lease.
    Sabotage {
        name: "heartbeat-proves-itself",
        check: "one-actor",
        breaks: Texts(&[
            (
                "crates/zk-session/src/session/heartbeats.rs",
                "let quorum = self.wanted || !active;",
                "let quorum = !active;",
            ),
            (
                "crates/zk-session/src/session/heartbeats.rs",
                "match quorum {",
                "match quorum || self.wanted {",
            ),
            (
                "crates/zk-session/src/lease.rs",
                "let mut alive = heartbeat.attached;",
                "let mut alive = heartbeat.sent;",
            ),
        ]),
    },
    // A successor acts without having written the decision that names it.
    Sabotage { name: "commit-before-acting", check: "leader-in-time", breaks: Engine("Commit") },
];

/// Builds the copy, and runs its chaos program: by the schedule of the sabotage, or as `args` say. Before it runs them all, each
/// schedule must hold without its sabotage: else its check may have found something else.
pub(super) async fn run(name: &str, args: &[String]) -> anyhow::Result<ExitCode> {
    let chosen: Vec<&Sabotage> = SABOTAGES.iter().filter(|known| name == ALL || known.name == name).collect();
    if chosen.is_empty() {
        let known: Vec<_> = SABOTAGES.iter().map(|known| known.name).collect();
        bail!("unknown sabotage {name}; known: {ALL}, {}", known.join(", "));
    }
    if name == ALL && args.is_empty() {
        let chaos = built().await?;
        for sabotage in &chosen {
            println!("the schedule of {}, without it: every promise must hold", sabotage.name);
            let what = format!("the schedule of {} does not hold without it", sabotage.name);
            let mut run = cargo::program(&chaos);
            cargo::succeed(run.args(by_schedule(sabotage, "chaos/sound")?), &what).await?;
        }
    }
    let mut missed = Vec::new();
    for sabotage in chosen {
        let mut chaos = cargo::program(build(sabotage).await?);
        chaos.args(["--expect", sabotage.check]);
        if args.is_empty() {
            chaos.args(by_schedule(sabotage, "chaos/sabotage")?);
        }
        println!("sabotage {}: {} must notice it", sabotage.name, sabotage.check);
        let status = cargo::run(chaos.args(args)).await?;
        if !status.success() {
            missed.push((sabotage.name, exit_code(status)));
        }
    }
    for (name, _) in &missed {
        println!("not noticed: {name}");
    }
    Ok(missed.first().map_or(ExitCode::SUCCESS, |(_, code)| *code))
}

/// The arguments of a run by the schedule of the sabotage, in a directory below this one of the target directory.
fn by_schedule(sabotage: &Sabotage, below: &str) -> anyhow::Result<[PathBuf; 4]> {
    let dir = cargo::target_directory()?.join(below).join(sabotage.name);
    let schedule = cargo::root().join(SCHEDULES).join(sabotage.name);
    Ok(["--dir".into(), dir, "replay".into(), schedule])
}

/// Builds the programs of a copy with this sabotage, and gives the path of its chaos program.
async fn build(sabotage: &Sabotage) -> anyhow::Result<PathBuf> {
    let target = cargo::target_directory()?;
    let (copy, built) = (target.join("sabotage/source"), target.join("sabotage/target"));
    copy_sources(&copy, &sabotage.broken()?)?;
    if !built.exists() {
        // The dependencies are the same: they are not compiled again. Cargo writes into the files of `.fingerprint`.
        fs::create_dir_all(built.join("debug"))?;
        for (how, warm) in [("-al", "deps"), ("-al", "build"), ("-a", ".fingerprint")] {
            let from = target.join("debug").join(warm);
            let _ = cargo::run(Command::new("cp").arg(how).args([from, built.join("debug")])).await?;
        }
    }
    let mut build = cargo(["build", "--bins", "--package", "chaos", "--package", "dr-worker"]);
    build.current_dir(&copy).env("CARGO_TARGET_DIR", &built);
    cargo::succeed(&mut build, &format!("cargo cannot build the sabotage {}", sabotage.name)).await?;
    Ok(built.join("debug/chaos"))
}

/// Copies what is in the repository, with these files instead of those. What is the same already is not touched, so cargo does
/// not build it again.
fn copy_sources(to: &Path, instead: &BTreeMap<PathBuf, String>) -> anyhow::Result<()> {
    let mut list = cargo::program("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(cargo::root());
    let listed = list.output().context("cannot start git")?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    for path in String::from_utf8(listed.stdout)?.split_terminator('\0').map(Path::new) {
        let from = cargo::root().join(path);
        if !from.is_file() {
            continue;
        }
        let new = match instead.get(path) {
            Some(text) => text.clone().into_bytes(),
            None => fs::read(&from).with_context(|| from.display().to_string())?,
        };
        let to = to.join(path);
        if fs::read(&to).is_ok_and(|old| old == new) {
            continue;
        }
        fs::create_dir_all(to.parent().context("no directory")?)?;
        fs::write(&to, new).with_context(|| to.display().to_string())?;
    }
    Ok(())
}

impl Sabotage {
    fn edits(&self) -> anyhow::Result<Vec<(PathBuf, &'static str, String)>> {
        let (below, edits) = match self.breaks {
            Texts(edits) => ("", edits),
            Engine(rule) => {
                let rule = RULES.iter().find(|known| known.name == rule);
                let missing = || format!("{}: there is no such rule of the engine", self.name);
                (ENGINE, rule.with_context(missing)?.edits)
            }
        };
        let edit =
            |(file, text, new): &Edit| (Path::new(below).join(file), *text, new.replace("DROPPED", "true"));
        Ok(edits.iter().map(edit).collect())
    }

    /// The files that it changes.
    fn broken(&self) -> anyhow::Result<BTreeMap<PathBuf, String>> {
        let mut files = BTreeMap::new();
        for (file, text, new) in self.edits()? {
            let path = cargo::root().join(&file);
            let mut source = match files.remove(&file) {
                Some(edited) => edited,
                None => fs::read_to_string(&path).with_context(|| path.display().to_string())?,
            };
            if let Err(times) = replace(&mut source, text, &new) {
                bail!(
                    "the sabotage {}: {} must contain this text once, but contains it {times} times: `{text}`; correct \
                     it in xtask/src/chaos/sabotage.rs",
                    self.name,
                    file.display()
                );
            }
            files.insert(file, source);
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sabotage_has_its_texts_once_and_its_schedule() -> anyhow::Result<()> {
        for sabotage in &SABOTAGES {
            assert!(!sabotage.broken()?.is_empty());
            let schedule = cargo::root().join(SCHEDULES).join(sabotage.name).join("schedule.json");
            assert!(schedule.is_file(), "{} is missing", schedule.display());
        }
        Ok(())
    }
}
