//! The dependencies that ARCHITECTURE.md names are all that there are.

use std::collections::BTreeSet;
use std::path::Path;

use crate::cargo;
use crate::sources::Sources;

/// The line of ARCHITECTURE.md after which the table begins.
const TABLE: &str = "| crate | depends on |";

/// A crate depends on another one: always (or by a feature), or for its tests, benchmarks and examples alone.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Dependency {
    from: String,
    to: String,
    is_for_tests: bool,
}

impl Dependency {
    fn phrase(&self) -> String {
        let tests = if self.is_for_tests { " for its tests" } else { "" };
        format!("{} depends on {}{tests}", self.from, self.to)
    }
}

fn of_cargo() -> anyhow::Result<BTreeSet<Dependency>> {
    let metadata = cargo::metadata()?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = BTreeSet::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let dependencies = || package["dependencies"].as_array().into_iter().flatten();
        for dependency in dependencies().filter(|dependency| dependency["path"].is_string()) {
            let is_for_tests = dependency["kind"] == "dev";
            // Asked for twice: for its tests with more features.
            let is_always =
                dependencies().any(|other| other["name"] == dependency["name"] && other["kind"] != "dev");
            if !(is_for_tests && is_always) {
                found.insert(Dependency {
                    from: text(&package["name"]),
                    to: text(&dependency["name"]),
                    is_for_tests,
                });
            }
        }
    }
    Ok(found)
}

fn of_document() -> anyhow::Result<BTreeSet<Dependency>> {
    let document = std::fs::read_to_string(cargo::root().join("ARCHITECTURE.md"))?;
    let rows = document.lines().skip_while(|line| !line.starts_with(TABLE)).skip(2);
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut found = BTreeSet::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').skip(1).collect();
        for (column, is_for_tests) in [(1, false), (2, true)] {
            for to in names(cells.get(column).unwrap_or(&"")) {
                found.insert(Dependency { from: names(cells[0]).concat(), to, is_for_tests });
            }
        }
    }
    Ok(found)
}

#[test]
fn the_table_of_dependencies_is_complete() -> anyhow::Result<()> {
    let (real, written) = (of_cargo()?, of_document()?);
    let missing = real.difference(&written).map(|edge| format!("{}: not in ARCHITECTURE.md", edge.phrase()));
    let superfluous =
        written.difference(&real).map(|edge| format!("ARCHITECTURE.md: {}: it does not", edge.phrase()));
    let wrong: Vec<String> = missing.chain(superfluous).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Each of them depends on earlier ones alone.
const LAYERS: [&str; 6] =
    ["zk-proto", "zk-session", "election-core", "election-admin", "strategies", "dr-worker"];

#[test]
fn dependencies_point_up_only() -> anyhow::Result<()> {
    let layer = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    let dependencies = of_cargo()?;
    let layered = dependencies.iter().filter(|edge| !edge.is_for_tests);
    let layered: Vec<_> =
        layered.filter_map(|edge| Some((layer(&edge.from)?, layer(&edge.to)?, edge))).collect();
    assert!(layered.len() >= LAYERS.len() - 1, "{layered:?}");
    let wrong: Vec<_> =
        layered.iter().filter(|(from, to, _)| to >= from).map(|(.., edge)| edge.phrase()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// What checks the promises shares no code with what makes them: not even by way of another crate.
#[test]
fn the_checker_depends_on_no_other_crate() -> anyhow::Result<()> {
    let dependencies = of_cargo()?;
    let own = dependencies.iter().filter(|edge| edge.from == "robustness");
    let wrong: Vec<_> = own.map(Dependency::phrase).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn no_modules_or_folders_depend_on_each_other() -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for target in cargo::targets()?.iter().filter(|target| ["lib", "bin"].contains(&target.kind.as_str())) {
        let sources = Sources::read(&target.source)?;
        for (folder, circle) in sources.circles(target.source.parent().unwrap_or(Path::new(""))) {
            let inside = folder.strip_prefix(cargo::root())?.display().to_string();
            let units = circle.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
            let edges = sources.edges_in(&folder, &circle);
            let edges: String = edges.iter().map(|edge| format!("\n    {edge}")).collect();
            wrong.push(format!("{inside}: a circle of {units}:{edges}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn no_two_types_of_a_library_share_a_name() -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    let libraries = cargo::root().join("crates");
    for target in cargo::targets()?.iter().filter(|target| target.kind == "lib") {
        if !target.source.starts_with(&libraries) {
            continue;
        }
        let sources = Sources::read(&target.source)?;
        for (name, files) in sources.ambiguous_types() {
            wrong.push(format!("{name}: {files:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The parts of dr-worker, and what each must not use: config, then the views, then the commands, then the worker,
/// then the operator.
#[test]
fn the_parts_of_dr_worker_depend_one_way() -> anyhow::Result<()> {
    let src = cargo::root().join("apps/dr-worker/src");
    let edges = Sources::read(&src.join("lib.rs"))?.edges();
    let mut wrong = Vec::new();
    for (part, later) in [
        ("config", &["view", "commands", "worker", "operator", "error", "connect"][..]),
        ("view", &["commands", "worker", "operator"]),
        ("commands", &["worker", "operator"]),
        ("worker", &["operator"]),
    ] {
        let is_in = |file: &Path, unit: &str| {
            file.starts_with(src.join(unit)) || file == src.join(unit).with_extension("rs")
        };
        let mut own = edges.iter().filter(|edge| is_in(&edge.from, part)).peekable();
        assert!(own.peek().is_some(), "no import in {part}");
        wrong.extend(
            own.filter(|edge| later.iter().any(|unit| is_in(&edge.to, unit))).map(ToString::to_string),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// `file.rs` (`function`, `another`) on the page: the walks name what there is.
#[test]
fn the_functions_that_the_page_names_are_in_their_files() -> anyhow::Result<()> {
    let document = std::fs::read_to_string(cargo::root().join("ARCHITECTURE.md"))?;
    let document = document.split_whitespace().collect::<Vec<_>>().join(" ");
    let listed =
        std::process::Command::new("git").args(["ls-files", "*.rs"]).current_dir(cargo::root()).output()?;
    let listed = String::from_utf8(listed.stdout)?;
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (at, _) in document.match_indices(".rs` (`") {
        let file = document[..at].rsplit('`').next().unwrap_or_default();
        let functions = document[at + ".rs` (".len()..].split(')').next().unwrap_or_default();
        let files = listed.lines().filter(|path| path.ends_with(&format!("/{file}.rs")));
        let texts: Vec<_> =
            files.filter_map(|path| std::fs::read_to_string(cargo::root().join(path)).ok()).collect();
        for function in functions.split('`').skip(1).step_by(2) {
            count += 1;
            if !texts.iter().any(|text| text.contains(&format!("fn {function}("))) {
                wrong.push(format!("{file}.rs ({function})"));
            }
        }
    }
    assert!(wrong.is_empty() && count > 5, "{count} functions; not there: {wrong:?}");
    Ok(())
}
