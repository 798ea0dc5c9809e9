//! `doctor`: what will hurt, before it does. [`gather`] reads, [`checks`] judge what was read.

mod checks;
mod facts;
mod finding;
mod gather;
mod report;
#[cfg(test)]
mod tests;

use serde_json::json;

use self::{facts::Facts, finding::Severity, report::DoctorReport};
use super::output::{self, Output};
use crate::{
    config::Sources,
    error::{Error, ExitCode},
};

/// `doctor`
#[derive(Debug, clap::Args)]
pub(super) struct DoctorArguments {
    /// Exit code 1 also for warnings and for what is unknown.
    #[arg(long)]
    strict: bool,
}

pub(super) async fn run(arguments: &DoctorArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let (report, is_unreachable) = examine(sources).await?;
    match how {
        Output::Json => output::print_json(&report)?,
        Output::Pretty => output::print_text(&report.text())?,
    }
    verdict(&report, is_unreachable, arguments.strict)
}

/// The same beside the result of `config check`.
pub(super) async fn beside_check(
    result: serde_json::Value,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let (report, is_unreachable) = examine(sources).await?;
    match how {
        Output::Json => {
            let mut result = result;
            result["checks"] = json!(report.checks);
            result["findings"] = json!(report.findings);
            output::print_json(&result)?;
        }
        Output::Pretty => output::print_text(&report.text())?,
    }
    verdict(&report, is_unreachable, false)
}

/// The exit code.
fn verdict(report: &DoctorReport, is_unreachable: bool, strict: bool) -> Result<(), Error> {
    let (code, why) = match () {
        () if is_unreachable => (ExitCode::Unreachable, "ZooKeeper was not reached"),
        () if report.has(Severity::Error) => (ExitCode::Failed, "there are errors"),
        () if strict && report.has(Severity::Warning) => (ExitCode::Failed, "there are warnings"),
        () if strict && report.has(Severity::Unknown) => {
            (ExitCode::Failed, "not everything could be checked")
        }
        () => return Ok(()),
    };
    Err(Error::Reported(code, format!("{why}: see the report")))
}

/// The report, and whether there is no session because ZooKeeper did not answer in time.
async fn examine(sources: &Sources) -> Result<(DoctorReport, bool), Error> {
    let (facts, is_unreachable) = gather::gather(sources).await?;
    Ok((judge(&facts), is_unreachable))
}

fn judge(facts: &Facts) -> DoctorReport {
    DoctorReport::new(checks::all().count(), checks::all().flat_map(|check| check.findings(facts)).collect())
}
