//! `notify test`: whether notifications arrive.

use serde_json::json;

use super::output::{self, Output};
use crate::{
    config::{Config, Sources},
    error::Error,
    worker::notify,
};

/// Sends a test to each receiver, and shows the results.
pub(super) async fn test(sources: &Sources, how: Output) -> Result<(), Error> {
    let config = Config::load(sources)?;
    if config.notify.is_empty() {
        return Err(Error::Failed(
            "no receiver is configured; add a section [notify.webhook.NAME] or [notify.command]".to_owned(),
        ));
    }
    let results = notify::test(&config).await;
    let failed: Vec<_> = results
        .iter()
        .filter_map(|(name, result)| result.as_ref().err().map(|why| format!("{name}: {why}")))
        .collect();
    if how == Output::Json && failed.is_empty() {
        let names: Vec<_> = results.iter().map(|(name, _)| name).collect();
        return output::print_json(&json!({ "delivered": names }));
    }
    if how == Output::Pretty {
        for (name, _) in results.iter().filter(|(_, result)| result.is_ok()) {
            output::print(format_args!("{name}: delivered"))?;
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Error::Failed(format!("not delivered: {}", failed.join("; ")))),
    }
}
