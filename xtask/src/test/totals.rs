//! The totals of the tests, from the output of their programs.

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

    /// From the last line of a test program:
    /// `test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; ...`.
    pub(crate) fn add_line(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        for figure in rest.split(['.', ';']) {
            let Some((number, what)) = figure.trim().split_once(' ') else { continue };
            let number = number.parse().unwrap_or(0);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_the_programs() {
        let mut totals = Totals::default();
        totals.add_line(
            "test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.01s",
        );
        totals.add_line("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        totals.add_line("test a_name ... ok");
        let expected = Totals { passed: 8, failed: 2, skipped: 1 };
        assert_eq!(totals, expected);
    }
}
