//! `[[job.NAME.process]]`: one of several programs of a job, under one leadership.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use job_guard::{Check, ExitCodes, Limits, OnExit, ReadyProbe, RunAs, StopSignal};

use super::{
    check::CheckKeys,
    exit_codes::ExitKeys,
    identity::UserKeys,
    limits::LimitKeys,
    parse::{HOUR, SECOND, Words},
    probe::ReadyKeys,
    reader::Section,
    table::{flat_as, nested_as, optional, optional_nested, required, table, value},
};

/// Each has a guard of its own.
const MOST_PROCESSES: usize = 16;

/// The longest name of a process.
const LONGEST_NAME: usize = 64;

table! {
    /// `[[job.NAME.process]]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProcessSpec {
        /// Its name: in the log, for the option --process of `dr-worker logs`, as DR_PROCESS in its environment.
        pub name: String = String::new() => required("the name of the process, such as \"db\"").check(|name: &String| wrong_name(name));
        /// Program and arguments. A path, or a name in PATH; no shell.
        pub command: Vec<String> = Vec::new() => required("the program to run and its arguments");
        /// Variables in addition to those of the job.
        pub env: BTreeMap<String, String> = BTreeMap::new() => value();
        /// Working directory. Default: that of the job.
        pub working_dir: Option<PathBuf> = None => optional();
        /// The user that it runs as; the job's by default.
        pub run_as: Option<RunAs> = None => flat_as(UserKeys::default());
        /// Limits of this process. Default: those of the job.
        pub limits: Limits = Limits::default() => nested_as(LimitKeys::default());
        /// Signal that asks it to end. Default: that of the job.
        pub stop_signal: Option<StopSignal> = None => optional();
        /// How long it may take to end; in a planned stop at least. Default: an equal share of what the other processes leave of the
        /// job's stop_timeout.
        pub stop_timeout: Option<Duration> = None => optional().within(Duration::ZERO..=HOUR);
        /// When it counts as serving, so that the next one is started.
        pub ready: ReadyProbe = ReadyProbe::None { after: SECOND } => nested_as(ReadyKeys::default()).shows(
            "that the process is ready"
        );
        /// Check of the running process. After `failures` failures in a row it is stopped, as if it had ended by itself.
        pub liveness: Option<Check> = None => optional_nested(CheckKeys::of_job()).has_kind().shows(
            "that the process still serves"
        );
        /// Exit codes of a process that ends by itself. Default: those of the job.
        pub exit_codes: Option<ExitCodes> = None => optional_nested(ExitKeys::default());
        /// What is restarted when it ends: "restart-one" (it alone), "restart-rest" (it and those after it) or "restart-all". The
        /// others that are named are stopped first. The job's `restart` limits all restarts together.
        pub on_exit: OnExit = OnExit::RestartRest => value();
    }
}

impl Words for OnExit {
    const WORDS: &[(&str, Self)] = &[
        ("restart-one", Self::RestartOne),
        ("restart-rest", Self::RestartRest),
        ("restart-all", Self::RestartAll),
    ];
}

/// The name of a process, as a user has typed it.
///
/// # Errors
/// Why it is none.
pub(crate) fn process_name(text: &str) -> Result<String, String> {
    wrong_name(text).map_or_else(|| Ok(text.to_owned()), Err)
}

fn wrong_name(name: &str) -> Option<String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let is_valid = (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_plain);
    (!is_valid).then(|| format!("1 to {LONGEST_NAME} letters, digits, '-' and '_' are valid"))
}

/// The keys of a job that each of its processes has instead.
const OF_EACH: [&str; 3] = ["command", "ready", "liveness"];

/// Checks the processes of a job together, and with its other keys.
pub(super) fn check_together(processes: &[ProcessSpec], whole: Duration, section: &mut Section<'_>) {
    if !section.has("process") || !section.is_sound("process") {
        return;
    }
    for key in OF_EACH.into_iter().filter(|key| section.has(key)).collect::<Vec<_>>() {
        section.problem(key, "a job has either this or [[process]]: set it for each process");
    }
    if section.has("standby") {
        section.problem("standby", "a job with several processes can't have a standby");
    }
    if !(1..=MOST_PROCESSES).contains(&processes.len()) {
        let message = format!("{} processes; 1 to {MOST_PROCESSES} are valid", processes.len());
        return section.problem("process", message);
    }
    for (at, process) in processes.iter().enumerate() {
        if processes.iter().take(at).any(|other| other.name == process.name) {
            section.problem("process", format!("two processes have the name {:?}", process.name));
        }
    }
    let set: Duration = processes.iter().filter_map(|process| process.stop_timeout).sum();
    if set > whole {
        let message = format!(
            "their stop_timeout is {set:?} together, which is longer than the job's stop_timeout of {whole:?}: they are \
             stopped one after the other"
        );
        section.problem("process", message);
    }
    let is_open = |process: &&ProcessSpec| process.stop_timeout.is_none();
    if let Some(process) = processes.iter().find(is_open).filter(|_| set == whole && !whole.is_zero()) {
        let message = format!(
            "the others' stop_timeout leaves nothing of the job's {whole:?} for {:?}: set its stop_timeout, or \
             raise the job's",
            process.name
        );
        section.problem("process", message);
    }
}
