//! Completion of arguments for shells: options and verbs by the parser, jobs, sites and members by the configuration and
//! ZooKeeper.
//!
//! A shell's script, which `completions` prints, starts this program with [`VARIABLE`] and the words of the line. The
//! program prints the candidates and ends. It is silent about every failure: an error would disturb the line.

use std::{collections::BTreeSet, env, ffi::OsString, path::PathBuf, time::Duration};

use clap_complete::{
    ArgValueCompleter, CompletionCandidate, Shell,
    env::{CompleteEnv, Shells},
};
use strategies::Registry;
use tokio::time::timeout;

use super::gather::{GATHERED, gather};
use crate::{
    commands::Operator,
    config::{Config, OperatorConfig, Sources},
    error::Error,
    program::program,
};

/// Not the usual name: a worker that inherits this variable by mistake would not run.
const VARIABLE: &str = "DR_COMPLETE";

/// A person waits.
const LONGEST: Duration = Duration::from_secs(1);

/// The elections that are read for the names of members.
const ELECTIONS: usize = 16;

/// Completes the line and ends the process, if a shell has asked for that.
pub(super) fn complete(registry: &Registry) {
    CompleteEnv::with_factory(|| completing(super::command(), registry)).var(VARIABLE).complete();
}

/// The script that makes a shell ask this program.
pub(super) fn script(shell: Shell) -> Result<String, Error> {
    let (program, mut script) = (program(), Vec::new());
    let shells = Shells::builtins();
    let unknown = || Error::Internal(format!("no completions for {shell}"));
    let completer = shells.completer(&shell.to_string()).ok_or_else(unknown)?;
    let written = completer.write_registration(VARIABLE, &program, &program, &program, &mut script);
    written.map_err(|error| Error::Internal(error.to_string()))?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// What an argument names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArgumentKind {
    Job,
    Site,
    Member,
}

impl ArgumentKind {
    /// By the word that its help text shows.
    fn of(argument: &clap::Arg) -> Option<Self> {
        match argument.get_value_names()?.first()?.as_str() {
            "JOB" => Some(Self::Job),
            "SITE" | "SITE,SITE.." => Some(Self::Site),
            "MEMBER" => Some(Self::Member),
            _ => None,
        }
    }
}

fn completing(command: clap::Command, registry: &Registry) -> clap::Command {
    let for_sets = registry.clone();
    let sets = ArgValueCompleter::new(move |current: &std::ffi::OsStr| settable(current, &for_sets));
    let command = command.mut_arg("sets", |argument| argument.add(sets));
    command.mut_subcommands(|verb| {
        // It creates what the others name.
        if verb.get_name() == "init" {
            return verb;
        }
        verb.mut_args(|argument| match ArgumentKind::of(&argument) {
            Some(named) => {
                let registry = registry.clone();
                argument.add(ArgValueCompleter::new(move |current: &std::ffi::OsStr| {
                    let current = current.to_string_lossy();
                    let all = candidates(named, &registry).unwrap_or_default();
                    all.into_iter()
                        .filter(|name| name.starts_with(&*current))
                        .map(CompletionCandidate::new)
                        .collect()
                }))
            }
            None => argument,
        })
    })
}

/// The keys of the configuration that begin like this, as settings without a value.
fn settable(current: &std::ffi::OsStr, registry: &Registry) -> Vec<CompletionCandidate> {
    let jobs = candidates(ArgumentKind::Job, registry).unwrap_or_default();
    let jobs: Vec<_> = jobs.iter().map(String::as_str).collect();
    let current = current.to_string_lossy();
    let keys = Config::described_keys(&jobs).into_iter().filter(|(key, _)| key.starts_with(&*current));
    let candidate = |(key, sentence): (String, &str)| {
        let help = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
        CompletionCandidate::new(format!("{key}=")).help(Some(help.into()))
    };
    keys.map(candidate).collect()
}

/// The names that the configuration has. If they are not there, those that ZooKeeper has.
fn candidates(named: ArgumentKind, registry: &Registry) -> Option<BTreeSet<String>> {
    let (paths, sets) = settings(env::args_os().skip_while(|word| word != "--").skip(1));
    let sources = Sources::with_environment(paths, sets).with_registry(registry.clone());
    let config = OperatorConfig::load(&sources).ok()?;
    let configured: BTreeSet<_> = match named {
        ArgumentKind::Job => config.jobs.keys().cloned().collect(),
        ArgumentKind::Site => {
            let policies = config.jobs.values().chain([&config.policy]);
            policies.flat_map(|policy| &policy.who.site_policy.sites).map(ToString::to_string).collect()
        }
        ArgumentKind::Member => BTreeSet::new(),
    };
    if !configured.is_empty() {
        return Some(configured);
    }
    let runtime = tokio::runtime::Runtime::new().ok()?;
    let read = runtime.block_on(async { timeout(LONGEST, read(named, &sources)).await });
    runtime.shutdown_background();
    read.ok()?.ok()
}

async fn read(named: ArgumentKind, sources: &Sources) -> Result<BTreeSet<String>, Error> {
    let operator = Operator::connect_silently(sources).await?;
    let elections = operator.elections().await?;
    let mut names = BTreeSet::new();
    if named == ArgumentKind::Job {
        names.extend(elections);
    } else {
        let observer = operator.observer().await?;
        for election in elections.iter().take(ELECTIONS) {
            for member in observer.snapshot(&operator.paths(election)?).await?.members {
                names.insert(match named {
                    ArgumentKind::Member => member.member.to_string(),
                    _ => member.site.to_string(),
                });
            }
        }
    }
    operator.close().await;
    Ok(names)
}

/// The files and settings of a command line.
fn settings(line: impl Iterator<Item = OsString>) -> (Vec<PathBuf>, Vec<String>) {
    let (mut paths, mut sets) = (Vec::new(), Vec::new());
    let mut words = gather(line).into_iter().skip(1);
    while let Some(word) = words.next() {
        let word = word.to_string_lossy().into_owned();
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option.to_owned(), value.to_owned()),
            None if GATHERED.contains(&word.as_str()) => {
                (word, words.next().unwrap_or_default().to_string_lossy().into_owned())
            }
            // They are the first ones.
            None => break,
        };
        match option.as_str() {
            "--config" => paths.push(value.into()),
            "--set" => sets.push(value),
            _ => break,
        }
    }
    (paths, sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_where_the_configuration_is() {
        let of = |line: &str| {
            let (paths, sets) = settings(line.split(' ').map(OsString::from));
            let paths = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ");
            format!("{paths}|{}", sets.join(" "))
        };
        assert_eq!(of("dr-worker list --job "), "|");
        assert_eq!(of("dr-worker --config a --set x=1 list --config=b --job "), "a b|x=1");
        assert_eq!(of("dr-worker switchover --to e --config"), "|");
    }

    #[test]
    fn every_argument_that_names_something_is_completed() {
        let command = completing(super::super::command(), &Registry::default());
        let mut found = BTreeSet::new();
        for verb in command.get_subcommands() {
            for argument in verb.get_arguments() {
                let is_completed = argument.get::<ArgValueCompleter>().is_some();
                assert_eq!(is_completed, ArgumentKind::of(argument).is_some() && verb.get_name() != "init");
                if is_completed {
                    found.insert(format!("{} {}", verb.get_name(), argument.get_id()));
                }
            }
        }
        let sets = command.get_arguments().find(|argument| argument.get_id() == "sets").unwrap();
        assert!(sets.get::<ArgValueCompleter>().is_some());
        for expected in ["list job", "switchover to", "switchover to_site", "drain site", "simulate without"]
        {
            assert!(found.contains(expected), "{expected} is not in {found:?}");
        }
    }
}
