//! What is explained is what is done: random states, and an elector that runs on each.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use fastrand::Rng;
use serde_json::json;

use super::{Bound, Explanation, Looker, Obstacle, Seen, explain, simulate::simulate};
use crate::{
    engine::{
        elector::{
            next_step::{Act, Verdict, Wait},
            pass::Pass,
            phase_timers::PhaseTimers,
        },
        io::Reason,
        policy::{Policy, TakeoverLimit},
    },
    ids::{Ballot, MemberId, SiteId},
    record::{
        AdminRequest, Cause, Control, Current, Elected, Exclusion, FiledRequest, Given, Health, MemberRecord,
        Mode, Named, Outgoing, RequestKind, RequestRef, Slot, Status, Target,
    },
    strategy::{Ground, Ranked, Ranking, Refused, Round, Strategy},
    time::{Now, Time},
};

const NOW_MS: u64 = 1_793_889_000_000;
const SITES: [&str; 3] = ["east", "west", "north"];

/// A random order. It is different for each seed and after a failure.
#[derive(Debug)]
struct Whim {
    seed: u64,
    /// No member is better than the leader.
    sticky: bool,
}

impl Whim {
    fn grade(&self, member: &MemberRecord, round: &Round<'_>) -> (bool, u64) {
        let moves = self.sticky && round.incumbent.is_some_and(|i| *i != member.ballot);
        let after_failure = u64::from(round.cause.is_failure());
        let mut grade = self.seed ^ member.ballot.sequence().cast_unsigned() << 1 ^ after_failure;
        grade = grade.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (moves, grade ^ grade >> 29)
    }
}

impl Strategy for Whim {
    fn rank(&self, round: &Round<'_>) -> Ranking {
        let mut ranking = Ranking::default();
        let mut fit = Vec::new();
        for member in round.candidates {
            let excluded =
                round.exclusions.iter().any(|e| e.ballot == member.ballot && e.until_ms > round.unix_ms);
            let drained = round.control.drained.contains(&member.site);
            if !member.health.is_fit() || excluded || drained {
                let (stage, reason) = ("fit".to_owned(), "it is not fit".to_owned());
                let ground = if drained { Ground::Order } else { Ground::State };
                ranking.refused.push(Refused { named: member.named(), stage, reason, ground });
            } else {
                fit.push(member);
            }
        }
        fit.sort_by_key(|m| self.grade(m, round));
        ranking.order = fit.iter().map(|m| Ranked::new(m.named(), vec!["a whim".to_owned()])).collect();
        if round.cause == Cause::Startup && self.seed.is_multiple_of(3) {
            ranking.worth_waiting = Some("somebody may come".to_owned());
        }
        ranking
    }
}

fn ballot(number: u32) -> Ballot {
    Ballot::new(format!("x-{number:010}")).unwrap()
}

fn named(number: u32) -> Named {
    let site = SITES[number as usize % SITES.len()];
    Named {
        member: MemberId::new(format!("m{number}")).unwrap(),
        ballot: ballot(number),
        site: SiteId::new(site).unwrap(),
    }
}

fn member(rng: &mut Rng, number: u32, term: u64) -> MemberRecord {
    let Named { member, ballot, site } = named(number);
    // From text, so that fields that a record gains later have their defaults here.
    let record = json!({ "v": 1, "member": member, "ballot": ballot, "site": site });
    let mut record: MemberRecord = serde_json::from_value(record).unwrap();
    if rng.u8(..6) == 0 {
        record.health = Health::Unhealthy { reason: "its disk is full".to_owned() };
    }
    record.withdrawn = (rng.u8(..8) == 0).then(|| "it is being backed up".to_owned());
    record.holds = (rng.u8(..5) == 0).then(|| "a backup runs".to_owned());
    if rng.u8(..8) == 0 {
        let gave_up = json!({ "term": term, "cause": "resigned", "reason": "tired", "at_ms": NOW_MS - 1000 });
        record.gave_up = serde_json::from_value(gave_up).unwrap();
    }
    if rng.u8(..3) == 0 {
        let unreached = json!([{ "ballot": self::ballot(rng.u32(..6)), "since_ms": NOW_MS - 2000 }]);
        record.unreached = serde_json::from_value(unreached).unwrap();
    }
    record
}

fn ago(rng: &mut Rng) -> u64 {
    NOW_MS - rng.u64(..40_000)
}

fn decision(rng: &mut Rng, slots: usize, term: u64) -> Elected {
    let cause = Cause::ALL[rng.usize(..Cause::ALL.len())];
    let mut record: Elected = serde_json::from_value(json!({
        "v": 1, "term": term, "slots": [], "decided_by": "m0",
    }))
    .unwrap();
    let given = Given {
        term,
        decided_in: None,
        cause,
        sentence: "it was so".to_owned(),
        decided_at_ms: ago(rng),
        noticed_at_ms: 0,
        request: None,
        previous: rng.bool().then(|| named(rng.u32(..6)).as_previous()),
    };
    let mut numbers: Vec<_> = (0..6).collect();
    rng.shuffle(&mut numbers);
    for _ in 0..slots {
        let vacant = rng.u8(..5) == 0;
        let who = if vacant { None } else { numbers.pop().map(named) };
        record.slots.push(Slot::new(who, given.clone()));
    }
    for slot in record.slots.iter_mut().filter(|slot| slot.named.is_some()) {
        slot.succession = numbers.iter().map(|n| named(*n)).collect();
    }
    if rng.bool() {
        let exclusion = named(rng.u32(..6));
        record.exclusions.push(Exclusion {
            member: exclusion.member,
            ballot: exclusion.ballot,
            since_ms: NOW_MS,
            until_ms: NOW_MS + rng.u64(..60_000),
            reason: "it failed".to_owned(),
        });
    }
    if let Some(slot) = record.slots.first_mut() {
        slot.attempts = (0..rng.usize(..4)).map(|_| ago(rng)).collect();
        slot.attempts.sort_unstable();
    }
    record
}

fn leader_znode(rng: &mut Rng, elected: &Elected, slot: usize) -> Option<Current> {
    let holder = match elected.named(slot) {
        Some(named) if rng.u8(..6) > 0 => named.clone(),
        _ if rng.bool() => named(rng.u32(..6)),
        _ => return None,
    };
    let since = ago(rng);
    Some(Current {
        v: 1,
        member: holder.member,
        ballot: holder.ballot,
        site: holder.site,
        slot,
        term: elected.term_of(slot) - u64::from(rng.u8(..8) == 0),
        status: if rng.u8(..5) == 0 { Status::Progress } else { Status::Ready },
        endpoint: None,
        fencing_token: None,
        since_ms: since,
        ready_ms: Some(since),
    })
}

fn state(rng: &mut Rng) -> (Seen, Policy) {
    let term = rng.u64(2..9);
    let slots = if rng.u8(..4) == 0 { 2 } else { 1 };
    let mut members = Vec::new();
    for number in 0..6 {
        if rng.u8(..4) > 0 {
            members.push(member(rng, number, term));
        }
    }
    let elected = (rng.u8(..8) > 0).then(|| decision(rng, slots, term));
    let mut leader_znodes: Vec<Option<Current>> = vec![None; slots];
    if let Some(elected) = &elected {
        for slot in 0..slots {
            let taken = |c: &Current| leader_znodes.iter().flatten().any(|other| other.ballot == c.ballot);
            // A leader znode is gone with its holder's session.
            let lives = |c: &Current| members.iter().any(|m| m.ballot == c.ballot);
            leader_znodes[slot] = leader_znode(rng, elected, slot).filter(|c| !taken(c) && lives(c));
        }
    }
    let mode = match rng.u8(..8) {
        0 => Mode::Manual,
        1 => Mode::Observe,
        _ => Mode::Auto,
    };
    let mut control = Control { mode, ..Control::default() };
    if rng.u8(..5) == 0 {
        control.drained.push(SiteId::new(SITES[rng.usize(..3)]).unwrap());
    }
    let seconds = |rng: &mut Rng| Duration::from_secs(rng.u64(..30));
    let fast = rng.bool();
    let policy = Policy {
        slots,
        min_tenure: seconds(rng),
        better_after: seconds(rng),
        max_takeovers: TakeoverLimit { count: rng.u32(1..4), within: Duration::from_secs(60) },
        fenced: fast,
        fast_failover: fast,
        ..Policy::default()
    };
    let lowest = members.iter().map(|m| m.ballot.clone()).min();
    let seen = Seen { members, lowest, elected, leader_znodes, control, ..Seen::default() };
    (seen, policy)
}

fn whim(rng: &mut Rng) -> Whim {
    Whim { seed: rng.u64(..), sticky: rng.bool() }
}

/// Whether the obstacle may have ended. `explain` does not know how long a member has been better, nor since when the
/// elector has been one.
fn may_be_over(obstacle: &Obstacle, unix_ms: u64) -> bool {
    match obstacle.bound {
        Bound::Latest => true,
        Bound::Earliest => obstacle.until_ms.is_some_and(|until| until <= unix_ms),
        Bound::Exactly => false,
    }
}

fn check_members(seen: &Seen, told: &Explanation) {
    for slot in &told.slots {
        let ranked = slot.ranking.order.iter().map(|r| &r.named.ballot);
        let mut told: Vec<_> = ranked.chain(slot.ranking.refused.iter().map(|r| &r.named.ballot)).collect();
        told.sort();
        let all: Vec<_> = seen.members.iter().map(|m| &m.ballot).collect();
        assert_eq!(told, all, "each member is ranked or refused, once: {slot:#?}");
    }
}

/// Lets a new elector make its passes while the time advances, until it decides or nothing more will happen. Compares
/// each pass with what is explained before it.
fn drive(mut seen: Seen, policy: &Policy, strategy: &Whim) -> &'static str {
    let mut timers = PhaseTimers::default();
    let mut passed = Duration::ZERO;
    let promised = explain(&seen, policy, strategy, NOW_MS);
    let Some(me) = seen.members.first().map(|m| m.member.clone()) else {
        assert_eq!(promised.step.reason, "no-elector");
        return "nobody";
    };
    for _ in 0..60 {
        let unix_ms = NOW_MS + u64::try_from(passed.as_millis()).unwrap();
        let now = Now::new(Time::from_origin(passed + Duration::from_secs(1)), unix_ms);
        let told = explain(&seen, policy, strategy, unix_ms);
        check_members(&seen, &told);
        let reading = seen.reading(policy);
        let pass = |now, timers: &mut PhaseTimers| {
            timers.begin();
            let memory = RefCell::new(std::mem::take(timers));
            let pass = Pass::new(now, me.as_str(), policy, strategy, &memory).read(&reading);
            let verdict = pass.map_or_else(Verdict::from, |pass| pass.verdict());
            *timers = memory.into_inner();
            verdict
        };
        match pass(now, &mut timers) {
            Verdict::Wait(Wait { reason, sentence, .. }) => {
                // Nothing has happened since: the elector does not report the same wait in other words.
                for later in [1, 2500, 7000].map(Duration::from_millis) {
                    let later =
                        Now::new(now.time + later, unix_ms + u64::try_from(later.as_millis()).unwrap());
                    // An elector wakes a millisecond after the end of its wait.
                    let still = Duration::from_millis(1);
                    let ends = |e: &Exclusion| e.until_ms > unix_ms && e.until_ms <= later.unix_ms;
                    let news = seen.elected.as_ref().is_some_and(|e| e.exclusions.iter().any(ends));
                    if !news && timers.wake().is_none_or(|wake| later.time + still < wake) {
                        let mut again = timers.clone();
                        let verdict = pass(later, &mut again);
                        let said = matches!(&verdict, Verdict::Wait(wait) if wait.sentence == sentence);
                        assert!(said, "{sentence}, and a moment later: {verdict:?}");
                    }
                }
                // An update of a line of succession hides the wait for one pass. Nor does `explain` know of an
                // elector that has just begun to count.
                let is_new = sentence.contains("min-tenure");
                for slot in told.slots.iter().filter(|s| s.proposal.is_some() && !is_new) {
                    assert!(!slot.obstacles.is_empty(), "{reason}: {sentence}, but: {slot:#?}");
                }
                // A move that is only postponed can be reported.
                if [Reason::MinTenure, Reason::BetterAfter].contains(&reason) {
                    let told_of = told.slots.iter().any(|s| s.proposal.is_some());
                    assert!(told_of, "{reason}: {sentence}, and yet nothing is to come: {told:#?}");
                }
                let Some(wake) = timers.wake() else {
                    for slot in told.slots.iter().filter(|s| s.proposal.is_some()) {
                        let endless = slot.obstacles.iter().any(|o| o.until_ms.is_none());
                        assert!(endless, "nothing ever happens, but: {slot:#?}");
                    }
                    return "waits";
                };
                passed = wake.since_origin().saturating_sub(Duration::from_secs(1));
            }
            Verdict::Act(Act::Write(next, _))
                if seen.elected.as_ref().is_some_and(|e| e.term == next.term) =>
            {
                let before = seen.elected.clone();
                let is_news =
                    |slot| before.as_ref().is_none_or(|e: &Elected| e.line_of(slot) != next.line_of(slot));
                for (slot, _) in next.leaders().filter(|(slot, _)| is_news(*slot)) {
                    let line = told.slots[slot].if_lost.order.iter().map(|r| &r.named);
                    assert!(line.eq(next.line_of(slot)), "the line: {told:#?}\n{next:#?}");
                }
                seen.elected = Some(*next);
            }
            Verdict::Act(Act::Write(next, _) | Act::Depose(_, next, _)) => {
                let before = seen.elected.as_ref();
                let is_new = |slot: &usize| before.is_none_or(|_| next.term_of(*slot) == next.term);
                for slot in (0..next.slots.len()).filter(is_new) {
                    let told = &told.slots[slot];
                    let proposal =
                        told.proposal.as_ref().unwrap_or_else(|| panic!("{next:#?}, but: {told:#?}"));
                    assert_eq!(proposal.named.as_ref(), next.named(slot), "{told:#?}");
                    assert_eq!(proposal.cause, next.slots[slot].given.cause);
                    assert_eq!(proposal.sentence, next.slots[slot].given.sentence);
                    assert!(
                        told.obstacles.iter().all(|o| may_be_over(o, unix_ms)),
                        "it is done, but: {told:#?}"
                    );
                    // A successor that leads already is confirmed without a question to the strategy.
                    if let Some(named) = next.named(slot).filter(|_| told.question == proposal.cause) {
                        assert_eq!(told.ranking.first().map(|r| &r.named), Some(named), "{told:#?}");
                    }
                    // The first explanation was right, if it was about the same member.
                    let promised = &promised.slots[slot];
                    if promised.proposal.as_ref().and_then(|p| p.named.as_ref()) == next.named(slot) {
                        for o in promised.obstacles.iter().filter(|o| o.bound != Bound::Latest) {
                            assert!(o.until_ms.is_some_and(|until| until <= unix_ms), "too early: {o:?}");
                        }
                    }
                }
                return "decides";
            }
            Verdict::Act(Act::Vacate { slot, .. }) => {
                assert_eq!(told.step.reason, "vacates");
                assert!(told.slots[slot].proposal.is_some(), "{told:#?}");
                return "vacates";
            }
            verdict => panic!("there are no requests: {verdict:?}"),
        }
    }
    "goes on"
}

#[test]
fn what_is_explained_is_what_an_elector_does() {
    let first = std::env::var("EXPLAIN_SEED").ok().and_then(|s| s.parse().ok());
    let seeds = first.map_or(0..6000, |seed: u64| seed..seed + 1);
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in seeds {
        let mut rng = Rng::with_seed(seed);
        let ((seen, policy), whim) = (state(&mut rng), whim(&mut rng));
        let driven = std::panic::catch_unwind(|| drive(seen.clone(), &policy, &whim));
        let end = driven.unwrap_or_else(|_| {
            panic!("replay with EXPLAIN_SEED={seed} cargo test -p election-core --lib explained\n{seen:#?}")
        });
        *ends.entry(end).or_default() += 1;
    }
    println!("{ends:?}");
    if first.is_none() {
        for end in ["decides", "waits", "vacates", "nobody"] {
            assert!(ends.contains_key(end), "it never comes to {end}: {ends:?}");
        }
    }
}

/// A switchover to any member names the first of the order that is shown for one.
#[test]
fn the_order_for_a_switchover_is_that_of_the_switchover() {
    let mut moved = 0;
    for seed in 0..2000 {
        let mut rng = Rng::with_seed(seed);
        let ((mut seen, policy), whim) = (state(&mut rng), whim(&mut rng));
        let told = explain(&seen, &policy, &whim, NOW_MS);
        let request = AdminRequest {
            from: Outgoing::Slot(0),
            ..AdminRequest::new(
                String::new(),
                RequestKind::Switchover,
                Target::Any,
                "an operator".to_owned(),
                NOW_MS,
            )
        };
        let which = RequestRef { czxid: i64::MAX, name: "r-0000000001".to_owned() };
        seen.requests.push(FiledRequest { which: which.clone(), request });
        let with = (&policy, &whim as &dyn Strategy);
        let Verdict::Act(Act::Begin(next, ..)) = Looker::new(&seen, with.0, with.1, NOW_MS).verdict() else {
            continue;
        };
        moved += 1;
        let first = told.slots[0].switchover.first().map(|first| &first.named);
        assert_eq!(next.named(0), first, "seed {seed}: {told:#?}\n{next:#?}");
    }
    assert!(moved > 100, "{moved} moved");
}

#[test]
fn what_is_simulated_is_possible() {
    let (mut moved, mut unchanged) = (0, 0);
    for seed in 0..2000 {
        let mut rng = Rng::with_seed(seed);
        let ((seen, policy), whim) = (state(&mut rng), whim(&mut rng));
        let site = SiteId::new(SITES[rng.usize(..3)]).unwrap();
        let with = (&policy, &whim as &dyn Strategy);
        let told = simulate(&seen, |m| m.site == site, with, with, NOW_MS);
        let leaders: Vec<_> = told.slots.iter().filter_map(|s| s.leads.as_ref()).collect();
        for (index, leader) in leaders.iter().enumerate() {
            assert!(leader.site != site, "seed {seed}: one who is gone leads: {told:#?}");
            assert!(!leaders[..index].contains(leader), "seed {seed}: one leads twice: {told:#?}");
        }
        for slot in &told.slots {
            let last = slot.played.last().map(|p| p.named.clone());
            let gone = slot.leads.is_none() && slot.before.as_ref().is_none_or(|b| b.site == site);
            assert!(last.is_none_or(|last| last == slot.leads) || gone, "seed {seed}: {slot:#?}");
            moved += usize::from(!slot.played.is_empty());
            unchanged += usize::from(slot.unchanged);
        }
        // No member is gone, and nothing is under way: nothing changes.
        let told = simulate(&seen, |_| false, with, with, NOW_MS);
        if !told.now.step.acts {
            assert!(told.slots.iter().all(|s| s.unchanged), "seed {seed}: {told:#?}");
        }
    }
    assert!(moved > 100 && unchanged > 100, "{moved} moved, {unchanged} did not");
}

/// Two slots are lost at once: the first in line steps into each of them, and a member that is gone holds no leader
/// znode meanwhile.
#[test]
fn two_that_vanish_at_once_are_followed_one_by_one() {
    let mut rng = Rng::with_seed(1);
    let mut members: Vec<_> = (0..6).map(|number| member(&mut rng, number, 1)).collect();
    for member in &mut members {
        let Named { member: id, ballot, site } = member.named();
        let plain = json!({ "v": 1, "member": id, "ballot": ballot, "site": site });
        *member = serde_json::from_value(plain).unwrap();
    }
    let leading = [named(0), named(3)];
    let mut elected = decision(&mut rng, 2, 1);
    for (slot, leader) in elected.slots.iter_mut().zip(&leading) {
        *slot = Slot::new(Some(leader.clone()), Given { previous: None, ..slot.given.clone() });
        slot.succession = [1, 2, 4, 5].map(named).to_vec();
    }
    elected.exclusions = Vec::new();
    let leader_znode = |(slot, leader): (usize, &Named)| {
        let current = json!({
            "v": 1, "member": leader.member, "ballot": leader.ballot, "site": leader.site, "slot": slot,
            "term": 1, "status": "READY", "since_ms": NOW_MS - 1000,
        });
        Some(serde_json::from_value::<Current>(current).unwrap())
    };
    let leader_znodes = leading.iter().enumerate().map(leader_znode).collect();
    let lowest = Some(ballot(0));
    let seen = Seen { members, lowest, elected: Some(elected), leader_znodes, ..Seen::default() };
    let policy = Policy { slots: 2, ..Policy::default() };
    let whim = Whim { seed: 1, sticky: true };
    let with = (&policy, &whim as &dyn Strategy);
    let told = simulate(&seen, |m| m.site.as_str() == SITES[0], with, with, NOW_MS);
    for (slot, heir) in told.slots.iter().zip([named(1), named(2)]) {
        assert_eq!(slot.leads.as_ref(), Some(&heir), "{slot:#?}");
        let [played] = &slot.played[..] else { panic!("one decision: {slot:#?}") };
        assert_eq!(played.by, heir.member.as_str(), "it steps in by itself: {slot:#?}");
    }
}

/// An older program would overlook the order, and start the job.
#[test]
fn no_member_leads_a_stopped_job_that_does_not_know_the_order() {
    let older = |number: u32, orders_format: u32| {
        let Named { member, ballot, site } = named(number);
        let record = json!({
            "v": 1, "member": member, "ballot": ballot, "site": site, "orders_format": orders_format,
        });
        serde_json::from_value::<MemberRecord>(record).unwrap()
    };
    let stopped = serde_json::from_value(json!({ "v": 2, "stopped": { "by": "ann@desk" } })).unwrap();
    for (control, refused) in [(Control::default(), 0), (stopped, 1)] {
        let members = vec![older(0, 1), older(1, 2)];
        let seen = Seen { members, lowest: Some(ballot(0)), control, ..Seen::default() };
        let told = explain(&seen, &Policy::default(), &Whim { seed: 1, sticky: true }, NOW_MS);
        let ranking = &told.slots[0].ranking;
        assert_eq!(ranking.refused.len(), refused, "{ranking:#?}");
        assert!(ranking.refused.iter().all(|r| r.named == named(0) && r.reason.contains("stopped")));
    }
}
