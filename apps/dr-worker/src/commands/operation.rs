//! An operation of an operator: its arguments, what it asks of an election, and its outcome.
//!
//! It is declared once, as an [`Operation`] in [the list](super::operations::ALL). The verb of the command line, the HTTP
//! endpoint, `/openapi.json` and the reference are made of it.
//!
//! ```text
//! command line ─┐                        ┌ Request: filed, followed until its end    ┐
//!               ├ arguments ─ ask ─ Ask ─┼ Order: compare-and-set of the orders      ├ Report: JSON, text, notes
//! body by HTTP ─┘                        └ Deed: carried out at once                 ┘
//! ```

use std::collections::BTreeSet;

use clap::{ArgMatches, Args, Command};
use election_admin::{
    Snapshot,
    orders::{self, Ordered},
};
use election_core::{
    Paths,
    config::SiteId,
    internals::record::{AdminRequest, Control, OrderedBy, Outgoing, RequestKind, Target},
};
use futures_util::future::{BoxFuture, FutureExt as _};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::Value;

use super::election::Operator;
use crate::{error::Error, schema::schema_of, wall::unix_ms};

/// The election that an operation is about, and who asks.
pub(crate) struct Election<'a> {
    pub(crate) operator: &'a Operator,
    pub(crate) job: &'a str,
    pub(crate) paths: Paths,
    pub(crate) author: Author<'a>,
}

/// Who asks and why, for the records.
#[derive(Clone, Copy)]
pub(crate) struct Author<'a> {
    pub(crate) by: &'a str,
    pub(crate) reason: Option<&'a str>,
}

impl Author<'_> {
    pub(crate) fn ordered_now(self) -> OrderedBy {
        let (reason, by) = (self.reason.map(str::to_owned), self.by.to_owned());
        OrderedBy { reason, by, at_ms: unix_ms() }
    }

    /// A request that any fit member carries out.
    pub(crate) fn request(self, kind: RequestKind, from: Outgoing) -> AdminRequest {
        let (reason, by) = (self.reason.map(str::to_owned), self.by.to_owned());
        election_admin::new_request(kind, from, Target::Any, false, reason, by)
    }
}

impl<'a> Election<'a> {
    pub(crate) fn new(operator: &'a Operator, job: &'a str, author: Author<'a>) -> Result<Self, Error> {
        Ok(Self { operator, job, paths: operator.paths(job)?, author })
    }

    pub(crate) async fn snapshot(&self) -> Result<Snapshot, Error> {
        Ok(self.operator.observer().await?.snapshot(&self.paths).await?)
    }
}

/// Something that an operator can ask of an election.
///
/// The type is its arguments, and the sentence about the type its help. The fields of the body by HTTP are the arguments by
/// their ids, under the same rules.
pub(crate) trait Operation: Args + Send + Sync + 'static {
    /// What is sent as JSON.
    type Outcome: Outcome;

    /// Checks the arguments alone, before anything is read.
    ///
    /// # Errors
    /// What is wrong with them.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Checks it against the election, and says what is to be done. It changes nothing.
    ///
    /// # Errors
    /// Why it can't be carried out there.
    fn ask<'a>(
        &'a self,
        of: &'a Election<'a>,
    ) -> impl Future<Output = Result<Ask<'a, Self::Outcome>, Error>> + Send;
}

/// The headings of `--help`.
pub(crate) const MOVE: &str = "Move leadership";
pub(crate) const HOLD: &str = "Hold";
pub(crate) const RECOVER: &str = "Recover";

/// The options of the command line that an operation takes.
#[derive(Clone, Copy)]
pub(crate) struct Takes {
    pub(crate) jobs: Jobs,
    /// `--reason`
    pub(crate) reason: bool,
    /// `--yes`: it can be dangerous.
    pub(crate) yes: bool,
    /// `--dry-run`
    pub(crate) dry_run: bool,
    /// `--wait` and `--timeout`, and what is waited for.
    pub(crate) wait: Option<&'static str>,
}

impl Takes {
    /// A job, and nothing else.
    pub(crate) const ONE_JOB: Self =
        Self { jobs: Jobs::One, reason: false, yes: false, dry_run: false, wait: None };
    /// What every standing order takes.
    pub(crate) const ORDER: Self =
        Self { jobs: Jobs::Governed, reason: true, wait: Some(OBEYED), ..Self::ONE_JOB };
}

const OBEYED: &str = "Wait until leaders have moved, if they must.

Exit code 75 if that is not done in time; the order stays in force.";

/// The jobs that an operation is about on the command line. By HTTP it is about one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Jobs {
    /// `--job`, by default the only one.
    One,
    /// The same, or `--all`.
    Chosen,
    /// The same; of `--all` those that have an elector.
    Governed,
    /// `--job`, by default all that have an elector and know the member.
    OfMember,
    /// It is about all elections of the root at once, and has its own arguments that name some: [`PLANS`](crate::znodes::PLANS) is its election.
    OfRoot,
}

/// What an operation asks of an election.
pub(crate) enum Ask<'a, O> {
    /// The elector or the leader carries it out.
    Request(AdminRequest),
    /// A change of the standing orders.
    Order(Order<'a, O>),
    /// It is carried out at once, when the future is polled.
    Deed(Option<Question>, BoxFuture<'a, Result<Report<O>, Error>>),
    /// The election has nothing to do with it: there is no such name.
    Unknown(UnknownName),
}

/// A name that an election does not have.
pub(crate) struct UnknownName {
    /// That it is unknown, as text.
    pub(crate) why: String,
    /// What the election has instead.
    pub(crate) known: BTreeSet<String>,
}

impl From<UnknownName> for Error {
    fn from(UnknownName { why, known }: UnknownName) -> Self {
        let known: Vec<_> = known.into_iter().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Self::Usage(format!("{why}{known}"))
    }
}

/// What an operator is asked before something dangerous.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) what: String,
    /// A script, or a client by HTTP, must say yes. Otherwise only people are asked.
    pub(crate) needs_yes: bool,
}

/// A change of the standing orders.
pub(crate) struct Order<'a, O> {
    /// The command, as text.
    pub(crate) what: String,
    pub(crate) question: Option<Question>,
    pub(crate) change: OrderChange<'a>,
    /// This site is not failed, even if its members report it.
    pub(crate) overrules: Option<&'a SiteId>,
    pub(crate) report: Reporting<'a, O>,
}

/// Changes the orders that are in force, again after each lost race. An error leaves them as they are.
pub(crate) type OrderChange<'a> = Box<dyn FnMut(&mut Control) -> Result<(), Error> + Send + 'a>;

type Reporting<'a, O> = Box<dyn FnOnce(&Ordered) -> Report<O> + Send + 'a>;

impl<'a, O> Order<'a, O> {
    /// An order that is not dangerous.
    pub(crate) fn new(
        what: String,
        change: OrderChange<'a>,
        report: impl FnOnce(&Ordered) -> Report<O> + Send + 'a,
    ) -> Self {
        Self { what, question: None, change, overrules: None, report: Box::new(report) }
    }

    /// Gives the order. Returns its report, and how often the orders of this election have been changed.
    ///
    /// # Errors
    /// Why it was not given.
    pub(crate) async fn give(mut self, of: &Election<'_>) -> Result<(Report<O>, u64), Error> {
        let (session, Author { by, reason }) = (&of.operator.session, of.author);
        let mut refused = Ok(());
        let change = |control: &mut Control| refused = (self.change)(control);
        let ordered = orders::order(session, &of.paths, by, reason, change).await?;
        refused?;
        let overruled = match self.overrules {
            Some(site) => orders::overrule_site(session, &of.paths, site, by).await?.then_some(site),
            None => None,
        };
        let mut report = (self.report)(&ordered);
        report.notes.extend(overruled.map(|site| {
            format!(
                "{}: members of site {site} report it as failed; this is ignored until they report it as healthy",
                of.job
            )
        }));
        Ok((report, ordered.changes))
    }
}

/// What an operation reports.
pub(crate) struct Report<O> {
    /// For programs.
    pub(crate) outcome: O,
    /// For people.
    pub(crate) text: String,
    /// What people should know beside it.
    pub(crate) notes: Vec<String>,
}

impl<O> Report<O> {
    pub(crate) fn new(outcome: O, text: String) -> Self {
        Self { outcome, text, notes: Vec::new() }
    }
}

/// What an operation sends as JSON.
pub(crate) trait Outcome: Serialize + JsonSchema + Send + Sized + 'static {
    /// It is that of a standing order, which has an id by HTTP.
    const IS_ORDER: bool = false;

    /// What is answered by HTTP: each status, with the schema of its body.
    fn answers() -> Vec<(u16, Schema)> {
        if Self::IS_ORDER {
            vec![(202, schema_of::<Given<Self>>())]
        } else {
            vec![(200, schema_of::<Self>())]
        }
    }
}

/// A standing order by HTTP.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Given<O> {
    /// The id of the change, for `/requests/{id}`.
    pub(crate) request: String,
    pub(crate) outcome: Done,
    #[serde(flatten)]
    pub(crate) order: O,
}

/// The outcome of what is done at once.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub(crate) enum Done {
    Done,
}

/// An [`Operation`] of any type, with its arguments.
pub(crate) trait Asking: Send + Sync {
    /// As [`Operation::check`].
    fn check(&self) -> Result<(), Error>;

    /// As [`Operation::ask`].
    fn ask<'a>(&'a self, of: &'a Election<'a>) -> BoxFuture<'a, Result<Ask<'a, Value>, Error>>;
}

impl<T: Operation> Asking for T {
    fn check(&self) -> Result<(), Error> {
        Operation::check(self)
    }

    fn ask<'a>(&'a self, of: &'a Election<'a>) -> BoxFuture<'a, Result<Ask<'a, Value>, Error>> {
        async move { Operation::ask(self, of).await.map(Ask::erased) }.boxed()
    }
}

impl<'a, O: Outcome> Ask<'a, O> {
    fn erased(self) -> Ask<'a, Value> {
        match self {
            Self::Request(request) => Ask::Request(request),
            Self::Order(Order { what, question, change, overrules, report }) => Ask::Order(Order {
                what,
                question,
                change,
                overrules,
                report: Box::new(|ordered| report(ordered).erased()),
            }),
            Self::Deed(question, work) => {
                Ask::Deed(question, work.map(|report| report.map(Report::erased)).boxed())
            }
            Self::Unknown(name) => Ask::Unknown(name),
        }
    }
}

impl<O: Outcome> Report<O> {
    fn erased(self) -> Report<Value> {
        // Structures with names of fields as keys are always JSON.
        let outcome = serde_json::to_value(self.outcome).unwrap_or_default();
        Report { outcome, text: self.text, notes: self.notes }
    }
}

/// An [`Operation`] in the list of all.
#[derive(Clone, Copy)]
pub(crate) struct Declared {
    /// Its name on the command line, and its path by HTTP.
    pub(crate) verb: &'static str,
    pub(crate) heading: &'static str,
    pub(crate) takes: Takes,
    /// Adds its own arguments.
    augment: fn(Command) -> Command,
    pub(crate) read: fn(&ArgMatches) -> Result<Box<dyn Asking>, clap::Error>,
    pub(crate) answers: fn() -> Vec<(u16, Schema)>,
}

impl Declared {
    pub(crate) const fn of<T: Operation>(verb: &'static str, heading: &'static str, takes: Takes) -> Self {
        Self {
            verb,
            heading,
            takes,
            augment: T::augment_args,
            read: |matches| Ok(Box::new(T::from_arg_matches(matches)?)),
            answers: T::Outcome::answers,
        }
    }

    /// Its verb with its own arguments.
    pub(crate) fn command(&self) -> Command {
        (self.augment)(Command::new(self.verb))
    }
}
