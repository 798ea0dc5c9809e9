//! The operations as verbs of the command line.

use std::collections::BTreeSet;

use clap::{ArgMatches, Command, FromArgMatches, Subcommand, error::ErrorKind};
use serde_json::Value;

use super::{
    consent::Consent,
    dry_run, evacuation,
    obeyed::until_obeyed,
    output::{self, Output},
    request,
};
use crate::{
    commands::{
        Operator, Which, asker,
        operation::{Ask, Asking, Author, Declared, Election, Jobs, Question, Report, UnknownName},
        operations::ALL,
        options::Options,
    },
    config::Sources,
    error::Error,
    znodes::PLANS,
};

/// The operation of a command line.
pub(super) struct Chosen {
    declared: &'static Declared,
    operation: Box<dyn Asking>,
    options: Options,
}

impl FromArgMatches for Chosen {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let found = matches.subcommand().and_then(|(verb, of)| Some((find(verb)?, of)));
        let (declared, matches) = found.ok_or_else(|| clap::Error::new(ErrorKind::InvalidSubcommand))?;
        let (operation, options) = ((declared.read)(matches)?, Options::read(matches));
        Ok(Self { declared, operation, options })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Chosen {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(ALL.iter().map(Declared::full_command))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        find(name).is_some()
    }
}

fn find(verb: &str) -> Option<&'static Declared> {
    ALL.iter().find(|declared| declared.verb == verb)
}

/// Carries it out in each job that it is about, and prints what is reported.
pub(super) async fn carry_out(chosen: &Chosen, sources: &Sources, how: Output) -> Result<(), Error> {
    chosen.operation.check()?;
    Operator::with(sources, async |operator| chosen.carry_out(operator, how).await).await
}

impl Chosen {
    async fn jobs(&self, operator: &Operator) -> Result<Vec<String>, Error> {
        let Options { job, all, .. } = &self.options;
        let which = match job {
            Some(job) => Which::Named(job),
            None if *all || self.declared.takes.jobs == Jobs::OfMember => Which::All,
            None => Which::Only,
        };
        match self.declared.takes.jobs {
            Jobs::One => Ok(vec![operator.one(job.as_deref()).await?]),
            Jobs::Chosen => operator.chosen(which).await,
            Jobs::OfRoot => Ok(vec![PLANS.to_owned()]),
            Jobs::Governed | Jobs::OfMember => operator.governed(which).await,
        }
    }

    async fn carry_out(&self, operator: &Operator, how: Output) -> Result<(), Error> {
        let (by, jobs) = (asker(), self.jobs(operator).await?);
        let author = Author { by: &by, reason: self.options.reason.as_deref() };
        let elections: Result<Vec<_>, Error> =
            jobs.iter().map(|job| Election::new(operator, job, author)).collect();
        let elections = elections?;
        // A mistyped name is found before anything is changed.
        let (mut asked, mut unknown) = (Vec::new(), None::<UnknownName>);
        for of in &elections {
            match self.operation.ask(of).await? {
                Ask::Unknown(name) => match &mut unknown {
                    Some(unknown) => unknown.known.extend(name.known),
                    None => unknown = Some(name),
                },
                ask => asked.push((of, ask)),
            }
        }
        if let Some(unknown) = unknown.filter(|_| asked.is_empty()) {
            return Err(unknown.into());
        }
        let Options { dry_run, wait, timeout, .. } = self.options;
        if !dry_run {
            self.confirm(asked.iter().map(|(_, ask)| ask))?;
        }
        let mut ordered = Vec::new();
        for (of, ask) in asked {
            match ask {
                Ask::Request(request) => request::carry_out(of, request, &self.options, how).await?,
                Ask::Order(mut order) if dry_run => {
                    let mut snapshot = of.snapshot().await?;
                    (order.change)(&mut snapshot.control)?;
                    dry_run::show(operator, of.job, &order.what, &snapshot, false, how)?;
                }
                Ask::Order(order) => {
                    print(order.give(of).await?.0, how)?;
                    ordered.push(of.job);
                }
                Ask::Deed(_, work) if wait && self.declared.takes.jobs == Jobs::OfRoot => {
                    let Report { outcome, notes, .. } = work.await?;
                    // It is followed already.
                    notes
                        .into_iter()
                        .filter(|note| !note.contains("--wait"))
                        .for_each(output::print_progress);
                    evacuation::follow(of, &outcome, timeout, how).await?;
                }
                Ask::Deed(_, work) => print(work.await?, how)?,
                Ask::Unknown(name) => return Err(name.into()),
            }
        }
        for job in ordered.into_iter().filter(|_| wait) {
            until_obeyed(operator, job, timeout).await?;
        }
        Ok(())
    }

    /// Asks for confirmation of what is dangerous, once of each thing.
    fn confirm<'a>(&self, asked: impl Iterator<Item = &'a Ask<'a, Value>>) -> Result<(), Error> {
        let consent = Consent { yes: self.options.yes };
        let questions = asked.filter_map(|ask| match ask {
            Ask::Order(order) => order.question.as_ref(),
            Ask::Deed(question, _) => question.as_ref(),
            Ask::Request(_) | Ask::Unknown(_) => None,
        });
        let mut seen = BTreeSet::new();
        for Question { what, needs_yes } in questions.filter(|question| seen.insert(&question.what)) {
            if *needs_yes { consent.require(what)? } else { consent.ask(what)? }
        }
        Ok(())
    }
}

fn print(report: Report<Value>, how: Output) -> Result<(), Error> {
    if how == Output::Json {
        return output::print_json(&report.outcome);
    }
    output::print(report.text)?;
    report.notes.into_iter().for_each(output::print_progress);
    Ok(())
}
