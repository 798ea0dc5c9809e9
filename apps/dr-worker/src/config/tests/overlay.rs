//! Overlays from ZooKeeper.

use std::{collections::BTreeMap, path::Path};

use crate::znodes::Overlay;
use election_core::internals::record::Record as _;
use serde_json::json;

use super::{super::overlay::refusal, keys::all_keys, *};

fn overlay(version: u64, text: &str) -> Overlay {
    let record = json!({ "v": 1, "version": version, "text": text });
    Overlay::decode("/dr/orders/config", record.to_string().as_bytes()).unwrap()
}

fn of(job: &str, version: u64, text: &str) -> BTreeMap<String, Overlay> {
    BTreeMap::from([(job.to_owned(), overlay(version, text))])
}

fn with(base: &Config, text: &str) -> Result<Config, String> {
    base.with_overlays(&of("orders", 3, text)).map_err(|problems| problems.to_string())
}

#[test]
fn it_goes_before_files_and_behind_the_environment_and_the_command_line() {
    let file = format!("{SMALL}stop_timeout = \"1s\"\nrestart = {{ max = 1, within = \"1m\" }}\n");
    let given = Given::file(&file)
        .variable("DR_WORKER__JOB__ORDERS__RESTART__BACKOFF", "1s")
        .set("job.orders.policy.min_tenure=7s");
    let base = given.load().unwrap();
    let text = "stop_timeout = \"3s\"\nrestart = { max = 9, backoff = \"5s\" }\n[policy]\nmin_tenure = \"1s\"\nexclusion = \"1s\"\n";
    let config = with(&base, text).unwrap();
    let shown = |key: &str| {
        let shown = config.shown().iter().find(|shown| shown.key == format!("job.orders.{key}")).unwrap();
        let origin = shown.origin.to_string();
        (shown.value.clone(), origin.rsplit('/').next().unwrap().to_owned())
    };
    let pair = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    assert_eq!(shown("stop_timeout"), pair("\"3s\"", "ZooKeeper, version 3"));
    assert_eq!(shown("restart.max"), pair("9", "ZooKeeper, version 3"));
    assert_eq!(shown("restart.within"), pair("\"1m\"", "worker.toml:11:31"));
    assert_eq!(
        shown("restart.backoff"),
        pair("\"1s\"", "environment variable DR_WORKER__JOB__ORDERS__RESTART__BACKOFF")
    );
    assert_eq!(shown("policy.min_tenure"), pair("\"7s\"", "--set job.orders.policy.min_tenure=..."));
    assert_eq!(shown("policy.exclusion"), pair("\"1s\"", "ZooKeeper, version 3"));
    assert_eq!(with(&base, "").unwrap(), base);
    assert_eq!(base.with_overlays(&of("bills", 1, "colour = 1")).unwrap(), base, "of another job");
}

/// Nothing that an overlay sets on an unprepared node makes it run a program.
#[test]
fn what_could_run_a_program_is_refused_unless_the_node_allows_it() {
    let jobs: Vec<_> = all_keys().into_iter().filter(|key| key.starts_with("job.orders.")).collect();
    let refused = |overlays| -> Vec<String> {
        let is_refused = |key: &&String| refusal(&super::super::change::steps(key), overlays).is_some();
        jobs.iter().filter(is_refused).map(|key| key["job.orders.".len()..].to_owned()).collect()
    };
    let (safe, all) = (refused(Overlays::Safe), refused(Overlays::All));
    for key in [
        "command",
        "env",
        "working_dir",
        "hooks.prepare.command",
        "measure.command",
        "ready.command",
        "exit_codes.stay_down",
    ] {
        assert!(safe.contains(&key.to_owned()) && !all.contains(&key.to_owned()), "{key}");
    }
    for key in
        ["user", "group", "as_worker", "recipe", "fenced", "output.path", "policy.on_pause", "policy.slots"]
    {
        assert!(safe.contains(&key.to_owned()) && all.contains(&key.to_owned()), "{key}");
    }
    for key in ["load", "restart.max", "exit_codes.not_here", "stop_timeout", "limits.memory", "policy.sites"]
    {
        assert!(!safe.contains(&key.to_owned()), "{key}");
    }
    let command = safe.iter().chain(&jobs).filter(|key| key.ends_with("command"));
    assert!(command.count() > 9, "{safe:?}");
}

#[test]
fn a_problem_names_version_key_and_reason() {
    let base = Given::file(SMALL).load().unwrap();
    for (text, parts) in [
        ("restart = { often = 1 }", &["ZooKeeper, version 3: job.orders.restart.often: unknown key"][..]),
        ("env = { A = \"1\" }", &["ZooKeeper, version 3: job.orders.env: ", "zookeeper.overlay"]),
        (
            "exit_codes = { not_here = [1], stay_down = [2] }",
            &["version 3: job.orders.exit_codes.stay_down: it can keep the job down", "zookeeper.overlay"],
        ),
        ("user = \"root\"", &["ZooKeeper, version 3: job.orders.user: ", "each node decides"]),
        (
            "[policy]\nslots = 3",
            &["ZooKeeper, version 3: job.orders.policy.slots: ", "restart of the worker"],
        ),
        ("stop_timeout = \"59m\"", &["ZooKeeper, version 3: job.orders.stop_timeout: "]),
        ("stop_timeout = ", &["ZooKeeper, version 3: line 1, column ", "not valid TOML"]),
        ("job = 1", &["ZooKeeper, version 3: job.orders.job: unknown key"]),
        ("[job.bills]\nload = 1", &["ZooKeeper, version 3: line 1, column 6: job.bills: ", "[job.orders]"]),
        ("load = 1\n[job.orders]\nload = 1", &["line 1, column 1: load: ", "this table and nothing else"]),
        ("[job.orders]\nload = 1\n[node]\nid = \"a\"", &["line 3, column 2: node: "]),
    ] {
        let problems = with(&base, text).unwrap_err();
        for part in parts {
            assert!(problems.contains(part), "{text}: {part:?} is not in {problems}");
        }
    }
    let off = Given::file(SMALL).set("zookeeper.overlay=off").load().unwrap();
    assert!(with(&off, "load = 2").unwrap_err().contains("takes no overlays"));
    let all = Given::file(SMALL).set("zookeeper.overlay=all").load().unwrap();
    assert!(with(&all, "command = [\"/no/such/program\"]").unwrap_err().contains("job.orders.command"));
    assert_eq!(with(&all, "env = { A = \"1\" }").unwrap().jobs[0].spec.env["A"], "1");
}

#[test]
fn it_may_be_the_table_of_the_job() {
    let base = Given::file(SMALL).load().unwrap();
    let (table, keys) = (
        "[job.orders]\nload = 7\n[job.orders.policy]\nmin_tenure = \"1s\"\n",
        "load = 7\n[policy]\nmin_tenure = \"1s\"\n",
    );
    assert_eq!(with(&base, table).unwrap(), with(&base, keys).unwrap());
    assert_eq!(overlay_values("orders", table), overlay_values("orders", keys));
    let checked = check_overlay(
        &Given::file(SMALL).sources,
        "orders",
        Path::new("x.toml"),
        "[job.orders]\ncolour = 7\n",
    );
    let problems = checked.unwrap_err().to_string();
    assert!(problems.contains("x.toml:2:1: job.orders.colour: unknown key"), "{problems}");
}

#[test]
fn a_bad_overlay_costs_no_other_and_the_former_one_stays() {
    let base = Given::file(SMALL).set("job.bills.command=[\"/bin/true\"]").load().unwrap();
    let former = of("orders", 1, "load = 11");
    let mut newest = of("orders", 2, "load = \"heavy\"");
    newest.insert("bills".to_owned(), overlay(5, "load = 55"));
    let usable = base.with_usable_overlays(&newest, &former, |_| Ok(()));
    let loads: Vec<_> = usable.config.jobs.iter().map(|job| (job.name(), job.load)).collect();
    assert_eq!(loads, [("bills", 55), ("orders", 11)]);
    assert_eq!(usable.used["orders"].version, 1);
    assert_eq!(usable.refused.keys().collect::<Vec<_>>(), ["orders"]);
    let none = base.with_usable_overlays(&newest, &BTreeMap::new(), |_| Ok(()));
    assert_eq!((none.config.jobs[1].load, none.used.len()), (1, 1));
}

#[test]
fn a_program_that_is_gone_costs_no_overlay_that_is_in_force() {
    let base = Given::file(SMALL)
        .set("job.bills.command=[\"/bin/true\"]")
        .set("zookeeper.overlay=all")
        .load()
        .unwrap();
    let gone = "command = [\"/no/such/program\"]";
    let former = of("orders", 1, gone);
    let newest: BTreeMap<_, _> = former.clone().into_iter().chain(of("bills", 1, "load = 55")).collect();
    let usable = base.with_usable_overlays(&newest, &former, |_| Ok(()));
    assert!(usable.refused.is_empty() && usable.used == newest);
    // A new one is checked.
    let usable = base.with_usable_overlays(&of("orders", 2, gone), &former, |_| Ok(()));
    assert_eq!((usable.refused.len(), usable.used), (1, former));
}

#[test]
fn an_overlay_that_does_not_fit_what_stays_in_force_costs_no_other() {
    let load = |sets: &[&str]| {
        let given = Given::file(SMALL).set("job.bills.command=[\"/bin/true\"]");
        sets.iter().fold(given, |given, set| given.set(set)).load().unwrap()
    };
    // The longer session timeout of the files waits for a restart of the worker.
    let (old, base) = (load(&[]), load(&["zookeeper.session_timeout=60s"]));
    let mut newest = of("orders", 1, "stop_timeout = \"20s\"");
    newest.insert("bills".to_owned(), overlay(1, "load = 55"));
    let usable =
        base.with_usable_overlays(&newest, &BTreeMap::new(), |config| config.check_after(&old, None));
    assert_eq!(usable.used.keys().collect::<Vec<_>>(), ["bills"]);
    let refused = usable.refused["orders"].to_string();
    assert!(refused.contains("job.orders.stop_timeout"), "{refused}");
}

#[test]
fn a_file_is_checked_before_it_is_pushed_even_where_the_job_is_not_configured() {
    let check = |given: &Given, text: &str| {
        let checked = check_overlay(&given.sources, "orders", Path::new("overlay.toml"), text);
        checked.map_err(|problems| problems.to_string())
    };
    let operator = Given::file("[zookeeper]\nconnect = \"127.0.0.1:2181\"\n");
    assert_eq!(check(&operator, "stop_timeout = \"3s\"\n[policy]\nsites = [\"west\"]\n"), Ok(()));
    let problems = check(&operator, "stop_timeout = \"1h\"\n").unwrap_err();
    assert!(problems.contains("overlay.toml:1:16: job.orders.stop_timeout"), "{problems}");
    let problems = check(&operator, "stop_timout = \"1s\"\n").unwrap_err();
    assert!(problems.contains("overlay.toml:1:1: job.orders.stop_timout: unknown key"), "{problems}");
    let worker = Given::file(SMALL).set("job.orders.restart.backoff=5s");
    let problems = check(&worker, "restart = { backoff_max = \"1s\" }\n").unwrap_err();
    assert!(problems.contains("backoff_max"), "the merged result is checked: {problems}");
    // What a worker refuses, it refuses with the configuration of one.
    let east =
        Given::file(SMALL).set("job.bills.command=[\"/bin/true\"]").set("job.bills.after=[\"orders\"]");
    for (text, part) in [
        ("[policy]\nsites = [\"west\"]\n", "job.orders.policy: this node's site"),
        (
            "[policy]\npipeline = [{ stage = \"limit\", attribute = \"lag\", at_most = 10 }]\n",
            "job.orders.policy: it limits \"lag\"",
        ),
        (
            "[policy]\npipeline = [{ stage = \"with-job\", job = \"mail\" }]\n",
            "job.orders.policy: it depends on the leader of \"mail\"",
        ),
        (
            "[policy]\npipeline = [{ stage = \"with-job\", job = \"bills\" }]\n",
            "job.orders.policy: these jobs depend on each other",
        ),
    ] {
        let problems = check(&east, text).unwrap_err();
        assert!(problems.contains(part), "{part}: {problems}");
    }
    // A plan of drills beside the job is no part of it.
    let planned = Given::file(SMALL).set("drill.quarterly.job=orders").set("zookeeper.overlay=all");
    assert_eq!(check(&planned, "drill.probe = { kind = \"tcp\", address = \"127.0.0.1:80\" }\n"), Ok(()));
}

#[test]
fn the_values_of_an_overlay_are_listed_by_key() {
    let values =
        overlay_values("orders", "load = 3\n[policy]\nmax_takeovers = { count = 2 }\nsites = [\"a\"]\n")
            .unwrap();
    let values: Vec<_> = values.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    assert_eq!(values, ["load = 3", "policy.max_takeovers.count = 2", "policy.sites = [\"a\"]"]);
    assert!(overlay_values("orders", "").unwrap().is_empty());
    assert!(overlay_values("orders", "load =").is_err());
}
