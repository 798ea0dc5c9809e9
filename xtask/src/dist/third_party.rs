//! `THIRD-PARTY`: the licences of the libraries in the program, which their owners want with each copy of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use super::{NAME, output};
use crate::cargo::cargo;

const HEAD: &str = "\
The program dr-worker contains these libraries. Behind the list are the licence files of each; where a library offers several
licences, the text of the Apache License is left out. The program also contains the standard library of Rust (the Rust Project
Contributors, MIT OR Apache-2.0), and that of the archive contains musl (Rich Felker and others, MIT).
";

/// What the names of licence files begin with.
const BEGINNINGS: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Directories whose contents are not in the program.
const UNUSED: [&str; 4] = ["TESTS", "BENCHES", "EXAMPLES", "FUZZ"];

/// A library.
struct Library {
    /// With its version.
    name: String,
    license: String,
    authors: String,
    /// Its sources.
    dir: PathBuf,
}

/// The file. Macros run when the program is built, and are not in it.
pub(super) fn made() -> anyhow::Result<String> {
    let compiler = output(Command::new("rustc").arg("-vV"))?;
    let host =
        compiler.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    let mut tree = cargo(["tree", "--locked", "-p", NAME, "--target", host, "-e", "normal,no-proc-macro"]);
    let tree = output(tree.args(["--prefix", "none", "--format", "{p}"]))?;
    let mut metadata = cargo(["metadata", "--locked", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&output(metadata.args(["--filter-platform", host]))?)?;
    of(&libraries(&tree, &metadata)?)
}

/// The packages of a tree that are not of this workspace, in the order of their names.
fn libraries(tree: &str, metadata: &Value) -> anyhow::Result<Vec<Library>> {
    let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    let of_line = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    let contained: BTreeSet<_> = tree.lines().filter_map(of_line).collect();
    let mut libraries = Vec::new();
    for (name, version) in contained {
        let is_it = |package: &&Value| package["name"] == *name && package["version"] == *version;
        let package = packages.iter().find(is_it).with_context(|| format!("cargo metadata: no {name}"))?;
        if package["source"].is_null() {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let authors: Vec<_> = package["authors"].as_array().into_iter().flatten().map(text).collect();
        libraries.push(Library {
            name: format!("{name} {version}"),
            license: text(&package["license"]),
            authors: authors.join(", "),
            dir: Path::new(&text(&package["manifest_path"])).with_file_name(""),
        });
    }
    Ok(libraries)
}

/// Each text once, with all libraries that have it.
fn of(libraries: &[Library]) -> anyhow::Result<String> {
    let mut page = HEAD.to_owned() + "\n";
    let mut texts: Vec<(String, Vec<&str>)> = Vec::new();
    for library in libraries {
        let files = library.files()?;
        write!(page, "{}: {}", library.name, library.license)?;
        page +=
            &if files.is_empty() { format!(" (no file; {})\n", library.authors) } else { "\n".to_owned() };
        for file in files {
            let text = fs::read(&file).with_context(|| file.display().to_string())?;
            let lines: Vec<_> =
                String::from_utf8_lossy(&text).lines().map(|line| line.trim_end().to_owned()).collect();
            let text = lines.join("\n").trim_matches('\n').to_owned();
            match texts.iter_mut().find(|(known, _)| *known == text) {
                Some((_, names)) => names.push(library.name.as_str()),
                None => texts.push((text, vec![library.name.as_str()])),
            }
        }
    }
    for (text, names) in texts {
        write!(page, "\n{}\n{}\n\n{text}\n", "-".repeat(80), names.join(", "))?;
    }
    Ok(page)
}

impl Library {
    /// Its licence files.
    fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut dirs = vec![self.dir.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
                let path = entry?.path();
                if path.is_dir() && !UNUSED.contains(&&*upper(&path)) {
                    dirs.push(path);
                } else if path.is_file()
                    && BEGINNINGS.iter().any(|beginning| upper(&path).starts_with(beginning))
                {
                    files.push(path);
                }
            }
        }
        files.sort();
        let is_apache = |file: &PathBuf| upper(file).contains("APACHE");
        let is_other = |file: &PathBuf| upper(file).starts_with("LICEN") && !is_apache(file);
        let has_choice = self.license.contains(" OR ") || self.license.contains('/');
        if has_choice && files.iter().any(is_other) {
            files.retain(|file| !is_apache(file));
        }
        Ok(files)
    }
}

fn upper(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().to_uppercase()
}

#[test]
fn each_text_is_there_once_and_a_choice_needs_no_apache_license() -> anyhow::Result<()> {
    let root = tempfile::tempdir()?;
    let packages = [("a", "MIT OR Apache-2.0"), ("b", "MIT AND X"), ("c", "MIT"), ("macro", "MIT")];
    let packages = packages.map(|(name, license)| {
        let manifest = root.path().join(name).join("Cargo.toml");
        serde_json::json!({
            "name": name, "version": "1.0.0", "source": "registry", "license": license, "authors": ["Me"],
            "manifest_path": manifest,
        })
    });
    for (file, text) in [
        ("a/LICENSE-MIT", "same\n"),
        ("a/LICENSE-APACHE", "long"),
        ("a/src", "no licence"),
        ("b/license-mit.txt", "same  \r\n"),
        ("b/COPYING", "other"),
        ("c/README.md", "no licence"),
    ] {
        let file = root.path().join(file);
        fs::create_dir_all(file.with_file_name(""))?;
        fs::write(file, text)?;
    }
    let metadata = serde_json::json!({ "packages": packages });
    let page = of(&libraries("c v1.0.0\nb v1.0.0\na v1.0.0\nb v1.0.0 (*)\n", &metadata)?)?;
    let rule = "-".repeat(80);
    let expected = format!(
        "{HEAD}\na 1.0.0: MIT OR Apache-2.0\nb 1.0.0: MIT AND X\nc 1.0.0: MIT (no file; Me)\n\
         \n{rule}\na 1.0.0, b 1.0.0\n\nsame\n\n{rule}\nb 1.0.0\n\nother\n"
    );
    assert_eq!(page, expected);
    Ok(())
}
