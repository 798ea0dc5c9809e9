//! Where output goes: that of a job, and the worker's log.

use std::{path::PathBuf, time::Duration};

use job_guard::{JobOutput, RotatedFile, Size};

use super::{
    parse::{DAY, choice},
    reader::Section,
    table::{derived, flat, required, table, value},
};

/// Less would rotate with each line.
const SMALLEST: Size = Size(1 << 10);

/// Each rotation renames all of them.
const MOST_KEPT: u32 = 1000;

/// What the log or the journal gets of a job in a second. A program that writes a line for each request stays below it.
const USUAL_LIMIT: Size = Size(1 << 20);

/// The journal's socket of the host.
const JOURNAL: &str = "/run/systemd/journal/socket";

choice! {
    enum OutputKind {
        Log = "log",
        File = "file",
        Journal = "journal",
    }
}

table! {
    /// `output` of a job: where it goes, and how many bytes a second at most.
    #[derive(Clone, Debug, PartialEq)]
    pub(super) struct OutputKeys {
        /// "log" (the worker's log), "file" (unchanged) or "journal" (systemd's).
        kind: OutputKind = OutputKind::Log => value();
        /// The file. It is renamed to PATH.1, PATH.2, ... when it is large or old.
        path: PathBuf = PathBuf::new() => required("the file, such as \"/var/log/dr-worker/orders.log\"").only(&["file"]);
        rotation: Rotation = Rotation::default() => flat().only(&["file"]);
        /// The journal's socket.
        socket: PathBuf = JOURNAL.into() => value().only(&["journal"]);
        /// Output above this rate a second, averaged over ten seconds, is dropped and counted; "0B": no limit.
        /// Default: "1MiB", and no limit
        /// for a file.
        limit: Size = USUAL_LIMIT => derived().example("\"1MiB\"");
    }
    check OutputKeys::check;
}

table! {
    /// When and how a file is rotated.
    #[derive(Clone, Debug, PartialEq)]
    pub(super) struct Rotation {
        /// It is renamed before it exceeds this size.
        max_size: Size = Size(10 << 20) => value().check(|size: &Size| {
            (*size < SMALLEST).then(|| format!("{size} is too small; {SMALLEST} or more is valid"))
        });
        /// It is renamed when it is older; "0s": never.
        max_age: Duration = Duration::ZERO => value().within(Duration::ZERO..=3650 * DAY);
        /// How many older files remain.
        keep: u32 = 5 => value().within(0..=MOST_KEPT);
    }
}

impl Rotation {
    pub(super) fn of(self, path: PathBuf) -> RotatedFile {
        let Self { max_size, max_age, keep } = self;
        RotatedFile { path, max_size, max_age, keep }
    }
}

impl OutputKeys {
    fn check(&mut self, section: &mut Section<'_>) {
        // A file is bounded by its rotation.
        if !section.has("limit") && self.kind == OutputKind::File {
            self.limit = Size(0);
        }
        section.show_unless_set("limit", &self.limit);
    }

    /// Where it goes, and how many bytes a second at most.
    pub(super) fn output(self) -> (JobOutput, Option<Size>) {
        let to = match self.kind {
            OutputKind::Log => JobOutput::Log,
            OutputKind::File => JobOutput::File(self.rotation.of(self.path)),
            OutputKind::Journal => JobOutput::Journal { socket: self.socket },
        };
        (to, Some(self.limit).filter(|limit| *limit > Size(0)))
    }
}
