//! `cargo xtask figures`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::cargo::{self, CargoTarget};
use crate::sources::{Circle, Graph, Sources};

const DEFINITIONS: &str = "\
Code: lines of src that are neither blank, nor a comment, nor of a test. Tests: all lines below tests and benches. Public:
items and fields declared `pub` in src, outside of tests; the lint `unreachable_pub` makes sure that each can be reached.
Root: names that the crate's root exports, and its public modules. In circles: files that name an item of a file that,
directly or through others, names one of theirs; what a file uses of the `mod.rs` of its own folder does not count. Shared
names: of types and traits that two files or more define. Largest: all lines of a file.";

/// Their files are among the tests of election-core.
const LEFT_OUT: [&str; 2] = ["election-tests", "election-mutants"];

/// How many of the largest files are named.
const LARGEST: usize = 3;

pub(crate) fn run(circles: bool) -> anyhow::Result<ExitCode> {
    let targets = cargo::targets()?;
    let mut crates = Vec::new();
    for target in
        targets.iter().filter(|target| is_main(target, &targets) && !LEFT_OUT.contains(&&*target.package))
    {
        let root = target.source.parent().context("a file without a folder")?;
        crates.push((target.package.as_str(), root, Sources::read(&target.source)?));
    }
    println!("| crate | code | tests | public | root | files in circles | shared names | largest files |");
    println!("|---|--:|--:|--:|--:|--:|--:|---|");
    for (package, root, sources) in &crates {
        println!("{}", row(package, root, sources)?);
    }
    let architecture = std::fs::read_to_string(cargo::root().join("ARCHITECTURE.md"))?;
    println!("\nARCHITECTURE.md: {} words.\n\n{DEFINITIONS}", architecture.split_whitespace().count());
    if circles {
        for (_, root, sources) in &crates {
            print_circles(root, sources);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The library of a package, or its program where it has none.
fn is_main(target: &CargoTarget, all: &[CargoTarget]) -> bool {
    let is_lib = |target: &CargoTarget| target.kind == "lib";
    is_lib(target)
        || target.kind == "bin" && !all.iter().any(|other| is_lib(other) && other.package == target.package)
}

fn row(package: &str, root: &Path, sources: &Sources) -> anyhow::Result<String> {
    let mut files = lines(root)?;
    files.sort_by_key(|(_, lines)| std::cmp::Reverse(*lines));
    let folder = root.parent().context("a package without a folder")?;
    let in_tests = sum(&lines(&folder.join("tests"))?) + sum(&lines(&folder.join("benches"))?);
    let name = |(file, lines): &(PathBuf, usize)| {
        format!("{} {lines}", file.strip_prefix(root).unwrap_or(file).display())
    };
    let largest: Vec<String> = files.iter().take(LARGEST).map(name).collect();
    let circles = Graph::of_files(&sources.edges(), root).circles();
    Ok(format!(
        "| {package} | {} | {in_tests} | {} | {} | {} | {} | {} |",
        sources.code_lines(),
        sources.public(),
        sources.root(),
        circles.iter().map(Circle::len).sum::<usize>(),
        sources.ambiguous_types().len(),
        largest.join(", "),
    ))
}

fn print_circles(root: &Path, sources: &Sources) {
    for (folder, circle) in sources.circles(root) {
        let units: Vec<&str> = circle.iter().map(String::as_str).collect();
        let inside = folder.strip_prefix(cargo::root()).unwrap_or(&folder);
        println!("\n{}: {}\n", inside.display(), units.join(", "));
        for edge in sources.edges_in(&folder, &circle) {
            println!("- {edge}");
        }
    }
}

fn sum(files: &[(PathBuf, usize)]) -> usize {
    files.iter().map(|(_, lines)| lines).sum()
}

/// The lines of each file of Rust below a folder; none where there is no such folder.
fn lines(folder: &Path) -> anyhow::Result<Vec<(PathBuf, usize)>> {
    let mut files = Vec::new();
    for entry in folder.read_dir().into_iter().flatten() {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(lines(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            files.push((path, text.lines().count()));
        }
    }
    Ok(files)
}
