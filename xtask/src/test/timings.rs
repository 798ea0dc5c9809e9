//! Where the minutes of a run went: `cargo xtask test --timings`.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::time::Instant;

use super::output::Case;
use crate::group;

/// Rows of the table of files.
const ROWS: usize = 40;

/// Seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) real: f64,
    pub(crate) processor: f64,
}

impl Spent {
    /// Real and processor time of the programs that have ended, from the start of this process on.
    pub(crate) fn since(begin: Instant) -> anyhow::Result<Self> {
        Ok(Self { real: begin.elapsed().as_secs_f64(), processor: group::processor_time()? })
    }

    pub(crate) fn row(self, before: Self, what: &str) -> String {
        let (real, processor) = (self.real - before.real, self.processor - before.processor);
        format!("{what}: {:.1} minutes, {:.1} of processor time", real / 60.0, processor / 60.0)
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s, {:.1} of processor time", self.real, self.processor)
    }
}

/// The files of tests that took longest. Tests run side by side, so the sum is more than the time that passed.
pub(super) fn by_file<'a>(
    programs: impl Iterator<Item = (&'a str, &'a [Case])>,
) -> Result<String, fmt::Error> {
    let mut files: BTreeMap<String, (f64, u32)> = BTreeMap::new();
    for (program, cases) in programs {
        for case in cases {
            let file = case.name.split("::").next().unwrap_or_default();
            let entry = files.entry(format!("{program} {file}")).or_default();
            *entry = (entry.0 + case.seconds.unwrap_or_default(), entry.1 + 1);
        }
    }
    let mut rows: Vec<_> = files.into_iter().collect();
    rows.sort_by(|(_, (a, _)), (_, (b, _))| b.total_cmp(a));
    let mut text = String::new();
    for (file, (seconds, tests)) in rows.iter().take(ROWS) {
        writeln!(text, "{seconds:8.1} s  {tests:4} tests  {file}")?;
    }
    Ok(text)
}
