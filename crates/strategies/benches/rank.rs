//! How long a ranking takes: `cargo bench -p strategies`.

use divan::{Bencher, black_box};
use election_core::record::Cause;
use strategies::SitePolicy;

#[path = "../tests/support/mod.rs"]
mod support;

fn main() {
    divan::main();
}

/// Members of two sites in turn, one in ten of them unfit.
fn view(members: u32, cause: Cause) -> support::View {
    let members = (0..members).map(|n| {
        let site = ["east", "west"][n as usize % 2];
        let id = format!("member-{n}");
        match n % 10 {
            9 => support::unhealthy(&id, site, n, "disk full"),
            _ => support::member(&id, site, n),
        }
    });
    support::View {
        cause,
        failed: Some(support::previous("member-0", "east", 0)),
        ..support::View::of(members)
    }
}

fn rank(bencher: Bencher<'_, '_>, members: u32, cause: Cause) {
    let policy = SitePolicy { sites: support::sites(["east", "west"]), ..SitePolicy::default() };
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
