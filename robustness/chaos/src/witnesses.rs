//! The history from all of its writers, and from the servers' transaction logs.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use robustness::history::{Event, History, Line, Witness, read_log};

/// All lines of a run that has ended. Writes those of the servers beside the others.
pub(crate) fn history(dir: &Path, root: &str, job: &str, ahead: i64) -> anyhow::Result<History> {
    let servers = by_servers(dir, root, job, ahead)?;
    let is_decision = |line: &Line| matches!(line.event, Event::Decided { .. });
    ensure!(servers.iter().any(is_decision), "the servers' logs have no decision of {root}/{job}");
    let text: String =
        servers.iter().map(|line| serde_json::to_string(line).unwrap_or_default() + "\n").collect();
    fs::write(dir.join("history/servers.jsonl"), text)?;
    let mut lines = Vec::new();
    for entry in fs::read_dir(dir.join("history"))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        lines.extend(History::parse(&text).with_context(|| path.display().to_string())?);
    }
    Ok(History::of(lines))
}

fn by_servers(dir: &Path, root: &str, job: &str, ahead: i64) -> anyhow::Result<Vec<Line>> {
    let mut txns = Vec::new();
    for server in fs::read_dir(dir.join("servers"))? {
        for file in files_below(&server?.path())? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("log.") {
                txns.extend(read_log(&fs::read(&file)?).with_context(|| file.display().to_string())?);
            }
        }
    }
    Ok(Witness::lines(root, job, ahead, txns))
}

fn files_below(dir: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    if dir.is_dir() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() { found.extend(files_below(&path)?) } else { found.push(path) }
        }
    }
    Ok(found)
}
