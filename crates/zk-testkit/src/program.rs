//! Programs that a test writes and runs.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script that can be run.
///
/// # Panics
/// If it can't be written.
pub fn write_program(path: impl AsRef<Path>, text: &str) {
    let mut install = install("/dev/stdin".as_ref(), path.as_ref());
    let mut child = install.stdin(Stdio::piped()).spawn().expect("install can be run");
    let mut input = child.stdin.take().expect("it was asked for");
    input.write_all(text.as_bytes()).expect("install reads");
    drop(input);
    assert!(child.wait().expect("it is a child").success(), "{install:?}");
}

/// Copies a program, and can be read and run by all.
///
/// # Panics
/// If it can't be copied.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut install = install(from.as_ref(), to.as_ref());
    assert!(install.status().expect("install can be run").success(), "{install:?}");
}

/// Another process writes the file. A process of many threads must not: a child that another thread starts has the descriptor
/// until it runs its own program, and a file that somebody can write is not run ("text file busy").
fn install(from: &Path, to: &Path) -> Command {
    let mut install = Command::new("install");
    install.args(["-m", "755"]).args([from, to]);
    install
}
