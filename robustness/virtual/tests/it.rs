//! Whole elections in virtual time. `VIRTUAL_SEED=42 cargo test -p virtual-elections --test it seeds -- --nocapture` repeats one
//! run, and writes its trace.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

use std::process::Command;
use std::time::Instant;

use virtual_elections::{Plan, run};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().unwrap())
}

/// `VIRTUAL_SEEDS=1000` runs so many, from `VIRTUAL_FIRST` on.
#[test]
fn seeds() {
    let one = number("VIRTUAL_SEED");
    let first = one.or(number("VIRTUAL_FIRST")).unwrap_or(1);
    let count = if one.is_some() { 1 } else { number("VIRTUAL_SEEDS").unwrap_or(10) };
    let mut wrong = Vec::new();
    for seed in first..first + count {
        let plan = Plan::draw(seed);
        let (recipe, members, begun) = (plan.recipe, plan.members, Instant::now());
        if one.is_some() {
            println!("{plan:#?}");
        }
        let outcome = run(plan, one.is_some());
        let took = begun.elapsed();
        println!("seed {seed}: {recipe} of {members}, {} lines, {took:.1?}", outcome.history.lines().len());
        if one.is_some() {
            let path = std::env::temp_dir().join(format!("virtual-{seed}.txt"));
            std::fs::write(&path, &outcome.trace).unwrap();
            println!("its trace: {}", path.display());
        }
        if !outcome.report.held() || !outcome.problems.is_empty() {
            println!("{}\n{}", outcome.report.text(&outcome.history), outcome.problems.join("\n"));
            println!(
                "repeat it by: VIRTUAL_SEED={seed} cargo test -p virtual-elections --test it seeds -- --nocapture"
            );
            wrong.push(seed);
        }
        let idle: Vec<_> = outcome.report.idle().collect();
        for check in ["one-actor", "tokens-grow", "leader-in-time"] {
            assert!(!idle.contains(&check), "seed {seed}: {check} had nothing to look at");
        }
    }
    assert!(wrong.is_empty(), "seeds in which a promise was broken: {wrong:?}");
}

/// Two processes: whatever differs from one to the next, such as the seed of a hash table, changes nothing.
#[test]
fn a_seed_has_one_trace() {
    const WRITE_TO: &str = "VIRTUAL_TRACE_TO";
    const SEEDS: [u64; 2] = [1, 2];
    if let Some(path) = std::env::var_os(WRITE_TO) {
        let traces: String = SEEDS.into_iter().map(|seed| run(Plan::draw(seed), true).trace).collect();
        return std::fs::write(path, traces).unwrap();
    }
    let dir = std::env::temp_dir();
    let traces = ["one", "two"].map(|which| {
        let path = dir.join(format!("virtual-{which}-{}.txt", std::process::id()));
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "a_seed_has_one_trace"]).env(WRITE_TO, &path);
        assert!(again.output().unwrap().status.success());
        let trace = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        trace
    });
    let differs = traces[0].lines().zip(traces[1].lines()).position(|(one, two)| one != two);
    if let Some(line) = differs {
        let [one, two] = traces.each_ref().map(|trace| trace.lines().nth(line).unwrap());
        panic!("line {line} differs:\n{one}\n{two}");
    }
    assert!(traces[0] == traces[1] && traces[0].len() > 10_000);
}
