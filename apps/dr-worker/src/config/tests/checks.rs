//! `liveness`, `fitness` and drills of a job.

use super::*;
use crate::znodes::DrillMode;

use crate::config::{Check, JobDrill, ReadyProbe};

fn with(more: &str) -> Given {
    Given::file(&format!("{SMALL}{more}\n"))
}

/// What is wrong with the first job on this node.
fn faults(given: &Given) -> String {
    let faults = given.load().unwrap().jobs[0].spec.faults();
    faults.iter().map(|fault| format!("{fault}\n")).collect()
}

#[test]
fn a_check_is_read_with_its_defaults_and_can_be_turned_off() {
    let config = with("").load().unwrap();
    assert_eq!((&config.jobs[0].spec.liveness, &config.jobs[0].spec.fitness), (&None, &None));

    let checks = "liveness = { kind = \"tcp\", address = \"localhost:80\" }\n\
        fitness = { kind = \"exec\", command = [\"fit\"], interval = \"1s\", timeout = \"1s\", failures = 1 }";
    let config = with(checks).load().unwrap();
    let second = Duration::from_secs(1);
    let (interval, timeout) = (second * 5, second * 2);
    let probe = ReadyProbe::Tcp { address: "localhost:80".to_owned(), interval, timeout };
    assert_eq!(config.jobs[0].spec.liveness, Some(Check { probe, failures: 3 }));
    let command = vec!["fit".to_owned()];
    let probe = ReadyProbe::Exec { command, interval: second, timeout: second };
    assert_eq!(config.jobs[0].spec.fitness, Some(Check { probe, failures: 1 }));

    let off = with("liveness.kind = \"none\"").load().unwrap();
    assert_eq!(off.jobs[0].spec.liveness, None);
    // A recipe without an elector has members that are fit or not as well.
    let queue =
        with("recipe = \"queue\"\nfitness = { kind = \"tcp\", address = \"localhost:80\" }").load().unwrap();
    assert!(queue.jobs[0].spec.fitness.is_some());
}

#[test]
fn what_is_wrong_with_a_check_is_named_by_its_key() {
    for check in ["liveness", "fitness"] {
        let key = |name: &str| format!("job.orders.{check}.{name}");
        let refused = |table: &str, key: &str, part: &str| {
            with(&format!("{check} = {{ {table} }}")).refused("worker.toml:", &[key, part]);
        };
        refused("failures = 2", &key("kind"), "it is missing: \"exec\"");
        refused("kind = \"notify\"", &key("kind"), "is for `ready`");
        refused("kind = \"ping\"", &key("kind"), "\"tcp\"");
        refused("kind = \"exec\"", &key("command"), "exit code 0 shows");
        refused("kind = \"exec\", command = [\"x\"], failures = 0", &key("failures"), "1 or more");
        refused("kind = \"exec\", command = [\"x\"], url = \"u\"", &key("url"), "unknown key");
        refused("kind = \"tcp\", address = \"a:1\", after = \"1s\"", &key("after"), "unknown key");
        let longer = "the timeout of 2s is longer than the interval of 1s";
        refused("kind = \"tcp\", address = \"a:1\", interval = \"1s\"", &key("interval"), longer);
        let longer = "the timeout of 6s is longer than the interval of 5s";
        refused("kind = \"tcp\", address = \"a:1\", timeout = \"6s\"", &key("timeout"), longer);
    }
    // What is wrong with the programs and addresses is found on the node.
    let spec = with(
        "liveness = { kind = \"tcp\", address = \"a\" }\nfitness = { kind = \"http\", url = \"https://a\" }",
    );
    let faults = faults(&spec);
    for part in [
        "job.orders.liveness.address: \"a\" is not HOST:PORT",
        "job.orders.fitness.url: https://a: https is not",
    ] {
        assert!(faults.contains(part), "{faults}");
    }
}

#[test]
fn a_drill_is_allowed_by_the_node_unless_the_job_says_otherwise() {
    use DrillMode::{CutSite, KillJob, Rehearse, Switchover};
    let drill = |given: Given| given.load().unwrap().jobs[0].spec.drill.clone();
    assert_eq!(drill(with("")), JobDrill::default());
    assert_eq!(drill(with("")).allow, [Rehearse, Switchover]);
    assert_eq!(drill(with("").set("drill.allow=[\"kill-job\"]")).allow, [KillJob]);
    let own = with("drill = { allow = [\"cut-site\"], probe = { kind = \"tcp\", address = \"a:1\" } }");
    let own = drill(own.set("drill.allow=[]"));
    let (interval, timeout) = (Duration::from_millis(100), Duration::from_millis(500));
    assert_eq!(own.allow, [CutSite]);
    assert_eq!(own.probe, Some(ReadyProbe::Tcp { address: "a:1".to_owned(), interval, timeout }));

    with("")
        .set("drill.allow=[\"flood\"]")
        .refused("--set drill.allow", &["\"flood\" is not known", "cut-site"]);
    with("drill.probe.kind = \"notify\"")
        .refused("worker.toml:", &["job.orders.drill.probe.kind", "no notification"]);
    with("rehearsal.timeout = \"1ms\"")
        .refused("worker.toml:", &["job.orders.rehearsal.timeout", "out of range"]);
    let spec = with("rehearsal.command = [\"/no/such/program\"]\nenv = { DR_REHEARSAL = \"1\" }");
    let faults = faults(&spec);
    for part in ["job.orders.rehearsal.command", "job.orders.env.DR_REHEARSAL: is set by the worker"] {
        assert!(faults.contains(part), "{part} is not in {faults}");
    }
}

#[test]
fn what_the_kernel_passes_to_no_program_is_refused() {
    let [fits, long] = [131_071, 131_072].map(|length| "x".repeat(length));
    let check = |set: String| Given::file(SMALL).set(&set).load().unwrap().check_node();
    let command = |text: &str| check(format!("job.orders.command=[\"/bin/true\", {text:?}]"));
    let variable = |text: &str| check(format!("job.orders.env={{ BIG = {text:?} }}"));
    assert!(command(&fits).is_ok() && variable(&fits[4..]).is_ok());
    for (key, checked) in
        [("job.orders.command", command(&long)), ("job.orders.env.BIG", variable(&fits[3..]))]
    {
        let problems = checked.unwrap_err().to_string();
        assert!(problems.contains(key) && problems.contains("131072 bytes can't be passed"), "{problems}");
    }
}

#[test]
fn what_is_wrong_with_a_standby_is_named_by_its_key() {
    let of_standby = |keys: &str, key: &str, part: &str| {
        let table = format!("[job.orders.standby]\ncommand = [\"x\"]\n{keys}");
        with(&table).refused("worker.toml:", &[&format!("job.orders.standby.{key}: "), part]);
    };
    of_standby("promote.kind = \"none\"", "promote", "is for `follow`");
    of_standby("demote.kind = \"signal\"", "demote", "\"exec\"");
    of_standby("outlives = true\nready.kind = \"notify\"", "outlives", "lost with its worker");
    with("ready.kind = \"notify\"\nstandby = { command = [\"x\"], outlives = true }")
        .refused("worker.toml:", &["job.orders.ready: ", "lost with its worker"]);
}
