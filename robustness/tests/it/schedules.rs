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

/// Otherwise nothing shows whether a leader comes in time.
#[test]
fn one_of_three_seeds_has_a_calm_that_is_longer_than_a_leader_may_take() {
    let longest_calm = |seed| {
        let (mut longest, mut end) = (0, None);
        // Later a fault that would end too late is left out.
        for step in Schedule::draw(seed, 300_000).steps.iter().take_while(|step| step.at_ms < 250_000) {
            longest = longest.max(step.at_ms.saturating_sub(end.unwrap_or(step.at_ms)));
            end = end.max(Some(step.at_ms + step.for_ms));
        }
        longest
    };
    let (third, others): (Vec<u64>, Vec<u64>) = (0..300_u64).partition(|seed| seed.is_multiple_of(3));
    assert!(third.into_iter().filter(|seed| longest_calm(*seed) >= 40_000).count() > 50);
    assert!(others.into_iter().all(|seed| longest_calm(seed) < 40_000));
}
