//! The final table.

use std::fmt;
use std::time::Duration;

use super::narrator::seconds;

/// One row for each act.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    rows: Vec<[String; 3]>,
    verdict: String,
}

impl Summary {
    /// `pause`: from the event to the first order that the new leader's job booked.
    pub(crate) fn add(&mut self, what: &str, leader: &str, pause: Option<Duration>) {
        let pause = pause.map_or_else(|| "no pause".to_owned(), seconds);
        self.rows.push([what.to_owned(), leader.to_owned(), pause]);
    }

    /// Adds the result of the ledger's check.
    pub(crate) fn conclude(&mut self, verdict: &str) {
        verdict.clone_into(&mut self.verdict);
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heading = ["event", "leader", "until the job booked again"].map(str::to_owned);
        let width = |column: usize| {
            let cells = [&heading].into_iter().chain(&self.rows).map(|row| row[column].chars().count());
            cells.max().unwrap_or_default()
        };
        let (first, second) = (width(0), width(1));
        let rule = [first, second, heading[2].len()].map(|width| "-".repeat(width));
        for [what, leader, pause] in [&heading, &rule].into_iter().chain(&self.rows) {
            writeln!(f, "  {what:<first$}   {leader:<second$}   {pause}")?;
        }
        for line in self.verdict.lines() {
            write!(f, "\n  {line}")?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_its_columns() {
        let mut summary = Summary::default();
        summary.add("a", "east-1", None);
        summary.add("a site was lost", "west-1", Some(Duration::from_millis(6_540)));
        summary.conclude("all booked");
        let expected = "  event             leader   until the job booked again\n  \
                          ---------------   ------   --------------------------\n  \
                          a                 east-1   no pause\n  \
                          a site was lost   west-1   6.5 s\n\n  all booked\n";
        assert_eq!(summary.to_string(), expected);
    }
}
