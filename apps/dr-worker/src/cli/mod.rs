//! The command line: what can be asked for, and who answers.

mod ack;
mod config;
mod confirm;
mod contest;
mod control;
#[cfg(feature = "dev")]
mod dev;
mod election;
mod explain;
#[cfg(test)]
mod explain_tests;
mod gather;
mod ghosts;
mod history;
mod list;
mod output;
mod request;
mod simulate;
mod stay;
mod tokens;

use std::{
    ffi::OsString,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use strategies::Registry;
use tracing_subscriber::filter::Targets;

use crate::{
    NAME,
    config::{Config, Sources},
    error::{Error, ExitCode},
    logging::{self, Usual},
    program, run,
};

/// How long the last lines of a daemon's log may take. Where standard error takes none, they are lost.
const LAST_LINES: Duration = Duration::from_secs(1);

const EXIT_CODES: &str = "Exit codes: 0 done; 1 carried out and failed; 64 bad usage; 69 ZooKeeper not reachable in \
                          time; 70 internal error; 75 not now, try again; 78 bad configuration.";

/// Runs a program on exactly one node across two sites, and fails over.
#[derive(Debug, Parser)]
#[command(name = NAME, version, after_help = EXIT_CODES, disable_help_subcommand = true)]
struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Args)]
struct Global {
    /// A TOML file, or a directory whose *.toml are read in the order of their names. May be
    /// given again: later ones win. Default: /etc/dr-worker, if there is one in it.
    #[arg(long = "config", value_name = "PATH", global = true)]
    paths: Vec<PathBuf>,
    /// A setting, such as zookeeper.root=/dr. Wins over files and environment.
    #[arg(long = "set", value_name = "KEY=VALUE", global = true)]
    sets: Vec<String>,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Output::Pretty, global = true)]
    output: Output,
    /// What to log: a level, or levels by target, such as info,zk_session=debug.
    #[arg(long = "log", value_name = "LEVELS", env = "DR_LOG", value_parser = logging::parse, global = true)]
    levels: Option<Targets>,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Pretty,
    /// For programs.
    Json,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Take part in the elections of the configured jobs, and run those that this node leads.
    Run,
    /// Show who takes part, who leads, who is next and why.
    #[command(visible_alias = "status")]
    List(list::ListArguments),
    /// Move leadership as planned: the leader cooperates, the target must be fit.
    Switchover(request::SwitchoverArguments),
    /// Move leadership whether or not a leader or an elector lives.
    Failover(request::FailoverArguments),
    /// Withdraw a request that is not begun yet. Exit code 1 if it was begun or has ended, with its outcome.
    Cancel(request::CancelArguments),
    /// Close a site: nobody leads from it, and who does hands over at once.
    Drain(control::SiteArguments),
    /// Open a drained site again.
    Undrain(control::SiteArguments),
    /// Say that a site has failed: nobody leads from it, and whoever does makes room as after a
    /// failure. What it does not let go of is taken by `failover --force` alone.
    FailSite(control::FailSiteArguments),
    /// Say that it has not, or not any more.
    UnfailSite(control::SiteArguments),
    /// Say which site should lead, or in which order the sites should, whatever is configured.
    Prefer(control::PreferArguments),
    /// Say whether the elector decides on its own: auto; manual: only what an operator asks for;
    /// observe: nothing, it is only said what would be.
    Mode(control::ModeArguments),
    /// Maintenance: the mode manual, until `resume`.
    Pause(control::JobArguments),
    /// End a pause: back to the mode that it found.
    Resume(control::JobArguments),
    /// Call off that leadership moves by itself to somebody better, such as back to the preferred
    /// site, until the next change of leader.
    Stay(stay::StayArguments),
    /// Confirm a move to another site that the elector proposes, where the policy says confirm = "cross-site". It is
    /// made when the policy allows it, such as within the next of failback_windows.
    Confirm(confirm::ConfirmArguments),
    /// Say that you have looked at what went wrong: ends a hold after too many takeovers. What is remembered of members
    /// and of sites stays, unless --failures or --sites says so.
    Ack(ack::AckArguments),
    /// Show who led when, why it changed, and how long each phase took.
    History(history::HistoryArguments),
    /// Show why leadership is where it is: every candidate with its rank or with what put it out, what
    /// would be decided, and what stands in the way.
    Explain(explain::ExplainArguments),
    /// Show who would lead without a site or a member, or with other settings (--set policy.K=V).
    Simulate(simulate::SimulateArguments),
    /// Make every fencing token from now on newer than one, after the ensemble was restored from
    /// a copy: zxids, and the tokens made from them, go back then.
    RaiseToken(tokens::RaiseTokenArguments),
    /// Remove the znodes of dead sessions that no living member owns. Without --yes, only show them.
    RemoveGhosts(ghosts::RemoveGhostsArguments),
    /// Start a stand-in for ZooKeeper and one worker in this process, for a first look. Not for
    /// production: the server keeps nothing, and ends with the worker.
    #[cfg(feature = "dev")]
    Dev(dev::DevArguments),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Print a shell's completions.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigVerb {
    /// Say everything that is wrong with it. Exit code 0 if nothing is, 78 if something is.
    Check,
    /// Print every effective value and where it came from.
    Show,
}

impl Verb {
    /// Whether it runs until it is ended.
    fn is_daemon(&self) -> bool {
        match self {
            Self::Run => true,
            #[cfg(feature = "dev")]
            Self::Dev(_) => true,
            _ => false,
        }
    }
}

impl Global {
    fn sources(&self, registry: &Registry) -> Sources {
        Sources::with_environment(self.paths.clone(), self.sets.clone()).with_registry(registry.clone())
    }
}

/// Does what the command line says, with policies that may name what is in the registry.
pub fn main(registry: &Registry) -> ExitCode {
    let arguments = match parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help that was asked for is a result, and goes to standard output.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::Done;
            }
            if wants_json(std::env::args_os()) {
                let words = error.to_string();
                let words = words.trim_start_matches("error: ").trim_end();
                output::say_error(&Error::Usage(words.to_owned()), Output::Json);
            } else {
                let _ = error.print();
            }
            return ExitCode::Usage;
        }
    };
    let usual = if arguments.verb.is_daemon() { Usual::Daemon } else { Usual::Command };
    if usual == Usual::Daemon
        && let Err(error) = run::ignore_signals()
    {
        output::say_error(&Error::Internal(format!("no signals: {error}")), Output::Pretty);
        return ExitCode::Internal;
    }
    if let Err(error) = logging::init(arguments.global.levels.clone(), usual) {
        output::say_error(&Error::Internal(format!("no log: {error}")), arguments.global.output);
        return ExitCode::Internal;
    }
    let dispatched = panic::catch_unwind(AssertUnwindSafe(|| dispatch(&arguments, registry)));
    let error = match dispatched {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error),
        Err(_) => Some(Error::Internal("this is a bug, which the line above describes".to_owned())),
    };
    if let Some(error) = &error {
        // A daemon has no result that the error could be in place of.
        let how = if usual == Usual::Daemon { Output::Pretty } else { arguments.global.output };
        output::say_error(error, how);
    }
    logging::flush(LAST_LINES);
    error.map_or(ExitCode::Done, |error| error.exit_code())
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let matches = command().try_get_matches_from(gather::gather(arguments))?;
    Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command()))
}

/// The command line under the name that this program was started by. One with stages of its own says what it is.
fn command() -> clap::Command {
    let (program, command) = (program(), Arguments::command());
    if program == NAME {
        return command;
    }
    let version = concat!("(", env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"), ")");
    command.display_name(program.clone()).bin_name(program).version(version)
}

/// Whether `--output json` is among arguments that are not understood.
fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let ours: Vec<_> = arguments.take_while(|argument| argument != "--").collect();
    ours.iter().any(|argument| argument == "--output=json")
        || ours.windows(2).any(|two| two[0] == "--output" && two[1] == "json")
}

fn dispatch(arguments: &Arguments, registry: &Registry) -> Result<(), Error> {
    let global = &arguments.global;
    let sources = &global.sources(registry);
    match &arguments.verb {
        Verb::Run => {
            let config = Config::load(sources)?;
            config.check_node()?;
            block_on(run::run(config))
        }
        Verb::List(list) => block_on(list::run(list, sources, global.output)),
        Verb::Switchover(switchover) => block_on(request::switchover(switchover, sources, global.output)),
        Verb::Failover(failover) => block_on(request::failover(failover, sources, global.output)),
        Verb::Cancel(cancel) => block_on(request::cancel(cancel, sources, global.output)),
        Verb::Drain(site) => block_on(control::drain(site, sources, global.output)),
        Verb::FailSite(site) => block_on(control::fail_site(site, sources, global.output)),
        Verb::UnfailSite(site) => block_on(control::unfail_site(site, sources, global.output)),
        Verb::Undrain(site) => block_on(control::undrain(site, sources, global.output)),
        Verb::Prefer(prefer) => block_on(control::prefer(prefer, sources, global.output)),
        Verb::Mode(mode) => block_on(control::mode(mode, sources, global.output)),
        Verb::Pause(job) => block_on(control::pause(job, sources, global.output)),
        Verb::Resume(job) => block_on(control::resume(job, sources, global.output)),
        Verb::Stay(stay) => block_on(stay::stay(stay, sources, global.output)),
        Verb::Confirm(confirm) => block_on(confirm::confirm(confirm, sources, global.output)),
        Verb::Ack(job) => block_on(ack::ack(job, sources, global.output)),
        Verb::History(history) => block_on(history::run(history, sources, global.output)),
        Verb::Explain(explain) => block_on(explain::run(explain, sources, global.output)),
        Verb::Simulate(simulate) => block_on(simulate::run(simulate, sources, global.output)),
        Verb::RaiseToken(raise) => block_on(tokens::raise(raise, sources, global.output)),
        Verb::RemoveGhosts(remove) => block_on(ghosts::remove(remove, sources, global.output)),
        #[cfg(feature = "dev")]
        Verb::Dev(dev) => dev::run(dev, global, registry),
        Verb::Config(ConfigVerb::Check) => config::check(sources),
        Verb::Config(ConfigVerb::Show) => config::show(sources, global.output),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command(), program(), &mut script);
            output::print(String::from_utf8_lossy(&script).trim_end())
        }
    }
}

fn block_on(command: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let runtime = tokio::runtime::Runtime::new().map_err(|e| Error::Internal(format!("no runtime: {e}")))?;
    let result = runtime.block_on(command);
    // What a client crate still does in the background must hold up nobody.
    runtime.shutdown_background();
    result
}
