//! A shell, typed into line by line.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use zk_testkit::Host;

use crate::wait::{SOON, wait_for};

/// The number of lines that a failing test prints.
const LAST: usize = 40;

/// A shell with its standard input, and a file with all that it and its programs have printed.
///
/// Dropping it kills the shell alone.
#[derive(Debug)]
pub struct Terminal {
    shell: Child,
    shown: PathBuf,
    typed: u32,
}

/// Directories that hosts would otherwise share with the machine and with each other.
const OWN: [&str; 3] = ["etc", "usr/local", "var/lib"];

impl Terminal {
    /// A shell on a host. The host has its own network, name, `/etc`, `/usr/local` and `/var/lib`; this directory is the shell's.
    ///
    /// Its processes end with the network, at the latest.
    ///
    /// # Panics
    /// If it can't be started.
    pub async fn at(host: &Host, dir: &Path) -> Self {
        fs::create_dir_all(dir).expect("a directory");
        let mut shell = host.command("unshare");
        shell.args(["--mount", "--uts", "--propagation", "private", "sh"]).current_dir(dir);
        shell.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("EDITOR", dir.join("editor"));
        let mut terminal = Self::of(shell, dir);
        // The upper directory must not be on an overlay, and the temporary directory may be.
        terminal.done("mkdir upper && mount -t tmpfs tmpfs upper").await;
        for dir in OWN {
            let (upper, work) = (format!("upper/{dir}/upper"), format!("upper/{dir}/work"));
            let over = format!("lowerdir=/{dir},upperdir={upper},workdir={work}");
            terminal
                .done(&format!("mkdir -p {upper} {work} && mount -t overlay -o {over} overlay /{dir}"))
                .await;
        }
        terminal
    }

    /// Starts this shell. The file `shown` of the directory gets its output.
    ///
    /// # Panics
    /// If it can't be started. All methods here panic if their condition does not hold.
    pub fn of(mut shell: Command, dir: &Path) -> Self {
        let shown = dir.join("shown");
        let out = File::create(&shown).expect("a file");
        let both = (out.try_clone().expect("a second handle on the file"), out);
        let shell = shell.stdin(Stdio::piped()).stdout(both.0).stderr(both.1).spawn();
        Self { shell: shell.expect("start a shell"), shown, typed: 0 }
    }

    /// Runs a line to its end: its exit code, and its output.
    pub async fn types(&mut self, line: &str) -> (i32, String) {
        self.typed += 1;
        let before = usize::try_from(fs::metadata(&self.shown).expect("the file").len()).expect("a size");
        let end = format!("-- line {} ended with ", self.typed);
        let input = self.shell.stdin.as_mut().expect("a pipe");
        writeln!(input, "{line}\necho \"{end}$?\"").expect("the shell reads");
        wait_for(&format!("the end of {line:?}"), SOON, async || {
            let all = fs::read_to_string(&self.shown).map_err(|error| error.to_string())?;
            let shown = &all[before..];
            let (said, rest) = shown.split_once(&end).ok_or_else(|| shown.to_owned())?;
            let code = rest.strip_suffix('\n').ok_or("half a line")?;
            Ok((code.parse().expect("an exit code"), said.to_owned()))
        })
        .await
    }

    /// Runs a line that must exit with 0.
    pub async fn done(&mut self, line: &str) -> String {
        let (code, said) = self.types(line).await;
        assert_eq!(code, 0, "{line}\n{said}");
        said
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let shown = fs::read_to_string(&self.shown).unwrap_or_default();
            let lines: Vec<_> = shown.lines().collect();
            let last = lines[lines.len().saturating_sub(LAST)..].join("\n");
            println!("---- {}\n{last}", self.shown.display());
        }
        self.shell.kill().ok();
        self.shell.wait().ok();
    }
}
