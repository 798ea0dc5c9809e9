//! A whole policy, from text or from code.

mod built_in;
mod named;
mod over;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use election_core::strategy::{Cause, SiteId, Strategy};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

pub(crate) use built_in::is_built_in;
pub use built_in::stages;
pub(crate) use named::{Factory, Registered};
use named::{Known, Named};
use over::ORDER;
pub(crate) use over::put_over;

pub use crate::needs::{Inputs, Needs};

use crate::{
    other_jobs::OtherJobs,
    own::{OwnStage, OwnStrategy},
    pipeline::Pipeline,
    settings::{Findings, SpecError, not_known},
    site_policy::{AutoMoves, SitePolicy},
    stage::Stage as _,
    stages::{
        FailedLast, Hours, Incumbent, Minimum, OldestBallot, Priority, SameSite, SiteOrder, Software,
        WithJob, YoungestBallot,
    },
};

/// A whole policy: the sites, the pipeline, and the rules for certain causes. [`pipeline`](Self::pipeline) makes the
/// strategy of it.
///
/// In code it begins with [`for_sites`](Self::for_sites). As text it can be in any format that serde knows;
/// `docs/policies.md` explains each of its keys. Deserialization refuses stages that need [`Inputs`];
/// [`read`](Self::read) accepts them if it gets these inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicySpec {
    /// The job that it is for.
    subject: Subject,
    /// Its settings of sites.
    pub site_policy: SitePolicy,
    pipeline: Option<Vec<Named<OwnStage>>>,
    rules: Vec<Rule>,
    /// Orders the candidates instead of all these.
    strategy: Option<Named<OwnStrategy>>,
}

/// The job, for stages that depend on it.
#[derive(Clone, Debug, PartialEq)]
struct Subject {
    /// Its election, if that is known.
    election: String,
    /// How much load it puts on the member that leads it.
    load: u32,
    /// What is known of other jobs.
    jobs: OtherJobs,
}

impl Default for Subject {
    fn default() -> Self {
        Self { election: String::new(), load: 1, jobs: OtherJobs::new() }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    causes: Vec<Cause>,
    pipeline: Vec<Named<OwnStage>>,
}

/// A rule as text.
#[derive(Deserialize)]
#[serde(expecting = "a table such as { when = \"leader-lost\", pipeline = [\"site-order\"] }")]
struct RuleText {
    #[serde(deserialize_with = "crate::types::one_or_more")]
    when: Vec<String>,
    pipeline: Value,
}

/// The largest `site_minimum` of a site.
pub const MAX_SITE_MINIMUM: u32 = crate::stages::MAX_SITE_MINIMUM;

impl PolicySpec {
    /// The usual policy for these sites, the most preferred first. Members of other sites come after all of them.
    pub fn for_sites(sites: impl IntoIterator<Item = SiteId>) -> Self {
        let mut policy = Self::default();
        policy.site_policy.sites = sites.into_iter().collect();
        policy
    }

    /// The same with other settings of sites.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut SitePolicy)) -> Self {
        set(&mut self.site_policy);
        self
    }

    /// The settings of sites as text would have them, each with its key: what is not set has its default.
    pub fn settings(&self) -> Map<String, Value> {
        match serde_json::to_value(&self.site_policy) {
            Ok(Value::Object(settings)) => settings,
            _ => Map::new(),
        }
    }

    /// Reads a policy from a table, for members that publish these inputs, and checks it as a whole.
    ///
    /// # Errors
    /// All problems at once, each with its key and what would be valid.
    pub fn read(text: &Map<String, Value>, inputs: Inputs) -> Result<Self, SpecError> {
        Self::read_by(text, inputs, &Registered::default())
    }

    pub(crate) fn read_by(
        text: &Map<String, Value>,
        inputs: Inputs,
        registered: &Registered,
    ) -> Result<Self, SpecError> {
        let mut findings = Findings::default();
        let sites: SitePolicy = findings.read(&Value::Object(text.clone()), None).unwrap_or_default();
        check_sites(&sites, &mut findings);
        let known = &Known { sites: &sites.sites, inputs, registered };
        let read = |(name, value): (&String, &Value), findings: &mut Findings| {
            let stages = findings.at(name, |findings| Named::pipeline(value, known, findings));
            Some((name.clone(), stages?))
        };
        let named: Pipelines = findings.at("pipelines", |findings| {
            sites.pipelines.iter().filter_map(|entry| read(entry, findings)).collect()
        });
        let pipeline = sites.pipeline.as_ref();
        let pipeline = pipeline.and_then(|value| {
            findings.at("pipeline", |findings| read_pipeline(value, &named, known, findings))
        });
        let rules = read_rules(&sites, &named, known, &mut findings);
        check_hours(&sites, "pipeline", pipeline.iter().flatten(), &mut findings);
        check_hours(&sites, "rules", rules.iter().flat_map(|rule| &rule.pipeline), &mut findings);
        let strategy = sites.strategy.as_ref();
        let strategy: Option<Named<OwnStrategy>> = strategy
            .and_then(|value| findings.at("strategy", |findings| Named::read(value, known, findings)));
        if let Some(strategy) = &strategy {
            check_beside(strategy.name, text, pipeline.as_deref().unwrap_or_default(), &mut findings);
        }
        let subject = Subject::default();
        findings.into_result(Some(Self { subject, site_policy: sites, pipeline, rules, strategy }))
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

    /// The same policy with what is known of other jobs, for the stage `with-job`. Nothing is known by default.
    #[must_use]
    pub fn seeing(mut self, jobs: OtherJobs) -> Self {
        self.subject.jobs = jobs;
        self
    }

    /// How it goes by other jobs, as sentences without a subject: `follows db, which leads in west`.
    pub fn other_jobs(&self) -> Vec<String> {
        let stages = self.pipeline.iter().flatten();
        stages.filter_map(|stage| Some(stage.of_other_job(&self.subject.jobs)?.in_words())).collect()
    }

    /// The stages of its pipeline and of its rules.
    fn stages(&self) -> impl Iterator<Item = &Named<OwnStage>> {
        self.pipeline.iter().chain(self.rules.iter().map(|rule| &rule.pipeline)).flatten()
    }

    /// The other jobs beside whose leaders it must lead.
    pub fn required_jobs(&self) -> BTreeSet<String> {
        let stages = self.stages().filter_map(|stage| stage.of_other_job(&self.subject.jobs));
        stages.filter_map(WithJob::required).collect()
    }

    /// What its members must measure or publish.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        self.stages().for_each(|stage| needs.merge(&stage.made.needs));
        self.strategy.iter().for_each(|strategy| needs.merge(&strategy.made.needs));
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
        let usual_stages = [
            Named::built_in(SiteOrder::NAME, OwnStage::comparison(SiteOrder::default())),
            Named::built_in(Incumbent::NAME, OwnStage::comparison(Incumbent)),
            Named::built_in(Priority::NAME, OwnStage::comparison(Priority)),
            Named::built_in(OldestBallot::NAME, OwnStage::comparison(OldestBallot)),
        ];
        let stages = self.pipeline.as_deref().unwrap_or(&usual_stages);
        let usual = |pipeline| self.add(pipeline, stages);
        // The incumbent goes regardless of its rank, or is before everything else already.
        let others: Vec<_> = stages.iter().filter(|stage| stage.name != Incumbent::NAME).cloned().collect();
        let planned = |pipeline| self.add(pipeline, &others);
        // Members that have been restarted go before those that have not.
        let newest = Named::built_in(Software::NAME, OwnStage::comparison(Software::default()));
        let youngest = Named::built_in(YoungestBallot::NAME, OwnStage::comparison(YoungestBallot));
        let restarted: Vec<_> = others
            .iter()
            .flat_map(|stage| match stage.name {
                OldestBallot::NAME => vec![newest.clone(), youngest.clone()],
                _ => vec![stage.clone()],
            })
            .collect();
        let stopping = |pipeline| self.add(pipeline, &restarted);
        let pipeline = self.site_policy.pipeline(usual, planned, stopping);
        // The first rule that names a cause decides: these go before.
        self.rules.iter().rev().fold(pipeline, |pipeline, rule| {
            let fit = self.fit_for(rule).compare(FailedLast);
            let made = |fit| self.add(self.site_policy.enough_first(fit), &rule.pipeline);
            let ruled = pipeline.ahead(rule.causes.iter().copied(), made(fit.clone()));
            match self.site_policy.auto_moves {
                AutoMoves::InSite if rule.causes.contains(&Cause::BetterCandidate) => {
                    ruled.ahead([Cause::BetterCandidate], made(fit.compare(SameSite)))
                }
                _ => ruled,
            }
        })
    }

    /// The filters of a rule besides those in its own pipeline: whom a stage of the policy's pipeline refuses may not lead for the
    /// rule's causes either, unless the rule has the same stage with conditions of its own.
    fn fit_for(&self, rule: &Rule) -> Pipeline {
        let of_policy = self.pipeline.iter().flatten();
        let inherited = of_policy.filter(|stage| !rule.pipeline.iter().any(|own| own.refuses_as(stage)));
        let inherited: Vec<_> = inherited.filter_map(Named::refusing).collect();
        self.add(self.site_policy.fit(), &inherited)
    }

    /// The stages before a whole strategy for each cause, and then the strategy.
    fn pipeline_before(&self, strategy: &Named<OwnStrategy>) -> Pipeline {
        let fit = || self.add(self.site_policy.fit(), self.pipeline.as_deref().unwrap_or_default());
        let ranked = |pipeline| {
            self.site_policy.enough_first(pipeline).ranked_by(strategy.name, strategy.made.strategy.clone())
        };
        let better = match self.site_policy.auto_moves {
            AutoMoves::None => fit().compare(Incumbent),
            AutoMoves::InSite => fit().compare(SameSite),
            AutoMoves::All => fit(),
        };
        let failures = Cause::ALL.into_iter().filter(|cause| cause.is_failure());
        ranked(fit())
            .when(failures, ranked(fit().compare(FailedLast)))
            .when([Cause::BetterCandidate], ranked(better))
    }

    fn add(&self, pipeline: Pipeline, stages: &[Named<OwnStage>]) -> Pipeline {
        stages.iter().fold(pipeline, |pipeline, stage| stage.add(pipeline, &self.site_policy, &self.subject))
    }
}

impl<'de> Deserialize<'de> for PolicySpec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::read(&Map::deserialize(from)?, Inputs::default()).map_err(D::Error::custom)
    }
}

fn check_sites(sites: &SitePolicy, findings: &mut Findings) {
    for site in sites.forbidden_sites.iter().filter(|site| sites.sites.contains(site)) {
        let message = format!("{:?} is in sites as well; take it out of one of the two", site.as_str());
        findings.say_of("forbidden_sites", message);
    }
    // A number for a site that is not in the order of sites is likely to be a typing error.
    let Minimum::Each(each) = &sites.site_minimum else { return };
    for site in each.keys().filter(|site| !sites.sites.is_empty() && !sites.names(site.as_str())) {
        let message = format!("it names the site {:?}, which is not in sites", site.as_str());
        findings.say_of("site_minimum", message);
    }
}

/// Besides a whole strategy nothing else can order the candidates; filters can refuse some.
fn check_beside(
    strategy: &str,
    text: &Map<String, Value>,
    pipeline: &[Named<OwnStage>],
    findings: &mut Findings,
) {
    for key in ORDER.into_iter().filter(|key| *key != "pipeline" && text.contains_key(*key)) {
        let message = format!("the strategy {strategy:?} decides that; leave one of the two out");
        findings.say_of(key, message);
    }
    if let Some(stage) = pipeline.iter().position(|stage| !stage.is_filter()) {
        let message = format!(
            "the strategy {strategy:?} orders the candidates: a pipeline next to it can only have stages that refuse \
             candidates, such as \"limit\""
        );
        findings.at("pipeline", |findings| findings.say_of(&format!("[{stage}]"), message));
    }
}

/// Hours of a site that is not in the order of sites are likely to be a typing error.
fn check_hours<'a>(
    sites: &SitePolicy,
    key: &str,
    stages: impl Iterator<Item = &'a Named<OwnStage>>,
    findings: &mut Findings,
) {
    let hours = stages.filter(|stage| stage.name == Hours::NAME && !sites.sites.is_empty());
    let named = hours.filter_map(|stage| stage.settings.get("sites")?.as_object()).flat_map(Map::keys);
    for site in named.filter(|site| !sites.names(site)) {
        findings.say_of(key, format!("\"hours\" names the site {site:?}, which is not in sites"));
    }
}

type Pipelines = BTreeMap<String, Vec<Named<OwnStage>>>;

/// A pipeline, or the name of one.
fn read_pipeline(
    value: &Value,
    pipelines: &Pipelines,
    known: &Known<'_>,
    findings: &mut Findings,
) -> Option<Vec<Named<OwnStage>>> {
    let Value::String(name) = value else { return Named::pipeline(value, known, findings) };
    let pipeline = pipelines.get(name).cloned();
    if pipeline.is_none() {
        let names: Vec<_> = pipelines.keys().map(|name| format!("{name:?}")).collect();
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

fn read_rules(
    sites: &SitePolicy,
    pipelines: &Pipelines,
    known: &Known<'_>,
    findings: &mut Findings,
) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for (place, value) in sites.rules.iter().enumerate() {
        let rule = findings.at("rules", |findings| {
            findings.at(format!("[{place}]"), |findings| {
                let rule: RuleText = findings.read(value, None)?;
                let is_taken = |cause: &Cause| rules.iter().any(|rule| rule.causes.contains(cause));
                let causes = findings.at("when", |findings| {
                    causes_of(&rule, value["when"].is_array(), sites.auto_moves, is_taken, findings)
                });
                let read =
                    |findings: &mut Findings| read_pipeline(&rule.pipeline, pipelines, known, findings);
                Some(Rule { causes, pipeline: findings.at("pipeline", read)? })
            })
        });
        rules.extend(rule);
    }
    rules
}

/// The causes that a rule may have. A leader that a standing order moves is replaced by the rule for
/// "better-candidate".
pub fn causes() -> impl Iterator<Item = &'static str> {
    cause_words().map(|(word, _)| word)
}

fn cause_words() -> impl Iterator<Item = (&'static str, Option<Cause>)> {
    let asked =
        Cause::ALL.into_iter().filter(|cause| !matches!(cause, Cause::StandingOrder | Cause::CalledOff));
    asked.map(|cause| (cause.as_str(), Some(cause))).chain([("failure", None)])
}

fn causes_of(
    rule: &RuleText,
    is_list: bool,
    auto_moves: AutoMoves,
    is_taken: impl Fn(&Cause) -> bool,
    findings: &mut Findings,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (place, word) in rule.when.iter().enumerate() {
        let mut say = |message: String| match is_list {
            true => findings.say_of(&format!("[{place}]"), message),
            false => findings.say(message),
        };
        match cause_words().find(|(known, _)| known == word).map(|(_, cause)| cause) {
            None => say(not_known(&format!("{word:?}"), self::causes())),
            Some(Some(Cause::BetterCandidate)) if auto_moves == AutoMoves::None => say(
                "\"better-candidate\" moves nothing while auto_moves is \"none\"; set it to \"in-site\" or \"all\""
                    .to_owned(),
            ),
            Some(Some(cause)) => causes.push(cause),
            Some(None) => causes.extend(Cause::ALL.into_iter().filter(|cause| cause.is_failure())),
        }
    }
    if !causes.is_empty() && causes.iter().all(is_taken) {
        findings.say("this rule is never used: rules before it name all of its causes");
    }
    causes
}
