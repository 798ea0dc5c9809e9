//! The table.

use std::fmt;

use crate::client::Kind;
use crate::load::{Load, Sample};
use crate::options::Options;
use crate::setting::DATA;

pub(crate) struct Report {
    setting: String,
    rounds: usize,
    sessions: usize,
    samples: Vec<(usize, Kind, Load, Sample)>,
    memory: Vec<(Kind, f64)>,
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
            "{server}; {} rounds of {:?} for each client and load; {DATA} bytes a znode",
            options.rounds, options.slice
        );
        let (rounds, sessions) = (options.rounds, options.sessions);
        Self { setting, rounds, sessions, samples: Vec::new(), memory: Vec::new() }
    }

    pub(crate) fn add(&mut self, round: usize, kind: Kind, load: Load, sample: Sample) {
        self.samples.push((round, kind, load, sample));
    }

    pub(crate) fn add_memory(&mut self, kind: Kind, bytes: f64) {
        self.memory.push((kind, bytes));
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, load: Load, figure: Figure, kind: Kind) -> fmt::Result {
        let of = |kind: Kind| self.by_round(load, figure, kind);
        let all: Vec<f64> = of(kind).into_iter().flatten().collect();
        if all.is_empty() {
            return Ok(());
        }
        let ratios = |other: Kind| -> Vec<f64> {
            of(kind).into_iter().zip(of(other)).filter_map(|(own, other)| Some(own? / other?)).collect()
        };
        let beneath = kind.beneath().map(ratios).filter(|ratios| !ratios.is_empty());
        let beneath = beneath.map_or(String::new(), |ratios| {
            let [low, middle, high] = quartiles(ratios);
            format!("{middle:.3} ({low:.3} to {high:.3})")
        });
        let kazoo = Some(ratios(Kind::Kazoo)).filter(|ratios| kind != Kind::Kazoo && !ratios.is_empty());
        let kazoo = kazoo.map_or(String::new(), |ratios| format!("{:.2}", quartiles(ratios)[1]));
        let [_, middle, _] = quartiles(all);
        writeln!(f, "  {kind:26}{:12}{middle:>10.0}{beneath:>26}{kazoo:>10}", figure.name)
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
        writeln!(f, "to the driver: the median of the rounds' ratios (and the middle half of them)")?;
        for load in Load::ALL {
            writeln!(f, "\n{load}")?;
            writeln!(f, "  {:26}{:12}{:>10}{:>26}{:>10}", "", "", "", "to the driver", "to kazoo")?;
            for figure in FIGURES {
                for kind in Kind::ALL {
                    self.line(f, load, figure, kind)?;
                }
            }
        }
        writeln!(f, "\nmemory of one session more, by {} of them", self.sessions)?;
        for &(kind, bytes) in &self.memory {
            let to = |other: Option<Kind>| {
                let found = self.memory.iter().find(|(kind, _)| Some(*kind) == other);
                found.map_or(String::new(), |(_, other)| format!("{:.2}", bytes / other))
            };
            let beneath = to(kind.beneath());
            let kazoo = to(Some(Kind::Kazoo).filter(|kazoo| *kazoo != kind));
            writeln!(
                f,
                "  {kind:26}{:12}{:>10}{beneath:>26}{kazoo:>10}",
                "kB",
                format!("{:.0}", bytes / 1024.0)
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
