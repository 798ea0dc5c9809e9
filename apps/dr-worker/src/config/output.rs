//! Where output goes: that of a job, and the worker's log.

use std::{path::PathBuf, time::Duration};

use job_guard::{JobOutput, RotatedFile, Size};

use super::{parse::Words, reader::Section};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Less would rotate with each line.
const SMALLEST: Size = Size(1 << 10);

/// Each rotation renames all of them.
const MOST_KEPT: u32 = 1000;

/// What the log or the journal gets of a job in a second. A program that writes a line for each request stays below it.
const USUAL_LIMIT: Size = Size(1 << 20);

/// The journal's socket of the host.
const JOURNAL: &str = "/run/systemd/journal/socket";

#[derive(Clone, Copy, PartialEq)]
enum OutputKind {
    Log,
    File,
    Journal,
}

impl Words for OutputKind {
    const WORDS: &[(&str, Self)] = &[("log", Self::Log), ("file", Self::File), ("journal", Self::Journal)];
}

/// Reads `output` of a job: where it goes, and how many bytes a second at most.
pub(super) fn read_output(section: &mut Section<'_>) -> Option<(JobOutput, Option<Size>)> {
    let to = read_destination(section);
    // A file is bounded by its rotation.
    let usual = if let Some(JobOutput::File(_)) = to { Size(0) } else { USUAL_LIMIT };
    let limit = section.or("limit", usual);
    Some((to?, (limit > Size(0)).then_some(limit)))
}

fn read_destination(section: &mut Section<'_>) -> Option<JobOutput> {
    match section.or("kind", OutputKind::Log) {
        OutputKind::Log => Some(JobOutput::Log),
        OutputKind::File => {
            let path = section.required("path", "the file, such as \"/var/log/dr-worker/orders.log\"");
            let file = read_rotated(section, PathBuf::new());
            Some(JobOutput::File(RotatedFile { path: path?, ..file }))
        }
        OutputKind::Journal => Some(JobOutput::Journal { socket: section.or("socket", JOURNAL.into()) }),
    }
}

/// Reads when and how a file is rotated.
pub(super) fn read_rotated(section: &mut Section<'_>, path: PathBuf) -> RotatedFile {
    let max_size = section.or("max_size", Size(10 << 20));
    if max_size < SMALLEST {
        section.problem("max_size", format!("{max_size} is too small; {SMALLEST} or more is valid"));
    }
    let max_age = section.duration("max_age", Duration::ZERO, Duration::ZERO..=3650 * DAY);
    let keep = section.or("keep", 5);
    if keep > MOST_KEPT {
        section.problem("keep", format!("{keep} is out of range; 0 to {MOST_KEPT} is valid"));
    }
    RotatedFile { path, max_size, max_age, keep }
}
