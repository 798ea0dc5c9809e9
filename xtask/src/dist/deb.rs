//! The Debian package. dpkg-deb does the work; cargo-deb would be another program to build, for longer than all of this
//! takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::package::{Package, copy, text};
use super::{output, succeed};

/// Replaced by the libraries that the program is linked to.
const AUTO: &str = "$auto";

impl Package {
    /// Builds it of the files below `root`, whose size in KiB this is, and returns the file in `out`.
    pub(super) async fn build_deb(
        &self,
        installed: u64,
        root: &Path,
        out: &Path,
        fast: bool,
    ) -> anyhow::Result<PathBuf> {
        let architecture = output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
        let depends = self.depends(&root.join("usr/bin").join(self.name))?;
        let control = root.join("DEBIAN");
        fs::create_dir(&control)?;
        fs::write(control.join("control"), self.control(&architecture, &depends, installed)?)?;
        let conf_files: Vec<_> = self.conf_files()?.iter().map(|file| format!("{file}\n")).collect();
        fs::write(control.join("conffiles"), conf_files.concat())?;
        let scripts = self.dir.join(text(&self.deb["maintainer-scripts"])?);
        for script in ["preinst", "postinst", "prerm", "postrm"].map(|name| scripts.join(name)) {
            if script.exists() {
                copy(&script, &control.join(script.file_name().context("a name")?), 0o755)?;
            }
        }
        let file = out.join(format!("{}_{}-{}_{architecture}.deb", self.name, self.version, self.revision));
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", if fast { "-Znone" } else { "-Zxz" }, "--build"]);
        // The name of the file is printed by the caller.
        succeed(build.arg(root).arg(&file).stdout(std::process::Stdio::null())).await?;
        Ok(file)
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
            "Package: {}\nVersion: {}-{}\nArchitecture: {architecture}\nMaintainer: {}\nInstalled-Size: {installed}\n\
             Depends: {depends}\nSection: {}\nPriority: {}\n",
            self.name,
            self.version,
            self.revision,
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

#[cfg(test)]
mod tests {
    use super::*;

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
