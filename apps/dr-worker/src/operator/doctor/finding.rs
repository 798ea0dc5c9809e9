//! What a check finds.

use serde::Serialize;

use super::facts::Facts;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Severity {
    /// Something does not work, or will not when it is needed.
    Error,
    /// It works, and a fault that is to be expected will cost more than it has to.
    Warning,
    /// It could not be determined.
    Unknown,
    /// An operator should know it.
    Note,
}

impl Severity {
    /// All, the worst first.
    pub(super) const ALL: [Self; 4] = [Self::Error, Self::Warning, Self::Unknown, Self::Note];

    /// Its name, as in JSON.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
            Self::Note => "note",
        }
    }
}

/// One check: a pure function of the facts, and what is printed with each of its findings.
pub(super) struct Check {
    /// Its name in the report, in JSON and in docs/doctor.md.
    pub(super) id: &'static str,
    /// The severity of its findings, unless a finding has another one.
    pub(super) severity: Severity,
    /// What it finds.
    pub(super) finds: &'static str,
    /// Why that matters.
    pub(super) why: &'static str,
    /// What to do.
    pub(super) action: &'static str,
    /// Looks for it.
    pub(super) look: fn(&Facts, &mut Found),
}

/// What one check has found so far.
pub(super) struct Found {
    usual: Severity,
    all: Vec<(Severity, String)>,
}

impl Found {
    /// A finding of the check's own severity, as a sentence.
    pub(super) fn add(&mut self, what: impl Into<String>) {
        self.with(self.usual, what);
    }

    /// A finding of another severity.
    pub(super) fn with(&mut self, severity: Severity, what: impl Into<String>) {
        self.all.push((severity, what.into()));
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The check.
    pub(super) id: &'static str,
    /// How bad it is.
    pub(super) severity: Severity,
    /// What the check finds.
    pub(super) finds: &'static str,
    /// What was found, with names and figures.
    pub(super) what: String,
    /// Why it matters.
    pub(super) why: &'static str,
    /// What to do.
    pub(super) action: &'static str,
}

impl Check {
    /// Its findings.
    pub(super) fn findings(&self, facts: &Facts) -> impl Iterator<Item = Finding> {
        let mut found = Found { usual: self.severity, all: Vec::new() };
        (self.look)(facts, &mut found);
        let &Self { id, finds, why, action, .. } = self;
        found.all.into_iter().map(move |(severity, what)| Finding { id, severity, finds, what, why, action })
    }
}
