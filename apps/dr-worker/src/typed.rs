//! The commands of this program that its messages tell an operator to type.

use std::fmt;

use crate::program::NAME;

/// A command for an operator to type. A test in `operator/documents.rs` reads each that the sources build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Typed(String);

impl Typed {
    /// The command with this verb, such as `drill show`.
    pub(crate) fn verb(verb: &str) -> Self {
        Self(format!("{NAME} {verb}"))
    }

    /// About this job, which has to be named where there are several.
    pub(crate) fn job(self, job: &str) -> Self {
        self.arg("--job").arg(job)
    }

    /// With this argument, as a shell takes it.
    pub(crate) fn arg(mut self, argument: impl fmt::Display) -> Self {
        let argument = argument.to_string();
        let quoted = shlex::try_quote(&argument);
        self.0 = format!("{} {}", self.0, quoted.as_deref().unwrap_or(&argument));
        self
    }
}

impl fmt::Display for Typed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
