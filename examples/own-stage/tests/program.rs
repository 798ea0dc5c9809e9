//! What `my-worker` reports, without any servers.
#![allow(clippy::unwrap_used, reason = "a test says what failed by panicking")]

use std::{
    fs,
    process::{Command, Output},
};

/// A worker's configuration with this pipeline.
fn my_worker(pipeline: &str, verb: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_my-worker"));
    // It reads no file of this machine.
    command.args(["--config", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worker.toml")]);
    command.args(["--set", &format!("policy.pipeline={pipeline}")]).args(verb);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_configuration_may_name_the_stage() {
    let good =
        my_worker(r#"["site-order", { stage = "patch-window", ahead = "30m" }]"#, &["config", "check"]);
    assert!(good.status.success(), "{good:?}");
    let shown = my_worker(r#"["patch-window"]"#, &["config", "show"]);
    assert!(text(&shown.stdout).contains(r#"policy.pipeline = ["patch-window"]"#), "{shown:?}");
}

#[test]
fn the_configuration_in_the_readme_is_accepted() {
    let (_, rest) = include_str!("../README.md").split_once("```toml own-stage\n").unwrap();
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/readme.toml");
    fs::write(file, rest.split("```").next().unwrap()).unwrap();
    let mut my_worker = Command::new(env!("CARGO_BIN_EXE_my-worker"));
    my_worker.args(["--config", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worker.toml"), "--config", file]);
    let good = my_worker.args(["config", "check"]).output().unwrap();
    assert!(good.status.success(), "{good:?}");
}

#[test]
fn what_is_wrong_with_it_is_said_as_of_any_other() {
    for (pipeline, words) in [
        (r#"["patch-windows"]"#, "policy.pipeline[0]: \"patch-windows\" is not known; valid: \"site-order\""),
        (r#"["patch-windows"]"#, "\"patch-window\""),
        (
            r#"[{ stage = "patch-window", ahead = 30 }]"#,
            "policy.pipeline[0].ahead: expected a duration such as \"500us\" or \"2ms\", found the integer 30",
        ),
        (
            r#"[{ stage = "patch-window", befor = "30m" }]"#,
            "policy.pipeline[0].befor: unknown key; valid here: stage, attribute, ahead, refuse",
        ),
    ] {
        let bad = my_worker(pipeline, &["config", "check"]);
        assert_eq!(bad.status.code(), Some(78), "{bad:?}");
        assert!(text(&bad.stderr).contains(words), "{words}: {bad:?}");
    }
}

#[test]
fn it_goes_by_its_own_name_and_says_what_it_is() {
    let version = my_worker("[]", &["--version"]);
    let expected = concat!("my-worker (dr-worker ", env!("CARGO_PKG_VERSION"), ")\n");
    assert_eq!(text(&version.stdout), expected);
    let help = my_worker("[]", &["run", "--help"]);
    assert!(text(&help.stdout).contains("Usage: my-worker run"), "{help:?}");
    let script = my_worker("[]", &["completions", "bash"]);
    assert!(text(&script.stdout).contains(" -F _clap_complete_my_worker my-worker"), "{script:?}");
}

#[test]
fn as_a_guard_it_wants_to_be_started_by_a_worker() {
    let guard = Command::new(env!("CARGO_BIN_EXE_my-worker")).arg("guard").output().unwrap();
    assert_eq!(guard.status.code(), Some(64), "{guard:?}");
    assert_eq!(
        text(&guard.stderr),
        "my-worker guard: started by `my-worker run` for each job, not by hand\n"
    );
}
