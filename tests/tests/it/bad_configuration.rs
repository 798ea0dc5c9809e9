//! Invalid configuration: a message with file, key and reason, exit code 78, and no effect.

use e2e::{Cluster, Desk, Driver, JOB, Setup, TICK};
use std::time::Duration;
use zk_testkit::Ensemble;

/// A port without a listener: a program that tries to connect exits with another code.
const NOWHERE: &str = "127.0.0.1:1";

/// A valid configuration, with one more line in one of its sections.
fn with(section: &str, line: &str) -> String {
    let mut text = String::new();
    let sections = [
        ("node", "id = \"east-1\"\nsite = \"east\"\nstate_dir = \"STATE\"".to_owned()),
        ("zookeeper", format!("connect = \"{NOWHERE}\"\nconnect_timeout = \"1s\"\ntick_time = \"500ms\"")),
        ("http", "listen = \"127.0.0.1:0\"".to_owned()),
        ("policy", "sites = [\"east\", \"west\"]".to_owned()),
        ("job.orders", "working_dir = \"/\"".to_owned()),
    ];
    for (name, content) in sections {
        text.push_str(&format!("[{name}]\n{content}\n"));
        if name == section {
            text.push_str(&format!("{line}\n"));
        }
        if name == "job.orders" && !line.starts_with("command") {
            text.push_str("command = [\"sleep\", \"60\"]\n");
        }
    }
    text
}

/// Runs a worker with such a configuration, and `config check`: both refuse it for the same reason.
async fn refused(section: &str, line: &str, words: &[&str]) {
    refused_with(78, section, line, words).await;
}

async fn refused_with(code: i32, section: &str, line: &str, words: &[&str]) {
    let content = with(section, line);
    let desk = Desk::with(&[("worker.toml", &content)]);
    // The directory does not exist, so the test sees whether it was created.
    let state_dir = format!("node.state_dir={}", desk.path("state").display());
    let at = content.lines().position(|known| known == line).unwrap() + 1;
    let place = format!("worker.toml:{at}:");
    for verb in [vec!["--set", &state_dir, "run"], vec!["--set", &state_dir, "config", "check"]] {
        let said = desk.dr_worker().run(&verb).await.with_code(code);
        said.complains_of(words);
        said.complains_of(&[&place]);
        assert_eq!(said.stdout, "", "a complaint is no result: {said:?}");
    }
    desk.assert_untouched(&["worker.toml"]);
}

#[tokio::test]
async fn the_configuration_that_the_others_are_made_from_is_right() {
    let desk = Desk::with(&[("worker.toml", &with("none", ""))]);
    desk.dr_worker().done(&["config", "check"]).await;
}

#[tokio::test]
async fn an_unknown_key_is_named_with_its_place() {
    refused("policy", "auto_move = \"all\"", &["policy.auto_move", "auto_moves"]).await;
}

#[tokio::test]
async fn a_bad_duration_is_named_with_its_place() {
    refused("policy", "min_tenure = \"30 sacks\"", &["policy.min_tenure", "30 sacks"]).await;
    refused("policy", "min_tenure = 30", &["policy.min_tenure", "30"]).await;
}

#[tokio::test]
async fn a_stop_budget_that_does_not_fit_is_told_with_all_figures() {
    let figures = ["stop_timeout", "9s", "session timeout of 10s", "heartbeat interval 2s 500ms", "at least"];
    refused("job.orders", "stop_timeout = \"9s\"", &figures).await;
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_named() {
    let line = "command = [\"/no/such/program\", \"--fast\"]";
    // A later mount may bring it.
    refused_with(75, "job.orders", line, &["job.orders.command", "/no/such/program", "No such file"]).await;
}

#[tokio::test]
async fn a_file_that_does_not_exist_is_named() {
    let desk = Desk::with(&[("worker.toml", &with("none", ""))]);
    let missing = desk.path("missing.toml").display().to_string();
    let said = desk.dr_worker().run(&["--config", &missing, "run"]).await.with_code(78);
    said.complains_of(&[&missing]);
}

#[tokio::test]
async fn a_verb_that_does_not_exist_is_bad_usage() {
    let desk = Desk::with(&[("worker.toml", &with("none", ""))]);
    desk.dr_worker().run(&["rum"]).await.with_code(64).complains_of(&["rum", "run"]);
    desk.dr_worker().run(&["list", "--shout"]).await.with_code(64).complains_of(&["--shout"]);
}

e2e::with_both_drivers!(a_stop_budget_that_does_not_fit_what_the_servers_grant_is_refused,);

async fn a_stop_budget_that_does_not_fit_what_the_servers_grant_is_refused(driver: Driver) {
    // The requested timeout would fit; these servers grant less.
    let builder = Ensemble::builder().servers(1).tick_time(TICK);
    let ensemble = builder.session_timeouts(TICK, Duration::from_secs(2)).start().await.unwrap();
    let cluster = Cluster::on(ensemble.into(), Setup::new(driver).not_started()).await;
    let said = cluster.as_worker("east-1").run(&["run"]).await.with_code(78);
    said.complains_of(&["session timeout of 2s", "stop_timeout", "1s"]);
    assert_eq!(cluster.znodes().await.children(JOB).await, None, "it has joined");
    cluster.end().await;
}
