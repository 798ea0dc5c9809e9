//! The operator's command line: the verbs, and their dispatch.

mod assert;
mod can_restart;
mod carry_out;
mod check_trace;
mod complete;
mod config;
mod consent;
mod contest;
#[cfg(feature = "dev")]
mod dev;
mod doctor;
#[cfg(test)]
mod documents;
mod drill;
mod dry_run;
mod edit;
mod emergency;
mod evacuation;
mod explain;
#[cfg(test)]
mod explain_tests;
mod forget;
mod gather;
mod ghosts;
mod global;
mod headings;
mod history;
mod init;
mod leading;
mod list;
mod logs;
mod migrate;
mod notify;
mod obeyed;
mod output;
mod overlay;
mod phases;
#[cfg(test)]
mod reference;
mod request;
mod screen;
mod simulate;
mod table;
mod underway;
mod upgrade;
mod watch;

use std::{
    ffi::OsString,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ContextKind};
use clap_complete::Shell;
use strategies::Registry;

use crate::{
    checked,
    config::{Config, LogConfig},
    error::{Error, ExitCode},
    logging::{self, Usual},
    mask::mask,
    program::{NAME, continue_as, program},
    signals,
    worker::{
        run::{self, Beginning},
        systemd,
        upgrade::{check, transfer},
    },
};
use global::{AllJobs, Global, OneJob, block_on};
use output::Output;

/// How long to wait for the last lines of a daemon's log. If standard error is blocked, they are lost.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Run a program on exactly one node across two sites, with failover.
#[derive(Parser)]
#[command(name = NAME, version, after_help = ExitCode::summary(), disable_help_subcommand = true, max_term_width = 80)]
struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the worker: join the elections of its jobs, and run them.
    Run(RunArguments),
    /// Show members, leaders and the last decision.
    #[command(visible_alias = "status")]
    List(list::ListArguments),
    #[command(flatten)]
    Operation(carry_out::Chosen),
    /// Check if a node may be taken down now; exit code 75 if not.
    ///
    /// It may not if a job or the last candidate of a site would be lost.
    CanRestart(can_restart::CanRestartArguments),
    /// Show past leaderships: cause, term, duration of each phase.
    History(history::HistoryArguments),
    /// Show the last output of a job on this node.
    ///
    /// It includes the last crash, and works while the worker is down.
    Logs(logs::LogsArguments),
    /// Explain who leads, who would, and what blocks a change.
    Explain(AllJobs),
    /// Show who would lead if a site or a member was lost.
    ///
    /// Also with other settings, given by `--set`.
    Simulate(simulate::SimulateArguments),
    /// Find problems: servers, sites, timings, members, files.
    ///
    /// Run it on each node, with the worker's configuration and as its user. It changes nothing. Exit code 1 if it finds an
    /// error, 69 if ZooKeeper can't be reached; the report is printed nevertheless.
    Doctor(doctor::DoctorArguments),
    /// Practise a failover, and report how long it took.
    ///
    /// It first checks whether a drill may run. If not, nothing happens and the exit code is 75; it is 1 if the drill
    /// failed, missed an objective or was aborted.
    Drill(drill::DrillArguments),
    /// Check a fencing token: exit code 0 if the READY leader has it.
    ///
    /// Exit code 1 if it is not the token of the READY leader, 75 while no member is READY.
    Assert(assert::AssertArguments),
    /// Check a history of a deployment: 'held', or the broken lines.
    ///
    /// It needs neither configuration nor ZooKeeper. docs/reliability.md has the promises and the lines. Exit code 1 if one
    /// was broken, 64 if there was nothing to check.
    CheckTrace(check_trace::CheckTraceArguments),
    /// Print each change as one line of JSON, until it is stopped.
    ///
    /// The first lines, with "initial", are the present state.
    Watch(AllJobs),
    /// Run a job here without ZooKeeper, while it has no quorum.
    ///
    /// The last resort: only what you have fenced by hand keeps the job from running twice. docs/lost-quorum.md
    /// has the steps. The worker of this node must be stopped. The job runs until Ctrl-C or SIGTERM.
    EmergencyLead(emergency::EmergencyArguments),
    /// Move the jobs to another ensemble: stop here, lead there.
    ///
    /// Members there lead only when none leads here, above all terms and tokens of here. Run it again after each step that it
    /// asks for: docs/migrate.md has them. Exit code 75 while a step is missing. A script needs --yes.
    Migrate(migrate::MigrateArguments),
    /// Remove znodes of dead sessions; only show them without --yes.
    RemoveGhosts(ghosts::RemoveGhostsArguments),
    /// Remove the znodes of a job that no worker runs.
    ///
    /// They include its history, overlays and reports of drills. Exit code 75 if it has a member, or orders or requests are
    /// in force.
    /// A script needs --yes.
    Forget(forget::ForgetArguments),
    /// Run a worker and an embedded ZooKeeper server, to try it.
    ///
    /// Not for production: the server stores nothing, and ends with the worker.
    #[cfg(feature = "dev")]
    Dev(dev::DevArguments),
    /// Write a minimal configuration for this node.
    ///
    /// Asks for the settings that no option gives, if standard input is a terminal.
    Init(init::InitArguments),
    /// Upgrade the worker of this node in place: its jobs run on.
    ///
    /// It executes the program that is on the disk now, and keeps its leaderships.
    /// Exit code 75 if that is not possible now.
    Upgrade,
    /// Check or show the configuration, or push it to ZooKeeper.
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Try the notifications.
    #[command(subcommand)]
    Notify(NotifyVerb),
    /// Print the completion script of a shell; it completes names too.
    ///
    /// Jobs and sites come from the configuration, else from ZooKeeper; members from ZooKeeper.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write the manual pages to a directory.
    #[command(hide = true)]
    Man {
        /// The directory.
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
    },
}

#[derive(Debug, Args)]
struct RunArguments {
    /// Continue as the worker that has executed this program in its process.
    #[arg(long, hide = true)]
    resume: bool,
    /// Only check whether this program could continue as a running worker.
    #[arg(long, hide = true, value_name = "QUESTION", conflicts_with = "resume")]
    resume_check: Option<String>,
}

#[derive(Debug, Subcommand)]
enum ConfigVerb {
    /// Print all errors; exit code 78, or 75 if time may heal them.
    ///
    /// With --online also what `doctor` finds, with its exit code.
    Check(config::CheckArguments),
    /// Print each effective value with its source.
    ///
    /// With --online also those that `config push` has set.
    Show(config::ShowArguments),
    /// Edit a file with $VISUAL or $EDITOR, and replace it if it is valid.
    ///
    /// The copy that is edited is checked as by `config check`. If it is not valid, edit it again or discard it; the exit
    /// code is then that of the check. Mode and owner are kept.
    Edit(edit::EditArguments),
    /// Push a file to ZooKeeper: all members of the job apply it.
    ///
    /// It first shows the changes and their effects, and asks on a terminal.
    /// The overlay has the keys of [job.NAME]. It overrides files. Environment and command line override it.
    /// A member that can't apply it goes on with the former one, and reports why.
    Push(overlay::PushArguments),
    /// Print what was pushed.
    Pull(OneJob),
    /// Show what a push of a file would change, and what follows.
    ///
    /// The file is checked as by a push; exit code 78 if a push would refuse it.
    /// Without a file: what the overlay changes in the configuration here.
    Diff(overlay::DiffArguments),
    /// Show what was pushed when, and which version members apply.
    History(OneJob),
    /// Push an earlier version again.
    ///
    /// Without a version, each revert goes back by one, and finally to no overlay.
    Revert(overlay::RevertArguments),
    /// Print the JSON Schema of configuration files, for editors.
    Schema,
}

#[derive(Debug, Subcommand)]
enum NotifyVerb {
    /// Send a test to each receiver; exit code 1 if one fails.
    ///
    /// It is tried once. Needs no ZooKeeper.
    Test,
}

impl Verb {
    /// Whether it continues as the worker that has executed this program.
    fn is_resumed(&self) -> bool {
        matches!(self, Self::Run(RunArguments { resume: true, .. }))
    }

    /// Whether it runs until it is stopped.
    fn is_daemon(&self) -> bool {
        match self {
            Self::Run(run) => run.resume_check.is_none(),
            Self::EmergencyLead(emergency) => emergency.is_daemon(),
            #[cfg(feature = "dev")]
            Self::Dev(_) => true,
            _ => false,
        }
    }
}

/// What the program before this one in this process has handed over. Its guards are registered before anything else.
fn resumed() -> Result<Beginning, Error> {
    let resumed = transfer::receive().map_err(|error| {
        Error::Failed(format!("{} is for a worker that upgrades itself: {error}", check::RESUME))
    })?;
    job_guard::adopt_guards(resumed.handed.guards());
    if let Some(file) = resumed.handed.file.clone() {
        continue_as(file);
    }
    checked::give(resumed.handed.files.clone());
    Ok(Beginning::Resume(Box::new(resumed)))
}

/// Runs the command line, with policies that may use the stages and strategies of the registry.
pub(crate) fn main(registry: &Registry) -> ExitCode {
    complete::complete(registry);
    let arguments = match parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Requested help is a result, and goes to standard output.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::Done;
            }
            if wants_json(std::env::args_os()) {
                let message = error.to_string();
                let message = message.trim_start_matches("error: ").trim_end();
                output::print_error(&Error::Usage(message.to_owned()), Output::Json);
            } else {
                let _ = error.print();
            }
            return ExitCode::Usage;
        }
    };
    let usual = if arguments.verb.is_daemon() { Usual::Daemon } else { Usual::Command };
    if usual == Usual::Daemon
        && let Err(error) = signals::ignore_signals()
    {
        output::print_error(&Error::Internal(format!("no signals: {error}")), Output::Pretty);
        return ExitCode::Internal;
    }
    let global = &arguments.global;
    // Before anything is read.
    let beginning = if arguments.verb.is_resumed() { resumed() } else { Ok(Beginning::Start) };
    let log = match usual {
        Usual::Daemon => LogConfig::load(&global.sources(registry)),
        Usual::Command => LogConfig::default(),
    };
    if let Err(error) = logging::init(global.levels.clone(), usual, global.log_format, log) {
        output::print_error(&Error::Internal(format!("no log: {error}")), arguments.global.output);
        return ExitCode::Internal;
    }
    let dispatched = panic::catch_unwind(AssertUnwindSafe(|| dispatch(&arguments, registry, beginning)));
    let error = match dispatched {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error),
        Err(_) => Some(Error::Internal("this is a bug; the line above describes it".to_owned())),
    };
    if let Some(error) = &error {
        if usual == Usual::Daemon {
            systemd::report_failure(&mask(&error.to_string()));
        }
        // A daemon prints no result that the error could replace.
        let how = if usual == Usual::Daemon { Output::Pretty } else { arguments.global.output };
        output::print_error(error, how);
    }
    logging::flush(LAST_LINES);
    error.map_or(ExitCode::Done, |error| error.exit_code())
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let matches = command().try_get_matches_from(gather::gather(arguments)).map_err(|mut error| {
        // The tip to pass an unknown option as a value: no verb has a use for one.
        error.remove(ContextKind::Suggested);
        error
    })?;
    Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command()))
}

/// The command line under the name that this program was started under. A program with its own stages adds the version
/// of dr-worker.
fn command() -> clap::Command {
    let (program, command) = (program(), headings::with_headings(Arguments::command()));
    if program == NAME {
        return command;
    }
    let version = concat!("(", env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"), ")");
    command.display_name(program.clone()).bin_name(program).version(version)
}

/// Whether `--output json`, in any form, is among invalid arguments.
fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let ours: Vec<_> = arguments.take_while(|argument| argument != "--").collect();
    ours.iter().any(|argument| ["--output=json", "-o=json", "-ojson"].iter().any(|whole| argument == *whole))
        || ours.windows(2).any(|two| (two[0] == "--output" || two[0] == "-o") && two[1] == "json")
}

fn dispatch(
    arguments: &Arguments,
    registry: &Registry,
    beginning: Result<Beginning, Error>,
) -> Result<(), Error> {
    let global = &arguments.global;
    let sources = &global.sources(registry);
    match &arguments.verb {
        Verb::Run(RunArguments { resume_check: Some(question), .. }) => {
            let (answer, files) = checked::recording(|| {
                let config = Config::load(sources)?;
                config.check_node()?;
                let answer = check::answer(question, &config);
                answer.map_err(|error| error.located(|key, message| config.problem(key, message)))
            });
            output::print_json(&answer?.with(files))
        }
        Verb::Run(RunArguments { resume, .. }) => {
            let beginning = beginning?;
            let config = Config::load(sources)?;
            match config.check_node() {
                // It was checked before the upgrade, and the jobs run.
                Err(problems) if *resume => tracing::error!("{problems}"),
                checked => checked?,
            }
            block_on(run::run(config, sources.clone(), beginning))
        }
        Verb::List(list) => block_on(list::run(list, sources, global.output)),
        Verb::Operation(chosen) => block_on(carry_out::carry_out(chosen, sources, global.output)),
        Verb::CanRestart(member) => block_on(can_restart::run(member, sources, global.output)),
        Verb::History(history) => block_on(history::run(history, sources, global.output)),
        Verb::Logs(logs) => logs::run(logs, sources, global.output),
        Verb::Explain(explain) => block_on(explain::run(explain, sources, global.output)),
        Verb::Simulate(simulate) => block_on(simulate::run(simulate, sources, global.output)),
        Verb::Doctor(doctor) => block_on(doctor::run(doctor, sources, global.output)),
        Verb::Drill(drill) => block_on(drill::run(drill, sources, global.output)),
        Verb::Assert(assert) => block_on(assert::assert(assert, sources, global.output)),
        Verb::CheckTrace(trace) => check_trace::run(trace, global.output),
        Verb::Watch(watch) => block_on(watch::watch(watch, sources)),
        Verb::EmergencyLead(emergency) => block_on(emergency::run(emergency, sources, global.output)),
        Verb::Migrate(migrate) => block_on(migrate::run(migrate, sources, global.output)),
        Verb::RemoveGhosts(remove) => block_on(ghosts::remove(remove, sources, global.output)),
        Verb::Forget(forget) => block_on(forget::run(forget, sources, global.output)),
        #[cfg(feature = "dev")]
        Verb::Dev(dev) => dev::run(dev, global, registry),
        Verb::Init(init) => init::run(init, global, registry),
        Verb::Upgrade => upgrade::run(sources, global.output),
        Verb::Config(ConfigVerb::Check(check)) => config::check(check, sources, global.output),
        Verb::Config(ConfigVerb::Show(show)) => config::show(show, sources, global.output),
        Verb::Config(ConfigVerb::Edit(edit)) => edit::run(edit, sources, global.output),
        Verb::Config(ConfigVerb::Push(push)) => block_on(overlay::push(push, sources, global.output)),
        Verb::Config(ConfigVerb::Pull(of)) => block_on(overlay::pull(of, sources, global.output)),
        Verb::Config(ConfigVerb::Diff(diff)) => block_on(overlay::diff(diff, sources, global.output)),
        Verb::Config(ConfigVerb::History(of)) => block_on(overlay::history(of, sources, global.output)),
        Verb::Config(ConfigVerb::Revert(revert)) => block_on(overlay::revert(revert, sources, global.output)),
        Verb::Config(ConfigVerb::Schema) => output::print(crate::config::SCHEMA.trim_end()),
        Verb::Notify(NotifyVerb::Test) => block_on(notify::test(sources, global.output)),
        Verb::Completions { shell } => output::print(complete::script(*shell)?.trim_end()),
        Verb::Man { directory } => clap_mangen::generate_to(command(), directory)
            .map_err(|e| Error::Failed(format!("can't write manual pages to {}: {e}", directory.display()))),
    }
}
