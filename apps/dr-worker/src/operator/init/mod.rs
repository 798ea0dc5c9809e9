//! `init`: writes the configuration of this node.

mod answers;

use std::{
    fs::{self, OpenOptions},
    io::{self, IsTerminal as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::json;
use strategies::Registry;

use super::{
    global::Global,
    output::{self, Output},
};
use crate::{
    config::{Config, DEFAULT_DIRECTORY, Sources},
    error::Error,
    program::program,
};
use answers::{Answers, InitQuestion, QUESTIONS};

/// The file in the directory.
const FILE: &str = "worker.toml";

/// Where the package installs its service.
const SERVICE: &str = "/usr/lib/systemd/system/dr-worker.service";

#[derive(Debug, Args)]
pub(super) struct InitArguments {
    #[command(flatten)]
    answers: Answers,
    /// Directory of the file.
    ///
    /// Default: /etc/dr-worker.
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// Replace the file if it exists.
    ///
    /// The former one is kept under another name.
    #[arg(long)]
    replace: bool,
}

/// `init`
pub(super) fn run(init: &InitArguments, global: &Global, registry: &Registry) -> Result<(), Error> {
    if !global.paths.is_empty() || !global.sets.is_empty() {
        return Err(Error::Usage(
            "init reads no configuration: use --dir for the directory, and the options of `init` for settings"
                .to_owned(),
        ));
    }
    let dir = init.dir.clone().unwrap_or_else(|| DEFAULT_DIRECTORY.into());
    let file = dir.join(FILE);
    if !init.replace && fs::symlink_metadata(&file).is_ok() {
        return Err(exists(&file));
    }
    let mut answers = init.answers.clone();
    let problems = answers.problems(registry);
    if !problems.is_empty() {
        return Err(Error::Usage(format!("nothing was written: {}", problems.join("; "))));
    }
    let missing = unanswered(&mut answers, true);
    if !missing.is_empty() {
        if !io::stdin().is_terminal() {
            let missing: Vec<_> = missing.iter().map(|question| question.option).collect();
            return Err(Error::Usage(format!(
                "missing: {} (standard input is not a terminal, so nothing can be asked)",
                missing.join(", ")
            )));
        }
        ask(&mut answers, registry)?;
    }
    for InitQuestion { usual, answer, .. } in &QUESTIONS {
        if let Some(usual) = usual {
            answer(&mut answers).get_or_insert_with(usual);
        }
    }
    let kept = write(&dir, &file, &answers.file(&program()), init.replace)?;
    if let Some(kept) = &kept {
        output::print_progress(format_args!("kept the former file as {}", kept.display()));
    }
    output::print_progress(format_args!("wrote {}", file.display()));
    if global.output == Output::Json {
        output::print_json(&json!({ "file": file, "kept": kept }))?;
    }
    // The directory may hold other files, which are a part of the configuration.
    let sources = Sources { paths: vec![dir.clone()], registry: registry.clone(), ..Sources::default() };
    Config::load(&sources)?.check_node()?;
    let (flag, service) = next_steps(&dir);
    let program = program();
    output::print_progress(format_args!("\nNext:\n  {program}{flag} config check\n  {program}{flag} run"));
    if let Some(service) = service.filter(|_| Path::new(SERVICE).exists()) {
        output::print_progress(format_args!("or, as a service:\n  systemctl enable --now {service}"));
    }
    output::print_progress(format_args!(
        "\nWithout [zookeeper.auth] every client that reaches the ZooKeeper servers can give orders (docs/security.md)."
    ));
    Ok(())
}

fn exists(file: &Path) -> Error {
    let file = file.display();
    Error::Failed(format!(
        "{file} exists, and was not changed; --replace replaces it, and keeps it under another name"
    ))
}

/// The questions without an answer: only those that need one, or all.
fn unanswered(answers: &mut Answers, only_required: bool) -> Vec<&'static InitQuestion> {
    let mut open = Vec::new();
    for question in &QUESTIONS {
        if (question.answer)(answers).is_none() && (question.usual.is_none() || !only_required) {
            open.push(question);
        }
    }
    open
}

/// Asks for what is not known, each question until its answer is valid.
fn ask(answers: &mut Answers, registry: &Registry) -> Result<(), Error> {
    for question in unanswered(answers, false) {
        loop {
            let usual = question.usual.map(|usual| usual()).unwrap_or_default();
            let default = if usual.is_empty() { String::new() } else { format!(" [{usual}]") };
            eprint!("{}{default}: ", question.prompt);
            let _ = io::stderr().flush();
            let mut line = String::new();
            let read = io::stdin().read_line(&mut line).map_err(|e| unread(&e.to_string()))?;
            if read == 0 {
                return Err(unread("it has ended"));
            }
            let answer = Some(line.trim()).filter(|line| !line.is_empty()).map_or(usual, str::to_owned);
            if answer.is_empty() && question.usual.is_none() {
                output::print_progress("  an answer is needed here");
                continue;
            }
            *(question.answer)(answers) = Some(answer);
            let problems = answers.problems(registry);
            if problems.is_empty() {
                break;
            }
            for problem in problems {
                output::print_progress(format_args!("  {problem}"));
            }
        }
    }
    Ok(())
}

fn unread(why: &str) -> Error {
    Error::Failed(format!("can't read an answer from standard input: {why}; nothing was written"))
}

/// Writes the file, and returns the new name of one that was there.
fn write(dir: &Path, file: &Path, text: &str, replace: bool) -> Result<Option<PathBuf>, Error> {
    let failed = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => "; run it as root, or choose another directory with --dir",
            _ => "",
        };
        Error::Failed(format!("can't write {}: {error}{hint}", file.display()))
    };
    fs::create_dir_all(dir).map_err(failed)?;
    let mut kept = None;
    if replace && fs::symlink_metadata(file).is_ok() {
        // Without the extension of files that are read.
        let mut free = (1_u32..).map(|number| dir.join(format!("{FILE}.old-{number}")));
        let free = free.find(|path| fs::symlink_metadata(path).is_err()).unwrap_or_default();
        fs::rename(file, &free).map_err(failed)?;
        kept = Some(free);
    }
    let opened = OpenOptions::new().write(true).create_new(true).open(file);
    let mut opened = opened.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(file),
        _ => failed(error),
    })?;
    // A service reads it as another user, whatever this user's umask is.
    let readable = fs::Permissions::from_mode(0o644);
    opened
        .write_all(text.as_bytes())
        .and_then(|()| opened.set_permissions(readable))
        .and_then(|()| opened.sync_all())
        .map_err(failed)?;
    Ok(kept)
}

/// The option that later commands need to find the file, and the systemd service that reads it.
fn next_steps(dir: &Path) -> (String, Option<String>) {
    if dir == Path::new(DEFAULT_DIRECTORY) {
        return (String::new(), Some("dr-worker".to_owned()));
    }
    let instance =
        dir.strip_prefix(DEFAULT_DIRECTORY).ok().and_then(Path::to_str).filter(|name| !name.contains('/'));
    (format!(" --config {}", dir.display()), instance.map(|name| format!("dr-worker@{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_steps_find_the_file() {
        let steps = |dir: &str| next_steps(Path::new(dir));
        assert_eq!(steps("/etc/dr-worker"), (String::new(), Some("dr-worker".into())));
        let own = (" --config /etc/dr-worker/a".to_owned(), Some("dr-worker@a".into()));
        assert_eq!(steps("/etc/dr-worker/a"), own);
        assert_eq!(steps("/tmp/x"), (" --config /tmp/x".to_owned(), None));
    }
}
