//! The built-in stages that a policy can name.

use std::sync::Arc;

use serde::Deserialize as _;
use serde_json::Value;

use super::{
    Needs, Subject,
    named::{Factory, Found, JOBS, Known, MEASURED, Nameable, Named, ROUND_TRIPS, Settings},
};
use crate::{
    Comparison, Filter, OwnStage, Pipeline, Stage as _,
    other_jobs::OtherJobs,
    settings::{Findings, found, not_known},
    site_policy::SitePolicy,
    stages::{
        Capacity, Class, FewerFailures, Hours, Incumbent, Latency, Limit, OldestBallot, OtherSite, Priority,
        RoundRobin, SameSite, Score, Share, SiteAllowed, SiteMinimum, SiteOrder, Software, Spread, WithJob,
        YoungestBallot,
    },
};

type Make = fn(&mut Settings<'_>) -> Option<OwnStage>;

/// Each with what its settings make of it, in the order in which messages list them.
const STAGES: &[(&str, Make)] = &[
    (SiteOrder::NAME, plain::<SiteOrder>),
    (OtherSite::NAME, plain::<OtherSite>),
    (SameSite::NAME, plain::<SameSite>),
    (FewerFailures::NAME, plain::<FewerFailures>),
    (Spread::NAME, plain::<Spread>),
    (Incumbent::NAME, plain::<Incumbent>),
    (Class::NAME, |settings| settings.read::<Class>().map(OwnStage::both)),
    (Software::NAME, |settings| settings.read().map(|stage: Software| if_refuses(stage.refuses(), stage))),
    (Score::NAME, |settings| settings.read().map(|stage: Score| if_refuses(stage.refuses(), stage))),
    (Latency::NAME, |settings| {
        settings.need(settings.inputs.round_trips.is_some(), ROUND_TRIPS)?;
        let stage: Latency = settings.read()?;
        if !stage.has_targets_to_count() {
            settings.say_of(
                "targets",
                "by = \"targets\" needs targets, such as { db = 2, shop = 1 }; no other value of by does",
            );
            return None;
        }
        let needs = stage.needs();
        Some(OwnStage::comparison(stage.published_by(&settings.inputs.round_trips?)).needing(needs))
    }),
    (Limit::NAME, |settings| {
        settings.need(settings.inputs.measured, MEASURED)?;
        let stage: Limit = settings.read()?;
        let needs = stage.needs();
        Some(OwnStage::filter(stage).needing(needs))
    }),
    (WithJob::NAME, |settings| {
        settings.need(settings.inputs.jobs, JOBS)?;
        let stage: WithJob = settings.read()?;
        let needs = stage.needs();
        Some(if_refuses(stage.refuses(), stage).needing(needs))
    }),
    (Capacity::NAME, |settings| {
        settings.need(settings.inputs.jobs, JOBS)?;
        plain::<Capacity>(settings).map(|stage| stage.needing(Capacity::needs()))
    }),
    (Hours::NAME, |settings| settings.read::<Hours>().map(OwnStage::comparison)),
    (Priority::NAME, plain::<Priority>),
    (OldestBallot::NAME, plain::<OldestBallot>),
    (YoungestBallot::NAME, plain::<YoungestBallot>),
    (RoundRobin::NAME, plain::<RoundRobin>),
    (Share::NAME, plain::<Share>),
];

/// Stages of every pipeline.
const ALWAYS: [&str; 6] =
    ["healthy", "not-excluded", "site-healthy", "site-open", "failed-last", "member-id"];

/// Stages of every pipeline if a key of the policy is set.
const BY_KEY: [(&str, &str); 2] =
    [(SiteAllowed::NAME, "forbidden_sites"), (SiteMinimum::NAME, "site_minimum")];

/// A comparison without settings.
fn plain<S: Comparison + Default + 'static>(settings: &mut Settings<'_>) -> Option<OwnStage> {
    settings.read::<()>().map(|()| OwnStage::comparison(S::default()))
}

fn if_refuses(refuses: bool, stage: impl Filter + Comparison + Clone + 'static) -> OwnStage {
    if refuses { OwnStage::both(stage) } else { OwnStage::comparison(stage) }
}

/// Whether a stage that is built in has this name.
pub(crate) fn is_built_in(name: &str) -> bool {
    let by_key = BY_KEY.iter().map(|(name, _)| *name);
    stages().chain(ALWAYS).chain(by_key).any(|known| known == name)
}

/// The names of the built-in stages that a pipeline may have.
pub fn stages() -> impl Iterator<Item = &'static str> {
    STAGES.iter().map(|(name, _)| *name)
}

impl Nameable for OwnStage {
    const KIND: &'static str = "stage";
    const TAG: &'static str = "stage";

    fn find(name: &Value, known: &Known<'_>, findings: &mut Findings) -> Option<Found<Self>> {
        let own = &known.registered.stages;
        let text = name.as_str().unwrap_or_default();
        let built_in = STAGES.iter().find(|(name, _)| *name == text);
        let built_in = built_in.map(|(name, make)| (*name, Arc::new(*make) as Factory<Self>));
        let named = built_in.or_else(|| own.get_key_value(text).map(|(name, make)| (*name, make.clone())));
        if named.is_none() {
            let key = BY_KEY.iter().find(|(name, _)| *name == text).map(|(_, key)| key);
            findings.say(match key {
                _ if ALWAYS.contains(&text) => {
                    format!("{text:?} is part of every pipeline already; leave it out")
                }
                Some(key) => {
                    format!("{text:?} is part of every pipeline where {key} is set; set that instead")
                }
                None => not_known(&found(name), stages().chain(own.keys().copied())),
            });
        }
        named
    }

    fn needs(&self) -> &Needs {
        &self.needs
    }
}

impl Named<OwnStage> {
    /// A built-in stage with its defaults.
    pub(super) fn built_in(name: &'static str, made: OwnStage) -> Self {
        Self { name, settings: serde_json::Map::new(), made }
    }

    /// Reads a pipeline: an array of stages.
    pub(super) fn pipeline(value: &Value, known: &Known<'_>, findings: &mut Findings) -> Option<Vec<Self>> {
        let Value::Array(list) = value else {
            let found = found(value);
            findings.say(format!("expected an array of stages, such as [\"site-order\"], found {found}"));
            return None;
        };
        if list.is_empty() {
            findings.say("it is empty; name at least one stage");
        }
        let mut stages: Vec<Self> = Vec::new();
        for (place, value) in list.iter().enumerate() {
            findings.at(format!("[{place}]"), |findings| {
                let Some(stage) = Self::read(value, known, findings) else { return };
                let has = |name: &str| stages.iter().any(|known| known.name == name);
                let is_again = |known: &Self| known.name == stage.name && known.of_job() == stage.of_job();
                if stages.iter().any(is_again) {
                    findings.say(format!("{:?} is listed twice; use each stage once", stage.name));
                }
                if has(RoundRobin::NAME) {
                    findings.say("\"round-robin\" must be the last stage");
                }
                stages.push(stage);
            });
        }
        Some(stages)
    }

    /// Whether it is only a filter, so that it may be used with a whole strategy.
    pub(super) fn is_filter(&self) -> bool {
        self.made.comparison.is_none()
    }

    /// Whether both refuse members, by the same stage: of those that a pipeline can have several times, for the same attribute or
    /// other job.
    pub(super) fn refuses_as(&self, other: &Self) -> bool {
        let of = |stage: &Self| match stage.name {
            Limit::NAME => stage.settings.get("attribute").cloned(),
            _ => stage.of_job().cloned(),
        };
        let refuses = |stage: &Self| stage.made.filter.is_some();
        self.name == other.name && refuses(self) && refuses(other) && of(self) == of(other)
    }

    /// The filter that it is, if it is one.
    pub(super) fn refusing(&self) -> Option<Self> {
        self.made.filter.as_ref()?;
        Some(Self { made: OwnStage { comparison: None, ..self.made.clone() }, ..self.clone() })
    }

    /// The other job that the stage `with-job` goes by: it may be listed once for each.
    fn of_job(&self) -> Option<&Value> {
        self.settings.get("job").filter(|_| self.name == WithJob::NAME)
    }

    /// Adds the stage to a pipeline, as the filter that it is, too.
    pub(super) fn add(&self, pipeline: Pipeline, policy: &SitePolicy, subject: &Subject) -> Pipeline {
        match self.name {
            SiteOrder::NAME => pipeline.compare(policy.site_order()),
            Spread::NAME => pipeline.compare(Spread::new(policy.sites.iter().cloned())),
            Share::NAME => pipeline.compare(Share::of(&subject.election)),
            Capacity::NAME => pipeline.compare(Capacity::of(subject.load)),
            WithJob::NAME => self.with_job(pipeline, &subject.jobs),
            name => pipeline.with(name, self.made.filter.clone(), self.made.comparison.clone()),
        }
    }

    /// The stage `with-job`, with what is known of other jobs.
    pub(super) fn of_other_job(&self, jobs: &OtherJobs) -> Option<WithJob> {
        self.of_job()?;
        // Its settings were read before.
        let stage = WithJob::deserialize(Value::Object(self.settings.clone())).ok()?;
        Some(stage.seeing(jobs))
    }

    fn with_job(&self, pipeline: Pipeline, jobs: &OtherJobs) -> Pipeline {
        let Some(stage) = self.of_other_job(jobs) else { return pipeline };
        let OwnStage { filter, comparison, .. } = &self.made;
        let pipeline = if filter.is_some() { pipeline.filter(stage.clone()) } else { pipeline };
        if comparison.is_some() { pipeline.compare(stage) } else { pipeline }
    }
}
