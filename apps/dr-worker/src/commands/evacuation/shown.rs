//! An evacuation as text and as JSON.

use election_core::strategy::in_words;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

use super::{
    course::EvacuationPhase,
    gather::{JobNote, Prepared},
    order::{Follows, layers},
};
use crate::{
    commands::operation::Outcome,
    schema::schema_of,
    typed::Typed,
    wall::{moment, unix_ms},
    znodes::{Evacuation, EvacuationState as State, EvacuationStep},
};

/// An evacuation, and how far it is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Evacuated {
    /// `running`, `stopped`, `done`; `prepared` of a dry run.
    pub(crate) phase: &'static str,
    /// The obstacles to one that has not begun.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) obstacles: Vec<JobNote>,
    /// Of one that has not begun, or has just begun: the jobs that are not moved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<JobNote>,
    /// The record.
    #[serde(flatten)]
    pub(crate) plan: Evacuation,
}

impl Outcome for Evacuated {
    fn answers() -> Vec<(u16, Schema)> {
        vec![(200, schema_of::<Self>())]
    }
}

impl From<Evacuation> for Evacuated {
    fn from(plan: Evacuation) -> Self {
        let phase = match plan.phase() {
            EvacuationPhase::Running => "running",
            EvacuationPhase::Stopped => "stopped",
            EvacuationPhase::Done => "done",
        };
        Self { phase, obstacles: Vec::new(), left_out: Vec::new(), plan }
    }
}

impl From<Prepared> for Evacuated {
    fn from(Prepared { plan, obstacles, left_out }: Prepared) -> Self {
        Self { phase: "prepared", obstacles, left_out, plan }
    }
}

impl Evacuated {
    /// What would happen, as text.
    pub(crate) fn forecast(&self) -> String {
        let plan = &self.plan;
        let mut lines = vec![format!("dry run of an evacuation of site {}; nothing is written", plan.site)];
        lines.extend(numbered(plan).map(|(layer, step)| format!("  {layer}  {}", expected(plan, step))));
        lines.extend(notes("obstacles:", &self.obstacles));
        lines.extend(notes("left out:", &self.left_out));
        lines.push(format!("  then site {} is drained for these jobs", plan.site));
        lines.join("\n")
    }

    /// How far it is, as text.
    pub(crate) fn progress(&self) -> String {
        let plan = &self.plan;
        let verb = if plan.undo { "undone" } else { "begun" };
        let done =
            plan.steps.iter().filter(|step| matches!(step.state, State::Done | State::Skipped)).count();
        let (phase, of) = (self.phase, plan.steps.len());
        let mut lines = vec![format!(
            "evacuation of site {}, {verb} by {} ({}): {phase}, {done} of {of} jobs done, {}",
            plan.site,
            plan.by,
            moment(plan.at_ms),
            in_words(plan.took(unix_ms()))
        )];
        lines.extend(
            numbered(plan).map(|(layer, step)| format!("  {layer}  {}: {}", step.job, step.progress())),
        );
        lines.extend(notes("left out:", &self.left_out));
        lines.extend(way_on(plan));
        lines.join("\n")
    }
}

/// How an evacuation that is not under way goes on.
pub(crate) fn way_on(plan: &Evacuation) -> Option<String> {
    let verb = || Typed::verb("evacuate").arg(&plan.site);
    let (resume, undo) = (verb().arg("--resume"), verb().arg("--undo"));
    let abandon = verb().arg("--abandon");
    match plan.phase() {
        EvacuationPhase::Running => None,
        EvacuationPhase::Stopped if plan.undo => {
            Some(format!("`{resume}` tries again, `{abandon}` leaves everything where it is"))
        }
        EvacuationPhase::Stopped => Some(format!(
            "`{resume}` tries again, `{undo}` moves back what was moved, `{abandon}` leaves everything where it is"
        )),
        EvacuationPhase::Done if plan.undo => plan
            .is_given_up()
            .then(|| format!("`{undo}` moves back what was left, and opens the site for it")),
        EvacuationPhase::Done => {
            let open = Typed::verb("drain").arg(&plan.site).arg("--off").arg("--job").arg("JOB");
            Some(format!(
                "site {} is drained; `{undo}` moves back, `{open}` only opens it for a job",
                plan.site
            ))
        }
    }
}

impl EvacuationStep {
    /// How far it is, as text.
    pub(crate) fn progress(&self) -> String {
        let why = self.why.as_deref().unwrap_or_default();
        let took = self.took().map(in_words).unwrap_or_default();
        match (self.state, &self.leader) {
            (State::Waiting, _) if self.after.is_empty() => "waiting".to_owned(),
            (State::Waiting, _) => format!("waiting for {}", list(self)),
            (State::Begun, _) => format!("moving by {}", self.request.as_deref().unwrap_or_default()),
            (State::Done, Some(leader)) if self.why.is_none() => {
                format!("{} of site {} leads, after {took}", leader.member, leader.site)
            }
            (State::Done, _) => format!("nothing to move: {why}"),
            (State::Failed, _) => format!("failed: {why}"),
            (State::Skipped, _) if self.is_touched() => "skipped: it stays where it is".to_owned(),
            (State::Skipped, _) => "skipped: it had not begun".to_owned(),
        }
    }
}

fn list(step: &EvacuationStep) -> String {
    step.after.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// What is expected of a step, as text.
fn expected(plan: &Evacuation, step: &EvacuationStep) -> String {
    let job = &step.job;
    let after = if step.after.is_empty() { String::new() } else { format!(", after {}", list(step)) };
    match (&step.from, &step.predicted) {
        (Some(from), _) if from.site != plan.site => {
            format!("{job}{after}: stays on {} of site {}", from.member, from.site)
        }
        (Some(from), Some(to)) => {
            format!("{job}{after}: from {} to {} of site {}", from.member, to.member, to.site)
        }
        (None, Some(to)) => format!("{job}{after}: to {} of site {}", to.member, to.site),
        (_, None) => format!("{job}{after}: can't move"),
    }
}

/// Each step with the number of its layer, counted from 1.
fn numbered(plan: &Evacuation) -> impl Iterator<Item = (usize, &EvacuationStep)> {
    let follows: Follows = plan.steps.iter().map(|step| (step.job.clone(), step.after.clone())).collect();
    let layers = layers(&follows).unwrap_or_default();
    plan.steps.iter().map(move |step| {
        (layers.iter().position(|layer| layer.contains(&step.job)).map_or(0, |at| at + 1), step)
    })
}

fn notes(heading: &str, notes: &[JobNote]) -> Vec<String> {
    let heading = (!notes.is_empty()).then(|| heading.to_owned());
    let lines = notes.iter().map(|JobNote { job, why }| format!("  {job}: {why}"));
    heading.into_iter().chain(lines).collect()
}
