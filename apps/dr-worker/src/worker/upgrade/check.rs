//! Asks a program whether it can continue as this worker, before it is executed.
//!
//! ```text
//!   this program ── PROGRAM ARGUMENTS --resume-check QUESTION ──▶ the new one: an answer, or why not
//! ```
//!
//! It is started with the arguments and the environment that it would get, so it reads the same configuration. A file that
//! can't be executed, another program, one that does not know the format, and a configuration that it refuses are all found
//! before anything is given up. Its answer has what it has read, so that the same is [used](crate::checked) later.

use std::{ffi::OsString, path::Path, time::Duration};

use job_guard::Exit;
use serde::{Deserialize, Serialize};

use super::{FORMAT, report::Progress};
use crate::{
    checked::Files,
    config::{Config, FixedValues},
    connect::can_connect,
    error::{Error, ExitCode},
    program::program,
    worker::{
        job::ask_program,
        state::{Job, Worker},
    },
};

/// The option of `run` with the question.
pub(crate) const CHECK: &str = "--resume-check";

/// The option of `run` by which a program continues.
pub(crate) const RESUME: &str = "--resume";

const NO_WORKER: &str = "it is not dr-worker, or a version that can't continue a running worker";

/// How long the new program may take to answer.
const WITHIN: Duration = Duration::from_secs(10);

/// What the new program must be able to continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResumeQuestion {
    pub(crate) format: u32,
    pub(crate) fixed: FixedValues,
}

/// The new program can continue.
#[derive(Serialize, Deserialize)]
pub(crate) struct ResumeAnswer {
    /// The format of the question.
    continues: u32,
    version: String,
    /// What it has read.
    files: Files,
}

impl ResumeAnswer {
    /// The same, after these files were read.
    pub(crate) fn with(self, files: Files) -> Self {
        Self { files, ..self }
    }
}

impl ResumeQuestion {
    /// About this worker, and these of its jobs.
    pub(in crate::worker) fn about<'a>(worker: &Worker, jobs: impl Iterator<Item = &'a Job>) -> Self {
        let jobs: Vec<_> = jobs.map(|job| job.slot.name()).collect();
        Self { format: FORMAT, fixed: FixedValues::of(&worker.config(), |job| jobs.contains(&job)) }
    }

    /// Asks the program at `file`. Returns its version, and the files of the configuration that it has checked.
    ///
    /// # Errors
    /// Why it can't continue.
    pub(crate) async fn ask(&self, file: &Path) -> Result<(String, Files), (Progress, String)> {
        let refused = |why: String| (Progress::Refused, format!("{}: {why}", file.display()));
        let mut command = vec![text(file.as_os_str().to_owned()).map_err(refused)?];
        for argument in arguments() {
            command.push(text(argument).map_err(refused)?);
        }
        let question = serde_json::to_string(self).map_err(|error| refused(error.to_string()))?;
        command.extend([CHECK.to_owned(), question]);
        let (exit, answer, why) = ask_program(command, WITHIN).await.map_err(refused)?;
        match exit {
            Exit::Code(0) => match serde_json::from_str(&answer) {
                Ok(ResumeAnswer { continues, version, files }) if continues == self.format => {
                    Ok((version, files))
                }
                _ => Err(refused(NO_WORKER.to_owned())),
            },
            Exit::Code(code) if code == ExitCode::Config as i32 => Err((Progress::BadConfiguration, why)),
            Exit::Code(code) if code == ExitCode::Usage as i32 => Err(refused(NO_WORKER.to_owned())),
            exit => Err(refused(format!("it can't continue: {exit} {why}").trim_end().to_owned())),
        }
    }
}

/// The arguments of this program, without the option to continue.
pub(crate) fn arguments() -> impl Iterator<Item = OsString> {
    std::env::args_os().skip(1).filter(|argument| argument != RESUME)
}

fn text(argument: OsString) -> Result<String, String> {
    argument.into_string().map_err(|argument| format!("{} is not UTF-8 text", argument.display()))
}

/// Answers a question: this program can continue.
///
/// # Errors
/// Why this program can't continue with this configuration.
pub(crate) fn answer(question: &str, config: &Config) -> Result<ResumeAnswer, Error> {
    let asked: ResumeQuestion = serde_json::from_str(question)
        .map_err(|error| Error::Failed(format!("the question can't be read: {error}")))?;
    let version = env!("CARGO_PKG_VERSION");
    if asked.format != FORMAT {
        let format = asked.format;
        return Err(Error::Failed(format!(
            "the running worker hands over in format {format}, and {} {version} knows {FORMAT} only; restart the worker",
            program()
        )));
    }
    asked.fixed.fit(config)?;
    asked.fixed.has_jobs_of(config)?;
    can_connect(config)?;
    Ok(ResumeAnswer { continues: FORMAT, version: version.to_owned(), files: Files::new() })
}
