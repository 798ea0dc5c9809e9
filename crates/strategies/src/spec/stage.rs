//! Stages in a policy: a name, or a table with settings.

use std::collections::BTreeMap;

use election_core::{SiteId, calendar::Windows};

use super::{
    foreign::OwnStage,
    own::Own,
    reader::{Factory, Findings, Registered, Step, Table, micros, texts, word},
    value::Value,
};
use crate::{
    Pipeline, Steadiness,
    site_policy::SitePolicy,
    stages::{
        Capacity, Class, Distance, FewerFailures, FirstVersion, Hours, Incumbent, Latency, LeaderOf, Limit,
        Missing, OldestBallot, OtherSite, Priority, RoundRobin, SameSite, Score, ScoreError, Share,
        SiteAllowed, SiteMinimum, SiteOrder, Software, Spread, Term, Version, Within, YoungestBallot,
    },
};

/// The job, for stages that depend on it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Subject {
    /// Its election, if that is known.
    pub(super) election: String,
    /// How much load it puts on the member that leads it.
    pub(super) load: u32,
}

impl Default for Subject {
    fn default() -> Self {
        Self { election: String::new(), load: 1 }
    }
}

/// A stage that a policy can name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StageSpec {
    SiteOrder,
    OtherSite,
    SameSite,
    FewerFailures,
    Spread,
    Incumbent,
    Priority,
    OldestBallot,
    YoungestBallot,
    RoundRobin,
    FairShare,
    Class(Class),
    Software { stage: Software, is_limited: bool },
    Score(Score),
    Latency(Latency),
    Limit(Limit),
    LeaderOf(LeaderOf),
    Capacity,
    Hours(Hours),
    Own(Own<OwnStage>),
}

/// A name that a pipeline may have: the number of a built-in one, or one of another crate.
enum Known {
    BuiltIn(usize),
    Own(&'static str, Factory<OwnStage>),
}

#[derive(Clone, Copy)]
enum Name {
    Plain(Plain),
    Class,
    Software,
    Score,
    Latency,
    Limit,
    WithLeaderOf,
    ApartFrom,
    Hours,
}

#[derive(Clone, Copy)]
enum Plain {
    SiteOrder,
    OtherSite,
    SameSite,
    FewerFailures,
    Spread,
    Incumbent,
    Priority,
    OldestBallot,
    YoungestBallot,
    RoundRobin,
    FairShare,
    Capacity,
}

const NAMES: [(&str, Name); 20] = [
    (SiteOrder::NAME, Name::Plain(Plain::SiteOrder)),
    (OtherSite::NAME, Name::Plain(Plain::OtherSite)),
    (SameSite::NAME, Name::Plain(Plain::SameSite)),
    (FewerFailures::NAME, Name::Plain(Plain::FewerFailures)),
    (Spread::NAME, Name::Plain(Plain::Spread)),
    (Incumbent::NAME, Name::Plain(Plain::Incumbent)),
    (Class::NAME, Name::Class),
    (Software::NAME, Name::Software),
    (Score::NAME, Name::Score),
    (Latency::NAME, Name::Latency),
    (Limit::NAME, Name::Limit),
    (LeaderOf::WITH, Name::WithLeaderOf),
    (LeaderOf::APART, Name::ApartFrom),
    (Capacity::NAME, Name::Plain(Plain::Capacity)),
    (Hours::NAME, Name::Hours),
    (Priority::NAME, Name::Plain(Plain::Priority)),
    (OldestBallot::NAME, Name::Plain(Plain::OldestBallot)),
    (YoungestBallot::NAME, Name::Plain(Plain::YoungestBallot)),
    (RoundRobin::NAME, Name::Plain(Plain::RoundRobin)),
    (Share::NAME, Name::Plain(Plain::FairShare)),
];

/// Stages of every pipeline.
const ALWAYS: [&str; 6] =
    ["healthy", "not-excluded", "site-healthy", "site-open", "failed-last", "member-id"];

/// Stages of every pipeline if a key of the policy is set.
const BY_KEY: [(&str, &str); 2] =
    [(SiteAllowed::NAME, "forbidden_sites"), (SiteMinimum::NAME, "site_minimum")];

/// Whether a stage that is built in has this name.
pub(crate) fn is_built_in(name: &str) -> bool {
    let by_key = BY_KEY.iter().map(|(name, _)| *name);
    NAMES.iter().map(|(name, _)| *name).chain(ALWAYS).chain(by_key).any(|known| known == name)
}

/// The names of the built-in stages that a pipeline may have.
pub fn stages() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

/// The names that a pipeline may have, with the numbers of the built-in ones.
fn names(registered: &Registered) -> Vec<(&'static str, Option<usize>)> {
    let built_in = NAMES.iter().enumerate().map(|(number, (name, _))| (*name, Some(number)));
    built_in.chain(registered.stages.keys().map(|name| (*name, None))).collect()
}

impl StageSpec {
    /// Reads a pipeline: an array of stages.
    pub(super) fn pipeline(value: &Value, findings: &mut Findings) -> Option<Vec<Self>> {
        let Value::List(list) = value else {
            let found = value.found();
            findings.say(format!("expected an array of stages, such as [\"site-order\"], found {found}"));
            return None;
        };
        if list.is_empty() {
            findings.say("it is empty; name at least one stage");
        }
        let mut names: Vec<&str> = Vec::new();
        let mut stages = Vec::new();
        for (place, value) in list.iter().enumerate() {
            findings.at(Step::Place(place), |findings| {
                let Some((name, stage)) = Self::read(value, findings) else { return };
                if names.contains(&name) {
                    findings.say(format!("{name:?} is listed twice; use each stage once"));
                }
                if names.contains(&RoundRobin::NAME) {
                    findings.say("\"round-robin\" must be the last stage");
                }
                names.push(name);
                stages.push(stage);
            });
        }
        Some(stages)
    }

    fn read(value: &Value, findings: &mut Findings) -> Option<(&'static str, Self)> {
        let empty = BTreeMap::new();
        match value {
            Value::Text(text) => {
                let name = Self::name(value, text, findings)?;
                Table::read(&empty, findings, |table| Self::with_settings(name, table))
            }
            Value::Table(entries) => Table::read(entries, findings, |table| {
                table.require("stage", "the name of the stage");
                let name = table.with("stage", |value, findings| match value {
                    Value::Text(text) => Self::name(value, text, findings),
                    other => {
                        let names = names(&findings.registered);
                        word(other, findings, &names);
                        None
                    }
                });
                match name {
                    Some(name) => Self::with_settings(name, table),
                    None => {
                        // Its settings cannot be checked.
                        table.leave_rest();
                        None
                    }
                }
            }),
            other => {
                findings.say(format!(
                    "expected the name of a stage, or a table with it as \"stage\", found {}",
                    other.found()
                ));
                None
            }
        }
    }

    /// The stage of a name.
    fn name(value: &Value, text: &str, findings: &mut Findings) -> Option<Known> {
        if ALWAYS.contains(&text) {
            findings.say(format!("{text:?} is part of every pipeline already; leave it out"));
            return None;
        }
        if let Some((_, key)) = BY_KEY.iter().find(|(name, _)| *name == text) {
            findings.say(format!("{text:?} is part of every pipeline where {key} is set; set that instead"));
            return None;
        }
        let names = names(&findings.registered);
        let Some(number) = word(value, findings, &names)? else {
            let (name, factory) = findings.registered.stages.get_key_value(text)?;
            return Some(Known::Own(name, factory.clone()));
        };
        let missing = match NAMES[number].1 {
            Name::Latency if findings.inputs.round_trips.is_none() => {
                Some("no member publishes its round trips")
            }
            Name::Limit if !findings.inputs.measured => Some("no member publishes what it measures"),
            Name::WithLeaderOf | Name::ApartFrom | Name::Plain(Plain::Capacity) if !findings.inputs.jobs => {
                Some("no member publishes which other jobs it leads")
            }
            _ => None,
        };
        if let Some(missing) = missing {
            findings.say(format!("{text:?} cannot be used here: {missing}; leave it out"));
            return None;
        }
        Some(Known::BuiltIn(number))
    }

    fn with_settings(known: Known, table: &mut Table<'_, '_>) -> Option<(&'static str, Self)> {
        let (text, name) = match known {
            Known::BuiltIn(number) => NAMES[number],
            Known::Own(name, factory) => {
                return Some((name, Self::Own(Own::make(name, &factory, table)?)));
            }
        };
        let stage = match name {
            Name::Plain(plain) => match plain {
                Plain::SiteOrder => Self::SiteOrder,
                Plain::OtherSite => Self::OtherSite,
                Plain::SameSite => Self::SameSite,
                Plain::FewerFailures => Self::FewerFailures,
                Plain::Spread => Self::Spread,
                Plain::Incumbent => Self::Incumbent,
                Plain::Priority => Self::Priority,
                Plain::OldestBallot => Self::OldestBallot,
                Plain::YoungestBallot => Self::YoungestBallot,
                Plain::RoundRobin => Self::RoundRobin,
                Plain::FairShare => Self::FairShare,
                Plain::Capacity => Self::Capacity,
            },
            Name::Class => Self::Class(table.text("attribute").map_or_else(Class::default, Class::by)),
            Name::Software => software(table),
            Name::Score => Self::Score(score(table)?),
            Name::Latency => Self::Latency(latency(table)?),
            Name::Limit => Self::Limit(limit(table)?),
            Name::WithLeaderOf => Self::LeaderOf(leader_of(table, LeaderOf::with)?),
            Name::ApartFrom => Self::LeaderOf(leader_of(table, LeaderOf::apart_from)?),
            Name::Hours => Self::Hours(hours(table)?),
        };
        Some((text, stage))
    }

    /// The newest software first.
    pub(super) fn newest() -> Self {
        Self::Software { stage: Software::default(), is_limited: false }
    }

    /// Whether it is only a filter, so that it may be used with a whole strategy.
    pub(super) fn is_filter(&self) -> bool {
        match self {
            Self::Limit(_) => true,
            Self::Own(own) => own.is_filter(),
            _ => false,
        }
    }

    /// Whether both limit the same attribute.
    pub(super) fn limits_the_same(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Limit(one), Self::Limit(other)) if one.attribute() == other.attribute())
    }

    /// Adds the stage to a pipeline, as the filter that it is, too.
    pub(super) fn add(&self, pipeline: Pipeline, policy: &SitePolicy, subject: &Subject) -> Pipeline {
        match self {
            Self::SiteOrder => pipeline.compare(policy.site_order()),
            Self::OtherSite => pipeline.compare(OtherSite),
            Self::SameSite => pipeline.compare(SameSite),
            Self::FewerFailures => pipeline.compare(FewerFailures),
            Self::Spread => pipeline.compare(Spread::new(policy.sites.iter().cloned())),
            Self::Incumbent => pipeline.compare(Incumbent),
            Self::Priority => pipeline.compare(Priority),
            Self::OldestBallot => pipeline.compare(OldestBallot),
            Self::YoungestBallot => pipeline.compare(YoungestBallot),
            Self::RoundRobin => pipeline.compare(RoundRobin),
            Self::FairShare => pipeline.compare(Share::of(&subject.election)),
            Self::Class(class) => pipeline.filter(class.clone()).compare(class.clone()),
            Self::Software { stage, is_limited } => {
                let pipeline = if *is_limited { pipeline.filter(stage.clone()) } else { pipeline };
                pipeline.compare(stage.clone())
            }
            Self::Score(score) if score.refuses() => pipeline.filter(score.clone()).compare(score.clone()),
            Self::Score(score) => pipeline.compare(score.clone()),
            Self::Latency(latency) => pipeline.compare(latency.clone()),
            Self::Limit(limit) => pipeline.filter(limit.clone()),
            Self::LeaderOf(stage) => pipeline.compare(stage.clone()),
            Self::Capacity => pipeline.compare(Capacity::of(subject.load)),
            Self::Hours(hours) => pipeline.compare(hours.clone()),
            Self::Own(own) => own.add(pipeline),
        }
    }
}

fn latency(table: &mut Table<'_, '_>) -> Option<Latency> {
    #[derive(Clone, Copy, PartialEq)]
    enum By {
        Majority,
        Mean,
        Worst,
        ZooKeeper,
        Targets,
    }
    let words = [
        ("majority", By::Majority),
        ("mean", By::Mean),
        ("worst", By::Worst),
        ("zookeeper", By::ZooKeeper),
        ("targets", By::Targets),
    ];
    let by = table.word("by", &words).unwrap_or(By::Majority);
    let steadiness = Steadiness {
        tolerance: table.with("tolerance", micros).unwrap_or_default(),
        margin: table.with("margin", micros).unwrap_or_default(),
    };
    let of = match by {
        By::Majority => Distance::Majority,
        By::Mean => Distance::Mean,
        By::Worst => Distance::Worst,
        By::ZooKeeper => Distance::ZooKeeper,
        By::Targets => {
            table.require("targets", "their names and weights, such as { db = 2, shop = 1 }");
            Distance::Targets(table.with("targets", targets)?)
        }
    };
    let latency = Latency::new(of, steadiness);
    Some(match &table.findings.inputs.round_trips {
        Some(publishing) => latency.published_by(publishing),
        None => latency,
    })
}

fn targets(value: &Value, findings: &mut Findings) -> Option<Vec<(String, u32)>> {
    let Value::Table(entries) = value else {
        findings.say(format!(
            "expected a table of names and weights, such as {{ db = 2, shop = 1 }}, found {}",
            value.found()
        ));
        return None;
    };
    let weight = |(name, value): (&String, &Value)| {
        let weight = match value {
            Value::Whole(weight) => u32::try_from(*weight).ok().filter(|weight| *weight > 0),
            _ => None,
        };
        if weight.is_none() {
            findings.say_of(name, format!("expected a weight of 1 or more, found {}", value.found()));
        }
        Some((name.clone(), weight?))
    };
    let targets: Vec<_> = entries.iter().filter_map(weight).collect();
    if entries.is_empty() {
        findings.say("it is empty; name at least one target");
    }
    (targets.len() == entries.len() && !targets.is_empty()).then_some(targets)
}

fn limit(table: &mut Table<'_, '_>) -> Option<Limit> {
    table.require("attribute", "the value that is limited, such as \"lag\"");
    table.require("at_most", "the highest value with which a member may lead after a failure");
    let (attribute, at_most) = (table.text("attribute"), table.number("at_most"));
    let passes = table.word("missing", &[("refused", false), ("passes", true)]).unwrap_or(false);
    let limit = Limit::new(attribute?, at_most?);
    Some(if passes { limit.unknown_passes() } else { limit })
}

fn leader_of(
    table: &mut Table<'_, '_>,
    stage: impl FnOnce(Vec<String>, Within) -> LeaderOf,
) -> Option<LeaderOf> {
    table.require("job", "the name of another job, such as \"db\", or an array of names");
    let within = table.word("by", &[("member", Within::Member), ("site", Within::Site)]).unwrap_or_default();
    let jobs = table.with("job", |value, findings| {
        let jobs = texts(value, findings)?;
        for (index, job) in jobs.iter().enumerate().filter(|(index, job)| jobs[..*index].contains(job)) {
            findings.at(Step::Place(index), |findings| {
                findings.say(format!("{job:?} is listed twice; name each job once"));
            });
        }
        Some(jobs)
    });
    Some(stage(jobs?, within))
}

fn hours(table: &mut Table<'_, '_>) -> Option<Hours> {
    table.require("sites", "the hours of each site in UTC, such as { east = [\"Mon-Fri 06:00-18:00\"] }");
    table.with("sites", |value, findings| {
        let Value::Table(entries) = value else {
            findings.say(format!(
                "expected a table of hours by sites, such as {{ east = [\"Mon-Fri 06:00-18:00\"] }}, found {}",
                value.found()
            ));
            return None;
        };
        if entries.is_empty() {
            findings.say("it is empty; name at least one site");
        }
        let read = |(name, value): (&String, &Value)| {
            findings.at(Step::Key(name.clone()), |findings| {
                let site = SiteId::new(name).map_err(|error| findings.say(error.to_string())).ok()?;
                let hours = texts(value, findings)?;
                let hours = Windows::read(&hours).map_err(|error| findings.say(error.to_string())).ok()?;
                Some((site, hours))
            })
        };
        Some(Hours::of(entries.iter().filter_map(read)))
    })
}

fn software(table: &mut Table<'_, '_>) -> StageSpec {
    let first = [("newest", FirstVersion::Newest), ("oldest", FirstVersion::Oldest)];
    let mut stage = Software::first(table.word("first", &first).unwrap_or_default());
    if let Some(attribute) = table.text("attribute") {
        stage = stage.by(attribute);
    }
    let at_least = table.with("at_least", |value, findings| {
        let Value::Text(text) = value else {
            findings.say(format!("expected a version such as \"1.4.0\", found {}", value.found()));
            return None;
        };
        let version = Version::parse(text);
        if version.is_none() {
            findings.say(format!("{text:?} is no version; valid: one to three numbers separated by dots"));
        }
        version
    });
    if let Some(version) = at_least {
        stage = stage.at_least(version);
    }
    StageSpec::Software { stage, is_limited: at_least.is_some() }
}

fn score(table: &mut Table<'_, '_>) -> Option<Score> {
    let steadiness = Steadiness {
        tolerance: table.whole("tolerance", 0, 1000).unwrap_or_default().into(),
        margin: table.whole("margin", 0, 1000).unwrap_or_default().into(),
    };
    table.require("attributes", "what counts, such as { cores = { worst = 0, best = 16 } }");
    table.with("attributes", |value, findings| {
        let Value::Table(attributes) = value else {
            findings.say(format!(
                "expected a table by the attributes' names, such as {{ cores = {{ worst = 0, best = 16 }} }}, \
                 found {}",
                value.found()
            ));
            return None;
        };
        let before = findings.wrong.len();
        let terms: Vec<_> = attributes
            .iter()
            .filter_map(|(name, value)| {
                findings.at(Step::Key(name.clone()), |findings| term(name, value, findings))
            })
            .collect();
        match Score::new(terms, steadiness) {
            Ok(score) => Some(score),
            // The reason has been reported already.
            Err(_) if findings.wrong.len() > before => None,
            Err(ScoreError::NoRange(name)) => {
                findings.say_of(&name, "worst and best must be two different numbers");
                None
            }
            Err(error @ ScoreError::Nothing) => {
                findings.say(error.to_string());
                None
            }
        }
    })
}

fn term(name: &str, value: &Value, findings: &mut Findings) -> Option<Term> {
    let Value::Table(entries) = value else {
        findings.say(format!("expected a table such as {{ worst = 0, best = 16 }}, found {}", value.found()));
        return None;
    };
    let missing = [
        ("worst", Missing::Worst),
        ("middle", Missing::Middle),
        ("ignored", Missing::Ignored),
        ("refused", Missing::Refused),
    ];
    Table::read(entries, findings, |table| {
        for key in ["worst", "best"] {
            table.require(key, "the values with no points (worst) and with all points (best)");
        }
        let (worst, best) = (table.number("worst"), table.number("best"));
        let weight = table.whole("weight", 0, 1_000_000).unwrap_or(1);
        let missing = table.word("missing", &missing).unwrap_or_default();
        Some(Term { attribute: name.to_owned(), weight, worst: worst?, best: best?, missing })
    })
}
