//! How long a ranking takes: `cargo bench -p strategies`.

use divan::{Bencher, black_box};
use election_core::strategy::Cause;
use strategies::{
    PolicySpec,
    fair_share::{Election, FairShare, Node},
    testing,
};

fn main() {
    divan::main();
}

/// Members of two sites in turn, one in ten of them unfit.
fn view(members: u32, cause: Cause) -> testing::View {
    let members = (0..members).map(|n| {
        let site = ["east", "west"][n as usize % 2];
        let id = format!("member-{n}");
        match n % 10 {
            9 => testing::unhealthy(&id, site, n, "disk full"),
            _ => testing::member(&id, site, n),
        }
    });
    testing::View {
        cause,
        failed: Some(testing::previous("member-0", "east", 0)),
        ..testing::View::of(members)
    }
}

fn rank(bencher: Bencher<'_, '_>, members: u32, cause: Cause) {
    let policy = PolicySpec::for_sites(testing::sites(["east", "west"]));
    let (strategy, view) = (policy.strategy(), view(members, cause));
    bencher.bench(|| strategy.rank(black_box(&view.round())));
}

#[divan::bench(args = [4, 100, 1000])]
fn startup(bencher: Bencher<'_, '_>, members: u32) {
    rank(bencher, members, Cause::Startup);
}

#[divan::bench(args = [4, 100, 1000])]
fn leader_lost(bencher: Bencher<'_, '_>, members: u32) {
    rank(bencher, members, Cause::LeaderLost);
}

/// One of ten members leaves, and each of so many elections that they all take part in is
/// ranked anew.
#[divan::bench(args = [1000, 10_000])]
fn elections_on_one_loss(bencher: Bencher<'_, '_>, elections: u32) {
    let policy = PolicySpec::for_sites(testing::sites(["east", "west"]));
    let strategy = policy.strategy();
    let mut view = view(10, Cause::LeaderLost);
    view.members.remove(0);
    let views: Vec<_> = (0..elections).map(|_| view.clone()).collect();
    bencher.bench(|| {
        for view in &views {
            black_box(strategy.rank(black_box(&view.round())));
        }
    });
}

/// The shares of ten nodes after one of them has left.
#[divan::bench(args = [1000, 10_000])]
fn fair_share_on_one_loss(bencher: Bencher<'_, '_>, elections: usize) {
    let ids: Vec<_> = (0..10).map(|n| testing::member(&format!("member-{n}"), "east", n).member).collect();
    let nodes: Vec<_> = ids[1..].iter().map(|id| Node { member: id.clone(), weight: 1 }).collect();
    let election = |n: usize| Election {
        name: format!("job-{n}"),
        leader: Some(ids[n % ids.len()].clone()),
        fit: None,
        stays: false,
    };
    let elections: Vec<_> = (0..elections).map(election).collect();
    bencher.bench(|| FairShare { at_most: 100 }.plan(black_box(&nodes), black_box(&elections)));
}

/// All of them led by one of ten nodes: the whole plan to make them even.
#[divan::bench(args = [1000, 10_000])]
fn fair_share_from_one_node(bencher: Bencher<'_, '_>, elections: usize) {
    let ids: Vec<_> = (0..10).map(|n| testing::member(&format!("member-{n}"), "east", n).member).collect();
    let nodes: Vec<_> = ids.iter().map(|id| Node { member: id.clone(), weight: 1 }).collect();
    let election = |n: usize| Election {
        name: format!("job-{n}"),
        leader: Some(ids[0].clone()),
        fit: None,
        stays: false,
    };
    let elections: Vec<_> = (0..elections).map(election).collect();
    bencher.bench(|| FairShare { at_most: 100 }.plan(black_box(&nodes), black_box(&elections)));
}
