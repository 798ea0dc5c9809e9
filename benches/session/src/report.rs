//! The table.

use std::fmt;

use crate::client::Kind;
use crate::idle::{self, Idle};
use crate::load::{Load, Sample};
use crate::options::Options;
use crate::setting::DATA;

pub(crate) struct Report {
    setting: String,
    rounds: usize,
    sessions: usize,
    samples: Vec<(usize, Kind, Load, Sample)>,
    /// Results without a load: the cost of idle sessions, and the round trips of a new one.
    alone: Vec<(Kind, Idle, [f64; 2])>,
}

/// One column of a sample.
#[derive(Clone, Copy)]
struct Figure {
    name: &'static str,
    of: fn(&Sample) -> f64,
}

const FIGURES: [Figure; 3] = [
    Figure { name: "per second", of: |sample| sample.per_second },
    Figure { name: "median us", of: |sample| sample.median },
    Figure { name: "p99 us", of: |sample| sample.p99 },
];

impl Report {
    pub(crate) fn new(options: &Options, server: String) -> Self {
        let setting = format!(
            "{server}; {} rounds of {:?} for each client and load; {DATA} bytes a znode{}",
            options.rounds,
            options.slice,
            if cfg!(debug_assertions) { "; NOT OPTIMIZED, so the figures mean nothing" } else { "" }
        );
        let (rounds, sessions) = (options.rounds, options.sessions);
        Self { setting, rounds, sessions, samples: Vec::new(), alone: Vec::new() }
    }

    pub(crate) fn add(&mut self, round: usize, kind: Kind, load: Load, sample: Sample) {
        self.samples.push((round, kind, load, sample));
    }

    pub(crate) fn add_alone(&mut self, kind: Kind, idle: Idle, round_trips: [f64; 2]) {
        self.alone.push((kind, idle, round_trips));
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, load: Load, figure: Figure, kind: Kind) -> fmt::Result {
        let own = self.by_round(load, figure, kind);
        let all: Vec<f64> = own.iter().copied().flatten().collect();
        if all.is_empty() {
            return Ok(());
        }
        let to = |other: Option<Kind>| -> Option<[f64; 3]> {
            let other = self.by_round(load, figure, other.filter(|other| *other != kind)?);
            let ratios = own.iter().zip(other).filter_map(|(own, other)| Some((*own)? / other?));
            Some(ratios.collect()).filter(|ratios: &Vec<f64>| !ratios.is_empty()).map(quartiles)
        };
        let spread = |ratio: Option<[f64; 3]>| {
            ratio.map_or(String::new(), |[low, middle, high]| format!("{middle:.3} ({low:.3} to {high:.3})"))
        };
        let (socket, beneath) = (spread(to(Some(Kind::Socket))), spread(to(kind.beneath())));
        let kazoo = to(Some(Kind::Kazoo)).map_or(String::new(), |[_, middle, _]| format!("{middle:.2}"));
        let [_, middle, _] = quartiles(all);
        writeln!(f, "  {kind:26}{:12}{middle:>10.0} {socket:>26} {beneath:>26} {kazoo:>10}", figure.name)
    }

    /// The results of the least disturbed slices. On a shared machine these are more significant than the median.
    fn best(&self, f: &mut fmt::Formatter<'_>, load: Load, kind: Kind) -> fmt::Result {
        let best_of = |kind: Kind| {
            let mut all: Vec<f64> = self.by_round(load, FIGURES[0], kind).into_iter().flatten().collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() * 9 / 10).copied()
        };
        let Some(own) = best_of(kind) else { return Ok(()) };
        let to = |other: Option<Kind>, digits: usize| {
            let ratio = other.filter(|other| *other != kind).and_then(best_of).map(|other| own / other);
            ratio.map_or(String::new(), |ratio| format!("{ratio:.digits$}"))
        };
        let (socket, beneath, kazoo) =
            (to(Some(Kind::Socket), 3), to(kind.beneath(), 3), to(Some(Kind::Kazoo), 2));
        writeln!(f, "  {kind:26}{:12}{own:>10.0} {socket:>26} {beneath:>26} {kazoo:>10}", "best tenth")
    }

    fn by_round(&self, load: Load, figure: Figure, kind: Kind) -> Vec<Option<f64>> {
        let mut values = vec![None; self.rounds];
        for (round, _, _, sample) in self.samples.iter().filter(|(_, k, l, _)| (*k, *l) == (kind, load)) {
            values[*round] = Some((figure.of)(sample));
        }
        values
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.setting)?;
        f.write_str(
            "to the socket: as a part of what a bare socket loop does in the same run, or a multiple of it\n\
             to the driver: as a part of what the client crate of that name does by itself\n\
             each the median of the rounds' ratios (and the middle half of them)\n\
             best tenth: operations per second that a client exceeds in a tenth of its slices, and their ratio\n",
        )?;
        for load in Load::ALL {
            let [socket, beneath, kazoo] = ["to the socket", "to the driver", "to kazoo"];
            writeln!(f, "\n{load}\n  {:48} {socket:>26} {beneath:>26} {kazoo:>10}", "")?;
            for figure in FIGURES {
                for kind in Kind::all() {
                    self.line(f, load, figure, kind)?;
                }
            }
            for kind in Kind::all() {
                self.best(f, load, kind)?;
            }
        }
        let all = 1 + idle::FIRST + self.sessions;
        writeln!(
            f,
            "\nby itself\n  \
             memory: kB of one idle session more, by {} of them\n  \
             threads: of a process with one session and with {all}, beyond those that it has without one\n  \
             round trips, TCP's own left out: until connected (a session: active), and until it has read\n  \
             {:26}{:>12}{:>12}{:>14}{:>12}{:>12}",
            self.sessions,
            "",
            "memory",
            "threads, 1",
            format!("threads, {all}"),
            "connected",
            "has read"
        )?;
        for (kind, Idle { memory, threads: [one, all] }, [connected, read]) in &self.alone {
            writeln!(
                f,
                "  {kind:26}{:>12.0}{one:>12}{all:>14}{connected:>12.1}{read:>12.1}",
                memory / 1024.0
            )?;
        }
        Ok(())
    }
}

/// The bounds of the four quarters, the outer ones left out. Of at least one value.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() * quarter / 4).min(values.len() - 1)])
}
