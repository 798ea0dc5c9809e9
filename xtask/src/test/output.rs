//! The output of a test program while it runs.

use std::fs::File;
use std::io::{self, Read as _};
use std::process::Command;

use tempfile::NamedTempFile;

use super::totals::Totals;

/// What a program has written to both of its streams.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    text: Vec<u8>,
    /// The length of the whole lines.
    read: usize,
    cases: Vec<Case>,
}

/// A test that has ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) has_failed: bool,
    /// If the program reports times.
    pub(super) seconds: Option<f64>,
}

impl Case {
    /// From `test a::b ... ok <1.2s>`.
    fn of(line: &str) -> Option<Self> {
        let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let seconds = outcome.split_once('<').and_then(|(_, time)| time.trim_end_matches("s>").parse().ok());
        let has_failed = outcome.starts_with("FAILED");
        let has_ended = has_failed || ["ok", "ignored"].iter().any(|word| outcome.starts_with(word));
        has_ended.then(|| Self { name: name.to_owned(), has_failed, seconds })
    }
}

impl Output {
    /// Of a program that this command will start.
    pub(super) fn of(command: &mut Command) -> io::Result<Self> {
        let file = NamedTempFile::new()?;
        command.stdout(file.as_file().try_clone()?).stderr(file.as_file().try_clone()?);
        Ok(Self { file: file.reopen()?, text: Vec::new(), read: 0, cases: Vec::new() })
    }

    /// The tests that have ended since the last call.
    pub(super) fn read(&mut self) -> io::Result<&[Case]> {
        self.file.read_to_end(&mut self.text)?;
        let end = self.text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = String::from_utf8_lossy(&self.text[self.read.min(end)..end]).into_owned();
        let before = self.cases.len();
        self.cases.extend(lines.lines().filter_map(Case::of));
        self.read = end;
        Ok(&self.cases[before..])
    }

    /// The tests that have ended.
    pub(super) fn cases(&self) -> &[Case] {
        &self.cases
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.text().lines().for_each(|line| totals.add_line(line));
        totals
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }

    /// Without the lines of tests that have passed.
    pub(super) fn without_passed(&self) -> String {
        let is_passed = |line: &&str| Case::of(line).is_some_and(|case| !case.has_failed);
        self.text().lines().filter(|line| !is_passed(line)).map(|line| format!("{line}\n")).collect()
    }

    /// The tests that run for a minute or longer; where one runs at a time, that one.
    pub(super) fn unended(&self) -> Vec<String> {
        let text = self.text();
        let long =
            text.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" has been running for"));
        let last = text.lines().next_back().and_then(|line| line.strip_prefix("test ")?.split_once(" ... "));
        let names = long.chain(last).map(|(name, _)| name);
        let has_ended = |name: &str| self.cases.iter().any(|case| case.name == name);
        names.filter(|name| !has_ended(name)).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_as_they_end() -> io::Result<()> {
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "printf 'test a ... ok\\ntest b has been running for over 60 seconds\\ntest c ... ' >&2",
        ]);
        let mut output = Output::of(&mut shell)?;
        assert!(shell.status()?.success());
        assert_eq!(output.read()?, [Case { name: "a".to_owned(), has_failed: false, seconds: None }]);
        assert_eq!(output.unended(), ["b", "c"]);
        Ok(())
    }

    #[test]
    fn a_case_has_its_time() {
        let seconds = |line: &str| Case::of(line).map(|case| (case.has_failed, case.seconds));
        assert_eq!(seconds("test a::b ... ok <1.250s>"), Some((false, Some(1.25))));
        assert_eq!(seconds("test a::b ... FAILED <0.1s>"), Some((true, Some(0.1))));
        assert_eq!(seconds("test a::b ... ignored, a double"), Some((false, None)));
        assert_eq!(seconds("test a::b ... "), None);
        assert_eq!(seconds("test result: ok. 1 passed"), None);
    }
}
