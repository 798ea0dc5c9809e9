//! What a package has, as `[package.metadata.deb]` of the program's `Cargo.toml` describes it. The keys are those of
//! cargo-deb, as far as they are used.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::pages;
use crate::cargo;

/// Sources that begin with this are the program itself.
const PROGRAM: &str = "target/release/";

/// Sources that begin with this are what the program writes about itself.
const GENERATED: &str = "target/generated/";

/// The description of a package.
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) version: String,
    /// Counts the packages of one version.
    pub(super) revision: u32,
    /// The directory of `Cargo.toml`.
    pub(super) dir: PathBuf,
    pub(super) summary: String,
    pub(super) license: String,
    pub(super) homepage: Option<String>,
    pub(super) deb: Value,
}

impl Package {
    /// Reads it from the metadata of the workspace.
    pub(super) fn read(name: &'static str, revision: u32) -> anyhow::Result<Self> {
        let metadata = cargo::metadata()?;
        let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let package = packages.iter().find(|package| package["name"] == name).context("no such package")?;
        let manifest = Path::new(text(&package["manifest_path"])?);
        Ok(Self {
            name,
            version: text(&package["version"])?.to_owned(),
            revision,
            dir: manifest.parent().context("a manifest has a directory")?.to_owned(),
            summary: text(&package["description"])?.to_owned(),
            license: text(&package["license"])?.to_owned(),
            homepage: package["homepage"].as_str().map(str::to_owned),
            deb: package["metadata"]["deb"].clone(),
        })
    }

    /// Puts all files below `root`, and returns their size in KiB.
    pub(super) fn install(&self, program: &Path, generated: &Path, root: &Path) -> anyhow::Result<u64> {
        let mut modes = Vec::new();
        let mut places = BTreeMap::new();
        for asset in self.deb["assets"].as_array().context("[package.metadata.deb] has no assets")? {
            let [source, place, mode] = &texts(asset)?[..] else {
                bail!("an asset has a source, a place and a mode: {asset}");
            };
            let mode = u32::from_str_radix(mode, 8).with_context(|| format!("the mode {mode}"))?;
            let sources = if source.starts_with(PROGRAM) {
                vec![program.to_owned()]
            } else if let Some(rest) = source.strip_prefix(GENERATED) {
                matching(&generated.join(rest))?
            } else {
                matching(&pages::plain(&self.dir.join(source)))?
            };
            for from in sources {
                let name = if source.starts_with(PROGRAM) {
                    self.name.as_ref()
                } else {
                    from.file_name().context("a name")?
                };
                let to = if place.ends_with('/') { Path::new(place).join(name) } else { place.into() };
                places.insert(from.clone(), to);
                modes.push((from, mode));
            }
        }
        let mut bytes = 0;
        for (from, mode) in modes {
            let to = root.join(places.get(&from).context("a place")?);
            copy(&from, &to, mode)?;
            if from.extension().is_some_and(|extension| extension == "md") {
                let page = fs::read_to_string(&from).with_context(|| from.display().to_string())?;
                fs::write(&to, pages::installed(&page, &from, &places))?;
            }
            bytes += to.metadata()?.len();
        }
        Ok(bytes.div_ceil(1024))
    }

    /// The files that an administrator may change, as absolute paths.
    pub(super) fn conf_files(&self) -> anyhow::Result<Vec<String>> {
        Ok(texts(&self.deb["conf-files"])?.into_iter().map(|file| format!("/{file}")).collect())
    }
}

/// What is below `root`: all files, and the directories that are the package's alone. Others have their own owners and modes.
pub(crate) fn entries(root: &Path, package: &str) -> anyhow::Result<Vec<PathBuf>> {
    let (mut entries, mut dirs) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let path = entry?.path();
            let below = path.strip_prefix(root)?.to_owned();
            if !path.is_dir() || below.iter().any(|part| part == package) {
                entries.push(below);
            }
            if path.is_dir() {
                dirs.push(path);
            }
        }
    }
    entries.sort();
    Ok(entries)
}

/// The files of a path whose name may have one '*'.
fn matching(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let name = path.file_name().and_then(|name| name.to_str()).context("a name")?;
    let Some((begin, end)) = name.split_once('*') else { return Ok(vec![path.to_owned()]) };
    let dir = path.parent().context("a directory")?;
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let file = entry?.path();
        let fits = |name: &str| name.starts_with(begin) && name.ends_with(end);
        if file.file_name().and_then(|name| name.to_str()).is_some_and(fits) {
            files.push(file);
        }
    }
    if files.is_empty() {
        bail!("no file matches {}", path.display());
    }
    files.sort();
    Ok(files)
}

pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    let dir = to.parent().context("a directory")?;
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

pub(super) fn text(value: &Value) -> anyhow::Result<&str> {
    value.as_str().context("[package.metadata.deb] lacks a key, or a value is not text")
}

fn texts(value: &Value) -> anyhow::Result<Vec<&str>> {
    value.as_array().context("[package.metadata.deb] lacks a list")?.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_means_any_name() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["b.1.gz", "a.1.gz", "a.txt"] {
            fs::write(dir.path().join(name), "").expect("a file");
        }
        let found = matching(&dir.path().join("*.1.gz")).expect("files");
        assert_eq!(found, ["a.1.gz", "b.1.gz"].map(|name| dir.path().join(name)));
        assert_eq!(matching(&dir.path().join("a.txt")).expect("a file"), [dir.path().join("a.txt")]);
        assert!(matching(&dir.path().join("*.md")).is_err());
    }

    #[test]
    fn the_directories_of_the_system_are_no_entries() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("x");
        for file in ["usr/bin/x", "etc/x/y/conf", "etc/other"] {
            let file = root.join(file);
            fs::create_dir_all(file.with_file_name("")).expect("a directory");
            fs::write(file, "").expect("a file");
        }
        let found = entries(&root, "x").expect("the entries");
        assert_eq!(found, ["etc/other", "etc/x", "etc/x/y", "etc/x/y/conf", "usr/bin/x"].map(PathBuf::from));
    }

    #[test]
    fn no_link_in_an_installed_page_is_dead() {
        let dir = tempfile::tempdir().expect("a directory");
        let (generated, root) = (dir.path().join("generated"), dir.path().join("root"));
        let empty = dir.path().join("empty");
        fs::write(&empty, "").expect("a file");
        for file in ["man/x.1.gz", "bash/dr-worker", "zsh/_dr-worker", "fish/dr-worker.fish", "THIRD-PARTY"] {
            copy(&empty, &generated.join(file), 0o644).expect("a file");
        }
        let package = Package::read("dr-worker", 1).expect("its description");
        package.install(&empty, &generated, &root).expect("all files");
        let doc = root.join("usr/share/doc/dr-worker");
        let pages =
            [doc.join("*.md"), doc.join("reference/*.md")].map(|path| matching(&path).expect("pages"));
        for page in pages.concat() {
            let text = fs::read_to_string(&page).expect("a page");
            let dead: Vec<_> = pages::targets(&text, &page).filter(|target| !target.exists()).collect();
            assert!(dead.is_empty(), "{}: {dead:?}", page.display());
        }
    }
}
