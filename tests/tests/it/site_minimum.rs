//! Sites with too few fit members, where that is a condition for leading.

use e2e::{Cluster, Driver, SOON, Setup, wait_for};

/// The other worker of its site.
fn spare_of(id: &str) -> String {
    let (site, number) = id.split_once('-').unwrap();
    format!("{site}-{}", if number == "1" { 2 } else { 1 })
}

/// Waits until `explain` shows this.
async fn explained(cluster: &Cluster, words: &str) {
    wait_for(&format!("{words:?} in explain"), SOON, async || {
        let said = cluster.operator().run(&["explain"]).await;
        if said.stdout.contains(words) { Ok(()) } else { Err(format!("{}{}", said.stdout, said.stderr)) }
    })
    .await;
}

#[tokio::test]
async fn a_leader_stays_without_its_spare_and_a_short_site_gets_no_new_one() {
    let least: toml::Table = toml::from_str("east = 2\nwest = 2").unwrap();
    let setup = Setup::new(Driver::Native)
        .set("policy.site_minimum", least)
        .set("policy.below_site_minimum", "never");
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.settled().await;
    let (home, spare) = (first.site.clone(), spare_of(&first.member));
    let short = |site: &str| format!("site {site} has 1 fit member of at least 2");
    cluster.acts(first.token).await;

    // What simulate predicts: the leader leads on without its spare.
    let told = cluster.operator().json(&["simulate", "--without", &spare]).await;
    assert_eq!(told["slots"][0]["would_lead"]["member"], first.member.as_str(), "{told:#}");

    cluster.worker(&spare).kill();
    explained(&cluster, &short(&home)).await;
    assert_eq!(cluster.leader().await.unwrap(), first);

    // It is lost: the other site has enough.
    cluster.worker(&first.member).kill();
    let second = cluster.successor_of(&first, SOON).await;
    assert_ne!(second.site, home);
    cluster.worker(&spare).start();
    cluster.standing_by(2).await;
    let refusal = format!("{} (below_site_minimum)", short(&home));
    explained(&cluster, &refusal).await;
    let refused = cluster.operator().run(&["switchover", "--to", &spare, "--wait"]).await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains(&refusal), "{refused:?}");

    // Neither site has enough: no member is elected, also not by request.
    cluster.worker(&spare_of(&second.member)).kill();
    explained(&cluster, &short(&second.site)).await;
    cluster.worker(&second.member).kill();
    explained(&cluster, "no member may lead").await;
    assert!(cluster.leader().await.is_err());
    let refused = cluster.operator().run(&["failover", "--to", &spare, "--accept-loss", "--wait"]).await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains(&refusal), "{refused:?}");

    // Once a site has enough again, one of its members leads by itself.
    cluster.worker(&first.member).start();
    let third = cluster.successor_of(&second, SOON).await;
    assert_eq!(third.site, home);
    cluster.acts(third.token).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}
