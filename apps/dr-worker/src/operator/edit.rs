//! `config edit`: a file of the configuration is replaced only by one that is valid.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::sys::signal::Signal;

use super::{
    consent::Consent,
    output::{self, Output},
};
use crate::{
    config::Sources,
    error::{Error, ExitCode},
    program::file,
};

/// `config edit`
#[derive(Debug, clap::Args)]
pub(super) struct EditArguments {
    /// File of the configuration [default: the only one].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(super) fn run(arguments: &EditArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    if how == Output::Json {
        return Err(Error::Usage("config edit has no result in JSON".to_owned()));
    }
    let files = sources.files()?;
    let path = choose(arguments.file.as_deref(), &files)?;
    let editor = editor()?;
    let failed = |what: &str, error: io::Error| Error::Failed(format!("{}: {what}: {error}", path.display()));
    // A link stays one.
    let target = fs::canonicalize(path).map_err(|error| failed("can't be read", error))?;
    let before = fs::read(&target).map_err(|error| failed("can't be read", error))?;
    let copy = Copy::of(&target, &before).map_err(|error| failed("can't be copied beside it", error))?;
    let interrupts = Interrupts::new().map_err(|error| Error::Internal(format!("no signals: {error}")))?;
    loop {
        interrupts.held(|| edit(&editor, &copy.0))?;
        let after = fs::read(&copy.0).map_err(|error| failed("the edited copy can't be read", error))?;
        if after == before {
            return output::print(format_args!("{} is unchanged", path.display()));
        }
        let Err((code, why)) = check(sources, &files, path, &copy.0) else { break };
        output::print_progress(&why);
        if !asks_again() {
            let why =
                format!("{} is unchanged: the edited copy can't be used, and is discarded", path.display());
            return Err(Error::Reported(code, why));
        }
    }
    if fs::read(&target).ok().as_ref() != Some(&before) {
        let why = format!("{} was changed meanwhile by another program; nothing was changed", path.display());
        return Err(Error::NotNow(why));
    }
    copy.replace(&target).map_err(|error| failed("can't be replaced", error))?;
    output::print(format_args!(
        "{} is replaced; a worker reads it at its next reload (SIGHUP)",
        path.display()
    ))
}

/// The file to edit: one that the configuration is read from.
fn choose<'a>(named: Option<&Path>, files: &'a [PathBuf]) -> Result<&'a PathBuf, Error> {
    let all = || files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    let real = |path: &Path| fs::canonicalize(path).ok();
    match (named, files) {
        (_, []) => {
            Err(Error::Usage("there is no file of the configuration; name it with --config".to_owned()))
        }
        (None, [only]) => Ok(only),
        (None, _) => Err(Error::Usage(format!("there are several files; name one: {}", all()))),
        (Some(named), _) => files.iter().find(|file| real(file) == real(named)).ok_or_else(|| {
            Error::Usage(format!("{} is not a file of the configuration: {}", named.display(), all()))
        }),
    }
}

/// The program and its arguments, as a shell splits them.
fn editor() -> Result<Vec<String>, Error> {
    let set = ["VISUAL", "EDITOR"]
        .into_iter()
        .find_map(|name| env::var(name).ok().filter(|set| !set.trim().is_empty()));
    let set = set.ok_or_else(|| Error::Usage("no editor: set VISUAL or EDITOR".to_owned()))?;
    let words = shlex::split(&set).filter(|words| !words.is_empty());
    words.ok_or_else(|| Error::Usage(format!("VISUAL or EDITOR is not a command: {set:?}")))
}

/// The keys by which a terminal interrupts a command.
struct Interrupts {
    /// Whether they end this one.
    end_it: Arc<AtomicBool>,
}

impl Interrupts {
    /// The editor has them as usual: they are caught, not ignored, and `exec` resets handlers.
    fn new() -> io::Result<Self> {
        let end_it = Arc::new(AtomicBool::new(true));
        for name in [Signal::SIGINT, Signal::SIGQUIT] {
            signal_hook::flag::register_conditional_default(name as i32, Arc::clone(&end_it))?;
        }
        Ok(Self { end_it })
    }

    /// Runs this while they do not end this command: they are for the editor.
    fn held<T>(&self, run: impl FnOnce() -> T) -> T {
        self.end_it.store(false, Ordering::SeqCst);
        let result = run();
        self.end_it.store(true, Ordering::SeqCst);
        result
    }
}

fn edit(editor: &[String], copy: &Path) -> Result<(), Error> {
    let [program, arguments @ ..] = editor else { return Ok(()) };
    let ended = Command::new(program).args(arguments).arg(copy).status();
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(Error::Failed(format!("the editor {program:?} ended with {status}; nothing was changed")))
        }
        Err(error) => {
            Err(Error::Failed(format!("can't start the editor {program:?}: {error}; nothing was changed")))
        }
    }
}

/// Checks the configuration with this copy in the place of its file. An error is the exit code of `config check`, and what that
/// says.
fn check(sources: &Sources, files: &[PathBuf], path: &Path, copy: &Path) -> Result<(), (ExitCode, String)> {
    let failed = |why: String| (ExitCode::Failed, why);
    let program = file().map_err(|error| failed(format!("can't find this program: {error}")))?;
    let mut command = Command::new(program);
    for file in files {
        command.arg("--config").arg(if file == path { copy } else { file });
    }
    for set in &sources.sets {
        command.arg("--set").arg(set);
    }
    let ended = command.args(["config", "check"]).output();
    let ended = ended.map_err(|error| failed(format!("it can't be checked: {error}")))?;
    if ended.status.success() {
        return Ok(());
    }
    let code = match ended.status.code() {
        Some(code) if code == ExitCode::NotNow as i32 => ExitCode::NotNow,
        Some(code) if code == ExitCode::Config as i32 => ExitCode::Config,
        _ => ExitCode::Failed,
    };
    // The operator knows the file, and not the copy.
    let why = String::from_utf8_lossy(&ended.stderr);
    let why = why.replace(&copy.display().to_string(), &path.display().to_string());
    Err((code, why.trim_end().to_owned()))
}

fn asks_again() -> bool {
    Consent::can_ask() && Consent::default().ask("Not saved: yes edits it again, no discards it").is_ok()
}

/// A copy beside a file, with its mode and owner, which is removed unless it replaces the file.
struct Copy(PathBuf);

impl Copy {
    fn of(path: &Path, content: &[u8]) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Directories of the configuration are read for *.toml.
        let copy = path.with_file_name(format!(".{name}.edit"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&copy);
        let mut file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let copy = copy.display();
                let why = format!("another edit is open, or one was interrupted: then remove {copy}");
                io::Error::new(error.kind(), why)
            }
            _ => error,
        })?;
        let copy = Self(copy);
        file.write_all(content)?;
        copy.take_over(&file, &metadata)?;
        Ok(copy)
    }

    fn take_over(&self, file: &File, from: &fs::Metadata) -> io::Result<()> {
        let to = file.metadata()?;
        if (to.uid(), to.gid()) != (from.uid(), from.gid()) {
            fchown(file, Some(from.uid()), Some(from.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(from.mode() & 0o7777))
    }

    /// The content is on the disk before the name is.
    fn replace(self, path: &Path) -> io::Result<()> {
        // An editor may have replaced the copy by a file of its own.
        let file = File::open(&self.0)?;
        self.take_over(&file, &fs::metadata(path)?)?;
        file.sync_all()?;
        fs::rename(&self.0, path)?;
        path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // It has replaced the file, or is not wanted.
        let _ = fs::remove_file(&self.0);
    }
}
