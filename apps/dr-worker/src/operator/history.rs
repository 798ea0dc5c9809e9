use election_admin::ReadError;

use super::{
    output::{self, Accent, Output},
    table::Column,
};
use crate::{commands::Operator, config::Sources, error::Error, view::History};

/// `history`
#[derive(Debug, clap::Args)]
pub(super) struct HistoryArguments {
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Show the last N only.
    #[arg(short = 'n', long = "lines", value_name = "N")]
    lines: Option<usize>,
}

pub(super) async fn run(arguments: &HistoryArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let mut history =
        Operator::with(sources, async |operator| read(operator, arguments.job.as_deref()).await).await?;
    let excess = history.leaderships.len().saturating_sub(arguments.lines.unwrap_or(usize::MAX));
    let is_unreadable = history.leaderships.is_empty() && !history.unreadable.is_empty();
    history.leaderships.drain(..excess);
    for unreadable in &history.unreadable {
        output::print_warning(format_args!("{}: {}", unreadable.path, unreadable.why));
    }
    match how {
        Output::Json => output::print_json(&history)?,
        Output::Pretty => print(&history)?,
    }
    if is_unreadable {
        return Err(Error::Failed("the history could not be read".to_owned()));
    }
    Ok(())
}

async fn read(operator: &Operator, job: Option<&str>) -> Result<History, Error> {
    let job = operator.one(job).await?;
    let paths = operator.paths(&job)?;
    let observer = operator.observer().await?;
    if observer.layout(&paths).await?.is_none() {
        return Err(ReadError::NoElection(paths.base().to_owned()).into());
    }
    let (leaderships, unreadable) = observer.history(&paths).await?;
    Ok(History { election: job, leaderships, unreadable })
}

fn span_or_dash(ms: Option<u64>) -> String {
    ms.map_or_else(|| "-".to_owned(), output::span)
}

fn print(history: &History) -> Result<(), Error> {
    if history.leaderships.is_empty() {
        output::print_progress(format_args!("{}: no leadership yet", history.election));
        return Ok(());
    }
    let several = history.leaderships.iter().any(|row| row.slot > 0);
    let rows: Vec<_> = history
        .leaderships
        .iter()
        .map(|row| {
            let phases = &row.phases;
            let mut cells = vec![
                row.term.to_string(),
                crate::wall::moment(row.ready_ms),
                row.member.to_string(),
                row.site.to_string(),
                row.cause.to_string(),
                row.previous.as_ref().map_or_else(|| "-".to_owned(), |previous| previous.member.to_string()),
                row.fencing_token.to_string(),
                span_or_dash(phases.decide_ms),
                span_or_dash(phases.release_ms),
                span_or_dash(phases.acquire_ms),
                span_or_dash(phases.takeover_ms),
                row.sentence.clone(),
            ];
            if several {
                cells.insert(1, row.slot.to_string());
            }
            (cells, Accent::None)
        })
        .collect();
    let mut columns = vec![
        Column::key("TERM"),
        Column::key("READY"),
        Column::key("LEADER"),
        Column::key("SITE"),
        Column::key("CAUSE"),
        Column::detail("BEFORE", 0),
        Column::detail("TOKEN", 0),
        Column::detail("DECIDE", 1),
        Column::detail("RELEASE", 1),
        Column::detail("ACQUIRE", 1),
        Column::detail("TAKEOVER", 1),
        Column::detail("REASON", 2),
    ];
    if several {
        columns.insert(1, Column::key("SLOT"));
    }
    output::print(output::table(&columns, &rows))
}
