//! Turns the answers of a repeated probe into reports. Pure: no clock, no I/O.

/// Counts answers, and reports each change between passing and failing.
#[derive(Clone, Debug)]
pub struct Tally {
    /// How many failures in a row count as failing.
    failures: u32,
    /// How many failures count before the first report.
    first_failures: u32,
    in_a_row: u32,
    reported: Option<bool>,
}

impl Tally {
    /// Reports nothing before the first success or `failures` failures in a row.
    pub fn new(failures: u32) -> Tally {
        Tally { failures, first_failures: failures, in_a_row: 0, reported: None }
    }

    /// Reports the first answer in any case, so that nothing waits for a second one.
    pub fn reporting_the_first(failures: u32) -> Tally {
        Tally { first_failures: 1, ..Tally::new(failures) }
    }

    /// Adds an answer. Returns whether the check passes, if that differs from the last report.
    pub fn answered(&mut self, passed: bool) -> Option<bool> {
        self.in_a_row = if passed { 0 } else { self.in_a_row.saturating_add(1) };
        let limit = if self.reported.is_none() { self.first_failures } else { self.failures };
        // A failed check stays failed until it passes once.
        if !passed && self.in_a_row < limit {
            return None;
        }
        (self.reported.replace(passed) != Some(passed)).then_some(passed)
    }

    /// How many failures in a row there have been, the last answer included.
    pub fn in_a_row(&self) -> u32 {
        self.in_a_row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` passes, `-` fails; in the outcome `P` and `F` are reports, and `.` is none.
    fn played(mut tally: Tally, answers: &str) -> String {
        let one = |answer| match tally.answered(answer == '+') {
            Some(true) => 'P',
            Some(false) => 'F',
            None => '.',
        };
        answers.chars().map(one).collect()
    }

    #[test]
    fn so_many_failures_in_a_row_count_and_one_success() {
        for (failures, answers, reports) in [
            (3, "+++", "P.."),
            (3, "+--+--+---", "P........F"),
            (3, "+-----+-", "P..F..P."),
            (3, "---+---", "..FP..F"),
            (3, "--+", "..P"),
            (1, "+-+-", "PFPF"),
            (1, "--", "F."),
        ] {
            assert_eq!(played(Tally::new(failures), answers), reports, "{failures}: {answers}");
        }
    }

    #[test]
    fn the_first_answer_is_reported_where_it_is_waited_for() {
        for (answers, reports) in
            [("-", "F"), ("--", "F."), ("-+--", "FP.."), ("-+---", "FP..F"), ("+---", "P..F")]
        {
            assert_eq!(played(Tally::reporting_the_first(3), answers), reports, "{answers}");
        }
    }
}
