//! The RPM package: the files of the Debian package, with `package/dr-worker.spec`. rpmbuild does the work.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::package::{Package, entries, text};
use super::{output, succeed};

/// Where distributions with RPM have something else than Debian.
const PLACES: [(&str, &str); 1] = [("usr/share/zsh/vendor-completions", "usr/share/zsh/site-functions")];

impl Package {
    /// Builds it of the files below `root`, and returns the file in `out`. Works in `work`, an empty directory.
    pub(super) async fn build_rpm(
        &self,
        root: &Path,
        out: &Path,
        work: &Path,
        fast: bool,
    ) -> anyhow::Result<PathBuf> {
        for (debian, other) in PLACES.map(|(debian, other)| (root.join(debian), root.join(other))) {
            fs::create_dir_all(other.parent().context("a directory")?)?;
            fs::rename(&debian, &other).with_context(|| format!("cannot move {}", debian.display()))?;
        }
        let description = text(&self.deb["extended-description"])?.trim();
        for (part, content) in [
            ("summary", &*self.summary),
            ("license", &self.license),
            ("description", description),
            ("files", &self.rpm_files(root)?),
        ] {
            fs::write(work.join(part), format!("{content}\n"))?;
        }
        let mut build = Command::new("rpmbuild");
        build.args(["-bb", "--quiet"]).stdout(Stdio::null());
        let payload = if fast { "w0.gzdio" } else { "w19.zstdio" };
        for (name, value) in [
            ("parts", work.as_os_str()),
            ("staged", root.as_os_str()),
            ("_topdir", work.join("top").as_os_str()),
            ("_rpmdir", out.as_os_str()),
            ("program_version", self.version.as_ref()),
            ("program_revision", self.revision.to_string().as_ref()),
            ("_binary_payload", payload.as_ref()),
            // The same from the same files, at the time of SOURCE_DATE_EPOCH where that is set.
            ("_buildhost", "localhost".as_ref()),
            ("use_source_date_epoch_as_buildtime", "1".as_ref()),
            ("clamp_mtime_to_source_date_epoch", "1".as_ref()),
            ("build_mtime_policy", "clamp_to_source_date_epoch".as_ref()),
        ] {
            build.arg("--define").arg([name.as_ref(), value].join(" ".as_ref()));
        }
        let spec = self.dir.join("package").join(format!("{}.spec", self.name));
        succeed(build.arg(&spec)).await?;
        let architecture = output(Command::new("rpm").args(["--eval", "%{_arch}"]))?.trim().to_owned();
        let name = format!("{}-{}-{}.{architecture}.rpm", self.name, self.version, self.revision);
        Ok(out.join(architecture).join(name))
    }

    /// The lines of `%files`.
    fn rpm_files(&self, root: &Path) -> anyhow::Result<String> {
        let conf_files = self.conf_files()?;
        let mut list = String::new();
        for entry in entries(root, self.name)? {
            let place = format!("/{}", entry.display());
            let metadata = root.join(&entry).metadata()?;
            if metadata.is_dir() {
                writeln!(list, "%dir {place}")?;
            } else {
                let kind = if conf_files.contains(&place) { "%config(noreplace) " } else { "" };
                let mode = metadata.permissions().mode() & 0o7777;
                writeln!(list, "%attr({mode:o}, root, root) {kind}{place}")?;
            }
        }
        Ok(list)
    }
}
