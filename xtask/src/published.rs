//! The crates that can be published: whether a package of each compiles, and passes its tests, by what is in it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::cargo::{self, cargo};
use crate::dist::succeed;
#[cfg(test)]
use crate::sources::Sources;

/// Tests of dr-worker that compare it with documents and sources which its package does not have.
const OF_THE_REPOSITORY: [&str; 8] = [
    "operator::documents",
    "config::tests",
    "doctor::tests",
    "explain_tests",
    "reference",
    "schema",
    "sample",
    "worker::metrics::tests",
];

/// The packages that are not `publish = false`, as `cargo metadata` describes them.
pub(crate) fn packages() -> anyhow::Result<Vec<Value>> {
    let mut metadata = cargo::metadata()?;
    let Value::Array(mut packages) = metadata["packages"].take() else {
        bail!("cargo metadata: no packages")
    };
    packages.retain(|package| package["publish"].is_null());
    Ok(packages)
}

/// Packages all of them, unpacks them beside each other, compiles each by itself, and runs the tests of all.
///
/// # Errors
/// A program can't be started, or fails.
pub(crate) async fn check() -> anyhow::Result<()> {
    let packages = packages()?;
    let names = packages.iter().map(|package| text(&package["name"])).collect::<anyhow::Result<Vec<_>>>()?;
    let target = cargo::target_directory()?.join("packages");
    // Cargo's own verification would use what it has unpacked of another package with the same version.
    let mut package = cargo(["package", "--allow-dirty", "--no-verify", "--quiet", "--target-dir"]);
    succeed(package.arg(&target).args(names.iter().flat_map(|name| ["-p", name]))).await?;
    let unpacked = target.join("unpacked");
    let _ = fs::remove_dir_all(&unpacked);
    fs::create_dir_all(&unpacked)?;
    let mut manifest =
        String::from("[workspace]\nresolver = \"3\"\nmembers = [\"*-*\"]\n\n[patch.crates-io]\n");
    for (name, package) in names.iter().zip(&packages) {
        let folder = format!("{name}-{}", text(&package["version"])?);
        let file = target.join("package").join(format!("{folder}.crate"));
        // The times in a package are always the same: cargo would not see a change.
        succeed(Command::new("tar").arg("-mxf").arg(file).current_dir(&unpacked)).await?;
        for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md"] {
            let file = unpacked.join(&folder).join(file);
            fs::metadata(&file).with_context(|| format!("not in the package: {}", file.display()))?;
        }
        manifest += &format!("{name} = {{ path = \"{folder}\" }}\n");
        write_example(&unpacked, name, &folder)?;
    }
    fs::write(unpacked.join("Cargo.toml"), manifest)?;
    fs::copy(cargo::root().join("Cargo.lock"), unpacked.join("Cargo.lock"))?;
    let mut runs: Vec<Vec<&str>> = names.iter().map(|name| vec!["check", "-p", name]).collect();
    // zk-testkit's README has a session of zk-session, which its package can't depend on.
    let skipped = OF_THE_REPOSITORY.iter().flat_map(|name| ["--skip", name]);
    let all =
        ["test", "--all-features", "--workspace", "--exclude", "zk-testkit", "--exclude", "example-*", "--"];
    runs.push(all.into_iter().chain(skipped).collect());
    runs.push(vec!["test", "-p", "zk-testkit", "--lib"]);
    let examples: Vec<String> = names.iter().map(|name| format!("{EXAMPLE}{name}")).collect();
    let is_there = |example: &&String| unpacked.join(example).exists();
    runs.extend(examples.iter().filter(is_there).map(|example| vec!["check", "-p", example]));
    for args in &runs {
        let mut run = cargo(args);
        succeed(run.env("CARGO_TARGET_DIR", &target).current_dir(&unpacked)).await?;
    }
    Ok(())
}

/// What begins the name of a project with the first example of a README.
const EXAMPLE: &str = "example-";

/// Writes a project for the first example of a package's README, with the dependencies that the README names before it.
fn write_example(unpacked: &Path, name: &str, folder: &str) -> anyhow::Result<()> {
    let readme = fs::read_to_string(unpacked.join(folder).join("README.md"))?;
    let Some((before, code)) = readme.split_once("```rust") else { return Ok(()) };
    let (_, code) = code.split_once('\n').context("an example")?;
    let (code, _) = code.split_once("```").context("the end of the example")?;
    // Rustdoc alone hides such lines: elsewhere they are copied with the others.
    if let Some(hidden) = code.lines().find(|line| line.starts_with("# ")) {
        bail!("{name}: a hidden line in the first example of its README: {hidden}");
    }
    let mut manifest =
        format!("[package]\nname = \"{EXAMPLE}{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n");
    manifest += "\n[dependencies]\n";
    for add in before.split('`').filter_map(|command| command.strip_prefix("cargo add ")) {
        let add = add.trim_start_matches("--dev ");
        let (package, features) = add.split_once(" --features ").unwrap_or((add, ""));
        let features = features.split(',').filter(|feature| !feature.is_empty()).collect::<Vec<_>>();
        manifest += &format!("{package} = {{ version = \"*\", features = {features:?} }}\n");
    }
    let project = unpacked.join(format!("{EXAMPLE}{name}"));
    fs::create_dir_all(project.join("src"))?;
    fs::write(project.join("Cargo.toml"), manifest)?;
    fs::write(project.join("src/main.rs"), code)?;
    Ok(())
}

fn text(value: &Value) -> anyhow::Result<&str> {
    value.as_str().context("cargo metadata: no text")
}

/// What is wrong with the page of a crate in a registry, which has its README alone.
#[cfg(test)]
fn faults(package: &Value) -> anyhow::Result<Vec<String>> {
    let name = text(&package["name"])?;
    let folder = std::path::Path::new(text(&package["manifest_path"])?).parent().context("a folder")?;
    let readme = fs::read_to_string(folder.join("README.md"))?;
    let mut faults = Vec::new();
    let features = package["features"].as_object().into_iter().flatten().map(|(feature, _)| feature);
    let features = features.filter(|feature| *feature != "default").map(|feature| format!("| `{feature}`"));
    let rust = format!("Rust {} or newer", text(&package["rust_version"])?);
    for needed in features.chain([rust, "MIT or Apache-2.0, as you prefer".to_owned()]) {
        if !readme.contains(&needed) {
            faults.push(format!("{name}: its README lacks {needed:?}"));
        }
    }
    if !["cargo add ", "cargo add --dev ", "cargo install "]
        .iter()
        .any(|add| readme.contains(&format!("`{add}{name}`")))
    {
        faults.push(format!("{name}: its README does not say how to add it"));
    }
    for key in ["repository", "homepage", "documentation", "description", "license"] {
        if package[key].is_null() {
            faults.push(format!("{name}: no {key}"));
        }
    }
    if package["categories"] == Value::Array(Vec::new()) || package["metadata"]["docs"]["rs"].is_null() {
        faults.push(format!("{name}: no categories, or no [package.metadata.docs.rs]"));
    }
    // The program's README is no page of docs.rs, and registries resolve its links in the repository.
    if folder.starts_with(cargo::root().join("crates")) {
        let targets = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let inside = targets.filter(|target| !target.starts_with('#') && !target.starts_with("https://"));
        faults.extend(
            inside.map(|target| format!("{name}: a link that has no target on a registry: {target}")),
        );
        let bare = readme.match_indices("[`").filter_map(|(at, _)| readme[at..].split_once("`]"));
        let bare = bare.filter(|(_, rest)| !rest.starts_with('('));
        faults.extend(bare.map(|(link, _)| format!("{name}: a link that only rustdoc resolves: {link}`]")));
    }
    Ok(faults)
}

/// `UPDATE_API=1 cargo test -p xtask public_items` writes them.
#[test]
fn the_public_items_of_each_crate_are_those_of_its_list() -> anyhow::Result<()> {
    let names = packages()?;
    let names: Vec<&Value> = names.iter().map(|package| &package["name"]).collect();
    let mut changed = Vec::new();
    for target in cargo::targets()?.iter().filter(|target| target.kind == "lib") {
        // What dr-worker offers is `main_with`; the rest is there for its own program.
        if target.package == "dr-worker" || !names.iter().any(|name| **name == *target.package) {
            continue;
        }
        let list = target.source.ancestors().nth(2).context("a folder")?.join("public-items.txt");
        let items = Sources::read(&target.source)?.api();
        if std::env::var_os("UPDATE_API").is_some() {
            fs::write(&list, &items)?;
        } else if fs::read_to_string(&list).unwrap_or_default() != items {
            changed.push(list);
        }
    }
    assert!(changed.is_empty(), "UPDATE_API=1 cargo test -p xtask public_items writes {changed:?}");
    Ok(())
}

#[test]
fn the_page_of_each_crate_in_a_registry_is_whole() -> anyhow::Result<()> {
    let packages = packages()?;
    let faults = packages.iter().map(faults).collect::<anyhow::Result<Vec<_>>>()?.concat();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(packages.len() >= 10, "only {} packages", packages.len());
    Ok(())
}
