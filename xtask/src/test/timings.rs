//! Where the minutes of a run went: `cargo xtask test --timings`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

use anyhow::Context as _;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::cargo;

/// Rows of the table.
const ROWS: usize = 40;

/// Real and processor time of the programs that have ended, from the start of this process on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    real: f64,
    processor: f64,
}

impl Spent {
    pub(crate) fn since(begin: Instant) -> anyhow::Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        let processor = seconds(usage.user_time()) + seconds(usage.system_time());
        Ok(Self { real: begin.elapsed().as_secs_f64(), processor })
    }

    pub(crate) fn row(self, before: Self, what: &str) -> String {
        let (real, processor) = (self.real - before.real, self.processor - before.processor);
        format!("{what}: {:.1} minutes, {:.1} of processor time", real / 60.0, processor / 60.0)
    }
}

/// The files of tests that took longest, from the report of cargo-nextest. Tests run side by side, so the sum is more than the
/// time that passed.
///
/// # Errors
/// There is no report.
pub(crate) fn by_file() -> anyhow::Result<String> {
    let profile = std::env::var("NEXTEST_PROFILE").unwrap_or_else(|_| "default".to_owned());
    let path = cargo::target_directory()?.join("nextest").join(profile).join("junit.xml");
    let report = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut files: BTreeMap<String, (f64, u32)> = BTreeMap::new();
    for (file, seconds) in report.split("<testcase ").skip(1).filter_map(case) {
        let entry = files.entry(file).or_default();
        *entry = (entry.0 + seconds, entry.1 + 1);
    }
    let mut rows: Vec<_> = files.into_iter().collect();
    rows.sort_by(|(_, (a, _)), (_, (b, _))| b.total_cmp(a));
    let mut text = String::new();
    for (file, (seconds, tests)) in rows.iter().take(ROWS) {
        writeln!(text, "{seconds:8.1} s  {tests:4} tests  {file}")?;
    }
    Ok(text)
}

/// Of a test: its program with the module, and how many seconds it took.
fn case(xml: &str) -> Option<(String, f64)> {
    let attribute = |name: &str| xml.split_once(&format!("{name}=\""))?.1.split('"').next();
    let module = attribute("name")?.split("::").next()?;
    Some((format!("{} {module}", attribute("classname")?), attribute(" time")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_counts_for_its_file() {
        let xml =
            r#"name="lease::a_lease::native" classname="zk-session::it" timestamp="2026" time="1.250"/>"#;
        assert_eq!(case(xml), Some(("zk-session::it lease".to_owned(), 1.25)));
    }
}
