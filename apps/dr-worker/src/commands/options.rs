//! The options of the command line that operations take beside their own arguments.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use election_core::internals::text::Text;

use super::operation::{Declared, Jobs, Takes};

const HOW_LONG: &str = "How long to wait [default: the policy's timeouts].

The default is the sum of those of a move.";

/// What they were set to.
pub(crate) struct Options {
    pub(crate) job: Option<String>,
    pub(crate) all: bool,
    pub(crate) reason: Option<Text>,
    pub(crate) yes: bool,
    pub(crate) dry_run: bool,
    pub(crate) wait: bool,
    pub(crate) timeout: Option<Duration>,
}

impl Options {
    pub(crate) fn read(matches: &ArgMatches) -> Self {
        // Not every operation has all of them.
        let has = |id| matches.try_get_one::<bool>(id).ok().flatten().copied().unwrap_or_default();
        Self {
            job: matches.try_get_one::<String>("job").ok().flatten().cloned(),
            all: has("all"),
            reason: matches.try_get_one("reason").ok().flatten().cloned(),
            yes: has("yes"),
            dry_run: has("dry_run"),
            wait: has("wait"),
            timeout: matches.try_get_one("timeout").ok().flatten().copied(),
        }
    }
}

impl Declared {
    /// Its verb with all options.
    pub(crate) fn full_command(&self) -> Command {
        self.command().args(options(&self.takes))
    }
}

fn options(takes: &Takes) -> Vec<Arg> {
    let Takes { jobs, reason, yes, dry_run, wait } = takes;
    let flag = |id: &'static str, name: &'static str, help: &'static str| {
        Arg::new(id).long(name).help(help).action(ArgAction::SetTrue)
    };
    let has_all = matches!(jobs, Jobs::Chosen | Jobs::Governed);
    let of_member = *jobs == Jobs::OfMember;
    let default = if of_member { "all jobs of the member" } else { "the only one" };
    let job = Arg::new("job").long("job").value_name("JOB").help(format!("Job [default: {default}]"));
    let job = if has_all { job.conflicts_with("all") } else { job };
    let mut options: Vec<_> = (*jobs != Jobs::OfRoot).then_some(job).into_iter().collect();
    options.extend(has_all.then(|| flag("all", "all", "All jobs")));
    let text = || Arg::new("reason").long("reason").value_name("TEXT").help("Reason, for the records");
    options.extend(reason.then(|| text().value_parser(value_parser!(Text))));
    options.extend(dry_run.then(|| flag("dry_run", "dry-run", "Only show who would lead then, and why")));
    if let Some(help) = wait {
        let (short, long) = help.split_once(".\n").unwrap_or((help.trim_end_matches('.'), ""));
        let wait = flag("wait", "wait", short);
        options.push(if long.is_empty() { wait } else { wait.long_help(*help) });
        let timeout = Arg::new("timeout").long("timeout").value_name("DURATION").requires("wait");
        let timeout = timeout.value_parser(humantime::parse_duration).help(HOW_LONG.split('.').next());
        options.push(timeout.long_help(HOW_LONG));
    }
    options.extend(yes.then(|| flag("yes", "yes", "Don't ask on a terminal")));
    options
}
