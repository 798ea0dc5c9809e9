use std::{collections::BTreeMap, os::unix::process::CommandExt as _, process::Command};

use election_admin::AdminError;
use nix::unistd::{Uid, User};
use owo_colors::OwoColorize as _;
use serde_json::json;

use super::{
    doctor,
    global::block_on,
    output::{self, Output},
};
use crate::{
    commands::Operator,
    config::{Config, Sources, Usable},
    connect::can_connect,
    error::Error,
    program::file,
    znodes::overlays,
};

/// `config check`
#[derive(Debug, clap::Args)]
pub(super) struct CheckArguments {
    /// Run `doctor` too.
    #[arg(long)]
    online: bool,
    /// User to check as.
    ///
    /// Only root can check as another user. Default: the owner of node.state_dir; before there is one, the user of
    /// dr-worker.service.
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
}

pub(super) fn check(arguments: &CheckArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let config = Config::load(sources)?;
    let me = Uid::effective();
    let name = User::from_uid(me).ok().flatten().map(|me| me.name);
    let unit = || user_of_unit().filter(|_| !config.node.state_dir.exists());
    let usual = || me.is_root().then(|| config.owner_of_state_dir().or_else(unit)).flatten();
    let other = arguments.user.clone().or_else(usual).filter(|user| Some(user) != name.as_ref());
    if let Some(user) = other {
        if !me.is_root() {
            return Err(Error::Usage(format!("--as {user}: only root can check as another user")));
        }
        return Err(check_as(&user));
    }
    config.check_node()?;
    can_connect(&config)?;
    config.check_state_dir()?;
    if let Some(warning) = config.warning_of_state_dir() {
        output::print_warning(warning);
    }
    if let Some(warning) = config.check_certificate()? {
        output::print_warning(warning);
    }
    let (node, jobs) = (&config.node, config.jobs.iter().map(|job| job.name()).collect::<Vec<_>>());
    let result = json!({ "member": node.id, "site": node.site, "jobs": jobs });
    if how == Output::Pretty {
        output::print_progress(format_args!(
            "the configuration of {} in site {} is valid: {}",
            node.id,
            node.site,
            jobs.join(", ")
        ));
    }
    match (arguments.online, how) {
        (true, _) => block_on(doctor::beside_check(result, sources, how)),
        (false, Output::Json) => output::print_json(&result),
        (false, Output::Pretty) => Ok(()),
    }
}

/// The user of the package's unit, where there is a system manager and its file.
fn user_of_unit() -> Option<String> {
    let shown = Command::new("systemctl")
        .args(["show", "-p", "User", "--value", "dr-worker.service"])
        .output()
        .ok()?;
    let user = String::from_utf8(shown.stdout).ok().filter(|_| shown.status.success())?;
    Some(user.trim().to_owned()).filter(|user| !user.is_empty())
}

/// Continues as this user, whom the worker runs as: root reads and writes what that user can't. Returns only if that is not
/// possible.
fn check_as(user: &str) -> Error {
    output::print_progress(format_args!("checked as user {user}"));
    let program = match file() {
        Ok(program) => program,
        Err(error) => return Error::Internal(format!("can't find this program: {error}")),
    };
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--as") {
        arguments.drain(at..(at + 2).min(arguments.len()));
    }
    arguments.retain(|argument| !argument.to_string_lossy().starts_with("--as="));
    let mut command = Command::new("runuser");
    let error = command.args(["-u", user, "--"]).arg(program).args(arguments).exec();
    Error::Failed(format!("can't check as user {user}: runuser: {error}"))
}

/// `config show`
#[derive(Debug, clap::Args)]
pub(super) struct ShowArguments {
    /// Include what `config push` has set.
    #[arg(long)]
    online: bool,
}

pub(super) fn show(arguments: &ShowArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let mut config = Config::load(sources)?;
    if arguments.online {
        block_on(async {
            config = with_overlays(&config, sources).await?;
            Ok(())
        })?;
    }
    if how == Output::Json {
        return output::print_json(&json!({ "values": config.shown() }));
    }
    let width = config.shown().iter().map(|s| s.key.len() + s.value.len() + 3).filter(|w| *w < 70).max();
    for shown in config.shown() {
        let line = format!("{} = {}", shown.key, shown.value);
        let origin = format!("# {}", shown.origin);
        output::print(format_args!("{line:width$}  {}", origin.dimmed(), width = width.unwrap_or(0)))?;
    }
    Ok(())
}

/// The configuration with the overlays that it can have.
async fn with_overlays(config: &Config, sources: &Sources) -> Result<Config, Error> {
    let operator = Operator::connect(sources).await?;
    let session = operator.incarnation().await?;
    let mut newest = BTreeMap::new();
    for job in config.jobs.iter().map(|job| job.name()) {
        match overlays::read(&session, &operator.paths(job)?).await {
            Ok(overlay) => newest.extend(overlay.map(|overlay| (job.to_owned(), overlay))),
            // The worker goes on without it.
            Err(AdminError::Record(error)) => output::print_warning(error),
            Err(error) => return Err(error.into()),
        }
    }
    let lease = session.lease_timing();
    operator.close().await;
    // What the worker can read and execute is not what this user can: as known ones, they are not checked on this host.
    let fits = |config: &Config| config.check_timing(lease);
    let Usable { config, refused, .. } = config.with_usable_overlays(&newest, &newest, fits);
    for (job, problems) in refused {
        output::print_warning(format_args!("the overlay of {job} can't be applied here: {problems}"));
    }
    Ok(config)
}
