//! The totals of the tests, from the output of the runners.

use std::fmt;
use std::ops::Add;

/// Sums over all runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Totals {
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// From cargo-nextest's summary:
    /// `Summary [  9.1s] 31 tests run: 29 passed (1 slow), 1 failed, 1 timed out, 3 skipped`.
    pub(crate) fn add_nextest_line(&mut self, line: &str) {
        let line = without_colors(line);
        let Some(rest) = line.trim_start().strip_prefix("Summary [") else {
            return;
        };
        let Some((_, figures)) = rest.split_once(':') else {
            return;
        };
        for figure in outside_brackets(figures).split(',') {
            let figure = figure.trim();
            let Some((number, what)) = figure.split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what.trim() {
                "passed" => self.passed += number,
                "skipped" => self.skipped += number,
                // `failed`, `timed out`, `exec failed`.
                _ => self.failed += number,
            }
        }
    }

    /// From the last line of each of `cargo test`'s programs:
    /// `test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; ...`.
    pub(crate) fn add_libtest_line(&mut self, line: &str) {
        let line = without_colors(line);
        let Some(rest) = line.strip_prefix("test result: ") else {
            return;
        };
        for figure in rest.split(['.', ';']) {
            let Some((number, what)) = figure.trim().split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

impl Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

fn outside_brackets(text: &str) -> String {
    let mut depth = 0_u32;
    text.chars()
        .filter(|c| {
            match c {
                '(' => depth += 1,
                ')' => {
                    depth = depth.saturating_sub(1);
                    return false;
                }
                _ => {}
            }
            depth == 0
        })
        .collect()
}

fn without_colors(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            plain.push(c);
            continue;
        }
        // ESC [ ... and a letter ends it.
        for c in chars.by_ref() {
            if c.is_ascii_alphabetic() {
                break;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_summary_of_nextest() {
        let mut totals = Totals::default();
        totals.add_nextest_line("     Summary [   9.113s] 33 tests run: 29 passed (1 slow, 2 leaky), 2 failed, 1 timed out, 1 exec failed, 3 skipped");
        let expected = Totals { passed: 29, failed: 4, skipped: 3 };
        assert_eq!(totals, expected);
        assert_eq!(totals.to_string(), "29 passed, 4 failed, 3 skipped");
    }

    #[test]
    fn reads_it_in_color() {
        let mut totals = Totals::default();
        totals.add_nextest_line("\u{1b}[32;1m     Summary\u{1b}[0m [   0.1s] \u{1b}[1m2\u{1b}[0m tests run: \u{1b}[1m2\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, \u{1b}[1m0\u{1b}[0m \u{1b}[33;1mskipped\u{1b}[0m");
        assert_eq!((totals.passed, totals.skipped), (2, 0));
    }

    #[test]
    fn sums_the_programs_of_cargo_test() {
        let mut totals = Totals::default();
        totals.add_libtest_line(
            "test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.01s",
        );
        totals.add_libtest_line("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        totals.add_libtest_line("test a_name ... ok");
        let expected = Totals { passed: 8, failed: 2, skipped: 1 };
        assert_eq!(totals, expected);
    }
}
