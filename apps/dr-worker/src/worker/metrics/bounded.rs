//! Leaves out of an exposition what a worker with many jobs must not serve.

use std::io::{self, Write};

use super::list::{Scope, metric_of};

/// A gauge can't be removed. Of these NaN means that the job has no such slot any more: a rule that adds them up would be wrong.
const OF_SLOTS: [&str; 2] = ["dr_leader", "dr_fencing_token"];

/// Passes on the series that are to be served: those of the member, and those of a job if `serves` them. A family that
/// has no series then is left out too.
pub(in crate::worker) struct Bounded<F> {
    serves: F,
    text: Vec<u8>,
    /// The line that is being written.
    line: Vec<u8>,
    /// `# HELP` and `# TYPE`, until a series of the family follows.
    header: Vec<u8>,
}

impl<F: Fn(Scope, &str) -> bool> Bounded<F> {
    /// `serves` has the scope of a metric, and the name of a job.
    pub(in crate::worker) fn new(serves: F) -> Self {
        Self { serves, text: Vec::new(), line: Vec::new(), header: Vec::new() }
    }

    /// What is served.
    pub(in crate::worker) fn into_text(self) -> Vec<u8> {
        self.text
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if line == b"\n" {
            // The end of a family.
            self.header.clear();
        } else if line.starts_with(b"#") {
            self.header.extend(&line);
        } else if self.is_served(&line) {
            self.text.append(&mut self.header);
            self.text.extend(&line);
        }
        self.line = line;
        self.line.clear();
    }

    fn is_served(&self, line: &[u8]) -> bool {
        let Ok(line) = std::str::from_utf8(line) else { return true };
        let Some((name, labels)) = line.split_once('{') else { return true };
        if OF_SLOTS.contains(&name) && line.trim_end().ends_with(" NaN") {
            return false;
        }
        // Neither names of jobs nor those of members and sites have a quotation mark.
        let job = labels.split_once("job=\"").and_then(|(_, rest)| rest.split_once('"'));
        let scope = metric_of(name).map(|metric| metric.scope);
        match (scope, job) {
            (Some(scope @ (Scope::Here | Scope::HereOrElector)), Some((job, _))) => (self.serves)(scope, job),
            _ => true,
        }
    }
}

impl<F: Fn(Scope, &str) -> bool> Write for Bounded<F> {
    fn write(&mut self, written: &[u8]) -> io::Result<usize> {
        for part in written.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend(part);
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
        Ok(written.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "\
# HELP dr_term Term
# TYPE dr_term gauge
dr_term{member=\"a\",site=\"s\",job=\"led\"} 3
dr_term{member=\"a\",site=\"s\",job=\"other\"} 4

# HELP dr_process_state State
# TYPE dr_process_state gauge
dr_process_state{member=\"a\",site=\"s\",job=\"led\",state=\"running\"} 1
dr_process_state{member=\"a\",site=\"s\",job=\"other\",state=\"running\"} 0

# TYPE dr_process_restarts_total counter
dr_process_restarts_total{member=\"a\",site=\"s\",job=\"other\"} 2

# TYPE dr_leader gauge
dr_leader{member=\"a\",site=\"s\",job=\"led\"} NaN
dr_leader{member=\"a\",site=\"s\",job=\"led\",slot=\"0\"} 1

dr_skipped_total{member=\"a\",site=\"s\",job=\"other\",reason=\"steady\"} 2
dr_log_lines_dropped_total{member=\"a\",site=\"s\"} 0
dr_log_lines_dropped_total{member=\"a\",site=\"s\",job=\"other\"} 0
";

    fn served(serves: impl Fn(Scope, &str) -> bool, at_once: usize) -> String {
        let mut bounded = Bounded::new(serves);
        for part in ALL.as_bytes().chunks(at_once) {
            bounded.write_all(part).expect("it takes everything");
        }
        String::from_utf8(bounded.into_text()).expect("text")
    }

    #[test]
    fn series_of_jobs_that_are_elsewhere_and_of_slots_that_are_gone_are_left_out() {
        let expected = "\
# HELP dr_term Term
# TYPE dr_term gauge
dr_term{member=\"a\",site=\"s\",job=\"led\"} 3
dr_term{member=\"a\",site=\"s\",job=\"other\"} 4
# HELP dr_process_state State
# TYPE dr_process_state gauge
dr_process_state{member=\"a\",site=\"s\",job=\"led\",state=\"running\"} 1
# TYPE dr_leader gauge
dr_leader{member=\"a\",site=\"s\",job=\"led\",slot=\"0\"} 1
dr_log_lines_dropped_total{member=\"a\",site=\"s\"} 0
";
        // However the writer divides it.
        for at_once in [1, 7, 64, 4096] {
            assert_eq!(served(|_, job| job == "led", at_once), expected);
        }
        let of_electors = served(|scope, _| scope == Scope::HereOrElector, 4096);
        assert!(of_electors.contains("dr_skipped_total"), "{of_electors}");
        assert!(!of_electors.contains("dr_process"), "{of_electors}");
    }
}
