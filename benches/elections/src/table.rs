//! Medians and 99th percentiles, and the table of them.

use std::{fmt, time::Duration};

use crate::{clients::Clients, moment::Moment};

/// The writes by each client before each change.
const WRITES: usize = 10;

/// The raw sequences before each change.
const RAW: usize = 2;

/// How long the clients rest before a write that is not one of many.
const REST: Duration = Duration::from_millis(50);

/// Measured times, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Of these times, in any order.
    #[must_use]
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The smallest time that so many of a hundred do not exceed; zero if there are none.
    #[must_use]
    pub fn percent(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    /// Half of the times are not longer.
    #[must_use]
    pub fn median(&self) -> Duration {
        self.percent(50)
    }

    /// The time nearest above which lies one of a hundred: the longest, of fewer than a hundred.
    #[must_use]
    pub fn p99(&self) -> Duration {
        self.percent(99)
    }
}

/// What the times of a case are multiples of: W and the raw sequence, measured in turn with its changes. W is a write of a
/// series; a write after a rest takes longer, and is shown beside it.
#[derive(Debug, Default)]
pub struct References {
    rested: Vec<Duration>,
    unit: Vec<Duration>,
    raw: Vec<Duration>,
}

impl References {
    /// Measures each some times. Call it before each change.
    ///
    /// # Errors
    /// If an operation fails.
    pub async fn measure(
        &mut self,
        clients: &mut Clients,
        raw: impl AsyncFn(&mut Clients) -> Result<Duration, String>,
    ) -> Result<(), String> {
        self.rested.push(clients.write_after(REST).await?);
        self.unit.extend(clients.round_trips(WRITES).await?);
        for _ in 0..RAW {
            self.raw.push(raw(clients).await?);
        }
        Ok(())
    }
}

/// The name of a row, and the moments of a change between which its time is.
pub type Step<C> = (&'static str, fn(&C) -> Moment, fn(&C) -> Moment);

/// Rows of times, each with the unit and the raw sequence that were measured in turn with it.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    what: String,
    times: Times,
    unit: Duration,
    raw: Duration,
}

impl Table {
    /// Adds the rows of a case: its references, and each step of its changes.
    pub fn add_case<C>(&mut self, case: &str, references: References, changes: &[C], steps: &[Step<C>]) {
        let (unit, raw) = (Times::of(references.unit), Times::of(references.raw));
        self.add(format!("{case}  W: one quorum write"), unit.clone(), &unit, &raw);
        self.add(format!("{case}  one write after a rest"), Times::of(references.rested), &unit, &raw);
        self.add(format!("{case}  raw sequence"), raw.clone(), &unit, &raw);
        for (what, from, to) in steps {
            let times = changes.iter().map(|change| to(change).since(from(change))).collect();
            self.add(format!("{case}  {what}"), Times::of(times), &unit, &raw);
        }
    }

    fn add(&mut self, what: String, times: Times, unit: &Times, raw: &Times) {
        self.rows.push(Row { what, times, unit: unit.median(), raw: raw.median() });
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
        let heads = ["median ms", "p99 ms", "median/W", "p99/W", "median/raw", "p99/raw"];
        write!(f, "{:width$}", "")?;
        for head in heads {
            write!(f, "{head:>11}")?;
        }
        for Row { what, times, unit, raw } in &self.rows {
            write!(f, "\n{what:width$}")?;
            for (time, by) in [
                (times.median(), Duration::from_millis(1)),
                (times.p99(), Duration::from_millis(1)),
                (times.median(), *unit),
                (times.p99(), *unit),
                (times.median(), *raw),
                (times.p99(), *raw),
            ] {
                write!(f, "{:>11}", ratio(time, by))?;
            }
        }
        write!(f, "\nthe 99th percentile of fewer than 100 times is the longest")
    }
}

/// A ratio with as many digits as mean something.
fn ratio(time: Duration, by: Duration) -> String {
    if by.is_zero() {
        return "-".to_owned();
    }
    let ratio = time.as_secs_f64() / by.as_secs_f64();
    if ratio < 10.0 { format!("{ratio:.2}") } else { format!("{ratio:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(millis: impl IntoIterator<Item = u64>) -> Times {
        Times::of(millis.into_iter().map(Duration::from_millis).collect())
    }

    #[test]
    fn percentiles_are_measured_times() {
        let hundred = times((1..=200).rev());
        assert_eq!(hundred.median(), Duration::from_millis(100));
        assert_eq!(hundred.p99(), Duration::from_millis(198));
        let few = times([30, 10, 20]);
        assert_eq!((few.median(), few.p99()), (Duration::from_millis(20), Duration::from_millis(30)));
        assert_eq!(times([]).median(), Duration::ZERO);
    }

    #[test]
    fn rows_are_multiples_of_their_own_references() {
        let mut table = Table::default();
        let references = References {
            rested: vec![Duration::from_millis(3)],
            unit: vec![Duration::from_millis(2)],
            raw: vec![Duration::from_millis(4)],
        };
        let changes = [6, 30].map(|ms| Moment(ms * 1_000_000));
        table.add_case("queue", references, &changes, &[("leading", |_| Moment(0), |change| *change)]);
        table.add("alone".to_owned(), times([5]), &times([]), &times([]));
        let text = table.to_string();
        let row =
            |at: usize| text.lines().nth(at).unwrap().split_whitespace().rev().take(6).collect::<Vec<_>>();
        assert_eq!(row(1), ["0.50", "0.50", "1.00", "1.00", "2.00", "2.00"]);
        assert_eq!(row(2), ["0.75", "0.75", "1.50", "1.50", "3.00", "3.00"]);
        assert_eq!(row(3), ["1.00", "1.00", "2.00", "2.00", "4.00", "4.00"]);
        assert_eq!(row(4), ["7.50", "1.50", "15.0", "3.00", "30.0", "6.00"]);
        assert_eq!(row(5), ["-", "-", "-", "-", "5.00", "5.00"]);
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }
}
