//! The report.

use owo_colors::OwoColorize as _;
use serde::Serialize;

use super::finding::{Finding, Severity};

/// All findings, the worst first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct DoctorReport {
    /// How many checks were made.
    pub(super) checks: usize,
    pub(super) findings: Vec<Finding>,
}

impl DoctorReport {
    pub(super) fn new(checks: usize, mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| finding.severity);
        Self { checks, findings }
    }

    pub(super) fn has(&self, severity: Severity) -> bool {
        self.findings.iter().any(|finding| finding.severity == severity)
    }

    /// As text.
    pub(super) fn text(&self) -> String {
        let mut lines = Vec::new();
        let mut before: Option<&Finding> = None;
        for finding in &self.findings {
            let is_same = before.is_some_and(|b| (b.id, b.severity) == (finding.id, finding.severity));
            if !is_same {
                lines.extend(before.map(advice));
                lines.push(format!("{} {}", label(finding.severity), finding.id.bold()));
            }
            lines.push(format!("  {}", finding.what));
            before = Some(finding);
        }
        lines.extend(before.map(advice));
        lines.push(self.summary());
        lines.join("\n")
    }

    fn summary(&self) -> String {
        let count = |severity| self.findings.iter().filter(|finding| finding.severity == severity).count();
        let counts = Severity::ALL.map(|severity| (severity, count(severity)));
        let counts: Vec<_> = counts
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(severity, count)| {
                let s = if *count > 1 && *severity != Severity::Unknown { "s" } else { "" };
                format!("{count} {}{s}", severity.as_str())
            })
            .collect();
        match counts.as_slice() {
            [] => format!("no findings ({} checks)", self.checks),
            counts => format!("{} ({} checks)", counts.join(", "), self.checks),
        }
    }
}

fn label(severity: Severity) -> String {
    match severity {
        Severity::Error => "error".red().bold().to_string(),
        Severity::Warning => "warning".yellow().bold().to_string(),
        Severity::Unknown => "unknown".cyan().bold().to_string(),
        Severity::Note => "note".bold().to_string(),
    }
}

/// What is printed once below findings of one check.
fn advice(finding: &Finding) -> String {
    format!("    why: {}\n    do:  {}", finding.why, finding.action)
}
