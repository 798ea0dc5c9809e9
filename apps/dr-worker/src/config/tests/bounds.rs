//! Every duration and number of the configuration has bounds at both ends: a value beyond them is refused with its key, and one
//! within them can be used.

use std::collections::BTreeSet;

use super::{
    schema::{all_asked, variants},
    *,
};

/// Values at the ends, for a key of this type; `None` if it is no duration and no number.
fn ends(of_type: &str) -> Option<[&'static str; 4]> {
    match of_type {
        text if text.contains("a-zA-Zµ") => {
            Some(["\"0s\"", "\"1ns\"", "\"1000000h\"", "\"18446744073709551615s\""])
        }
        text if text.contains("integer") || text.contains("number") => {
            Some(["0", "-1", "-9223372036854775808", "9223372036854775807"])
        }
        _ => None,
    }
}

/// What a worker computes from the configuration when it starts.
fn use_it(config: &Config) {
    for job in &config.jobs {
        let (engine, lease) = (&job.policy.election, config.zookeeper.lease());
        let _ = (engine.takeover_timeout, job.spec.stop_budget(), config.watchdog.longest_timeout(lease));
        let _ = (job.policy.strategy(), job.policy.fingerprint(true));
    }
}

#[test]
fn a_value_at_an_end_is_refused_with_its_key_or_can_be_used() {
    let mut endless = BTreeSet::new();
    let mut bounded = BTreeSet::new();
    let mut tried = BTreeSet::new();
    // Without what a table needs, the rest of it is not read.
    let complete = [
        "job.orders.ready={ kind = \"tcp\", address = \"db:1\" }",
        "job.orders.drill.probe={ kind = \"tcp\", address = \"db:1\" }",
        "node.site_check={ kind = \"tcp\", address = \"db:1\" }",
        "job.orders.output={ kind = \"file\", path = \"/var/log/orders\" }",
        "job.orders.fence={ commands = [{ command = [\"true\"] }] }",
    ];
    for variant in variants().into_iter().chain(complete.map(str::to_owned)) {
        let table = variant.split('=').next().unwrap();
        let before =
            Given::file(SMALL).set(&variant).load().err().map_or(0, |problems| problems.iter().count());
        for (key, of_type) in all_asked(&variant) {
            let Some(ends) = ends(&of_type.to_string()) else { continue };
            // A variant changes how the keys of its own table are read.
            if !tried.insert(key.clone()) && !key.starts_with(table) {
                continue;
            }
            for value in ends {
                let set = format!("{key}={value}");
                match Given::file(SMALL).set(&variant).set(&set).load() {
                    Ok(config) => use_it(&config),
                    Err(problems) if problems.iter().count() == before => {}
                    Err(problems) => {
                        let name = key.rsplit('.').next().unwrap();
                        assert!(problems.to_string().contains(name), "{variant} {set}: {problems}");
                        bounded.insert((key.clone(), value == ends[3]));
                        continue;
                    }
                }
                endless.insert((key.clone(), value == ends[3]));
            }
        }
    }
    let never: Vec<_> = endless.difference(&bounded).filter(|(_, is_most)| *is_most).collect();
    assert_eq!(never, [&("node.priority".to_owned(), true)], "any priority will do");
}
