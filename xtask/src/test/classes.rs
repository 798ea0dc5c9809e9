//! The classes of a server of Apache ZooKeeper, in an archive that Java maps instead of reading and verifying them. A run starts
//! two hundred servers, and each takes two thirds of the processor time with it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use zk_testkit::Ensemble;

use crate::cargo;

/// What tells the servers of tests where the archive is.
pub(super) const VARIABLE: &str = "ZK_TESTKIT_CLASSES";

/// Less than an ensemble waits for the end of a server before it kills it: half an archive is none.
const WRITTEN_WITHIN: Duration = Duration::from_secs(8);

/// Writes the archive, or uses the one of an earlier run. None if Java can't make one, or not in time.
///
/// # Errors
/// An ensemble can't be started, or the file can't be moved.
pub(super) async fn archive(is_new: bool) -> anyhow::Result<Option<PathBuf>> {
    let archive = cargo::target_directory()?.join("zookeeper-classes.jsa");
    if !is_new {
        return Ok(Some(archive).filter(|archive| archive.is_file()));
    }
    // Java before 13 does not know the option.
    let builder = Ensemble::builder().servers(3).jvm_flag("-XX:+IgnoreUnrecognizedVMOptions");
    let ensemble = builder.jvm_flag("-XX:ArchiveClassesAtExit=classes.jsa").start().await?;
    let leader = ensemble.leader().await.unwrap_or_default();
    let written = ensemble.server(leader).dir().join("classes.jsa");
    if tokio::time::timeout(WRITTEN_WITHIN, ensemble.stop(leader)).await.is_err() || !written.is_file() {
        return Ok(None);
    }
    // Beside it first: other runs may read it.
    let new = archive.with_extension("new");
    fs::copy(&written, &new)
        .and_then(|_| fs::rename(&new, &archive))
        .with_context(|| archive.display().to_string())?;
    Ok(Some(archive))
}
