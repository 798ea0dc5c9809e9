use owo_colors::OwoColorize as _;
use serde_json::json;

use super::output::{self, Output};
use crate::{
    config::{Config, Sources},
    error::Error,
};

/// `config check`
pub(super) fn check(sources: &Sources, how: Output) -> Result<(), Error> {
    let config = Config::load(sources)?;
    config.check_node()?;
    if let Some(warning) = config.check_certificate()? {
        output::print_warning(warning);
    }
    let (node, jobs) = (&config.node, config.jobs.iter().map(|job| job.name()).collect::<Vec<_>>());
    if how == Output::Json {
        return output::print_json(&json!({ "member": node.id, "site": node.site, "jobs": jobs }));
    }
    output::print_progress(format_args!(
        "the configuration of {} in site {} is valid: {}",
        node.id,
        node.site,
        jobs.join(", ")
    ));
    Ok(())
}

/// `config show`
pub(super) fn show(sources: &Sources, how: Output) -> Result<(), Error> {
    let config = Config::load(sources)?;
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
