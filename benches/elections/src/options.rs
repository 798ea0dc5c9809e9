//! The command line of the benchmarks of one change of leadership.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::setting::{Kind, Setting};

/// The requested session timeout of the members.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// What these benchmarks have in common.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Changes of leadership for each row.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// May be repeated [default: all].
    #[arg(long = "recipe", value_name = "RECIPE", value_enum)]
    kinds: Vec<Kind>,
    /// The ZooKeeper client of the members. W and the raw sequence are always measured over the native one.
    #[arg(long, default_value = "native", value_parser = ["native", "zookeeper-async"])]
    pub driver: String,
    /// Cargo's own.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// The chosen recipes.
    #[must_use]
    pub fn kinds(&self) -> Vec<Kind> {
        if self.kinds.is_empty() { Kind::value_variants().to_vec() } else { self.kinds.clone() }
    }

    /// Members with these servers.
    #[must_use]
    pub fn setting(&self, program: &'static str, connect: String, tick: Duration) -> Setting {
        Setting { program, connect, tick, session_timeout: SESSION_TIMEOUT, driver: self.driver.clone() }
    }
}

/// The options of a benchmark with many members.
#[derive(Clone, Debug, Args)]
pub struct Crowd {
    /// The others.
    #[command(flatten)]
    pub options: Options,
    /// How many members, each with a session of its own; may be repeated [default: 3 30 300].
    #[arg(long = "members", value_name = "N", value_parser = clap::value_parser!(u32).range(3..))]
    members: Vec<u32>,
}

impl Crowd {
    /// Every recipe with every number of members.
    #[must_use]
    pub fn cases(&self) -> Vec<(Kind, usize)> {
        let members = if self.members.is_empty() { &[3, 30, 300][..] } else { &self.members };
        let kinds = self.options.kinds();
        kinds.iter().flat_map(|kind| members.iter().map(|members| (*kind, *members as usize))).collect()
    }

    /// The first recipe and number of members: `elector` and 3 by default.
    #[must_use]
    pub fn first_case(&self) -> (Kind, usize) {
        self.cases()[0]
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        crowd: Crowd,
    }

    fn parse(words: &[&str]) -> Result<Crowd, clap::Error> {
        Line::try_parse_from([&["bench", "--bench"], words].concat()).map(|line| line.crowd)
    }

    #[test]
    fn every_recipe_with_every_number_of_members_unless_some_are_chosen() {
        let all = parse(&[]).unwrap();
        assert_eq!((all.cases().len(), all.first_case()), (12, (Kind::Elector, 3)));
        let few = parse(&["--recipe", "queue", "--members", "5", "--recipe", "elector-stays"]).unwrap();
        assert_eq!(few.cases(), [(Kind::Queue, 5), (Kind::ElectorStays, 5)]);
        for wrong in [["--runs", "0"], ["--members", "2"], ["--recipe", "vote"], ["--driver", "none"]] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
    }
}
