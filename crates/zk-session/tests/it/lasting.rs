//! Watches that stay: each change in its order, and a gap wherever something may have been left out.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{Bed, PATIENCE, eventually, monitored, seed, soon, wait_state};
use futures_util::future::join_all;
use zk_session::{Change, ChangeKind, ChangeWatch, CreateMode, DriverKind, Epoch, Session, SessionState};

on_each_server!(
    each_change_of_a_znode_is_told_in_its_order,
    each_change_of_a_tree_is_told_in_its_order,
    paths_are_told_without_the_root_of_the_session,
    a_reconnect_is_a_gap_and_the_watch_goes_on,
    a_new_session_is_a_gap_and_the_watch_goes_on,
    nothing_is_missed_between_a_gap_and_the_next_event,
    both_kinds_go_on_beside_each_other_on_one_path,
    one_shot_watches_go_on_beside_a_lasting_one_and_after_it,
    a_lasting_watch_goes_on_after_the_one_shot_watches_beside_it,
    a_lasting_watch_that_is_dropped_is_removed_on_the_server,
    changes_that_nobody_takes_become_a_gap,
    one_shot_watches_that_are_given_up_are_few_on_the_server,
    lasting_watches_end_with_the_session,
);

async fn next(watch: &mut ChangeWatch) -> (ChangeKind, String) {
    let Change { kind, path, .. } = soon("the next change", watch.next()).await.unwrap();
    (kind, path)
}

async fn expect(watch: &mut ChangeWatch, kind: ChangeKind, path: &str) {
    assert_eq!(next(watch).await, (kind, path.to_owned()));
}

/// Passes over gaps.
async fn next_event(watch: &mut ChangeWatch) -> (ChangeKind, String) {
    loop {
        let change = next(watch).await;
        if change.0 != ChangeKind::Gap {
            return change;
        }
    }
}

async fn persistent(session: &Session, path: &str) {
    session.create(path, "", CreateMode::Persistent).await.unwrap();
}

async fn each_change_of_a_znode_is_told_in_its_order(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let mut watch = session.watch_each("/a");
    assert_eq!(watch.path(), "/a");
    expect(&mut watch, ChangeKind::Gap, "/a").await;
    for _ in 0..2 {
        persistent(&observer, "/a").await;
        observer.set("/a", "one", None).await.unwrap();
        observer.set("/a", "two", None).await.unwrap();
        persistent(&observer, "/a/b").await;
        // Not of this znode nor of the names of its children.
        observer.set("/a/b", "three", None).await.unwrap();
        observer.delete("/a/b", None).await.unwrap();
        observer.delete("/a", None).await.unwrap();
    }
    for _ in 0..2 {
        expect(&mut watch, ChangeKind::Created, "/a").await;
        expect(&mut watch, ChangeKind::DataChanged, "/a").await;
        expect(&mut watch, ChangeKind::DataChanged, "/a").await;
        expect(&mut watch, ChangeKind::ChildrenChanged, "/a").await;
        expect(&mut watch, ChangeKind::ChildrenChanged, "/a").await;
        expect(&mut watch, ChangeKind::Deleted, "/a").await;
    }
}

async fn each_change_of_a_tree_is_told_in_its_order(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let mut watch = session.watch_tree("/a");
    expect(&mut watch, ChangeKind::Gap, "/a").await;
    for path in ["/a", "/a/b", "/ab", "/a/b/c"] {
        persistent(&observer, path).await;
    }
    observer.set("/a/b/c", "one", None).await.unwrap();
    observer.delete("/a/b/c", None).await.unwrap();
    observer.set("/a", "two", None).await.unwrap();
    observer.delete("/a/b", None).await.unwrap();
    observer.delete("/a", None).await.unwrap();
    for (kind, path) in [
        (ChangeKind::Created, "/a"),
        (ChangeKind::Created, "/a/b"),
        (ChangeKind::Created, "/a/b/c"),
        (ChangeKind::DataChanged, "/a/b/c"),
        (ChangeKind::Deleted, "/a/b/c"),
        (ChangeKind::DataChanged, "/a"),
        (ChangeKind::Deleted, "/a/b"),
        (ChangeKind::Deleted, "/a"),
    ] {
        expect(&mut watch, kind, path).await;
    }
    // The whole of what there is.
    let mut all = session.watch_tree("/");
    expect(&mut all, ChangeKind::Gap, "/").await;
    persistent(&observer, "/x").await;
    expect(&mut all, ChangeKind::Created, "/x").await;
}

async fn paths_are_told_without_the_root_of_the_session(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let observer = bed.observer().await;
    persistent(&observer, "/root").await;
    let connect = format!("{}/root", bed.proxy.addr());
    let session = crate::common::builder_for(driver, connect).connect().await.unwrap();
    let (mut one, mut tree) = (session.watch_each("/a"), session.watch_tree("/"));
    expect(&mut one, ChangeKind::Gap, "/a").await;
    expect(&mut tree, ChangeKind::Gap, "/").await;
    persistent(&observer, "/root/a").await;
    observer.set("/root", "one", None).await.unwrap();
    expect(&mut one, ChangeKind::Created, "/a").await;
    expect(&mut tree, ChangeKind::Created, "/a").await;
    expect(&mut tree, ChangeKind::DataChanged, "/").await;
}

async fn a_reconnect_is_a_gap_and_the_watch_goes_on(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let (mut one, mut tree) = (session.watch_each("/a"), session.watch_tree("/a"));
    let mut absent = session.watch_each("/absent");
    expect(&mut one, ChangeKind::Gap, "/a").await;
    expect(&mut tree, ChangeKind::Gap, "/a").await;
    expect(&mut absent, ChangeKind::Gap, "/absent").await;
    for round in 0..3 {
        bed.while_cut(&session, async || {
            if round == 0 {
                persistent(&observer, "/a").await;
            }
            observer.set("/a", "during the cut", None).await.unwrap();
        })
        .await;
        expect(&mut one, ChangeKind::Gap, "/a").await;
        expect(&mut tree, ChangeKind::Gap, "/a").await;
        expect(&mut absent, ChangeKind::Gap, "/absent").await;
        observer.set("/a", "after it", None).await.unwrap();
        expect(&mut one, ChangeKind::DataChanged, "/a").await;
        expect(&mut tree, ChangeKind::DataChanged, "/a").await;
        let child = format!("/a/{round}");
        persistent(&observer, &child).await;
        expect(&mut one, ChangeKind::ChildrenChanged, "/a").await;
        expect(&mut tree, ChangeKind::Created, &child).await;
    }
    persistent(&observer, "/absent").await;
    expect(&mut absent, ChangeKind::Created, "/absent").await;
    assert_eq!(session.active().await.unwrap().epoch(), Epoch(1));
}

async fn a_new_session_is_a_gap_and_the_watch_goes_on(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    persistent(&observer, "/a").await;
    let mut watch = session.watch_each("/a");
    expect(&mut watch, ChangeKind::Gap, "/a").await;
    bed.while_cut(&session, async || {
        wait_state(&session, "over", |state| matches!(state, SessionState::Inactive { .. })).await;
        observer.set("/a", "meanwhile", None).await.unwrap();
    })
    .await;
    let change = soon("the next change", watch.next()).await.unwrap();
    assert_eq!((change.kind, change.epoch), (ChangeKind::Gap, Epoch(2)));
    observer.set("/a", "later", None).await.unwrap();
    let change = soon("the next change", watch.next()).await.unwrap();
    assert_eq!((change.kind, change.epoch), (ChangeKind::DataChanged, Epoch(2)));
}

/// A writer makes one child after another while the connection is cut again and again. Whoever reads the children after
/// each gap, and adds what is told between, knows all of them.
async fn nothing_is_missed_between_a_gap_and_the_next_event(driver: DriverKind) {
    const CHILDREN: usize = 600;
    let mut random = fastrand::Rng::with_seed(seed());
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    persistent(&observer, "/a").await;
    let mut watch = session.watch_tree("/a");
    let write = async {
        let mut back = CHILDREN;
        for n in 0..CHILDREN {
            persistent(&observer, &format!("/a/{n:0>4}")).await;
            if n == back {
                eventually("a connection", async || bed.proxy.connections() == 1).await;
                session.barrier().await.unwrap();
                back = CHILDREN;
            } else if back == CHILDREN && random.u32(..20) == 0 {
                bed.proxy.cut().await;
                // Some while there is none.
                back = n + random.usize(1..10);
            }
        }
    };
    let read = async {
        let (mut known, mut gaps) = (BTreeSet::new(), 0);
        let last = format!("{:0>4}", CHILDREN - 1);
        let mut before = String::new();
        while !known.contains(&last) {
            let (kind, path) = next(&mut watch).await;
            if kind == ChangeKind::Gap {
                gaps += 1;
                before.clear();
                // What was known from before the gap does not count: it must be read again.
                known = session.children("/a").await.unwrap().unwrap().names.into_iter().collect();
                continue;
            }
            assert_eq!(kind, ChangeKind::Created, "{path}");
            let name = path.strip_prefix("/a/").unwrap().to_owned();
            assert!(name > before, "{name} after {before}");
            before.clone_from(&name);
            known.insert(name);
        }
        (known, gaps)
    };
    let ((), (known, gaps)) = futures_util::future::join(write, read).await;
    println!("{gaps} gaps");
    assert!(gaps > 3, "{gaps}");
    let missed: Vec<usize> = (0..CHILDREN).filter(|n| !known.contains(&format!("{n:0>4}"))).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

/// Servers before 3.9 keep one of the two for a session, the last one that was asked for.
async fn both_kinds_go_on_beside_each_other_on_one_path(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    persistent(&observer, "/a").await;
    for tree_first in [true, false] {
        let (mut each, mut tree) = (session.watch_each("/a"), session.watch_tree("/a"));
        if tree_first {
            expect(&mut tree, ChangeKind::Gap, "/a").await;
        }
        expect(&mut each, ChangeKind::Gap, "/a").await;
        if !tree_first {
            expect(&mut tree, ChangeKind::Gap, "/a").await;
        }
        let happen = async || {
            persistent(&observer, "/a/b").await;
            persistent(&observer, "/a/b/c").await;
            observer.delete("/a/b/c", None).await.unwrap();
            observer.set("/a", "one", None).await.unwrap();
            observer.delete("/a/b", None).await.unwrap();
        };
        let expect_each = async |each: &mut ChangeWatch| {
            expect(each, ChangeKind::ChildrenChanged, "/a").await;
            expect(each, ChangeKind::DataChanged, "/a").await;
            expect(each, ChangeKind::ChildrenChanged, "/a").await;
        };
        for cut in [false, true] {
            if cut {
                bed.while_cut(&session, async || {}).await;
                expect(&mut each, ChangeKind::Gap, "/a").await;
                expect(&mut tree, ChangeKind::Gap, "/a").await;
            }
            happen().await;
            expect_each(&mut each).await;
            for (kind, path) in [
                (ChangeKind::Created, "/a/b"),
                (ChangeKind::Created, "/a/b/c"),
                (ChangeKind::Deleted, "/a/b/c"),
                (ChangeKind::DataChanged, "/a"),
                (ChangeKind::Deleted, "/a/b"),
            ] {
                expect(&mut tree, kind, path).await;
            }
        }
        drop(tree);
        for cut in [false, true] {
            if cut {
                bed.while_cut(&session, async || {}).await;
                expect(&mut each, ChangeKind::Gap, "/a").await;
            }
            happen().await;
            expect_each(&mut each).await;
        }
    }
}

async fn one_shot_watches_go_on_beside_a_lasting_one_and_after_it(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    persistent(&observer, "/a").await;
    persistent(&observer, "/a/b").await;
    for recursive in [false, true] {
        for one_shot_first in [false, true] {
            let lasting = || if recursive { session.watch_tree("/a") } else { session.watch_each("/a") };
            let (mut early, mut late) = (None, None);
            let mut data = session.watch_data("/a");
            let mut children = session.watch_children("/a");
            if !one_shot_first {
                expect(early.insert(lasting()), ChangeKind::Gap, "/a").await;
            }
            soon("data", data.next()).await.unwrap();
            soon("children", children.next()).await.unwrap();
            if one_shot_first {
                expect(late.insert(lasting()), ChangeKind::Gap, "/a").await;
            }
            let mut watch = early.or(late).unwrap();
            let mut change = async |what: &str| {
                let what = format!("{what} {recursive} {one_shot_first}");
                observer.set("/a", &what, None).await.unwrap();
                assert_eq!(soon(&what, data.next()).await.unwrap().value.unwrap().data, what.as_bytes());
                let made = observer.create_sequential(
                    "/a/n",
                    "",
                    CreateMode::Persistent,
                    zk_session::Recovery::Data,
                );
                let made = made.await.unwrap().path;
                let names = soon(&what, children.next()).await.unwrap().value.unwrap().names;
                assert!(names.iter().any(|name| made.ends_with(name.as_str())), "{what}: {names:?}");
                made
            };
            for n in 0..2 {
                let made = change(&format!("beside it, {n}")).await;
                expect(&mut watch, ChangeKind::DataChanged, "/a").await;
                if recursive {
                    expect(&mut watch, ChangeKind::Created, &made).await;
                } else {
                    expect(&mut watch, ChangeKind::ChildrenChanged, "/a").await;
                }
            }
            drop(watch);
            for n in 0..2 {
                change(&format!("after it, {n}")).await;
            }
        }
    }
    // Below a tree that is watched.
    let mut tree = session.watch_tree("/a");
    expect(&mut tree, ChangeKind::Gap, "/a").await;
    let mut below = session.watch_data("/a/b");
    soon("data", below.next()).await.unwrap();
    for n in 0..4 {
        if n == 2 {
            // Nothing else is told to it.
            tree = session.watch_tree("/nothing");
            expect(&mut tree, ChangeKind::Gap, "/nothing").await;
        }
        observer.set("/a/b", n.to_string(), None).await.unwrap();
        assert_eq!(soon("data", below.next()).await.unwrap().value.unwrap().data, n.to_string().as_bytes());
        if n < 2 {
            expect(&mut tree, ChangeKind::DataChanged, "/a/b").await;
        }
    }
}

async fn a_lasting_watch_goes_on_after_the_one_shot_watches_beside_it(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    persistent(&observer, "/a").await;
    let mut watch = session.watch_each("/a");
    expect(&mut watch, ChangeKind::Gap, "/a").await;
    // As many as make it forget the oldest on the server.
    for n in 0..200 {
        let mut data = session.watch_data(if n % 2 == 0 { "/a".to_owned() } else { format!("/{n}") });
        soon("data", data.next()).await.unwrap();
    }
    let mut same = session.watch_each("/a");
    expect(&mut same, ChangeKind::Gap, "/a").await;
    drop(same);
    for _ in 0..2 {
        observer.set("/a", "", None).await.unwrap();
        assert_eq!(next_event(&mut watch).await, (ChangeKind::DataChanged, "/a".to_owned()));
    }
}

async fn watches_on_the_server(bed: &Bed) -> u64 {
    monitored(bed.ensemble.addresses()[0], "zk_watch_count").await
}

async fn a_lasting_watch_that_is_dropped_is_removed_on_the_server(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    assert_eq!(watches_on_the_server(&bed).await, 0);
    let mut watches = Vec::new();
    for n in 0..20 {
        let path = format!("/{}", n / 2);
        let mut watch = if n % 2 == 0 { session.watch_each(path) } else { session.watch_tree(path) };
        soon("a gap", watch.next()).await.unwrap();
        watches.push(watch);
    }
    assert!(watches_on_the_server(&bed).await >= 10);
    // Dropped while it is waited for, too.
    assert!(tokio::time::timeout(Duration::ZERO, watches[0].next()).await.is_err());
    drop(watches);
    eventually("no watch on the server", async || watches_on_the_server(&bed).await == 0).await;
    // Dropped before it is set.
    for _ in 0..20 {
        let mut watch = session.watch_each("/a");
        let _ = tokio::time::timeout(Duration::ZERO, watch.next()).await;
    }
    session.barrier().await.unwrap();
    eventually("no watch on the server", async || watches_on_the_server(&bed).await == 0).await;
}

async fn changes_that_nobody_takes_become_a_gap(driver: DriverKind) {
    const CHANGES: usize = 3000;
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    persistent(&observer, "/a").await;
    let mut watch = session.watch_each("/a");
    expect(&mut watch, ChangeKind::Gap, "/a").await;
    for _ in 0..CHANGES / 100 {
        for done in join_all((0..100).map(|_| observer.set("/a", "", None))).await {
            done.unwrap();
        }
    }
    // What was told is on its way before the answer to this.
    session.barrier().await.unwrap();
    session.barrier().await.unwrap();
    // It comes, although there is news all the time.
    let mut told = 0;
    while next(&mut watch).await.0 != ChangeKind::Gap {
        told += 1;
        assert!(told < CHANGES, "no gap");
        observer.set("/a", "", None).await.unwrap();
    }
    println!("{told} changes told before the gap");
    assert!(told >= 100, "{told}");
    // What the driver had kept back can fill the room anew, and then this is in the next gap.
    let mut children = 0;
    persistent(&observer, "/a/0").await;
    loop {
        match next(&mut watch).await.0 {
            ChangeKind::ChildrenChanged => break,
            ChangeKind::Gap => {
                children += 1;
                persistent(&observer, &format!("/a/{children}")).await;
            }
            _ => {}
        }
    }
}

async fn one_shot_watches_that_are_given_up_are_few_on_the_server(driver: DriverKind) {
    const WATCHES: usize = 5000;
    const MOST: u64 = 64;
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    for from in (0..WATCHES).step_by(50) {
        let watches = (from..from + 50).map(|n| {
            let mut watch = session.watch_data(format!("/absent-{n}"));
            async move { soon("that there is none", watch.next()).await.unwrap() }
        });
        for observed in join_all(watches).await {
            assert!(observed.value.is_none());
        }
    }
    session.barrier().await.unwrap();
    eventually("few watches on the server", async || watches_on_the_server(&bed).await <= MOST).await;
    // Those that are in use stay.
    let mut kept = session.watch_data("/kept");
    assert!(soon("that there is none", kept.next()).await.unwrap().value.is_none());
    let observer = bed.observer().await;
    persistent(&observer, "/kept").await;
    assert!(soon("that it is there", kept.next()).await.unwrap().value.is_some());
}

async fn lasting_watches_end_with_the_session(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let mut watch = session.watch_each("/a");
    expect(&mut watch, ChangeKind::Gap, "/a").await;
    let (ended, _) = tokio::join!(soon("the end", watch.next()), session.close(PATIENCE));
    assert!(ended.is_err());
}
