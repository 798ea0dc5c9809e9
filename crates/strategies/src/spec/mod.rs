//! A whole policy, from text or from code.

mod foreign;
mod over;
mod own;
mod reader;
mod sites;
mod stage;
mod value;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use election_core::{SiteId, record::Cause, strategy::Strategy};
use serde::{Deserialize, Deserializer, de::Error as _};

pub use foreign::{OwnStage, OwnStrategy};
use over::ORDER;
pub use over::put_over;
use own::Own;
pub(crate) use reader::{Factory, Registered};
use reader::{Findings, text, whole, word};
pub use reader::{SpecError, Step, Table, Wrong};
pub(crate) use stage::is_built_in;
pub use stage::stages;
use stage::{StageSpec, Subject};
pub use value::Value;

use crate::{
    meter::Publishing,
    pipeline::Pipeline,
    site_policy::{AutoMoves, BelowSiteMinimum, OnLeaderFailure, SitePolicy, SlotSpread},
    stages::{Distance, FailedLast, Incumbent, Minimum, SameSite},
};

/// A whole policy: the sites, the pipeline, and the rules for certain causes. [`pipeline`](Self::pipeline) makes the
/// strategy of it.
///
/// In code it begins with [`for_sites`](Self::for_sites). As text it can be in any format that serde knows, with the
/// [`KEYS`]; `docs/policies.md` explains each of them. Deserialization refuses stages that need [`Inputs`];
/// [`read`](Self::read) accepts them if it gets these inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicySpec {
    /// The job that it is for.
    subject: Subject,
    pub(crate) sites: SitePolicy,
    pipeline: Option<Vec<StageSpec>>,
    rules: Vec<Rule>,
    /// Orders the candidates instead of all these.
    strategy: Option<Own<OwnStrategy>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    causes: Vec<Cause>,
    pipeline: Vec<StageSpec>,
}

/// What the members publish besides their configuration. A policy that uses anything else is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Their round trips, and how exactly they are published.
    pub round_trips: Option<Publishing>,
    /// Attributes that they measure while they run.
    pub measured: bool,
    /// The other jobs that they lead, and the load of those ([`published`](crate::published)).
    pub jobs: bool,
}

impl Inputs {
    /// Everything, published as usual.
    pub const ALL: Self = Self { round_trips: Some(Publishing::USUAL), measured: true, jobs: true };
}

/// What a policy uses that its members must measure or publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Round trips to the other members.
    pub peers: bool,
    /// The round trip to ZooKeeper.
    pub zookeeper: bool,
    /// Round trips to targets, by their names.
    pub targets: BTreeSet<String>,
    /// Attributes that it limits.
    pub limited: BTreeSet<String>,
    /// Other jobs whose leaders it prefers or avoids.
    pub jobs: BTreeSet<String>,
    /// The load of all that a member leads.
    pub load: bool,
}

impl Needs {
    /// Whether it needs nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    fn merge(&mut self, other: &Self) {
        self.peers |= other.peers;
        self.zookeeper |= other.zookeeper;
        self.load |= other.load;
        self.targets.extend(other.targets.iter().cloned());
        self.limited.extend(other.limited.iter().cloned());
        self.jobs.extend(other.jobs.iter().cloned());
    }

    fn add(&mut self, distance: &Distance) {
        match distance {
            Distance::Majority | Distance::Mean | Distance::Worst => self.peers = true,
            Distance::ZooKeeper => self.zookeeper = true,
            Distance::Targets(targets) => self.targets.extend(targets.iter().map(|(name, _)| name.clone())),
        }
    }
}

/// The keys of a policy, all of them optional.
pub const KEYS: [&str; 11] = [
    "sites",
    "forbidden_sites",
    "site_minimum",
    "below_site_minimum",
    "on_leader_failure",
    "auto_moves",
    "spread",
    "pipeline",
    "pipelines",
    "rules",
    "strategy",
];

/// The largest `site_minimum` of a site.
pub const MAX_SITE_MINIMUM: u32 = 1000;

impl PolicySpec {
    /// Reads a policy from a table with the [`KEYS`], for members that publish these inputs, and checks it as a whole.
    ///
    /// # Errors
    /// All problems at once, each with its key and what would be valid.
    pub fn read(entries: &BTreeMap<String, Value>, inputs: Inputs) -> Result<Self, SpecError> {
        Self::read_by(entries, inputs, &Registered::default())
    }

    pub(crate) fn read_by(
        entries: &BTreeMap<String, Value>,
        inputs: Inputs,
        registered: &Registered,
    ) -> Result<Self, SpecError> {
        let mut findings = Findings::with(inputs, registered);
        let spec = Table::read(entries, &mut findings, Self::read_table);
        if findings.wrong.is_empty() { Ok(spec) } else { Err(SpecError(findings.wrong)) }
    }

    fn read_table(table: &mut Table<'_, '_>) -> Self {
        let sites = SitePolicy {
            sites: table.with("sites", read_sites).unwrap_or_default(),
            forbidden_sites: table.with("forbidden_sites", read_sites).unwrap_or_default(),
            site_minimum: table.with("site_minimum", read_minimum).unwrap_or(Minimum::All(1)),
            below_site_minimum: table
                .word("below_site_minimum", &BelowSiteMinimum::WORDS)
                .unwrap_or_default(),
            on_leader_failure: table.word("on_leader_failure", &OnLeaderFailure::WORDS).unwrap_or_default(),
            auto_moves: table.word("auto_moves", &AutoMoves::WORDS).unwrap_or_default(),
            spread: table.word("spread", &SlotSpread::WORDS).unwrap_or_default(),
        };
        check_forbidden(&sites, table);
        check_minimum(&sites, table);
        table.findings.sites.clone_from(&sites.sites);
        let named = table.with("pipelines", read_named).unwrap_or_default();
        let pipeline = table.with("pipeline", |value, findings| read_pipeline(value, &named, findings));
        let rules = table
            .with("rules", |value, findings| Some(read_rules(value, &named, sites.auto_moves, findings)))
            .unwrap_or_default();
        let has = |stage| pipeline.iter().flatten().any(|known| *known == stage);
        if has(StageSpec::RoundRobin) && !has(StageSpec::Incumbent) && sites.auto_moves != AutoMoves::None {
            let message = "with the stage \"round-robin\" the next member is always better, and leadership would move \
                           without end; valid with it: \"none\"";
            table.findings.say_of("auto_moves", message.to_owned());
        }
        let rule_stages = rules.iter().flat_map(|rule: &Rule| &rule.pipeline);
        check_hours(&sites, "pipeline", pipeline.iter().flatten(), table);
        check_hours(&sites, "rules", rule_stages, table);
        let strategy = table.with("strategy", Own::read);
        if let Some(strategy) = &strategy {
            check_beside(strategy.name, pipeline.as_deref().unwrap_or_default(), table);
        }
        Self { subject: Subject::default(), sites, pipeline, rules, strategy }
    }

    /// The same policy for the election of this name. The stage `fair-share` draws its lots by it; without a name all
    /// elections draw the same.
    #[must_use]
    pub fn for_election(mut self, name: impl Into<String>) -> Self {
        self.subject.election = name.into();
        self
    }

    /// The same policy for a job that puts this load on the member that leads it, for the stage `capacity`. 1 by
    /// default.
    #[must_use]
    pub fn with_load(mut self, load: u32) -> Self {
        self.subject.load = load;
        self
    }

    /// Whether leadership moves automatically to a better member.
    pub fn moves_by_itself(&self) -> bool {
        self.sites.auto_moves != AutoMoves::None
    }

    /// What its members must measure or publish.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        let stages = self.pipeline.iter().chain(self.rules.iter().map(|rule| &rule.pipeline)).flatten();
        for stage in stages {
            match stage {
                StageSpec::Latency(latency) => needs.add(latency.distance_by()),
                StageSpec::Limit(limit) => drop(needs.limited.insert(limit.attribute().to_owned())),
                StageSpec::LeaderOf(stage) => needs.jobs.extend(stage.jobs().map(str::to_owned)),
                StageSpec::Capacity => needs.load = true,
                StageSpec::Own(own) => needs.merge(own.needs()),
                _ => {}
            }
        }
        self.strategy.iter().for_each(|own| needs.merge(own.needs()));
        needs
    }

    /// The strategy that carries this policy out, for an election.
    pub fn strategy(&self) -> Arc<dyn Strategy> {
        Arc::new(self.pipeline())
    }

    /// The strategy that carries this policy out: a pipeline for each cause.
    pub fn pipeline(&self) -> Pipeline {
        if let Some(strategy) = &self.strategy {
            return self.pipeline_before(strategy);
        }
        use StageSpec::{Incumbent, OldestBallot, YoungestBallot};
        let sites = &self.sites;
        let stages = self.pipeline.as_deref().unwrap_or_default();
        let usual = |pipeline| add(pipeline, stages, sites, &self.subject);
        // The incumbent goes regardless of its rank, or is before everything else already.
        let others: Vec<_> = stages.iter().filter(|stage| **stage != Incumbent).cloned().collect();
        let planned = |pipeline| add(pipeline, &others, sites, &self.subject);
        // Members that have been restarted go before those that have not.
        let restarted: Vec<_> = others
            .iter()
            .flat_map(|stage| match stage {
                OldestBallot => vec![StageSpec::newest(), YoungestBallot],
                stage => vec![stage.clone()],
            })
            .collect();
        let stopping = |pipeline| add(pipeline, &restarted, sites, &self.subject);
        let pipeline =
            if stages.is_empty() { sites.pipeline() } else { sites.pipeline_over(usual, planned, stopping) };
        // The first rule that names a cause decides: these go before.
        self.rules.iter().rev().fold(pipeline, |pipeline, rule| {
            let fit = self.sites.enough_first(self.fit_for(rule).compare(FailedLast));
            pipeline.ahead(rule.causes.iter().copied(), add(fit, &rule.pipeline, sites, &self.subject))
        })
    }

    /// The filters of a rule besides those in its own pipeline: a stage `limit` of the policy counts for every cause,
    /// unless the rule limits the same attribute.
    fn fit_for(&self, rule: &Rule) -> Pipeline {
        let is_forgotten = |limit: &&StageSpec| !rule.pipeline.iter().any(|own| own.limits_the_same(limit));
        let limits = self.pipeline.iter().flatten().filter(|stage| stage.limits_the_same(stage));
        let limits: Vec<_> = limits.filter(is_forgotten).cloned().collect();
        add(self.sites.fit(), &limits, &self.sites, &self.subject)
    }

    /// The stages before a whole strategy for each cause, and then the strategy.
    fn pipeline_before(&self, strategy: &Own<OwnStrategy>) -> Pipeline {
        let fit = || {
            let filters = self.pipeline.as_deref().unwrap_or_default();
            add(self.sites.fit(), filters, &self.sites, &self.subject)
        };
        let ranked = |pipeline| strategy.rank(self.sites.enough_first(pipeline));
        let better = match self.sites.auto_moves {
            AutoMoves::None => fit().compare(Incumbent),
            AutoMoves::InSite => fit().compare(SameSite),
            AutoMoves::All => fit(),
        };
        let failures = Cause::ALL.into_iter().filter(|cause| cause.is_failure());
        ranked(fit())
            .when(failures, ranked(fit().compare(FailedLast)))
            .when([Cause::BetterCandidate], ranked(better))
    }
}

impl<'de> Deserialize<'de> for PolicySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = BTreeMap::deserialize(deserializer)?;
        Self::read(&entries, Inputs::default()).map_err(D::Error::custom)
    }
}

fn add(pipeline: Pipeline, stages: &[StageSpec], sites: &SitePolicy, subject: &Subject) -> Pipeline {
    stages.iter().fold(pipeline, |pipeline, stage| stage.add(pipeline, sites, subject))
}

fn read_sites(value: &Value, findings: &mut Findings) -> Option<Vec<SiteId>> {
    let Value::List(list) = value else {
        findings.say(format!("expected an array, such as [\"east\", \"west\"], found {}", value.found()));
        return None;
    };
    let mut sites = Vec::new();
    for (place, value) in list.iter().enumerate() {
        findings.at(Step::Place(place), |findings| {
            let Some(name) = text(value, findings) else { return };
            match SiteId::new(name) {
                Ok(site) if sites.contains(&site) => {
                    findings.say(format!("{:?} is listed twice; name each site once", site.as_str()));
                }
                Ok(site) => sites.push(site),
                Err(error) => findings.say(error.to_string()),
            }
        });
    }
    Some(sites)
}

/// A site cannot be both preferred and forbidden.
fn check_forbidden(sites: &SitePolicy, table: &mut Table<'_, '_>) {
    for site in sites.forbidden_sites.iter().filter(|site| sites.sites.contains(site)) {
        let message = format!("{:?} is in sites as well; take it out of one of the two", site.as_str());
        table.findings.say_of("forbidden_sites", message);
    }
}

/// A number for all sites, or a table of numbers by site.
fn read_minimum(value: &Value, findings: &mut Findings) -> Option<Minimum> {
    let number = |value: &Value, findings: &mut Findings| whole(value, findings, 1..=MAX_SITE_MINIMUM);
    match value {
        Value::Whole(_) => number(value, findings).map(Minimum::All),
        Value::Table(sites) => {
            let read = |(name, value): (&String, &Value)| {
                findings.at(Step::Key(name.clone()), |findings| match SiteId::new(name.clone()) {
                    Ok(site) => Some((site, number(value, findings)?)),
                    Err(error) => {
                        findings.say(error.to_string());
                        None
                    }
                })
            };
            Some(Minimum::Each(sites.iter().filter_map(read).collect()))
        }
        other => {
            findings.say(format!(
                "expected an integer, or a table such as {{ east = 2 }}, found {}",
                other.found()
            ));
            None
        }
    }
}

/// A number for a site that is not in the order of sites is likely to be a typing error.
fn check_minimum(sites: &SitePolicy, table: &mut Table<'_, '_>) {
    let Minimum::Each(each) = &sites.site_minimum else { return };
    for site in each.keys().filter(|site| !sites.sites.is_empty() && !sites.names(site)) {
        let message = format!("it names the site {:?}, which is not in sites", site.as_str());
        table.findings.say_of("site_minimum", message);
    }
}

/// Besides a whole strategy nothing else can order the candidates; filters can refuse some.
fn check_beside(strategy: &str, pipeline: &[StageSpec], table: &mut Table<'_, '_>) {
    for key in ORDER.into_iter().filter(|key| *key != "pipeline") {
        if table.value(key).is_some() {
            let message = format!("the strategy {strategy:?} decides that; leave one of the two out");
            table.findings.say_of(key, message);
        }
    }
    if let Some(stage) = pipeline.iter().position(|stage| !stage.is_filter()) {
        let message = format!(
            "the strategy {strategy:?} orders the candidates: a pipeline besides it can only have stages that refuse \
             some, such as \"limit\""
        );
        let say = |findings: &mut Findings| findings.at(Step::Place(stage), |findings| findings.say(message));
        table.findings.at(Step::Key("pipeline".to_owned()), say);
    }
}

/// Hours of a site that is not in the order of sites are likely to be a typing error.
fn check_hours<'a>(
    sites: &SitePolicy,
    key: &str,
    stages: impl IntoIterator<Item = &'a StageSpec>,
    table: &mut Table<'_, '_>,
) {
    if sites.sites.is_empty() {
        return;
    }
    for stage in stages {
        let StageSpec::Hours(hours) = stage else { continue };
        for site in hours.sites().filter(|site| !sites.names(site)) {
            let message = format!("\"hours\" names the site {:?}, which is not in sites", site.as_str());
            table.findings.say_of(key, message);
        }
    }
}

type Named = BTreeMap<String, Vec<StageSpec>>;

fn read_named(value: &Value, findings: &mut Findings) -> Option<Named> {
    let Value::Table(entries) = value else {
        findings.say(format!(
            "expected a table of pipelines by their names, such as {{ careful = [\"site-order\"] }}, found {}",
            value.found()
        ));
        return None;
    };
    let read = |(name, value): (&String, &Value)| {
        let read = |findings: &mut Findings| StageSpec::pipeline(value, findings);
        Some((name.clone(), findings.at(Step::Key(name.clone()), read)?))
    };
    Some(entries.iter().filter_map(read).collect())
}

/// A pipeline, or the name of one.
fn read_pipeline(value: &Value, named: &Named, findings: &mut Findings) -> Option<Vec<StageSpec>> {
    let Value::Text(name) = value else { return StageSpec::pipeline(value, findings) };
    let pipeline = named.get(name).cloned();
    if pipeline.is_none() {
        let names: Vec<_> = named.keys().map(|name| format!("{name:?}")).collect();
        findings.say(match names.as_slice() {
            [] => format!(
                "no pipeline is named {name:?}: pipelines is empty; an array of stages is valid as well"
            ),
            names => {
                let names = names.join(", ");
                format!("no pipeline is named {name:?}; valid: {names}, or an array of stages")
            }
        });
    }
    pipeline
}

fn read_rules(value: &Value, named: &Named, auto_moves: AutoMoves, findings: &mut Findings) -> Vec<Rule> {
    let Value::List(list) = value else {
        findings.say(format!("expected an array of tables, [[rules]], found {}", value.found()));
        return Vec::new();
    };
    let mut rules: Vec<Rule> = Vec::new();
    for (place, value) in list.iter().enumerate() {
        let rule = findings.at(Step::Place(place), |findings| {
            let Value::Table(entries) = value else {
                findings.say(format!("expected a table with when and pipeline, found {}", value.found()));
                return None;
            };
            Table::read(entries, findings, |table| {
                table.require("when", "the cause, such as \"leader-lost\", or an array of causes");
                table.require("pipeline", "an array of stages, or the name of one of the pipelines");
                let causes = table.with("when", |value, findings| {
                    read_causes(
                        value,
                        auto_moves,
                        |cause| rules.iter().any(|r| r.causes.contains(&cause)),
                        findings,
                    )
                });
                let pipeline =
                    table.with("pipeline", |value, findings| read_pipeline(value, named, findings));
                Some(Rule { causes: causes?, pipeline: pipeline? })
            })
        });
        rules.extend(rule);
    }
    rules
}

/// All failures, among the causes of a rule.
const FAILURE: &str = "failure";

/// The causes that a rule may have. A leader that a standing order moves is replaced by the rule for
/// "better-candidate".
pub fn causes() -> impl Iterator<Item = &'static str> {
    cause_words().map(|(word, _)| word)
}

fn cause_words() -> impl Iterator<Item = (&'static str, Option<Cause>)> {
    let asked = Cause::ALL.into_iter().filter(|cause| *cause != Cause::StandingOrder);
    asked.map(|cause| (cause.as_str(), Some(cause))).chain([(FAILURE, None)])
}

fn read_causes(
    value: &Value,
    auto_moves: AutoMoves,
    is_taken: impl Fn(Cause) -> bool,
    findings: &mut Findings,
) -> Option<Vec<Cause>> {
    let words: Vec<_> = cause_words().collect();
    let mut causes = Vec::new();
    let mut read = |value: &Value, findings: &mut Findings| match word(value, findings, &words) {
        Some(Some(Cause::BetterCandidate)) if auto_moves == AutoMoves::None => {
            findings.say(
                "\"better-candidate\" moves nothing while auto_moves is \"none\"; set it to \"in-site\" or \"all\"",
            );
        }
        Some(Some(cause)) => causes.push(cause),
        Some(None) => causes.extend(Cause::ALL.into_iter().filter(|cause| cause.is_failure())),
        None => {}
    };
    match value {
        Value::List(list) => {
            for (place, value) in list.iter().enumerate() {
                findings.at(Step::Place(place), |findings| read(value, findings));
            }
            if list.is_empty() {
                findings.say("it is empty; name at least one cause");
            }
        }
        one => read(one, findings),
    }
    if !causes.is_empty() && causes.iter().all(|cause| is_taken(*cause)) {
        findings.say("this rule is never used: rules before it name all of its causes");
    }
    Some(causes)
}
