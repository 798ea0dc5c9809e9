//! The command line of the benchmarks of one change of leadership.

use std::fmt;

use clap::{Args, ValueEnum};

/// Who decides, and whether that member leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The recipe `elector`; the leader is the elector, and both roles move together.
    Elector,
    /// The recipe `elector` with an elector that never leads.
    ElectorStays,
    /// The recipe `queue`.
    Queue,
    /// The recipe `single`.
    Single,
}

impl Kind {
    /// The name of its recipe.
    #[must_use]
    pub fn recipe(self) -> &'static str {
        match self {
            Self::Elector | Self::ElectorStays => "elector",
            Self::Queue => "queue",
            Self::Single => "single",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// What these benchmarks have in common.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Changes of leadership for each recipe and number of members.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// How many members, each with a session of its own; may be repeated [default: 3 30 300].
    #[arg(long = "members", value_name = "N", value_parser = clap::value_parser!(u32).range(3..))]
    pub members: Vec<u32>,
    /// May be repeated [default: all].
    #[arg(long = "recipe", value_name = "RECIPE", value_enum)]
    pub kinds: Vec<Kind>,
    /// The ZooKeeper client of the members. W and the raw sequence are always measured over the native one.
    #[arg(long, default_value = "native", value_parser = ["native", "zookeeper-async"])]
    pub driver: String,
    /// Cargo's own.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// Every recipe with every number of members.
    #[must_use]
    pub fn cases(&self) -> Vec<(Kind, usize)> {
        let members: Vec<usize> = match self.members[..] {
            [] => vec![3, 30, 300],
            _ => self.members.iter().map(|members| *members as usize).collect(),
        };
        let kinds = if self.kinds.is_empty() { Kind::value_variants() } else { &self.kinds };
        kinds.iter().flat_map(|kind| members.iter().map(|members| (*kind, *members))).collect()
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
        options: Options,
    }

    fn parse(words: &[&str]) -> Result<Options, clap::Error> {
        Line::try_parse_from([&["bench", "--bench"], words].concat()).map(|line| line.options)
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
