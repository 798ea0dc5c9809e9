//! `emergency-lead`: the job on this node without ZooKeeper, while no quorum answers.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use election_core::{Paths, internals::text::Text};
use job_guard::{LockError, StateLock, lock_path};
use nix::unistd::{Uid, User};
use serde_json::json;

use super::{
    consent::Consent,
    output::{self, Output},
};
use crate::{
    commands::{Operator, asker},
    config::{Config, JobConfig, NodeConfig, Sources, ZooKeeperConfig},
    connect::connect,
    error::Error,
    signals::Signals,
    view::ProblemRow,
    wall::unix_ms,
    worker::{
        emergency::{
            Newest, NewestFile, Record, Records,
            decision::{self, EmergencyFacts, Ensemble, Grant},
        },
        run::{alone, sweep_all},
    },
};

/// How long a quorum of ZooKeeper may take to answer.
const QUORUM_WITHIN: Duration = Duration::from_secs(10);

/// How often ZooKeeper is asked while the job runs without it.
const ASK_AGAIN: Duration = Duration::from_secs(20);

const FAREWELL: Duration = Duration::from_millis(500);

/// `emergency-lead`
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["i_accept_split_brain", "clear"]))]
pub(super) struct EmergencyArguments {
    /// Run the job although another member may run it.
    #[arg(long)]
    i_accept_split_brain: bool,
    /// Let the worker of this node rejoin the election.
    ///
    /// Needs a quorum of ZooKeeper whose tokens are above that of the emergency leadership.
    #[arg(long, conflicts_with_all = ["reason", "fenced", "token_above"])]
    clear: bool,
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<Text>,
    /// Sentence that confirms what is fenced by hand.
    ///
    /// A terminal asks for it. Without a terminal, the command without this option prints it.
    #[arg(long, value_name = "SENTENCE")]
    fenced: Option<String>,
    /// Newest token that the job's resource has seen.
    ///
    /// Needed if this node has kept none, or if ZooKeeper's layout of transaction ids has changed since. The job's token is
    /// above it and above what is kept.
    #[arg(long, value_name = "TOKEN")]
    token_above: Option<u64>,
}

impl EmergencyArguments {
    /// Whether it runs until it is stopped.
    pub(super) fn is_daemon(&self) -> bool {
        !self.clear
    }
}

/// `emergency-lead`
pub(super) async fn run(arguments: &EmergencyArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    if arguments.clear { clear(arguments, sources, how).await } else { lead(arguments, sources).await }
}

async fn lead(arguments: &EmergencyArguments, sources: &Sources) -> Result<(), Error> {
    let config = Config::load(sources)?;
    config.check_node()?;
    let job = chosen(&config.jobs, arguments.job.as_deref())?;
    let (name, node) = (job.name(), &config.node);
    let paths = Paths::new(&config.zookeeper.root, name)
        .map_err(|wrong| Error::Setting { key: "job", message: wrong.to_string() })?;
    check_id(&node.state_dir, node.id.as_str())?;
    let lock = locked(&node.state_dir, node.id.as_str(), "systemctl stop dr-worker")?;
    let (records, kept) = (Records::beside(lock.path()), NewestFile::beside(lock.path(), name));
    let record = records.read()?.remove(name);
    let newest = newest(&kept, arguments.token_above)?;
    let facts = EmergencyFacts {
        job: name,
        newest: newest.as_ref(),
        record: record.as_ref(),
        above: arguments.token_above,
        now_s: unix_ms() / 1000,
    };
    let grant = facts.grant()?;
    let sentence =
        decision::sentence(&node.id, &node.site, &job.policy.who.site_policy.sites, newest.as_ref());
    let asks = has_to_ask(&sentence, arguments.fenced.as_deref())?;
    output::print_progress(format_args!(
        "asking ZooKeeper for a quorum, for {} s at most",
        QUORUM_WITHIN.as_secs()
    ));
    decision::may_start(name, has_quorum(&config.zookeeper).await?)?;
    output::print_warning(decision::warning(name, node.id.as_str(), &grant, &sentence));
    if asks {
        ask_for(&sentence)?;
        // That may have taken a while.
        decision::may_start(name, has_quorum(&config.zookeeper).await?)?;
    }
    sweep_all(&config, &lock).await?;
    let began = Record {
        job: name.to_owned(),
        election: paths.base().to_owned(),
        member: node.id.to_string(),
        by: asker(),
        reason: arguments.reason.clone().map(Text::into_string),
        fenced: sentence,
        term: grant.term,
        token: grant.token,
        began_ms: unix_ms(),
        ended_ms: None,
    };
    let signals = Signals::new().map_err(|e| Error::Internal(format!("no signals: {e}")))?;
    records.put(began.clone())?;
    kept.add(Newest::given(grant.term, grant.token))
        .map_err(|error| Error::Failed(format!("can't write {}: {error}", kept.path().display())))?;
    let Grant { token, above, .. } = grant;
    let Record { by, fenced, reason, .. } = &began;
    let reason = reason.as_deref().unwrap_or_default();
    tracing::warn!(
        job = name,
        token,
        above,
        by,
        fenced,
        reason,
        "emergency leadership without ZooKeeper begins"
    );
    let asking = tokio::spawn(watch_for_quorum(config.zookeeper.clone(), name.to_owned()));
    // The lock protects the record until its end is written.
    let led = alone::lead(&config, job, lock.clone(), &grant, reason, signals).await;
    asking.abort();
    let ended = Record { ended_ms: Some(unix_ms()), ..began };
    tracing::warn!(job = name, token, "emergency leadership has ended; the job has stopped");
    output::print_progress(format_args!(
        "{}. Once ZooKeeper has a quorum: {}",
        ended.sentence(),
        ended.commands()
    ));
    records.put(ended)?;
    led
}

/// The newest leadership that this node has kept.
fn newest(kept: &NewestFile, token_above: Option<u64>) -> Result<Option<Newest>, Error> {
    match (kept.read(), token_above) {
        (Ok(newest), _) => Ok(newest),
        // The operator knows more.
        (Err(_), Some(_)) => Ok(None),
        (Err(error), None) => {
            let path = kept.path().display();
            Err(Error::Failed(format!("{path} can't be read: {error}; give --token-above N instead")))
        }
    }
}

/// The named job, or the only one.
fn chosen<'a>(jobs: &'a [JobConfig], name: Option<&str>) -> Result<&'a JobConfig, Error> {
    let names = || jobs.iter().map(JobConfig::name).collect::<Vec<_>>().join(", ");
    match (name, jobs) {
        (Some(name), _) => jobs.iter().find(|job| job.name() == name).ok_or_else(|| {
            Error::Usage(format!(
                "unknown job {name:?}: not configured on this node; configured: {}",
                names()
            ))
        }),
        (None, [only]) => Ok(only),
        (None, _) => Err(Error::Usage(format!("which job? {} (--job JOB)", names()))),
    }
}

/// Refuses an id of which no worker has run here, if workers of others have. Lock, tokens and record go by the id, and the
/// service may get it from an environment that this command does not have. Several workers may share the directory.
fn check_id(state_dir: &Path, member: &str) -> Result<(), Error> {
    if lock_path(state_dir, member).exists() {
        return Ok(());
    }
    let paths = fs::read_dir(state_dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let locks = paths.filter(|path| path.extension().is_some_and(|extension| extension == "lock"));
    let mut others: Vec<_> =
        locks.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
    if others.is_empty() {
        return Ok(());
    }
    others.sort();
    Err(Error::Failed(format!(
        "no worker with the id {member} has run here: {} has no lock of it, but of {}. The service may get node.id from an \
         environment that this command does not have: set node.id in a *.toml file, or run this command with that \
         environment (docs/lost-quorum.md). If {member} is right, start its worker once and stop it; nothing was changed",
        state_dir.display(),
        others.join(", ")
    )))
}

/// The lock of this node's worker, as its user: files of another one would be useless to the worker.
fn locked(state_dir: &Path, member: &str, stop: &str) -> Result<StateLock, Error> {
    let owner = fs::metadata(state_dir).map(|metadata| Uid::from_raw(metadata.uid()));
    if let Some(owner) = owner.ok().filter(|owner| *owner != Uid::effective()) {
        let name = User::from_uid(owner).ok().flatten().map_or_else(|| owner.to_string(), |user| user.name);
        return Err(Error::Failed(format!(
            "{} belongs to user {name}, the worker's user: run this command as that user, \
             with the environment of its service (docs/lost-quorum.md); nothing was changed",
            state_dir.display()
        )));
    }
    StateLock::acquire(state_dir, member).map_err(|error| match error {
        LockError::Held { pid, .. } => {
            let pid = pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
            Error::NotNow(format!(
                "the worker of {member} runs on this node{pid}, or its guards are still ending a job: stop it first \
                 ({stop}); nothing was changed"
            ))
        }
        other => other.into(),
    })
}

/// Whether a quorum of ZooKeeper answers in a short time: a session and a round trip through it need one.
async fn has_quorum(config: &ZooKeeperConfig) -> Result<bool, Error> {
    let config = ZooKeeperConfig { connect_timeout: QUORUM_WITHIN, ..config.clone() };
    let asked = tokio::time::timeout(QUORUM_WITHIN, async {
        let session = connect(&config, None, None).await?;
        let active = session.active().await.map_err(|e| Error::Unreachable(e.to_string()))?;
        let answered = active.barrier().await;
        let _ = session.close(FAREWELL).await;
        Ok::<_, Error>(answered.map(drop)?)
    });
    match asked.await {
        Ok(Ok(())) => Ok(true),
        Ok(Err(Error::Unreachable(_))) | Err(_) => Ok(false),
        // Such as credentials that a quorum has refused.
        Ok(Err(other)) => Err(other),
    }
}

/// Reports that ZooKeeper works again, each time that it is asked.
async fn watch_for_quorum(config: ZooKeeperConfig, job: String) {
    loop {
        tokio::time::sleep(ASK_AGAIN).await;
        if matches!(has_quorum(&config).await, Ok(true)) {
            tracing::error!(
                job,
                "ZooKeeper has a quorum again: another member may lead now, and the job runs twice. Stop this leadership \
                 (SIGTERM or Ctrl-C), raise the tokens and clear its record"
            );
        }
    }
}

/// Checks the sentence on the command line. Returns whether a terminal has to ask for it instead.
fn has_to_ask(sentence: &str, given: Option<&str>) -> Result<bool, Error> {
    match given {
        Some(given) if decision::is_confirmed(sentence, given) => Ok(false),
        Some(_) => Err(Error::Usage(format!(
            "--fenced does not confirm what has to be fenced; nothing was changed. The sentence is: {sentence}"
        ))),
        None if Consent::can_ask() => Ok(true),
        None => Err(Error::Usage(format!(
            "fence by hand what this sentence names, and confirm it: --fenced '{sentence}'; nothing was changed"
        ))),
    }
}

/// Has the operator type the sentence.
fn ask_for(sentence: &str) -> Result<(), Error> {
    let typed = Consent::answer("Type this sentence to confirm it: ")?;
    match decision::is_confirmed(sentence, &typed) {
        true => Ok(()),
        false => Err(Error::Failed("not confirmed; nothing was changed".to_owned())),
    }
}

async fn clear(arguments: &EmergencyArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let (id, state_dir, _) = NodeConfig::load_local(sources)?;
    check_id(&state_dir, id.as_str())?;
    let records = Records::beside(&lock_path(&state_dir, id.as_str()));
    let mut all = records.read()?;
    if let Some(job) = &arguments.job {
        all.retain(|name, _| name == job);
    }
    if all.is_empty() {
        output::print_progress(format_args!(
            "no record of an emergency leadership on this node; nothing to clear"
        ));
        return Ok(());
    }
    let _lock = locked(&state_dir, id.as_str(), "end `emergency-lead` by SIGTERM")?;
    Operator::with(sources, async |operator| clear_all(operator, &records, all.into_values(), how).await)
        .await
}

async fn clear_all(
    operator: &Operator,
    records: &Records,
    all: impl Iterator<Item = Record>,
    how: Output,
) -> Result<(), Error> {
    for record in all {
        let paths = operator.paths(&record.job)?;
        operator.incarnation().await?.barrier().await?;
        let snapshot = operator.observer().await?.snapshot(&paths).await?;
        let tokens = (0..snapshot.leader_znodes.len()).map(|slot| snapshot.fencing_token(slot));
        let base = snapshot.token_base();
        decision::may_clear(&record, Ensemble { base, lowest: tokens.min().flatten() })?;
        records.remove(&record.job)?;
        match how {
            Output::Json => output::print_json(&json!({ "election": record.job, "cleared": record }))?,
            Output::Pretty => output::print(format_args!(
                "{}: cleared; the worker of {} may rejoin the election (systemctl start dr-worker)",
                record.job, record.member
            ))?,
        }
    }
    Ok(())
}

/// The emergency leaderships of this node, for `list`: none where its state directory can't be read.
#[derive(Debug, Default)]
pub(super) struct Local(Vec<Record>);

impl Local {
    pub(super) fn of(sources: &Sources) -> Self {
        let Ok((id, state_dir, _)) = NodeConfig::load_local(sources) else { return Self::default() };
        let records = Records::beside(&lock_path(&state_dir, id.as_str())).read();
        Self(records.unwrap_or_default().into_values().collect())
    }

    /// Those in this election, as its problems.
    pub(super) fn problems(&self, paths: &Paths) -> impl Iterator<Item = ProblemRow> {
        let here = self.0.iter().filter(|record| record.election == paths.base());
        here.map(|record| ProblemRow {
            kind: "emergency",
            sentence: record.sentence(),
            command: Some(record.commands()),
        })
    }

    /// Warns of all of them, where no election can be read.
    pub(super) fn warn(&self) {
        self.0.iter().for_each(|record| output::print_warning(record.sentence()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_sentence_is_told_the_right_one() {
        let sentence = "I have fenced: site west";
        assert!(matches!(has_to_ask(sentence, Some("I have fenced: site  west")), Ok(false)));
        let why = has_to_ask(sentence, Some("yes")).unwrap_err();
        assert!(matches!(&why, Error::Usage(told) if told.contains(sentence)), "{why}");
    }
}
