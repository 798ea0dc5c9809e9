//! The final table.

use std::fmt;
use std::time::Duration;

use super::narrator::seconds;

/// One row for each act.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    rows: Vec<Row>,
    verdict: String,
}

#[derive(Debug)]
struct Row {
    what: String,
    leader: String,
    pause: Option<Duration>,
}

impl Summary {
    /// `pause`: from the event to the first order that the new leader's job booked.
    pub(crate) fn add(&mut self, what: &str, leader: &str, pause: Option<Duration>) {
        self.rows.push(Row { what: what.to_owned(), leader: leader.to_owned(), pause });
    }

    /// Adds the result of the ledger's check.
    pub(crate) fn conclude(&mut self, verdict: &str) {
        verdict.clone_into(&mut self.verdict);
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heading = ["event", "leader", "until the job booked again"];
        let width = |heading: &str, cell: fn(&Row) -> &str| {
            let cells = self.rows.iter().map(|row| cell(row).chars().count());
            cells.chain([heading.chars().count()]).max().unwrap_or_default()
        };
        let what = width(heading[0], |row| &row.what);
        let leader = width(heading[1], |row| &row.leader);
        writeln!(f, "  {:<what$}   {:<leader$}   {}", heading[0], heading[1], heading[2])?;
        writeln!(f, "  {:-<what$}   {:-<leader$}   {:-<width$}", "", "", "", width = heading[2].len())?;
        for row in &self.rows {
            let pause = row.pause.map_or_else(|| "no pause".to_owned(), seconds);
            writeln!(f, "  {:<what$}   {:<leader$}   {pause}", row.what, row.leader)?;
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
