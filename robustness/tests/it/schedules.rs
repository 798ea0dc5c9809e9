//! Schedules are data.

use std::collections::BTreeSet;

use robustness::schedule::Schedule;

#[test]
fn a_seed_draws_one_schedule() {
    let mut kinds = BTreeSet::new();
    for seed in 0..200 {
        let schedule = Schedule::draw(seed, 300_000);
        assert_eq!(Schedule::draw(seed, 300_000), schedule);
        let text = serde_json::to_string(&schedule).unwrap();
        assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), schedule, "seed {seed}");
        assert!(schedule.steps.is_sorted_by_key(|step| step.at_ms), "seed {seed}");
        assert!(schedule.steps.iter().all(|step| step.at_ms + step.for_ms < 300_000), "seed {seed}");
        for step in &schedule.steps {
            let step = serde_json::to_value(step).unwrap();
            kinds.insert(step["act"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(kinds.len(), 12, "{kinds:?}");
}
