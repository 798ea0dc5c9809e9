//! Leaderships spread over nodes: what comes out, in how many moves, and what is left alone.

use std::collections::{BTreeMap, BTreeSet};

use election_core::strategy::MemberId;
use proptest::prelude::*;
use strategies::fair_share::{Election, FairShare, Node, Plan};

fn id(number: usize) -> MemberId {
    MemberId::new(format!("node-{number:02}")).unwrap()
}

fn nodes(weights: &[u32]) -> Vec<Node> {
    weights.iter().enumerate().map(|(n, &weight)| Node { member: id(n), weight }).collect()
}

/// Elections that any node can lead, led by these.
fn led_by(leaders: impl IntoIterator<Item = Option<usize>>) -> Vec<Election> {
    let election = |(number, leader): (usize, Option<usize>)| Election {
        name: format!("job-{number:04}"),
        leader: leader.map(id),
        fit: None,
        stays: false,
    };
    leaders.into_iter().enumerate().map(election).collect()
}

/// Does what is planned.
fn follow(plan: &Plan, elections: &mut [Election]) {
    let places = plan.places.iter().map(|place| (&place.election, &place.to));
    let moves = plan.moves.iter().map(|m| (&m.election, &m.to));
    for (name, to) in places.chain(moves) {
        elections.iter_mut().find(|e| e.name == *name).unwrap().leader = Some(to.clone());
    }
}

fn counts(nodes: &[Node], elections: &[Election]) -> Vec<usize> {
    let led = |node: &Node| elections.iter().filter(|e| e.leader.as_ref() == Some(&node.member)).count();
    nodes.iter().map(led).collect()
}

/// Plans and follows until nothing is left; the number of moves.
fn settle(at_most: usize, nodes: &[Node], elections: &mut [Election]) -> usize {
    let mut moves = 0;
    loop {
        let plan = FairShare { at_most }.plan(nodes, elections);
        assert!(plan.moves.len() <= at_most, "{plan:?}");
        moves += plan.moves.len();
        follow(&plan, elections);
        if plan.moves.is_empty() {
            assert_eq!(plan.left, 0, "moves are left, and none is planned");
            return moves;
        }
        assert!(moves <= elections.len() * nodes.len(), "it goes on and on");
    }
}

#[test]
fn a_thousand_jobs_on_ten_nodes_come_out_even_in_as_many_moves_as_it_takes() {
    let nodes = nodes(&[1; 10]);
    let mut elections = led_by((0..1000).map(|_| Some(0)));
    assert_eq!(FairShare { at_most: 5 }.plan(&nodes, &elections).left, 895);
    assert_eq!(settle(5, &nodes, &mut elections), 900);
    assert_eq!(counts(&nodes, &elections), [100; 10]);
}

#[test]
fn where_a_node_leaves_only_what_it_led_moves() {
    let nodes = nodes(&[1; 10]);
    let mut elections = led_by((0..1000).map(|n| Some(n % 10)));
    assert_eq!(settle(9, &nodes, &mut elections), 0);
    let plan = FairShare { at_most: 9 }.plan(&nodes[1..], &elections);
    assert_eq!((plan.places.len(), plan.moves.len(), plan.left), (100, 0, 0));
    follow(&plan, &mut elections);
    let counts = counts(&nodes[1..], &elections);
    assert!(counts.iter().all(|count| [111, 112].contains(count)), "{counts:?}");
}

#[test]
fn where_a_node_joins_only_its_share_moves_and_to_it() {
    let ten = nodes(&[1; 10]);
    let mut elections = led_by((0..1000).map(|n| Some(n % 10)));
    assert_eq!(settle(1, &ten, &mut elections), 0);
    let eleven = nodes(&[1; 11]);
    let plan = FairShare { at_most: 1000 }.plan(&eleven, &elections);
    assert_eq!(plan.moves.len(), 90);
    assert!(plan.moves.iter().all(|m| m.to == id(10)));
    assert_eq!(settle(7, &eleven, &mut elections), 90);
}

#[test]
fn a_difference_of_one_is_no_reason_to_move() {
    let nodes = nodes(&[1, 1]);
    let plan = |zero: usize, one: usize| {
        let leaders = std::iter::repeat_n(Some(0), zero).chain(std::iter::repeat_n(Some(1), one));
        FairShare { at_most: 9 }.plan(&nodes, &led_by(leaders))
    };
    assert_eq!(plan(1, 0), Plan::default());
    assert_eq!(plan(4, 3), Plan::default());
    let moves = plan(5, 3).moves;
    assert_eq!(moves.len(), 1);
    assert_eq!(
        (moves[0].election.as_str(), moves[0].reason.as_str()),
        ("job-0000", "node-00 leads 5, node-01 leads 3")
    );
}

#[test]
fn weights_count_and_who_has_none_gives_all_away() {
    let mut elections = led_by((0..12).map(|_| Some(2)));
    let nodes = nodes(&[2, 1, 0]);
    assert_eq!(settle(4, &nodes, &mut elections), 12);
    assert_eq!(counts(&nodes, &elections), [8, 4, 0]);
}

#[test]
fn what_is_to_stay_stays_and_what_nobody_can_lead_is_said() {
    let nodes = nodes(&[1, 1]);
    let mut elections = led_by([Some(0), Some(0), Some(0), Some(0), None]);
    for election in &mut elections[..3] {
        election.stays = true;
    }
    elections[4].fit = Some(BTreeSet::from([id(7)]));
    let plan = FairShare { at_most: 9 }.plan(&nodes, &elections);
    assert_eq!(plan.nowhere, ["job-0004"]);
    assert_eq!(plan.moves.iter().map(|m| m.election.as_str()).collect::<Vec<_>>(), ["job-0003"]);
}

/// node-00 leads four that node-02 can't; node-01 leads one that it could give to node-02.
#[test]
fn of_several_with_one_name_the_first_one_counts() {
    let (first, elections) = (nodes(&[5, 1]), led_by(vec![Some(0); 12]));
    let twice: Vec<_> = first.iter().cloned().chain(nodes(&[1, 5])).collect();
    let led_twice: Vec<_> = elections.iter().cloned().chain(led_by(vec![Some(1); 12])).collect();
    let even = FairShare { at_most: 9 };
    assert_eq!(even.plan(&twice, &led_twice), even.plan(&first, &elections));
}

#[test]
fn one_makes_room_for_another() {
    let nodes = nodes(&[1, 1, 1]);
    let mut elections = led_by([Some(0), Some(0), Some(0), Some(1), Some(1)]);
    for election in &mut elections[..3] {
        election.fit = Some(BTreeSet::from([id(0), id(1)]));
    }
    for election in &mut elections[3..] {
        election.fit = Some(BTreeSet::from([id(1), id(2)]));
    }
    let plan = FairShare { at_most: 1 }.plan(&nodes, &elections);
    assert_eq!(plan.moves.len(), 2, "a chain is never cut: {plan:?}");
    follow(&plan, &mut elections);
    assert_eq!(counts(&nodes, &elections), [2, 2, 1]);
    assert_eq!(FairShare { at_most: 1 }.plan(&nodes, &elections), Plan::default());
}

/// The less the better: what is led at weight 0, then how unevenly the rest is spread. For
/// each leadership the node's n-th costs n for its weight.
fn unevenness(nodes: &[Node], leaders: &[usize]) -> (usize, u64) {
    const COMMON: u64 = 12;
    let mut led = vec![0_u64; nodes.len()];
    leaders.iter().for_each(|&leader| led[leader] += 1);
    let mut sum = (0, 0);
    for (node, led) in nodes.iter().zip(led) {
        match u64::from(node.weight) {
            0 => sum.0 += led as usize,
            weight => sum.1 += (1..=led).map(|nth| nth * COMMON / weight).sum::<u64>(),
        }
    }
    sum
}

/// Every way to lead the elections.
fn ways(options: &[Vec<usize>]) -> Vec<Vec<usize>> {
    options.iter().fold(vec![Vec::new()], |ways, options| {
        let with = |way: &Vec<usize>, option: &usize| [way.as_slice(), &[*option]].concat();
        ways.iter()
            .flat_map(|way| options.iter().map(|option| with(way, option)).collect::<Vec<_>>())
            .collect()
    })
}

fn any_weights(least: u32) -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![least..=4_u32, Just(1)], 1..4)
}

prop_compose! {
    fn any_elections(nodes: usize)(
        each in prop::collection::vec(
            (0..nodes, prop::collection::btree_set(0..nodes, 1..=nodes), any::<bool>(), 0..5),
            0..7,
        ),
    ) -> Vec<Election> {
        let election = |(number, (leader, mut fit, all, stays)): (usize, (usize, BTreeSet<usize>, bool, i32))| {
            fit.insert(leader);
            Election {
                name: format!("job-{number}"),
                leader: Some(id(leader)),
                fit: (!all).then(|| fit.into_iter().map(id).collect()),
                stays: stays == 0,
            }
        };
        each.into_iter().enumerate().map(election).collect()
    }
}

fn numbers(nodes: &[Node], elections: &[Election]) -> Vec<usize> {
    let number = |e: &Election| nodes.iter().position(|n| Some(&n.member) == e.leader.as_ref()).unwrap();
    elections.iter().map(number).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Compared with every other way to spread them.
    #[test]
    fn no_other_way_is_more_even(
        (weights, mut elections) in any_weights(0).prop_flat_map(|w| (Just(w.clone()), any_elections(w.len()))),
    ) {
        let nodes = nodes(&weights);
        let before = numbers(&nodes, &elections);
        let options: Vec<_> = elections.iter().zip(&before).map(|(election, &leader)| {
            let may = |n: &usize| {
                let fit = election.fit.as_ref().is_none_or(|fit| fit.contains(&id(*n)));
                *n == leader || !election.stays && fit && weights[*n] > 0
            };
            (0..nodes.len()).filter(may).collect::<Vec<_>>()
        }).collect();
        let ways = ways(&options);
        let best = ways.iter().map(|way| unevenness(&nodes, way)).min().unwrap();

        let plan = FairShare { at_most: 100 }.plan(&nodes, &elections);
        prop_assert_eq!(plan.left, 0);
        follow(&plan, &mut elections);
        let after = numbers(&nodes, &elections);
        prop_assert!(ways.contains(&after), "{:?} from {:?} of {:?}", after, before, options);
        prop_assert_eq!(unevenness(&nodes, &after), best, "{:?} from {:?}", after, before);
        // Where every node can lead every election, in as few moves as that takes.
        if elections.iter().all(|e| e.fit.is_none() && !e.stays) {
            let moves = |way: &Vec<usize>| way.iter().zip(&before).filter(|(a, b)| a != b).count();
            let ways = ways.iter().filter(|way| unevenness(&nodes, way) == best);
            prop_assert_eq!(plan.moves.len(), ways.map(moves).min().unwrap());
        }
    }

    #[test]
    fn a_few_at_a_time_come_to_rest_and_every_step_is_a_gain(
        (weights, mut elections) in any_weights(0).prop_flat_map(|w| (Just(w.clone()), any_elections(w.len()))),
        at_most in 1..4_usize,
    ) {
        let nodes = nodes(&weights);
        let mut now = unevenness(&nodes, &numbers(&nodes, &elections));
        loop {
            let plan = FairShare { at_most }.plan(&nodes, &elections);
            if plan.moves.is_empty() {
                prop_assert_eq!(plan.left, 0);
                break;
            }
            follow(&plan, &mut elections);
            let next = unevenness(&nodes, &numbers(&nodes, &elections));
            prop_assert!(next < now, "{:?} and then {:?}", now, next);
            now = next;
        }
        let whole = FairShare { at_most: 100 }.plan(&nodes, &elections);
        prop_assert_eq!(whole, Plan::default());
    }

    #[test]
    fn who_comes_and_goes_disturbs_nobody_else(
        weights in prop::collection::vec(1..9_u32, 2..8),
        jobs in 0..60_usize,
        which in any::<prop::sample::Index>(),
    ) {
        let all = nodes(&weights);
        let mut elections = led_by((0..jobs).map(|n| Some(n % all.len())));
        settle(100, &all, &mut elections);
        let gone = which.index(all.len());
        let mut rest = all.clone();
        let gone = rest.remove(gone);

        let plan = FairShare { at_most: 100 }.plan(&rest, &elections);
        prop_assert_eq!(&plan.moves, &[], "it left, and others move");
        follow(&plan, &mut elections);
        prop_assert_eq!(FairShare { at_most: 100 }.plan(&rest, &elections), Plan::default());

        let back = FairShare { at_most: 100 }.plan(&all, &elections);
        prop_assert!(back.moves.iter().all(|m| m.to == gone.member), "{:?}", back);
    }

    #[test]
    fn the_order_of_the_input_is_of_no_account(
        (weights, elections, shuffled) in any_weights(0).prop_flat_map(|w| {
            let elections = any_elections(w.len());
            (Just(w), elections).prop_flat_map(|(w, e)| (Just(w), Just(e.clone()), Just(e).prop_shuffle()))
        }),
        at_most in 0..4_usize,
    ) {
        let nodes = nodes(&weights);
        let mut reversed = nodes.clone();
        reversed.reverse();
        let plan = FairShare { at_most }.plan(&nodes, &elections);
        prop_assert_eq!(&plan, &FairShare { at_most }.plan(&reversed, &shuffled));
        let mut names = BTreeMap::new();
        for m in &plan.moves {
            prop_assert!(names.insert(&m.election, ()).is_none(), "{} moves twice", m.election);
            prop_assert_ne!(&m.from, &m.to);
        }
        prop_assert!(at_most > 0 || plan.moves.is_empty());
    }
}
