//! The program of this crate.

use std::process::{Command, Stdio};

use crate::support::{STUBBORN, STUBBORN_PROCESSES, Tree, children_of, send, wait_for};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

fn command(tree: &Tree, seconds: &str, script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_job-guard"));
    let (name, mark) = tree.variable();
    command.args([seconds, "sh", "-c", script]).env(name, mark).current_dir(&tree.dir);
    command
}

#[test]
fn it_has_the_output_and_the_exit_code_of_the_command() {
    let tree = Tree::new();
    let ran = command(&tree, "30", "echo one; echo two >&2; exit 3").output().expect("started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(3), "one\n".to_owned()));
    assert_eq!(text(&ran.stderr), "two\n");
    let unknown = Command::new(env!("CARGO_BIN_EXE_job-guard")).args(["30", "/not/there"]).output();
    assert_eq!(unknown.expect("started").status.code(), Some(125));
}

#[test]
fn nothing_is_left_when_the_time_is_over_and_when_it_is_killed() {
    let tree = Tree::new();
    let ended = command(&tree, "1.5", STUBBORN).stdout(Stdio::null()).status().expect("started");
    assert_eq!(ended.code(), Some(124));
    assert!(tree.is_gone(), "{:?}", tree.living());

    let mut killed = command(&tree, "600", STUBBORN).spawn().expect("started");
    // Itself, its guard, and at least the tree.
    wait_for("the tree", || tree.living().len() >= STUBBORN_PROCESSES + 2);
    killed.kill().expect("killed");
    killed.wait().expect("reaped");
    wait_for("the end of all", || tree.is_gone());
}

#[test]
fn nothing_is_left_when_its_guard_is_killed() {
    let tree = Tree::new();
    let mut program = command(&tree, "600", STUBBORN).stderr(Stdio::null()).spawn().expect("started");
    wait_for("the tree", || tree.living().len() >= STUBBORN_PROCESSES + 2);
    let [guard] = children_of(Pid::from_raw(program.id().cast_signed()))[..] else { panic!("one guard") };
    send(guard, Signal::SIGKILL);
    assert_eq!(program.wait().expect("reaped").code(), Some(125));
    assert!(tree.is_gone(), "{:?}", tree.living());
}

#[test]
fn the_command_has_all_of_its_time() {
    let tree = Tree::new();
    assert_eq!(command(&tree, "6", "sleep 3").status().expect("started").code(), Some(0));
}
