//! Whole rankings as transcripts: each file in `tests/transcripts` is a script of
//! `> command` lines, with what each one answers written below it. So are the examples in
//! `docs/policies.md`, each with the policy that stands before it.
//!
//! `UPDATE_TRANSCRIPTS=1 cargo test -p strategies --test it transcripts` writes the
//! answers anew; read the difference before you keep it.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, str::FromStr};

use election_core::strategy::{Health, Ranking};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use strategies::{
    PolicySpec, SlotSpread,
    other_jobs::{LedBy, OtherJob, OtherJobs},
    spec::Inputs,
    testing::{self, View, member, sites},
};

#[test]
fn transcripts_are_what_the_strategies_answer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no transcript in {}", folder.display());
    for path in paths {
        let expected = fs::read_to_string(&path).unwrap();
        compare(&path, &expected, &replay(&expected, Stage::default()));
    }
}

#[test]
fn the_examples_in_the_documents_are_what_the_policies_answer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies.md");
    let expected = fs::read_to_string(&path).unwrap();
    let mut got = String::new();
    let (mut policy, mut examples) = (None, 0);
    let mut rest = expected.as_str();
    while let Some(at) = rest.find("```") {
        let (text, block) = rest.split_at(at);
        let (kind, block) = block.strip_prefix("```").unwrap().split_once('\n').unwrap();
        let (inside, after) = block.split_once("```\n").unwrap();
        writeln!(got, "{text}```{kind}").unwrap();
        match kind {
            "toml" => {
                let document: Document = toml::from_str(inside).unwrap();
                let read = |policy| PolicySpec::read(&policy, Inputs::ALL).unwrap();
                policy = document.policy.map(read).or(policy);
                got.push_str(inside);
            }
            "transcript" => {
                let policy = policy.clone().unwrap().for_election("orders");
                got.push_str(&replay(inside, Stage { policy, ..Stage::default() }));
                examples += 1;
            }
            _ => got.push_str(inside),
        }
        got.push_str("```\n");
        rest = after;
    }
    got.push_str(rest);
    assert!(examples > 5, "{examples}");
    compare(&path, &expected, &got);
}

#[derive(serde::Deserialize)]
struct Document {
    /// Other tables are examples of another kind.
    policy: Option<Map<String, Value>>,
}

fn compare(path: &Path, expected: &str, got: &str) {
    if update_wanted() {
        fs::write(path, got).unwrap();
    } else if got != expected {
        panic!("{} differs:\n{}", path.display(), difference(expected, got));
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
fn replay(script: &str, mut stage: Stage) -> String {
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
    policy: PolicySpec,
    jobs: OtherJobs,
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
            "job" => self.job(&plain, &named),
            "drain" => self.view.control.drained = sites(plain.iter().copied()),
            "prefer" => self.view.control.preferred_site = sites(plain.iter().copied()).pop(),
            "rank" => return self.rank(plain[0], &named),
            other => panic!("no such command: {other}"),
        }
        String::new()
    }

    fn set_policy(&mut self, named: &BTreeMap<&str, &str>) {
        let policy = PolicySpec::for_sites(sites(named["sites"].split(','))).with(|sites| {
            sites.on_leader_failure = word(named["on_leader_failure"]);
            sites.auto_moves = word(named["auto_moves"]);
            sites.spread = named.get("spread").map_or_else(SlotSpread::default, |name| word(name));
        });
        self.policy = policy;
    }

    /// `job db leads=west-1@west`: where another job is led; with `paused` its mode is manual, and without a leader it has none.
    fn job(&mut self, plain: &[&str], named: &BTreeMap<&str, &str>) {
        let leaders = named.get("leads").into_iter().flat_map(|all| all.split(','));
        let leaders = leaders.map(|text| {
            let (name, site) = text.split_once('@').unwrap();
            LedBy::new(&member(name, site, 1).named())
        });
        let leaders: Vec<_> = leaders.collect();
        let job = match (leaders.is_empty(), plain.get(1)) {
            (true, _) => OtherJob::Unknown("it has no leader".to_owned()),
            (false, Some(&"paused")) => OtherJob::Unsettled(leaders, "its mode is manual".to_owned()),
            (false, _) => OtherJob::Led(leaders),
        };
        self.jobs.insert(plain[0].to_owned(), job);
    }

    fn join(&mut self, name: &str, named: &BTreeMap<&str, &str>) {
        self.ballots += 1;
        let mut record = member(name, named["site"], self.ballots);
        if let Some(priority) = named.get("priority") {
            record.priority = i64::from_str(priority).unwrap();
        }
        record.software = named.get("software").copied().unwrap_or_default().to_owned();
        let other =
            |(name, _): &(&&str, &&str)| !["site", "priority", "software", "rtt", "target"].contains(*name);
        let attributes = named.iter().filter(other);
        record.attributes = attributes.map(|(name, value)| ((*name).into(), (*value).into())).collect();
        // `rtt=b-1:900,b-2:2000`: the round trips to others, in microseconds.
        for trip in named.get("rtt").into_iter().flat_map(|all| all.split(',')) {
            let (peer, micros) = trip.split_once(':').unwrap();
            record.round_trips.peers.insert(peer.parse().unwrap(), micros.parse().unwrap());
        }
        if let Some((target, micros)) = named.get("target").map(|trip| trip.split_once(':').unwrap()) {
            record.round_trips.targets.insert(target.to_owned(), micros.parse().unwrap());
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
        let mut exclusion = testing::exclusion(self.by_name[name], until_ms);
        exclusion.member = name.parse().unwrap();
        exclusion.reason = reason;
        self.view.exclusions.push(exclusion);
    }

    fn rank(&mut self, cause: &str, named: &BTreeMap<&str, &str>) -> String {
        let mut view = self.view.clone();
        view.cause = word(cause);
        // `others=east-1@east,west-1@west`: who leads the other slots.
        let others = named.get("others").into_iter().flat_map(|all| all.split(','));
        for text in others {
            let (name, site) = text.split_once('@').unwrap();
            let number = self.by_name[name];
            view.members.retain(|m| m.member.as_str() != name);
            view.others.push(member(name, site, number).named());
        }
        view.incumbent = named.get("incumbent").map(|name| testing::ballot(self.by_name[*name]));
        view.accepts_loss = named.get("loss") == Some(&"accepted");
        // `failed=east-1@east`: it may be gone, so its site is said here. `before`: who led
        // last, where nobody failed.
        let former = |key: &str| {
            let (name, site) = named.get(key)?.split_once('@').unwrap();
            Some(testing::previous(name, site, self.by_name[name]))
        };
        view.failed = former("failed");
        view.previous = former("before").or_else(|| view.failed.clone());
        show(&self.policy.clone().seeing(self.jobs.clone()).strategy().rank(&view.round()))
    }
}

/// A value from its word in a policy.
fn word<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_value(text.into()).unwrap()
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
