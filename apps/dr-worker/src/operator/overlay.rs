//! `config push`, `pull`, `diff`, `history` and `revert`: the overlay of a job, which all its members apply.

use std::{collections::BTreeMap, fs, path::PathBuf};

use election_core::{
    operator::{Layout, OperatorError, overlays},
    record::{AppliedOverlay, MemberRecord, Overlay},
    text::Text,
};
use owo_colors::OwoColorize as _;
use serde_json::json;

use super::{
    election::{Operator, asker},
    output::{self, Accent, Output},
    table::Column,
};
use crate::{
    config::{Config, Sources, check_overlay, overlay_values},
    error::Error,
    wall,
};

/// `config pull` and `config history`
#[derive(Debug, clap::Args)]
pub(super) struct OverlayArguments {
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
}

/// `config push`
#[derive(Debug, clap::Args)]
pub(super) struct PushArguments {
    /// TOML file with the keys of [job.NAME]; empty for no overlay.
    file: PathBuf,
    #[command(flatten)]
    of: OverlayArguments,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<Text>,
    /// Push only if this is the present version; 0 for none.
    #[arg(long, value_name = "VERSION")]
    replaces: Option<u64>,
}

/// `config diff`
#[derive(Debug, clap::Args)]
pub(super) struct DiffArguments {
    /// File to compare with [default: the configuration here].
    file: Option<PathBuf>,
    #[command(flatten)]
    of: OverlayArguments,
}

/// `config revert`
#[derive(Debug, clap::Args)]
pub(super) struct RevertArguments {
    /// Version [default: the one before]; 0 for no overlay.
    version: Option<u64>,
    #[command(flatten)]
    of: OverlayArguments,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<Text>,
}

/// A job and its present overlay.
struct Present {
    operator: Operator,
    job: String,
    overlay: Option<Overlay>,
}

impl Present {
    async fn read(sources: &Sources, of: &OverlayArguments) -> Result<Self, Error> {
        let operator = Operator::connect(sources).await?;
        let job = operator.one(of.job.as_deref()).await?;
        let overlay = match overlays::read(&operator.incarnation().await?, &operator.paths(&job)?).await {
            Ok(overlay) => overlay,
            // It can be replaced.
            Err(OperatorError::Record(error)) => {
                output::print_warning(error);
                None
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { operator, job, overlay })
    }

    fn version(&self) -> u64 {
        self.overlay.as_ref().map_or(0, |overlay| overlay.version)
    }

    fn text(&self) -> &str {
        self.overlay.as_ref().map_or("", |overlay| &overlay.text)
    }

    /// Replaces it, if it was not replaced meanwhile, and reports it.
    async fn push(
        self,
        text: &str,
        replaces: Option<u64>,
        reason: Option<&str>,
        how: Output,
    ) -> Result<(), Error> {
        let Self { operator, job, .. } = &self;
        let replaces = replaces.unwrap_or(self.version());
        if self.text() == text && replaces == self.version() {
            let version = self.version();
            self.operator.close().await;
            return match how {
                Output::Json => {
                    output::print_json(&json!({ "election": self.job, "version": version, "changed": false }))
                }
                Output::Pretty => output::print(format_args!("{}: the overlay is that already", self.job)),
            };
        }
        let pushed =
            overlays::push(&operator.session, &operator.paths(job)?, Some(replaces), text, &asker(), reason)
                .await?;
        match how {
            Output::Json => output::print_json(&json!({
                "election": job, "version": pushed.version, "by": pushed.by, "at_ms": pushed.at_ms,
                "reason": pushed.reason, "changed": true,
            }))?,
            Output::Pretty => {
                output::print(format_args!("{job}: configuration version {}", pushed.version))?;
                output::print_progress(format_args!(
                    "its members apply it in a moment; `dr-worker config history --job {job}` shows which ones have"
                ));
            }
        }
        self.operator.close().await;
        Ok(())
    }
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
    let text = read_file(&arguments.file)?;
    let present = Present::read(sources, &arguments.of).await?;
    check_overlay(sources, &present.job, &arguments.file, &text)?;
    present.push(&text, arguments.replaces, arguments.reason.as_deref(), how).await
}

pub(super) async fn pull(arguments: &OverlayArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let present = Present::read(sources, arguments).await?;
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
    let reason = overlay.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("version {}, by {} at {}{reason}", overlay.version, overlay.by, wall::moment(overlay.at_ms))
}

pub(super) async fn diff(arguments: &DiffArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let file = arguments.file.as_ref().map(read_file).transpose()?;
    let present = Present::read(sources, &arguments.of).await?;
    let overlay = overlay_values(present.text())?;
    // From the other side to the overlay, or from the overlay to the file: what would change.
    let (from, to) = match file {
        Some(file) => (overlay, overlay_values(&file)?),
        None => (here(sources, &present.job, &overlay)?, overlay),
    };
    let keys: std::collections::BTreeSet<_> = from.keys().chain(to.keys()).collect();
    let changes =
        keys.into_iter().map(|key| (key, from.get(key), to.get(key))).filter(|(_, from, to)| from != to);
    if how == Output::Json {
        let changes: Vec<_> =
            changes.map(|(key, from, to)| json!({ "key": key, "from": from, "to": to })).collect();
        let result = json!({ "election": present.job, "version": present.version(), "changes": changes });
        output::print_json(&result)?;
    } else {
        for (key, from, to) in changes {
            if let Some(from) = from {
                output::print(format_args!("{}", format!("- {key} = {from}").red()))?;
            }
            if let Some(to) = to {
                output::print(format_args!("{}", format!("+ {key} = {to}").green()))?;
            }
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
    let prefix = format!("job.{}.", toml_edit::Key::new(job));
    let shown = config.shown().iter().filter_map(|shown| {
        let key = shown.key.strip_prefix(&prefix)?;
        keys.contains_key(key).then(|| (key.to_owned(), shown.value.clone()))
    });
    Ok(shown.collect())
}

pub(super) async fn history(
    arguments: &OverlayArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let Present { operator, job, .. } = Present::read(sources, arguments).await?;
    let (session, paths) = (operator.incarnation().await?, operator.paths(&job)?);
    let (versions, unreadable) = overlays::history(&session, &paths).await?;
    let snapshot = operator.observer().await?.snapshot(&paths).await?;
    // With the other recipes members do not report it.
    let members = if snapshot.layout == Layout::Elector { snapshot.members } else { Vec::new() };
    operator.close().await;
    for error in &unreadable {
        output::print_warning(error);
    }
    let applied = |member: &MemberRecord| member.config.clone().unwrap_or_default();
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
    let mut rows = vec![];
    if !on(0).is_empty() {
        rows.push((
            vec!["0".to_owned(), "-".to_owned(), on(0), "-".to_owned(), "no overlay".to_owned()],
            Accent::None,
        ));
    }
    rows.extend(versions.iter().map(|overlay| {
        let reason = overlay.reason.clone().unwrap_or_else(|| "-".to_owned());
        let when = wall::moment(overlay.at_ms);
        (
            vec![overlay.version.to_string(), when, on(overlay.version), overlay.by.clone(), reason],
            Accent::None,
        )
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
    let present = Present::read(sources, &arguments.of).await?;
    let Present { operator, job, .. } = &present;
    let (kept, _) = overlays::history(&operator.incarnation().await?, &operator.paths(job)?).await?;
    if present.version() == 0 {
        return Err(Error::Failed(format!("{job}: there is no overlay")));
    }
    let before =
        || kept.iter().map(|overlay| overlay.version).filter(|version| *version < present.version()).max();
    let version = arguments.version.or_else(before).unwrap_or(0);
    let text = match kept.iter().find(|overlay| overlay.version == version) {
        Some(overlay) => overlay.text.clone(),
        None if version == 0 => String::new(),
        None => {
            let kept: Vec<_> = kept.iter().map(|overlay| overlay.version.to_string()).collect();
            return Err(Error::Usage(format!(
                "version {version} is not kept; valid: 0, {}",
                kept.join(", ")
            )));
        }
    };
    let what = format!("version {version} again");
    check_overlay(sources, job, what.as_ref(), &text)?;
    let reason = match &arguments.reason {
        Some(reason) => format!("{what}: {reason}"),
        None => what.clone(),
    };
    present.push(&text, None, Some(&reason), how).await
}
