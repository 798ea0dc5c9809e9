//! A Debian package, as `[package.metadata.deb]` of the program's `Cargo.toml` describes it.
//!
//! The keys are those of cargo-deb, as far as they are used. dpkg-deb does the work; cargo-deb would be another program
//! to build, for longer than all of this takes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::{output, succeed};
use crate::cargo;

/// Sources that begin with this are the program itself.
const PROGRAM: &str = "target/release/";

/// Sources that begin with this are what the program writes about itself.
const GENERATED: &str = "target/generated/";

/// Replaced by the libraries that the program is linked to.
const AUTO: &str = "$auto";

/// The description of a package.
pub(super) struct Package {
    name: &'static str,
    version: String,
    /// The directory of `Cargo.toml`.
    dir: PathBuf,
    summary: String,
    homepage: Option<String>,
    deb: Value,
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
            version: format!("{}-{revision}", text(&package["version"])?),
            dir: manifest.parent().context("a manifest has a directory")?.to_owned(),
            summary: text(&package["description"])?.to_owned(),
            homepage: package["homepage"].as_str().map(str::to_owned),
            deb: package["metadata"]["deb"].clone(),
        })
    }

    /// Builds it below `root`, and returns the file in `out`.
    pub(super) async fn build(
        &self,
        program: &Path,
        generated: &Path,
        root: &Path,
        out: &Path,
        fast: bool,
    ) -> anyhow::Result<PathBuf> {
        let installed = self.install(program, generated, root)?;
        let architecture = output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
        let depends = self.depends(&root.join("usr/bin").join(self.name))?;
        let control = root.join("DEBIAN");
        fs::create_dir(&control)?;
        fs::write(control.join("control"), self.control(&architecture, &depends, installed)?)?;
        let conf_files: Vec<_> =
            texts(&self.deb["conf-files"])?.into_iter().map(|file| format!("/{file}\n")).collect();
        fs::write(control.join("conffiles"), conf_files.concat())?;
        let scripts = self.dir.join(text(&self.deb["maintainer-scripts"])?);
        for script in ["preinst", "postinst", "prerm", "postrm"].map(|name| scripts.join(name)) {
            if script.exists() {
                copy(&script, &control.join(script.file_name().context("a name")?), 0o755)?;
            }
        }
        let file = out.join(format!("{}_{}_{architecture}.deb", self.name, self.version));
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", if fast { "-Znone" } else { "-Zxz" }, "--build"]);
        // The name of the file is printed by the caller.
        succeed(build.arg(root).arg(&file).stdout(std::process::Stdio::null())).await?;
        Ok(file)
    }

    /// Puts all files below `root`, and returns their size in KiB.
    fn install(&self, program: &Path, generated: &Path, root: &Path) -> anyhow::Result<u64> {
        let mut bytes = 0;
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
                matching(&self.dir.join(source))?
            };
            for from in sources {
                let name = if source.starts_with(PROGRAM) {
                    self.name.as_ref()
                } else {
                    from.file_name().context("a name")?
                };
                let to = if place.ends_with('/') { root.join(place).join(name) } else { root.join(place) };
                copy(&from, &to, mode)?;
                bytes += to.metadata()?.len();
            }
        }
        Ok(bytes.div_ceil(1024))
    }

    /// The packages that it needs.
    fn depends(&self, program: &Path) -> anyhow::Result<String> {
        let depends = text(&self.deb["depends"])?;
        if !depends.contains(AUTO) {
            return Ok(depends.to_owned());
        }
        // dpkg-shlibdeps works in the directory of a source package.
        let source = tempfile::tempdir().context("cannot make a temporary directory")?;
        fs::create_dir(source.path().join("debian"))?;
        let control = format!("Source: {0}\n\nPackage: {0}\nArchitecture: any\n", self.name);
        fs::write(source.path().join("debian/control"), control)?;
        let mut libraries = Command::new("dpkg-shlibdeps");
        let libraries = output(libraries.arg("-O").arg(program).current_dir(source.path()))?;
        let libraries =
            libraries.trim().strip_prefix("shlibs:Depends=").context("dpkg-shlibdeps: no libraries")?;
        Ok(depends.replace(AUTO, libraries))
    }

    fn control(&self, architecture: &str, depends: &str, installed: u64) -> anyhow::Result<String> {
        let mut control = format!(
            "Package: {}\nVersion: {}\nArchitecture: {architecture}\nMaintainer: {}\nInstalled-Size: {installed}\n\
             Depends: {depends}\nSection: {}\nPriority: {}\n",
            self.name,
            self.version,
            text(&self.deb["maintainer"])?,
            text(&self.deb["section"])?,
            text(&self.deb["priority"])?,
        );
        if let Some(homepage) = &self.homepage {
            control.push_str(&format!("Homepage: {homepage}\n"));
        }
        control.push_str(&format!("Description: {}\n", self.summary));
        for line in text(&self.deb["extended-description"])?.trim().lines() {
            control.push_str(&format!(" {}\n", if line.is_empty() { "." } else { line }));
        }
        Ok(control)
    }
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
        bail!("no file is {}", path.display());
    }
    files.sort();
    Ok(files)
}

fn copy(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    let dir = to.parent().context("a directory")?;
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn text(value: &Value) -> anyhow::Result<&str> {
    value.as_str().context("[package.metadata.deb] lacks a key, or one is no text")
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
    fn the_description_is_whole() {
        let package = Package::read("dr-worker", 7).expect("the metadata");
        let control = package.control("amd64", "libc6", 1).expect("every key");
        for line in ["Package: dr-worker", "Architecture: amd64", "Depends: libc6", "Section: admin"] {
            assert!(control.lines().any(|found| found == line), "{line:?} is not in:\n{control}");
        }
        assert!(control.contains("-7\n") && control.contains("The dr-worker developers"), "{control}");
    }
}
