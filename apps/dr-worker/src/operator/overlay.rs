//! `config push`, `pull`, `diff`, `history` and `revert`: the overlay of a job, which all its members apply.

use std::{collections::BTreeMap, fs, path::PathBuf};

use election_admin::{AdminError, Layout, ReadError, Snapshot};
use election_core::{
    config::MemberId,
    internals::{
        record::{AppliedOverlay, MemberRecord},
        text::Text,
    },
};
use owo_colors::OwoColorize as _;
use serde_json::{Value, json};

use super::{
    consent::Consent,
    global::OneJob,
    output::{self, Accent, Output},
    table::Column,
};
use crate::{
    commands::{Operator, asker},
    config::{
        Config, Effect, OperatorConfig, OverlayChange, SETTLE, Sources, check_overlay, job_key,
        overlay_changes, overlay_values,
    },
    error::Error,
    typed::Typed,
    view::{Simulated, WhatIf, other_policy},
    wall::{self, unix_ms},
    znodes::{
        NewOverlay, Overlay,
        overlays::{self, Pushed},
    },
};

/// `config push`
#[derive(Debug, clap::Args)]
pub(super) struct PushArguments {
    /// TOML file with the keys of [job.NAME], or this table; empty for no overlay.
    file: PathBuf,
    #[command(flatten)]
    of: OneJob,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<Text>,
    /// Push only if this is the present version; 0 for none.
    #[arg(long, value_name = "VERSION")]
    replaces: Option<u64>,
    #[command(flatten)]
    consent: Consent,
}

/// `config diff`
#[derive(Debug, clap::Args)]
pub(super) struct DiffArguments {
    /// File to compare with [default: the configuration here].
    file: Option<PathBuf>,
    #[command(flatten)]
    of: OneJob,
}

/// `config revert`
#[derive(Debug, clap::Args)]
pub(super) struct RevertArguments {
    /// Version [default: back by one]; 0 for no overlay.
    version: Option<u64>,
    #[command(flatten)]
    of: OneJob,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<Text>,
    #[command(flatten)]
    consent: Consent,
}

/// A job and its present overlay.
struct PresentOverlay {
    operator: Operator,
    job: String,
    overlay: Option<Overlay>,
    /// Whether there is one that can't be read. It can be replaced.
    is_unreadable: bool,
}

impl PresentOverlay {
    async fn read(sources: &Sources, of: &OneJob) -> Result<Self, Error> {
        let operator = Operator::connect(sources).await?;
        let job = operator.one(of.job.as_deref()).await?;
        let paths = operator.paths(&job)?;
        if operator.observer().await?.layout(&paths).await?.is_none() {
            return Err(ReadError::NoElection(paths.base().to_owned()).into());
        }
        let (overlay, is_unreadable) = match overlays::read(&operator.incarnation().await?, &paths).await {
            Ok(overlay) => (overlay, false),
            Err(AdminError::Record(error)) => {
                output::print_warning(error);
                (None, true)
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { operator, job, overlay, is_unreadable })
    }

    fn version(&self) -> u64 {
        self.overlay.as_ref().map_or(0, |overlay| overlay.version)
    }

    fn text(&self) -> &str {
        self.overlay.as_ref().map_or("", |overlay| &overlay.text)
    }

    /// The values of its keys. None if it can't be read, which a push mends.
    fn values(&self) -> BTreeMap<String, String> {
        overlay_values(&self.job, self.text()).unwrap_or_else(|problems| {
            output::print_warning(problems);
            BTreeMap::new()
        })
    }

    /// What follows if this text, which was checked, becomes the overlay.
    async fn plan(&self, sources: &Sources, text: &str) -> Result<OverlayPlan, Error> {
        let (now, then) = (self.values(), overlay_values(&self.job, text)?);
        let changes = overlay_changes(&now, &then);
        let (operator, paths) = (&self.operator, self.operator.paths(&self.job)?);
        let snapshot = operator.observer().await?.snapshot(&paths).await?;
        // With the other recipes members do not report what is in force on them.
        let is_decided = snapshot.layout == Layout::Elector;
        let members = if is_decided { &snapshot.members[..] } else { &[] };
        let in_force = members.iter().map(|of| (&of.member, applied(of).version));
        let others: Vec<_> = in_force.filter(|(_, version)| *version != self.version()).collect();
        let kept = if others.is_empty() {
            Vec::new()
        } else {
            overlays::history(&operator.incarnation().await?, &paths).await?.0
        };
        // A member compares with what is in force on it. One that is kept no more is taken for the present one.
        let of_version = |version: u64| match kept.iter().find(|overlay| overlay.version == version) {
            _ if version == 0 => BTreeMap::new(),
            Some(overlay) => overlay_values(&self.job, &overlay.text).unwrap_or_else(|_| now.clone()),
            None => now.clone(),
        };
        let needs =
            |changes: &[OverlayChange]| changes.iter().any(|change| change.effect == Effect::JobRestart);
        let restarts_on = |leader: &MemberId| match others.iter().find(|(member, _)| *member == leader) {
            Some((_, version)) => needs(&overlay_changes(&of_version(*version), &then)),
            None => needs(&changes),
        };
        let leaders = snapshot.leader_znodes.iter().flatten().map(|leader| leader.record.member.clone());
        let leaders: Vec<_> = leaders.filter(|_| snapshot.control.stopped.is_none()).collect();
        let restarts: Vec<_> =
            leaders.iter().filter(|leader| is_decided && restarts_on(leader)).cloned().collect();
        let needs_restart = needs(&changes);
        let job = &self.job;
        let follows = if !restarts.is_empty() {
            let on = restarts.iter().map(MemberId::as_str).collect::<Vec<_>>().join(" and ");
            format!("restarts {job} on {on} in {} s", SETTLE.as_secs())
        } else if !needs_restart || (is_decided && !leaders.is_empty()) {
            format!("{job} is not restarted")
        } else if leaders.is_empty() {
            format!("{job} runs nowhere; it gets the new values when it is started")
        } else {
            format!(
                "{job} runs on with the old values until it is started again: with the recipe {} members \
                 don't restart it",
                snapshot.layout.as_str()
            )
        };
        let notes = others.iter().map(|(member, version)| {
            let is = if *version == 0 { "no overlay".to_owned() } else { format!("version {version}") };
            format!("{member} has {is} in force, not the last one that was pushed")
        });
        let notes = notes.collect();
        Ok(OverlayPlan { changes, notes, restarts, follows, moves: self.moves(sources, text, &snapshot) })
    }

    /// What the elector would decide then, if it decided anything that it would not decide now. None if this configuration does
    /// not have the job's policy.
    fn moves(&self, sources: &Sources, text: &str, snapshot: &Snapshot) -> Option<String> {
        let now = &self.operator.config;
        let is_known =
            now.jobs.contains_key(&self.job) && !other_policy(&now.fingerprint_of(&self.job), snapshot);
        let then = || {
            let without = OperatorConfig::load(sources).ok()?;
            if text.is_empty() { Some(without) } else { without.with_overlay(&self.job, 0, text).ok() }
        };
        let then = is_known.then(then).flatten()?;
        let simulated = Simulated::new(&self.job, snapshot, WhatIf::default(), now, &then, unix_ms());
        let moved = simulated.slots.into_iter().find(|slot| !slot.unchanged)?;
        Some(moved.sentence)
    }

    /// Shows what follows, asks for consent on a terminal, replaces the overlay if it was not replaced meanwhile, and reports
    /// it. `what` is the command, and what it does.
    async fn push(
        self,
        what: &str,
        replaces: Option<u64>,
        new: NewOverlay<'_>,
        how: With<'_>,
    ) -> Result<(), Error> {
        let With { sources, consent, output } = how;
        let replaces = replaces.unwrap_or(self.version());
        if !self.is_unreadable && self.text() == new.text && replaces == self.version() {
            let version = self.version();
            self.operator.close().await;
            return match output {
                Output::Json => {
                    output::print_json(&json!({ "election": self.job, "version": version, "changed": false }))
                }
                Output::Pretty => {
                    output::print(format_args!("{}: the overlay has this text already", self.job))
                }
            };
        }
        let plan = self.plan(sources, new.text).await?;
        if output == Output::Pretty || Consent::can_ask() {
            plan.lines().iter().chain(&plan.notes).for_each(output::print_progress);
        }
        let Self { operator, job, .. } = &self;
        consent.ask(&format!("{what}: {}", plan.sentence()))?;
        if output == Output::Pretty {
            output::print_progress(format_args!("{what}: {}", plan.sentence()));
        }
        let pushed = match overlays::push(&operator.session, &operator.paths(job)?, replaces, &new).await? {
            Pushed::Done(pushed) => pushed,
            Pushed::Changed(present) => {
                return Err(Error::NotNow(format!(
                    "the overlay is at version {present}, not {replaces}: it was changed meanwhile"
                )));
            }
        };
        match output {
            Output::Json => {
                let mut result = plan.shown();
                result.extend([
                    ("election", json!(job)),
                    ("version", json!(pushed.version)),
                    ("by", json!(pushed.by)),
                    ("at_ms", json!(pushed.at_ms)),
                    ("reason", json!(pushed.reason)),
                    ("restores", json!(pushed.restores)),
                    ("changed", json!(true)),
                ]);
                output::print_json(&result)?;
            }
            Output::Pretty => {
                let restores = restored(pushed.restores).map(|what| format!(", {what}")).unwrap_or_default();
                output::print(format_args!("{job}: configuration version {}{restores}", pushed.version))?;
                output::print_progress(format_args!(
                    "`{}` shows which members apply it",
                    Typed::verb("config history").job(job)
                ));
            }
        }
        self.operator.close().await;
        Ok(())
    }
}

/// How a command asks and reports.
struct With<'a> {
    sources: &'a Sources,
    consent: Consent,
    output: Output,
}

/// What follows when another text becomes the overlay.
#[derive(Default)]
struct OverlayPlan {
    /// From the last overlay that was pushed.
    changes: Vec<OverlayChange>,
    /// On which members another one is in force, in words.
    notes: Vec<String>,
    /// The members that restart the job.
    restarts: Vec<MemberId>,
    /// What becomes of the job, in words.
    follows: String,
    /// What the elector decides, in words.
    moves: Option<String>,
}

impl OverlayPlan {
    fn sentence(&self) -> String {
        let moves = self.moves.as_ref().map(|moves| format!("; then the elector decides: {moves}"));
        format!("{}{}", self.follows, moves.unwrap_or_default())
    }

    /// The changes as text.
    fn lines(&self) -> Vec<String> {
        let lines = self.changes.iter().flat_map(|OverlayChange { key, from, to, .. }| {
            let line = |sign, value: &String| format!("{sign} {key} = {value}");
            let from = from.as_ref().map(|from| line('-', from).red().to_string());
            from.into_iter().chain(to.as_ref().map(|to| line('+', to).green().to_string()))
        });
        lines.collect()
    }

    /// For programs.
    fn shown(&self) -> BTreeMap<&'static str, Value> {
        BTreeMap::from([
            ("changes", json!(self.changes)),
            ("restarts", json!(self.restarts)),
            ("decides", json!(self.moves)),
        ])
    }
}

/// The overlay that a member reports.
fn applied(member: &MemberRecord) -> AppliedOverlay {
    member.config.clone().unwrap_or_default()
}

/// `restores version 2`, or nothing.
fn restored(restores: Option<u64>) -> Option<String> {
    Some(match restores? {
        0 => "restores the configuration without an overlay".to_owned(),
        version => format!("restores version {version}"),
    })
}

fn read_file(path: &PathBuf) -> Result<String, Error> {
    let failed = |why: String| Error::Usage(format!("{}: {why}", path.display()));
    let length = fs::metadata(path).map_err(|e| failed(e.to_string()))?.len();
    if length > Overlay::MAX_TEXT as u64 {
        return Err(failed(format!("it has {length} bytes; an overlay has {} at most", Overlay::MAX_TEXT)));
    }
    fs::read_to_string(path).map_err(|e| failed(e.to_string()))
}

pub(super) async fn push(arguments: &PushArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let PushArguments { file, of, reason, replaces, consent } = arguments;
    let text = read_file(file)?;
    let present = PresentOverlay::read(sources, of).await?;
    check_overlay(sources, &present.job, file, &text)?;
    let new = NewOverlay { text: &text, by: &asker(), reason: reason.as_deref(), restores: None };
    let what = format!("push of {}", present.job);
    present.push(&what, *replaces, new, With { sources, consent: *consent, output: how }).await
}

pub(super) async fn pull(arguments: &OneJob, sources: &Sources, how: Output) -> Result<(), Error> {
    let present = PresentOverlay::read(sources, arguments).await?;
    match (how, &present.overlay) {
        (Output::Json, overlay) => {
            output::print_json(&json!({ "election": present.job, "overlay": overlay }))?
        }
        (Output::Pretty, None) => output::print_progress(format_args!("{}: no overlay", present.job)),
        (Output::Pretty, Some(overlay)) => {
            output::print_progress(format_args!("{}: {}", present.job, described(overlay)));
            if !overlay.text.is_empty() {
                output::print(overlay.text.trim_end_matches('\n'))?;
            }
        }
    }
    present.operator.close().await;
    Ok(())
}

fn described(overlay: &Overlay) -> String {
    let restores = restored(overlay.restores).map(|what| format!(" {what}")).unwrap_or_default();
    format!("version {}{restores}, {}", overlay.version, pushed_by(overlay))
}

fn pushed_by(overlay: &Overlay) -> String {
    let reason = overlay.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("by {} at {}{reason}", overlay.by, wall::moment(overlay.at_ms))
}

pub(super) async fn diff(arguments: &DiffArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let file = arguments.file.as_ref().map(read_file).transpose()?;
    let present = PresentOverlay::read(sources, &arguments.of).await?;
    let job = &present.job;
    let is_push = file.is_some();
    let plan = if let (Some(path), Some(text)) = (&arguments.file, &file) {
        check_overlay(sources, job, path, text)?;
        present.plan(sources, text).await?
    } else {
        // From the configuration here to the overlay.
        let overlay = present.values();
        let changes = overlay_changes(&here(sources, job, &overlay)?, &overlay);
        OverlayPlan { changes, ..OverlayPlan::default() }
    };
    if how == Output::Json {
        let mut result =
            if is_push { plan.shown() } else { BTreeMap::from([("changes", json!(plan.changes))]) };
        result.extend([("election", json!(job)), ("version", json!(present.version()))]);
        output::print_json(&result)?;
    } else {
        plan.lines().iter().try_for_each(output::print)?;
        plan.notes.iter().for_each(output::print_progress);
        if is_push && !plan.changes.is_empty() {
            output::print_progress(format_args!("a push: {}", plan.sentence()));
        }
    }
    present.operator.close().await;
    Ok(())
}

/// The values that these keys have here without an overlay.
fn here(
    sources: &Sources,
    job: &str,
    keys: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Error> {
    let config = Config::load(sources)?;
    let prefix = job_key(job) + ".";
    let shown = config.shown().iter().filter_map(|shown| {
        let key = shown.key.strip_prefix(&prefix)?;
        keys.contains_key(key).then(|| (key.to_owned(), shown.value.clone()))
    });
    Ok(shown.collect())
}

pub(super) async fn history(arguments: &OneJob, sources: &Sources, how: Output) -> Result<(), Error> {
    let PresentOverlay { operator, job, .. } = PresentOverlay::read(sources, arguments).await?;
    let (session, paths) = (operator.incarnation().await?, operator.paths(&job)?);
    let (versions, unreadable) = overlays::history(&session, &paths).await?;
    let snapshot = operator.observer().await?.snapshot(&paths).await?;
    // With the other recipes members do not report it.
    let members = if snapshot.layout == Layout::Elector { snapshot.members } else { Vec::new() };
    operator.close().await;
    for error in &unreadable {
        output::print_warning(error);
    }
    if how == Output::Json {
        let members: Vec<_> = members
            .iter()
            .map(|member| {
                let AppliedOverlay { version, refused, .. } = applied(member);
                json!({ "member": member.member, "site": member.site, "version": version, "refused": refused })
            })
            .collect();
        return output::print_json(&json!({
            "election": job, "versions": versions, "members": members, "unreadable": unreadable,
        }));
    }
    let on = |version: u64| {
        let names = members.iter().filter(|member| applied(member).version == version);
        names.map(|member| member.member.to_string()).collect::<Vec<_>>().join(", ")
    };
    let without = on(0);
    let mut rows = vec![];
    if !without.is_empty() {
        rows.push((["0", "-", &without, "-", "no overlay"].map(str::to_owned).to_vec(), Accent::None));
    }
    rows.extend(versions.iter().map(|overlay| {
        let reason: Vec<_> = restored(overlay.restores).into_iter().chain(overlay.reason.clone()).collect();
        let reason = if reason.is_empty() { "-".to_owned() } else { reason.join(": ") };
        let (version, when) = (overlay.version, wall::moment(overlay.at_ms));
        (vec![version.to_string(), when, on(version), overlay.by.clone(), reason], Accent::None)
    }));
    let columns = [
        Column::key("VERSION"),
        Column::key("PUSHED"),
        Column::key("IN FORCE ON"),
        Column::key("BY"),
        Column::detail("REASON", 0),
    ];
    output::print(output::table(&columns, &rows))?;
    for (member, refused) in members.iter().filter_map(|member| Some((member, applied(member).refused?))) {
        output::print_warning(format_args!(
            "{} refuses version {}: {}",
            member.member, refused.version, refused.reason
        ));
    }
    Ok(())
}

pub(super) async fn revert(arguments: &RevertArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let present = PresentOverlay::read(sources, &arguments.of).await?;
    let PresentOverlay { operator, job, overlay, is_unreadable } = &present;
    let (kept, _) = overlays::history(&operator.incarnation().await?, &operator.paths(job)?).await?;
    let overlay = overlay.as_ref().filter(|overlay| overlay.version > 0);
    if overlay.is_none() && !is_unreadable {
        return Err(Error::Failed(format!("{job}: there is no overlay")));
    }
    // Down the history: what a version has restored is not the version before the next one.
    let before = overlay.and_then(|overlay| overlay.origin().checked_sub(1));
    let Some(version) = arguments.version.or(before) else {
        let Some(overlay) = overlay else {
            let why = "its overlay can't be read; give the version to restore, 0 for none";
            return Err(Error::Usage(format!("{job}: {why}")));
        };
        let why = "it restores the configuration without an overlay, and there is no version before that";
        return Err(Error::Failed(format!("{job}: version {} is in force; {why}", overlay.version)));
    };
    let found = kept.iter().find(|overlay| overlay.version == version);
    let (text, restores) = match found {
        Some(found) => (found.text.clone(), found.origin()),
        None if version == 0 => (String::new(), 0),
        None => {
            let kept: Vec<_> = kept.iter().map(|overlay| overlay.version.to_string()).collect();
            return Err(Error::Usage(format!(
                "version {version} is not kept; valid: 0, {}",
                kept.join(", ")
            )));
        }
    };
    check_overlay(sources, job, format!("version {version}").as_ref(), &text)?;
    let described = kept.iter().find(|overlay| overlay.version == restores);
    let described = described.map(|overlay| format!(" ({})", pushed_by(overlay))).unwrap_or_default();
    let what = restored(Some(restores)).unwrap_or_default();
    let what = format!("revert of {job} {what}{described}");
    let new = NewOverlay {
        text: &text,
        by: &asker(),
        reason: arguments.reason.as_deref(),
        restores: Some(restores),
    };
    let with = With { sources, consent: arguments.consent, output: how };
    present.push(&what, None, new, with).await
}
