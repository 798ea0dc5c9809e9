//! What a change needs in a worker that runs.

use super::*;

/// What a worker that runs with the first settings makes of the second ones.
fn reloaded(old: &[&str], new: &[&str]) -> Result<(Config, Vec<String>), Problems> {
    let load = |sets: &[&str]| sets.iter().fold(Given::file(SMALL), |given, set| given.set(set)).load();
    let old = load(old).unwrap();
    let (config, changes) = load(new).unwrap().taken_over_from(&old)?;
    Ok((config.unwrap_or(old), changes.iter().map(KeyChange::to_string).collect()))
}

#[test]
fn each_change_says_what_it_needs() {
    let (_, changes) = reloaded(
        &["job.orders.env={ A = \"1\" }", "policy.sites=[\"east\", \"west\"]"],
        &[
            "job.orders.env={ A = \"2\" }",
            "policy.sites=[\"west\", \"east\"]",
            "job.orders.restart.max=7",
            "http.listen=127.0.0.1:1",
            "zookeeper.root=/other",
            "zookeeper.tick_time=1s",
            "job.orders.hooks.prepare.command=[\"true\"]",
            "job.bills.command=[\"true\"]",
        ],
    )
    .unwrap();
    assert_eq!(
        changes,
        [
            "job.bills: needs a restart of the worker",
            "http.listen: applied",
            "job.orders.env: applies at the next start of the job: `dr-worker restart --job orders`",
            "job.orders.hooks.prepare.command: applied",
            "job.orders.hooks.prepare.mode: applied",
            "job.orders.hooks.prepare.timeout: applied",
            "job.orders.restart.max: applied",
            "policy.sites: applied",
            "zookeeper.root: needs a restart of the worker: the elections of this worker are there",
            "zookeeper.tick_time: needs `dr-worker upgrade` or a restart of the worker: the session was opened with it",
        ]
    );
    assert_eq!(reloaded(&[], &[]).unwrap().1, [""; 0]);
}

#[test]
fn an_upgrade_refuses_what_is_said_to_need_a_restart_alone() {
    let load =
        |sets: &[&str]| sets.iter().fold(Given::file(SMALL), |given, set| given.set(set)).load().unwrap();
    let old = load(&["job.bills.command=[\"true\"]"]);
    let kept = FixedValues::of(&old, |_| true);
    let refused = |sets: &[&str]| kept.fit(&load(sets)).err().map(|problems| problems.to_string());
    let bills = "job.bills.command=[\"true\"]";
    assert_eq!(refused(&[bills, "zookeeper.tick_time=1s", "job.mail.command=[\"true\"]"]), None);
    let mail = kept.has_jobs_of(&load(&[bills, "job.mail.command=[\"true\"]"])).unwrap_err().to_string();
    assert!(mail.contains("job.mail: it is new: reload"), "{mail}");
    assert!(kept.has_jobs_of(&load(&[bills])).is_ok());
    let problems = refused(&[
        "job.orders.recipe=queue",
        "node.id=east-9",
        "node.state_dir=/tmp/other",
        "zookeeper.root=/other",
    ])
    .unwrap();
    for part in [
        "job.bills: it is missing: reload",
        "job.orders.recipe: was \"elector\" and is \"queue\": restart the worker",
        "node.id: was ",
        "node.state_dir: was ",
        "zookeeper.root: was \"/dr\" and is \"/other\"",
    ] {
        assert!(problems.contains(part), "{part}: {problems}");
    }
    let with_standby = load(&["job.orders.standby.command=[\"true\"]"]);
    let problems = FixedValues::of(&with_standby, |_| true).fit(&load(&[])).unwrap_err().to_string();
    assert!(problems.contains("job.orders.standby: it is missing: restart the worker"), "{problems}");
    assert!(FixedValues::of(&load(&[]), |_| true).fit(&with_standby).is_ok());
    // What runs no more is not compared.
    assert!(FixedValues::of(&old, |job| job != "bills").fit(&load(&[])).is_ok());
}

#[test]
fn a_secret_that_is_shown_masked_is_compared() {
    let env = |value: &str| format!("job.orders.env={{ DB_PASSWORD = \"{value}\" }}");
    let changes = |new: &str| reloaded(&[&env("one")], &[&env(new)]).unwrap().1;
    assert_eq!(changes("one"), [""; 0]);
    assert_eq!(changes("two").len(), 1);
    let url =
        |password: &str| format!("job.orders.command=[\"/bin/true\", \"postgres://me:{password}@db/x\"]");
    assert_eq!(reloaded(&[&url("one")], &[&url("two")]).unwrap().1.len(), 1);
}

#[test]
fn what_needs_a_restart_of_the_worker_stays_as_it_was() {
    let (config, changes) = reloaded(
        &["zookeeper.root=/old", "job.bills.command=[\"true\"]", "job.orders.fenced=true"],
        &[
            "zookeeper.root=/new",
            "zookeeper.prefer=127.0.0.1:2181",
            "job.mail.command=[\"true\"]",
            "job.orders.stop_timeout=1s",
            // A table as text.
            "job.orders.policy={ fast_failover = true, min_tenure = \"7s\" }",
            "node.attributes={ rack = \"r7\" }",
        ],
    )
    .unwrap();
    assert_eq!(config.zookeeper.root, "/old");
    let names: Vec<_> = config.jobs.iter().map(JobConfig::name).collect();
    assert_eq!(names, ["bills", "orders"]);
    let orders = &config.jobs[1];
    assert!(orders.fenced && !orders.policy.election.fast_failover);
    assert_eq!(orders.policy.election.min_tenure, Duration::from_secs(7));
    assert_eq!(orders.spec.stop_timeout, Duration::from_secs(1));
    assert_eq!(config.node.attributes["rack"], "r7");
    // The next time it is still reported, and nothing else is.
    let waits = changes.iter().filter(|change| change.contains("restart of the worker")).count();
    assert_eq!(waits, 5, "{changes:?}");
    let (again, waiting) = config.clone().taken_over_from(&config).unwrap();
    assert_eq!((again, waiting.len()), (Some(config), 0));
}

/// A part of them would be refused, or would be in force too early.
#[test]
fn tables_and_arrays_that_wait_stay_whole() {
    let fence =
        |commands: &str| format!("job.orders.fence={{ commands = [{commands}], on_failure = \"continue\" }}");
    let one = fence("{ command = [\"/bin/true\"] }");
    let other = fence("{ command = [\"/bin/false\"], timeout = \"3s\" }");
    let two = fence("{ command = [\"/bin/true\"] }, { command = [\"/bin/false\"] }");
    let auth = "zookeeper.auth={ credentials_file = \"/credentials\" }";
    let tls = if cfg!(feature = "tls") { "zookeeper.tls={ ca_file = \"/ca.pem\" }" } else { auth };
    let standby = "job.orders.standby={ command = [\"/bin/true\"], liveness = { kind = \"none\" } }";
    let nothing = "job.orders.load=1";
    for (old, new) in [
        (nothing, tls),
        (tls, nothing),
        (nothing, auth),
        (auth, nothing),
        (nothing, &one),
        (&one, nothing),
        (&one, &other),
        (&one, &two),
        (&two, &one),
        (nothing, standby),
        (standby, nothing),
    ] {
        let case = format!("{old} -> {new}");
        let was = Given::file(SMALL).set(old).load().unwrap();
        let (config, changes) =
            reloaded(&[old], &[new, "job.orders.restart.max=7"]).unwrap_or_else(|e| panic!("{case}: {e}"));
        let (before, now) = (&was.jobs[0].spec, &config.jobs[0].spec);
        assert_eq!((&now.fence, &now.standby), (&before.fence, &before.standby), "{case}");
        assert_eq!(config.zookeeper, was.zookeeper, "{case}");
        assert_eq!(now.restart.max, 7, "{case}");
        assert!(changes.len() > 1, "{case}: {changes:?}");
    }
}

#[test]
fn a_new_job_and_what_depends_on_it_wait_for_a_handover() {
    let (config, changes) =
        reloaded(&[], &["job.mail.command=[\"true\"]", "job.orders.restart.max=7"]).unwrap();
    let names: Vec<_> = config.jobs.iter().map(JobConfig::name).collect();
    assert_eq!((names, config.jobs[0].spec.restart.max), (vec!["orders"], 7));
    let waits = "job.mail: applies when the worker has re-executed itself";
    assert_eq!(changes, [waits, "job.orders.restart.max: applied"]);
    // No job follows one that is not run.
    let together =
        ["job.mail.command=[\"true\"]", "job.orders.after=[\"mail\"]", "job.orders.env={ A = \"1\" }"];
    let (config, changes) = reloaded(&[], &together).unwrap();
    assert!(config.jobs.len() == 1 && config.jobs[0].spec.after.is_empty());
    assert_eq!(
        changes,
        [
            waits,
            "job.orders.after: applies when the worker has re-executed itself",
            "job.orders.env: applies when the worker has re-executed itself",
        ]
    );
    // With a key that needs a restart all of them do.
    let (_, changes) = reloaded(&[], &["job.mail.command=[\"true\"]", "zookeeper.tick_time=1s"]).unwrap();
    assert!(changes.iter().all(|change| change.contains("restart of the worker")), "{changes:?}");
}

#[test]
fn new_values_that_do_not_fit_old_ones_are_refused() {
    let problems = reloaded(
        &["zookeeper.session_timeout=10s"],
        &["zookeeper.session_timeout=60s", "job.orders.stop_timeout=20s"],
    )
    .unwrap_err()
    .to_string();
    for part in ["job.orders.stop_timeout", "zookeeper.session_timeout", "need a restart of the worker"] {
        assert!(problems.contains(part), "{problems}");
    }
}
