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
    let examined = examine(sources).await?;
    match how {
        Output::Json => output::print_json(&examined.report)?,
        Output::Pretty => output::print_text(&examined.report.text())?,
    }
    examined.verdict(arguments.strict)
}

/// The same beside the result of `config check`.
pub(super) async fn beside_check(
    result: serde_json::Value,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let examined = examine(sources).await?;
    match how {
        Output::Json => {
            let mut result = result;
            result["checks"] = json!(examined.report.checks);
            result["findings"] = json!(examined.report.findings);
            output::print_json(&result)?;
        }
        Output::Pretty => output::print_text(&examined.report.text())?,
    }
    examined.verdict(false)
}

struct Examined {
    report: DoctorReport,
    /// Whether there is no session because ZooKeeper did not answer in time.
    is_unreachable: bool,
}

impl Examined {
    /// The exit code.
    fn verdict(&self, strict: bool) -> Result<(), Error> {
        let has = |severity| self.report.has(severity);
        let (code, why) = match () {
            () if self.is_unreachable => (ExitCode::Unreachable, "ZooKeeper was not reached"),
            () if has(Severity::Error) => (ExitCode::Failed, "there are errors"),
            () if strict && has(Severity::Warning) => (ExitCode::Failed, "there are warnings"),
            () if strict && has(Severity::Unknown) => (ExitCode::Failed, "not everything could be checked"),
            () => return Ok(()),
        };
        Err(Error::Reported(code, format!("{why}: see the report")))
    }
}

async fn examine(sources: &Sources) -> Result<Examined, Error> {
    let (facts, is_unreachable) = gather::gather(sources).await?;
    Ok(Examined { report: judge(&facts), is_unreachable })
}

fn judge(facts: &Facts) -> DoctorReport {
    DoctorReport::new(checks::all().count(), checks::all().flat_map(|check| check.findings(facts)).collect())
}
