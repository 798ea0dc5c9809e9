use std::collections::BTreeMap;

use election_core::operator::overlays;
use owo_colors::OwoColorize as _;
use serde_json::json;

use super::{
    doctor,
    election::Operator,
    global::block_on,
    output::{self, Output},
};
use crate::{
    config::{Config, Sources, Usable},
    error::Error,
};

/// `config check`
#[derive(Debug, clap::Args)]
pub(super) struct CheckArguments {
    /// Run `doctor` too.
    #[arg(long)]
    online: bool,
}

pub(super) fn check(arguments: &CheckArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let config = Config::load(sources)?;
    config.check_node()?;
    config.check_state_dir()?;
    if let Some(warning) = config.warning_of_state_dir() {
        output::print_warning(warning);
    }
    if let Some(warning) = config.check_certificate()? {
        output::print_warning(warning);
    }
    let (node, jobs) = (&config.node, config.jobs.iter().map(|job| job.name()).collect::<Vec<_>>());
    let result = json!({ "member": node.id, "site": node.site, "jobs": jobs });
    if how == Output::Pretty {
        output::print_progress(format_args!(
            "the configuration of {} in site {} is valid: {}",
            node.id,
            node.site,
            jobs.join(", ")
        ));
    }
    match (arguments.online, how) {
        (true, _) => block_on(doctor::beside_check(result, sources, how)),
        (false, Output::Json) => output::print_json(&result),
        (false, Output::Pretty) => Ok(()),
    }
}

/// `config show`
#[derive(Debug, clap::Args)]
pub(super) struct ShowArguments {
    /// Include what `config push` has set.
    #[arg(long)]
    online: bool,
}

pub(super) fn show(arguments: &ShowArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let mut config = Config::load(sources)?;
    if arguments.online {
        block_on(async {
            config = with_overlays(&config, sources).await?;
            Ok(())
        })?;
    }
    if how == Output::Json {
        return output::print_json(&json!({ "values": config.shown() }));
    }
    let width = config.shown().iter().map(|s| s.key.len() + s.value.len() + 3).filter(|w| *w < 70).max();
    for shown in config.shown() {
        let line = format!("{} = {}", shown.key, shown.value);
        let origin = format!("# {}", shown.origin);
        output::print(format_args!("{line:width$}  {}", origin.dimmed(), width = width.unwrap_or(0)))?;
    }
    Ok(())
}

/// The configuration with the overlays that it can have.
async fn with_overlays(config: &Config, sources: &Sources) -> Result<Config, Error> {
    let operator = Operator::connect(sources).await?;
    let session = operator.incarnation().await?;
    let mut newest = BTreeMap::new();
    for job in config.jobs.iter().map(|job| job.name()) {
        if let Some(overlay) = overlays::read(&session, &operator.paths(job)?).await? {
            newest.insert(job.to_owned(), overlay);
        }
    }
    operator.close().await;
    let Usable { config, refused, .. } = config.with_usable_overlays(&newest, &BTreeMap::new(), |_| Ok(()));
    for (job, problems) in refused {
        output::print_warning(format_args!("the overlay of {job} can't be applied here: {problems}"));
    }
    Ok(config)
}
