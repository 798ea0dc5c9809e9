//! Every duration and number of the configuration has bounds at both ends: a value beyond them is refused with its key, and one
//! within them can be used.

use std::collections::BTreeSet;

use super::{keys::each_value, *};

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
    let (mut endless, mut bounded) = (BTreeSet::new(), BTreeSet::new());
    each_value(&KEYS, "", &mut |path, key, _, schema| {
        let Some(ends) = ends(&schema.as_value().to_string()) else { return };
        let (table, _) = path.rsplit_once('.').unwrap();
        let given = || {
            let kind = key.terms.kinds.first();
            let given = Given::file(SMALL)
                .set("drill.quarterly.job=orders")
                .set("plan.east-is-lost.site=east")
                .set("probes.targets.db.address=db:1");
            let kind = kind.filter(|_| !path.contains('['));
            kind.into_iter().fold(given, |given, kind| given.set(&format!("{table}.kind={kind}")))
        };
        for value in ends {
            let set = match path.split_once("[0].") {
                None => format!("{path}={value}"),
                Some((list, inside)) => {
                    let kind =
                        key.terms.kinds.first().and_then(|kind| {
                            Some(format!("{}.kind = {kind:?}, ", inside.rsplit_once('.')?.0))
                        });
                    let kind = kind.unwrap_or_default();
                    format!("{list}=[{{ name = \"a\", command = [\"true\"], {kind}{inside} = {value} }}]")
                }
            };
            let is_most = value == ends[3];
            match given().set(&set).load() {
                Ok(config) => use_it(&config),
                Err(problems) if problems.iter().all(|problem| problem.key.as_deref() != Some(path)) => {}
                Err(_) => {
                    bounded.insert((path.to_owned(), is_most));
                    continue;
                }
            }
            endless.insert((path.to_owned(), is_most));
        }
    });
    assert!(bounded.len() > 100, "only {} keys have bounds", bounded.len());
    let never: Vec<_> = endless.difference(&bounded).filter(|(_, is_most)| *is_most).collect();
    assert_eq!(never, [&("node.priority".to_owned(), true)], "any priority will do");
}
