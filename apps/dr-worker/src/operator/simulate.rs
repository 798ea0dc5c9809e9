//! `simulate`: who would lead without some members or sites, or with other settings.

use election_core::{
    config::{MemberId, SiteId},
    internals::record::Named,
};
use owo_colors::OwoColorize as _;

use super::{
    explain::{describe_slot, in_the_way, snapshots},
    output::{self, Output},
};
use crate::{
    commands::Operator,
    config::{self, OperatorConfig, Sources},
    error::Error,
    view::{Simulated, SimulatedSlot, WhatIf},
    wall::unix_ms,
};

/// `simulate`
#[derive(Debug, clap::Args)]
pub(super) struct SimulateArguments {
    /// Job [default: all].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Site that is lost; repeatable.
    #[arg(long, value_name = "SITE")]
    without_site: Vec<SiteId>,
    /// Member that is lost; repeatable.
    #[arg(long, value_name = "MEMBER")]
    without: Vec<MemberId>,
}

pub(super) async fn run(arguments: &SimulateArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let (set, others) = sources.sets.iter().cloned().partition::<Vec<_>, _>(|set| config::is_of_policy(set));
    let what_if =
        WhatIf { without_sites: arguments.without_site.clone(), without: arguments.without.clone(), set };
    if what_if.is_empty() {
        return Err(Error::Usage(
            "give at least one of --without-site SITE, --without MEMBER, and --set with a key of the policy, \
             such as --set policy.auto_moves=all"
                .to_owned(),
        ));
    }
    let mut then = OperatorConfig::load(sources)?;
    let result = Operator::with(&Sources { sets: others, ..sources.clone() }, async |operator| {
        foresee(operator, &mut then, &what_if).await?;
        play(operator, &then, arguments.job.as_deref(), &what_if).await
    })
    .await;
    for (index, simulated) in result?.iter().enumerate() {
        match how {
            Output::Json => output::print_json(simulated)?,
            Output::Pretty => {
                if index > 0 {
                    output::print("")?;
                }
                output::print_text(&describe(simulated))?;
            }
        }
    }
    Ok(())
}

/// Where the jobs would be led that policies go by.
async fn foresee(operator: &Operator, then: &mut OperatorConfig, what_if: &WhatIf) -> Result<(), Error> {
    then.others = what_if.left_of(operator.config.others.clone());
    let observer = operator.observer().await?;
    let mut snapshots = Vec::new();
    for job in operator.config.others.keys() {
        if let Ok(snapshot) = observer.snapshot(&operator.paths(job)?).await {
            snapshots.push((job, snapshot));
        }
    }
    // One may follow another.
    for _ in 0..snapshots.len() {
        for (job, snapshot) in &snapshots {
            let now = &operator.config;
            let simulated = Simulated::new(job, snapshot, what_if.clone(), now, then, unix_ms());
            then.others.insert((*job).clone(), simulated.would_be_led(snapshot.control.mode));
        }
    }
    Ok(())
}

async fn play(
    operator: &Operator,
    then: &OperatorConfig,
    job: Option<&str>,
    what_if: &WhatIf,
) -> Result<Vec<Simulated>, Error> {
    let mut all = Vec::new();
    let mut unknown = None;
    let snapshots = snapshots(operator, job).await?;
    for (job, snapshot) in &snapshots {
        match Simulated::checked(job, snapshot, what_if.clone(), &operator.config, then) {
            Ok(simulated) => all.push(simulated),
            // A member may not take part in every job.
            Err(why) => {
                unknown.get_or_insert(format!("{job}: {why}"));
            }
        }
    }
    match unknown {
        Some(why) if all.is_empty() => Err(Error::Usage(why)),
        _ => Ok(all),
    }
}

pub(super) fn describe(simulated: &Simulated) -> String {
    let WhatIf { without_sites, without, set } = &simulated.if_;
    let sites = without_sites.iter().map(|site| format!("without site {site}"));
    let members = without.iter().map(|member| format!("without {member}"));
    let sets = set.iter().map(|set| format!("with {set}"));
    let what: Vec<_> = sites.chain(members).chain(sets).collect();
    let mut lines = vec![format!("{}: {}", simulated.election.bold(), what.join(", "))];
    let several = simulated.slots.len() > 1;
    for slot in &simulated.slots {
        lines.extend(slot_lines(&simulated.election, slot, several));
    }
    match (&simulated.elector, &simulated.elector_then) {
        (before, after) if before == after => {}
        (_, Some(after)) => lines.push(format!("  {after} would be the elector")),
        (_, None) => lines.push("  there would be no elector".to_owned()),
    }
    lines.extend(simulated.other_jobs.iter().map(|sentence| format!("  {sentence}")));
    lines.extend(simulated.notes.iter().map(|note| format!("  {}", note.dimmed())));
    lines.join("\n")
}

pub(super) fn slot_lines(job: &str, slot: &SimulatedSlot, several: bool) -> Vec<String> {
    let who = |who: &Option<Named>| {
        who.as_ref().map_or_else(|| "no member".to_owned(), |who| format!("{} ({})", who.member, who.site))
    };
    let about = if several { format!("slot {}: ", slot.slot) } else { String::new() };
    let mut lines = vec![
        format!("  {about}{} leads now, {} would lead then", who(&slot.leads), who(&slot.would_lead)),
        format!("  {}", slot.sentence),
    ];
    lines.extend(slot.obstacles.iter().map(|obstacle| in_the_way(job, obstacle)));
    if let Some(question) = slot.question.as_ref().filter(|_| !slot.unchanged) {
        let mut question = question.clone();
        // Shown above, for the end of the simulation.
        (question.leader, question.proposal) = (None, None);
        question.obstacles.clear();
        lines.extend(describe_slot(job, &question));
    }
    lines
}
