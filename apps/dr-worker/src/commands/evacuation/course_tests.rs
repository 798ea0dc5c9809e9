use std::collections::{BTreeMap, BTreeSet};

use election_core::internals::record::Record as _;

use super::*;

fn plan(steps: &[(&str, &[&str])]) -> Evacuation {
    let mut plan = Evacuation::new("east".parse().unwrap(), "ann", 1_700_000_000_000);
    plan.steps = steps
        .iter()
        .map(|(job, after)| EvacuationStep::new(job, after.iter().map(|job| (*job).to_owned()).collect()))
        .collect();
    plan
}

fn chain() -> Evacuation {
    plan(&[("db", &[]), ("app", &["db"]), ("auth", &["db"]), ("proxy", &["app", "auth"])])
}

fn west(job: &str) -> StepOutcome {
    StepOutcome::Leads(leader(job, "west"))
}

fn leader(job: &str, site: &str) -> EvacuationLeader {
    EvacuationLeader { member: format!("{job}-{site}").parse().unwrap(), site: site.parse().unwrap() }
}

/// Begins what is due. Returns the jobs.
fn begin(plan: &mut Evacuation) -> Vec<String> {
    let due = plan.due();
    due.iter().for_each(|at| plan.begin(*at, Some(7), 1));
    due.iter().map(|at| plan.steps[*at].job.clone()).collect()
}

fn settle(plan: &mut Evacuation, job: &str, outcome: StepOutcome) {
    let at = plan.steps.iter().position(|step| step.job == job).unwrap();
    plan.settle(at, outcome, 2);
}

#[test]
fn each_layer_begins_when_what_it_follows_is_done() {
    let mut plan = chain();
    assert_eq!(begin(&mut plan), ["db"]);
    assert_eq!(plan.due(), [0; 0]);
    settle(&mut plan, "db", west("db"));
    assert_eq!(begin(&mut plan), ["app", "auth"]);
    settle(&mut plan, "app", west("app"));
    assert_eq!((plan.due().len(), plan.phase()), (0, EvacuationPhase::Running));
    settle(&mut plan, "auth", StepOutcome::Needless(None, "it leads elsewhere".to_owned()));
    assert_eq!(begin(&mut plan), ["proxy"]);
    settle(&mut plan, "proxy", west("proxy"));
    assert_eq!(plan.phase(), EvacuationPhase::Done);
}

#[test]
fn it_stops_at_the_first_failure_and_goes_on_or_back() {
    let mut plan = chain();
    begin(&mut plan);
    settle(&mut plan, "db", west("db"));
    begin(&mut plan);
    settle(&mut plan, "app", StepOutcome::Failed("no".repeat(1000)));
    assert_eq!(plan.phase(), EvacuationPhase::Running, "auth is under way");
    settle(&mut plan, "auth", west("auth"));
    assert_eq!(plan.phase(), EvacuationPhase::Stopped);
    assert!(plan.steps[1].why.as_ref().unwrap().len() <= WHY);

    let mut back = plan.clone();
    plan.resume().unwrap();
    let first = plan.steps[1].request.clone();
    assert_eq!(begin(&mut plan), ["app"]);
    assert_ne!(plan.steps[1].request, first, "each request has a name of its own");
    assert_eq!(plan.resume().unwrap_err(), "it is under way");

    back.turn_back().unwrap();
    assert_eq!(back.turn_back().unwrap_err(), "it is undone already");
    assert_eq!(back.steps[3].state, State::Skipped);
    assert_eq!(begin(&mut back), ["db"], "what others follow returns first");
    settle(&mut back, "db", StepOutcome::Leads(leader("db", "east")));
    assert_eq!(begin(&mut back), ["app", "auth"]);
}

#[test]
fn a_job_whose_new_leader_is_lost_is_moved_again_a_few_times() {
    let mut plan = chain();
    begin(&mut plan);
    settle(&mut plan, "db", StepOutcome::Failed("no".to_owned()));
    plan.resume().unwrap();
    for _ in 0..2 {
        for _ in 1..MOVES {
            assert_eq!(begin(&mut plan), ["db"]);
            settle(&mut plan, "db", StepOutcome::Returned("its leader was lost".to_owned()));
            assert_eq!((plan.phase(), &plan.steps[0].why), (EvacuationPhase::Running, &None));
        }
        begin(&mut plan);
        settle(&mut plan, "db", StepOutcome::Returned("its leader was lost".to_owned()));
        assert_eq!(plan.phase(), EvacuationPhase::Stopped);
        plan.resume().unwrap();
    }
}

#[test]
fn a_lost_site_does_not_wait_for_what_fails_elsewhere() {
    let mut plan = plan(&[("db", &[]), ("cache", &[]), ("app", &["db"]), ("web", &["cache"])]);
    plan.force = true;
    begin(&mut plan);
    settle(&mut plan, "db", StepOutcome::Failed("no member is left".to_owned()));
    settle(&mut plan, "cache", west("cache"));
    assert_eq!(begin(&mut plan), ["web"]);
    settle(&mut plan, "web", west("web"));
    assert_eq!(plan.phase(), EvacuationPhase::Stopped);
}

#[test]
fn what_is_turned_back_under_way_moves_back_once_it_has_ended() {
    let mut plan = chain();
    begin(&mut plan);
    plan.turn_back().unwrap();
    assert_eq!((plan.phase(), plan.due().len()), (EvacuationPhase::Running, 0));
    settle(&mut plan, "db", west("db"));
    assert_eq!(begin(&mut plan), ["db"]);
    settle(&mut plan, "db", StepOutcome::Leads(leader("db", "east")));
    assert_eq!(plan.phase(), EvacuationPhase::Done);
    assert!(plan.steps[1..].iter().all(|step| step.state == State::Skipped));
}

/// The evacuation of the east after this one, which moves these jobs. Each is led in the west now.
fn again(jobs: &[(&str, &[&str])]) -> Evacuation {
    let mut plan = plan(jobs);
    plan.at_ms += 1;
    for step in &mut plan.steps {
        step.from = Some(leader(&step.job, "west"));
    }
    plan
}

#[test]
fn what_was_moved_before_it_moves_back_too() {
    let mut before = chain();
    begin(&mut before);
    before.steps[0].from = Some(leader("db", "east"));
    before.steps[0].drained = true;
    settle(&mut before, "db", west("db"));
    begin(&mut before);
    settle(&mut before, "app", StepOutcome::Failed("no".to_owned()));

    let mut same = again(&[("db", &[]), ("app", &["db"])]);
    assert!(same.inherit(&before));
    assert_eq!((same.steps.len(), same.steps[0].drained), (3, true), "auth is under way");
    assert_eq!(same.steps[0].from, before.steps[0].from);

    let mut fewer = again(&[("proxy", &[])]);
    let wanted = fewer.clone();
    assert!(fewer.inherit(&before));
    assert!(fewer.is_same_as(&wanted), "the same order joins it");
    assert_eq!(begin(&mut fewer), ["proxy"]);
    settle(&mut fewer, "proxy", west("proxy"));
    assert_eq!(fewer.phase(), EvacuationPhase::Done);
    fewer.turn_back().unwrap();
    assert_eq!(begin(&mut fewer), ["proxy", "db"], "app and auth follow db");
    settle(&mut fewer, "db", StepOutcome::Leads(leader("db", "east")));

    let mut next = again(&[("cache", &[])]);
    next.inherit(&fewer);
    assert!(next.steps.iter().all(|step| step.job != "db"), "it has returned");
    next.site = "west".parse().unwrap();
    next.steps.truncate(1);
    assert!(!next.inherit(&before) && next.steps.len() == 1, "another site");
}

#[test]
fn one_under_way_becomes_a_forced_one_and_begins_its_moves_again() {
    let mut planned = chain();
    begin(&mut planned);
    let mut order = Evacuation { by: "bob".to_owned(), force: true, ..chain() };
    let mut forced = planned.forced_by(&order).unwrap();
    assert_eq!((forced.at_ms, forced.is_forced(), forced.by.as_str()), (planned.at_ms, true, "bob"));
    let switchover = planned.steps[0].request.clone();
    assert_eq!(begin(&mut forced), ["db"]);
    assert!(forced.steps[0].request > switchover, "another request");
    assert_eq!(forced.forced_by(&order), None, "it is one already");
    order.now = true;
    assert!(forced.forced_by(&order).is_some());
    order.steps.pop();
    assert_eq!(forced.forced_by(&order), None, "other jobs");
    forced.turn_back().unwrap();
    assert_eq!(forced.forced_by(&Evacuation { now: true, force: true, ..chain() }), None, "its jobs return");
}

#[test]
fn what_has_stopped_is_given_up_and_can_still_move_back() {
    let mut plan = chain();
    assert_eq!(plan.abandon().unwrap_err(), "it is under way");
    begin(&mut plan);
    settle(&mut plan, "db", StepOutcome::Failed("no".to_owned()));
    plan.abandon().unwrap();
    assert_eq!(plan.phase(), EvacuationPhase::Done);
    plan.turn_back().unwrap();
    assert_eq!((begin(&mut plan).as_slice(), plan.steps[1].state), (&["db".to_owned()][..], State::Skipped));
    assert_eq!(plan.turn_back().unwrap_err(), "it is undone already");
    settle(&mut plan, "db", StepOutcome::Failed("no".to_owned()));
    plan.abandon().unwrap();
    plan.turn_back().unwrap();
    assert_eq!(begin(&mut plan), ["db"], "it is left where it is until it is moved back again");
}

#[test]
fn a_move_back_is_possible_until_it_is_done_or_given_up() {
    let mut plan = plan(&[("db", &[])]);
    plan.steps[0].from = Some(leader("db", "east"));
    begin(&mut plan);
    settle(&mut plan, "db", west("db"));
    let mut given_up = plan.clone();
    assert!(given_up.may_be_undone());
    given_up.abandon().unwrap();
    assert_eq!((given_up.may_be_undone(), given_up.abandon().unwrap_err().as_str()), (false, "it is done"));
    given_up.turn_back().unwrap();
    assert!(given_up.may_be_undone(), "the operator has thought better of it");
    plan.turn_back().unwrap();
    begin(&mut plan);
    settle(&mut plan, "db", StepOutcome::Leads(leader("db", "east")));
    assert!(!plan.may_be_undone());
}

/// The elections as a simulation has them: a request is begun at most once, and its outcome is there to read.
#[derive(Default)]
struct Elections {
    requests: BTreeMap<String, (String, bool)>,
    order: Vec<String>,
}

/// A small generator, so that a failing run can be repeated by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Workers that die at any moment carry it out together: each has read some version of the record, and writes only over it.
#[test]
fn whoever_dies_each_step_is_begun_once_and_in_order() {
    for seed in 0..500 {
        let mut dice = Dice(seed);
        let mut written = (chain(), 0_u64);
        let mut elections = Elections::default();
        let mut workers: Vec<Option<(Evacuation, u64)>> = vec![None; 3];
        for _ in 0..2000 {
            if written.0.phase() != EvacuationPhase::Running {
                break;
            }
            let at = usize::try_from(dice.roll(3)).unwrap();
            let Some((mut plan, version)) = workers[at].take().filter(|_| dice.roll(10) > 0) else {
                // It reads the record again, or is another worker.
                workers[at] = Some(written.clone());
                continue;
            };
            let due = plan.due();
            let begun: Vec<_> =
                (0..plan.steps.len()).filter(|at| plan.steps[*at].state == State::Begun).collect();
            let mut filed = None;
            if let Some(step) = due.first() {
                plan.begin(*step, Some(7), 1);
                filed = plan.steps[*step].request.clone().map(|name| (name, plan.steps[*step].job.clone()));
            } else if let Some(step) = begun.get(usize::try_from(dice.roll(4)).unwrap()) {
                let request = plan.steps[*step].request.clone().unwrap();
                let (job, ended) =
                    elections.requests.get_mut(&request).expect("what is begun has its request");
                if !*ended {
                    *ended = dice.roll(2) == 0;
                    workers[at] = Some((plan, version));
                    continue;
                }
                let job = job.clone();
                plan.settle(*step, west(&job), 2);
            }
            // One transaction: the record and the request, or nothing.
            if version == written.1 {
                if let Some((name, job)) = filed {
                    assert!(elections.requests.insert(name, (job.clone(), false)).is_none(), "seed {seed}");
                    elections.order.push(job);
                }
                written = (plan, version + 1);
            }
        }
        assert_eq!(written.0.phase(), EvacuationPhase::Done, "seed {seed}");
        let jobs: BTreeSet<_> = elections.order.iter().collect();
        assert_eq!((elections.order.len(), jobs.len()), (4, 4), "seed {seed}");
        assert_eq!(
            (elections.order[0].as_str(), elections.order[3].as_str()),
            ("db", "proxy"),
            "seed {seed}"
        );
    }
}

#[test]
fn a_record_stays_below_its_limit() {
    let mut plan = chain();
    let small = plan.encode("/plans/evacuation").unwrap().len();
    let largest = plan.largest(small);
    for at in 0..plan.steps.len() {
        (plan.steps[at].tries, plan.steps[at].tries_before) = (900, 900);
        plan.steps[at].drained = true;
        plan.begin(at, Some(u64::from(u32::MAX)), u64::from(u32::MAX) << 10);
        let why = "x".repeat(1000);
        plan.settle(at, StepOutcome::Needless(Some(leader("a", "b")), why), u64::from(u32::MAX) << 10);
    }
    assert!(plan.encode("/plans/evacuation").unwrap().len() < largest);
    assert_eq!(plan.request_of(2), "r-1700000000000002901");
}
