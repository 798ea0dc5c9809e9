//! Whole rankings as transcripts: each file in `tests/transcripts` is a script of
//! `> command` lines, with what each one answers written below it.
//!
//! `UPDATE_TRANSCRIPTS=1 cargo test -p strategies --test transcripts` writes the
//! answers anew; read the difference before you keep it.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod support;

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, str::FromStr};

use election_core::{
    record::{Cause, Health},
    strategy::Ranking,
};
use serde::de::{IntoDeserializer, value::StrDeserializer};
use strategies::SitePolicy;
use support::{View, member, sites};

#[test]
fn transcripts_are_what_the_strategies_answer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no transcript in {}", folder.display());
    for path in paths {
        let expected = fs::read_to_string(&path).unwrap();
        let got = replay(&expected);
        if update_wanted() {
            fs::write(&path, got).unwrap();
        } else if got != expected {
            panic!("{} differs:\n{}", path.display(), difference(&expected, &got));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test may look at its environment")]
fn update_wanted() -> bool {
    std::env::var_os("UPDATE_TRANSCRIPTS").is_some()
}

/// The lines from the first one that differs.
fn difference(expected: &str, got: &str) -> String {
    let same = expected.lines().zip(got.lines()).take_while(|(a, b)| a == b).count();
    let rest = |text: &str| text.lines().skip(same).take(8).collect::<Vec<_>>().join("\n");
    format!("from line {} expected\n{}\nbut got\n{}", same + 1, rest(expected), rest(got))
}

/// Keeps the comments and the commands of a transcript, and writes the answers.
fn replay(script: &str) -> String {
    let mut stage = Stage::default();
    let mut out = String::new();
    for line in script.lines() {
        if let Some(command) = line.strip_prefix("> ") {
            writeln!(out, "{line}").unwrap();
            out.push_str(&stage.run(command));
        } else if line.is_empty() || line.starts_with('#') {
            writeln!(out, "{line}").unwrap();
        }
    }
    out
}

/// What the commands act on.
#[derive(Default)]
struct Stage {
    view: View,
    policy: SitePolicy,
    ballots: u32,
    by_name: BTreeMap<String, u32>,
}

impl Stage {
    fn run(&mut self, command: &str) -> String {
        let mut words = command.split(' ');
        let verb = words.next().unwrap();
        let (named, plain): (Vec<_>, Vec<_>) = words.partition(|word| word.contains('='));
        let named: BTreeMap<_, _> = named.into_iter().filter_map(|word| word.split_once('=')).collect();
        match verb {
            "policy" => self.set_policy(&named),
            "join" => self.join(plain[0], &named),
            "leave" => self.view.members.retain(|m| m.member.as_str() != plain[0]),
            "unhealthy" => self.health(plain[0], Some(plain[1..].join(" "))),
            "healthy" => self.health(plain[0], None),
            "exclude" => self.exclude(plain[0], named["seconds"], plain[1..].join(" ")),
            "wait" => self.view.unix_ms += 1000 * plain[0].parse::<u64>().unwrap(),
            "drain" => self.view.control.drained = sites(plain.iter().copied()),
            "prefer" => self.view.control.preferred_site = sites(plain.iter().copied()).pop(),
            "rank" => return self.rank(plain[0], &named),
            other => panic!("no such command: {other}"),
        }
        String::new()
    }

    fn set_policy(&mut self, named: &BTreeMap<&str, &str>) {
        self.policy = SitePolicy {
            sites: sites(named["sites"].split(',')),
            on_leader_failure: word(named["on_leader_failure"]),
            failback: word(named["failback"]),
            spread: named.get("spread").map_or_else(Default::default, |spread| word(spread)),
        };
    }

    fn join(&mut self, name: &str, named: &BTreeMap<&str, &str>) {
        self.ballots += 1;
        let mut record = member(name, named["site"], self.ballots);
        if let Some(priority) = named.get("priority") {
            record.priority = i64::from_str(priority).unwrap();
        }
        self.by_name.insert(name.to_owned(), self.ballots);
        self.view.members.push(record);
    }

    fn health(&mut self, name: &str, reason: Option<String>) {
        let member = self.view.members.iter_mut().find(|m| m.member.as_str() == name).unwrap();
        member.health = match reason {
            Some(reason) => Health::Unhealthy { reason },
            None => Health::Healthy,
        };
    }

    fn exclude(&mut self, name: &str, seconds: &str, reason: String) {
        let until_ms = self.view.unix_ms + 1000 * seconds.parse::<u64>().unwrap();
        let mut exclusion = support::exclusion(self.by_name[name], until_ms);
        exclusion.member = name.parse().unwrap();
        exclusion.reason = reason;
        self.view.exclusions.push(exclusion);
    }

    fn rank(&mut self, cause: &str, named: &BTreeMap<&str, &str>) -> String {
        let mut view = self.view.clone();
        view.cause = word::<Cause>(cause);
        // `others=east-1@east,west-1@west`: who leads the other slots.
        let others = named.get("others").into_iter().flat_map(|all| all.split(','));
        for text in others {
            let (name, site) = text.split_once('@').unwrap();
            let number = self.by_name[name];
            view.members.retain(|m| m.member.as_str() != name);
            view.others.push(member(name, site, number).named());
        }
        view.incumbent = named.get("incumbent").map(|name| support::ballot(self.by_name[*name]));
        // `failed=east-1@east`: it may be gone, so its site is said here.
        view.failed = named.get("failed").map(|text| {
            let (name, site) = text.split_once('@').unwrap();
            support::previous(name, site, self.by_name[name])
        });
        show(&self.policy.strategy().rank(&view.round()))
    }
}

/// A value from its word in a configuration or a record.
fn word<T: for<'de> serde::Deserialize<'de>>(text: &str) -> T {
    let text: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
    T::deserialize(text).unwrap()
}

fn show(ranking: &Ranking) -> String {
    let mut out = String::new();
    for (index, ranked) in ranking.order.iter().enumerate() {
        let (member, reasons) = (&ranked.named.member, ranked.reasons.join(", "));
        writeln!(out, "{}. {member}: {reasons}", index + 1).unwrap();
    }
    for refused in &ranking.refused {
        let (member, stage, reason) = (&refused.named.member, &refused.stage, &refused.reason);
        writeln!(out, "-- {member} ({stage}): {reason}").unwrap();
    }
    if let Some(why) = &ranking.worth_waiting {
        writeln!(out, "worth waiting: {why}").unwrap();
    }
    if out.is_empty() {
        out.push_str("nobody\n");
    }
    out
}
