//! Watches and held znodes across cuts and new sessions.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::common::{Bed, PATIENCE, TIMEOUT, eventually, soon, wait_for, wait_state};
use futures_util::future::join;
use futures_util::{StreamExt, poll};
use zk_session::{
    ChangeKind, CreateMode, DriverKind, Epoch, HeldStatus, OpError, Session, SessionId, SessionState,
};

on_each_server!(
    data_is_told_once_and_after_each_change,
    children_are_told_once_and_after_each_change,
    what_changed_during_a_cut_is_told,
    what_did_not_change_during_a_cut_is_not_told_again,
    watches_go_on_in_a_new_session,
    the_wait_for_the_next_value_can_be_dropped,
    watches_end_with_the_session,
    a_stream_yields_what_next_returns_and_ends_with_the_session,
    a_stream_that_is_polled_now_and_then_loses_nothing,
    a_held_ephemeral_comes_with_its_parents_and_changes_its_data,
    a_held_ephemeral_is_created_again_after_its_deletion,
    what_changed_while_the_session_was_away_is_held_in_the_next,
    who_took_the_place_while_the_session_was_away_keeps_it,
    a_held_ephemeral_waits_for_anothers_and_takes_its_place,
    two_who_hold_the_same_path_take_turns,
    one_session_holds_a_path_once,
    a_dropped_held_ephemeral_goes,
    what_was_begun_outside_the_runtime_of_the_session_goes_on_after_it,
);

async fn data_is_told_once_and_after_each_change(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let mut watch = session.watch_data("/a");
    let mut next = async || {
        let observed = soon("the next value", watch.next()).await.unwrap();
        assert_eq!(observed.epoch, Epoch(1));
        observed.value.map(|node| String::from_utf8(node.data).unwrap())
    };
    assert_eq!(next().await, None);
    observer.create("/a", "one", CreateMode::Persistent).await.unwrap();
    assert_eq!(next().await.as_deref(), Some("one"));
    observer.set("/a", "two", None).await.unwrap();
    assert_eq!(next().await.as_deref(), Some("two"));
    observer.delete("/a", None).await.unwrap();
    assert_eq!(next().await, None);
    observer.create("/a", "three", CreateMode::Persistent).await.unwrap();
    assert_eq!(next().await.as_deref(), Some("three"));
}

async fn children_are_told_once_and_after_each_change(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let mut watch = session.watch_children("/a");
    let mut next =
        async || soon("the next value", watch.next()).await.unwrap().value.map(|children| children.names);
    assert_eq!(next().await, None);
    observer.create("/a", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(next().await, Some(vec![]));
    observer.create("/a/1", "", CreateMode::Ephemeral).await.unwrap();
    assert_eq!(next().await, Some(vec!["1".to_owned()]));
    observer.create("/a/2", "", CreateMode::Ephemeral).await.unwrap();
    assert_eq!(next().await, Some(vec!["1".to_owned(), "2".to_owned()]));
    observer.delete("/a/1", None).await.unwrap();
    assert_eq!(next().await, Some(vec!["2".to_owned()]));
    observer.delete("/a/2", None).await.unwrap();
    assert_eq!(next().await, Some(vec![]));
    observer.delete("/a", None).await.unwrap();
    assert_eq!(next().await, None);
}

async fn what_changed_during_a_cut_is_told(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    observer.create("/data", "one", CreateMode::Persistent).await.unwrap();
    observer.create("/deleted", "", CreateMode::Persistent).await.unwrap();
    observer.create("/children", "", CreateMode::Persistent).await.unwrap();
    let mut data = session.watch_data("/data");
    let mut deleted = session.watch_data("/deleted");
    let mut created = session.watch_data("/created");
    let mut children = session.watch_children("/children");
    for watch in [&mut data, &mut deleted, &mut created] {
        soon("the first value", watch.next()).await.unwrap();
    }
    soon("the first value", children.next()).await.unwrap();
    bed.while_cut(&session, async || {
        observer.set("/data", "two", None).await.unwrap();
        observer.set("/data", "three", None).await.unwrap();
        observer.delete("/deleted", None).await.unwrap();
        observer.create("/created", "new", CreateMode::Persistent).await.unwrap();
        observer.create("/children/1", "", CreateMode::Persistent).await.unwrap();
    })
    .await;
    let observed = soon("the new data", data.next()).await.unwrap();
    assert_eq!((observed.epoch, observed.value.unwrap().data), (Epoch(1), b"three".to_vec()));
    assert_eq!(soon("the deletion", deleted.next()).await.unwrap().value, None);
    assert_eq!(soon("the creation", created.next()).await.unwrap().value.unwrap().data, b"new");
    assert_eq!(soon("the child", children.next()).await.unwrap().value.unwrap().names, ["1"]);
    // And they are armed for what comes next.
    observer.set("/data", "four", None).await.unwrap();
    assert_eq!(soon("the next change", data.next()).await.unwrap().value.unwrap().data, b"four");
}

async fn what_did_not_change_during_a_cut_is_not_told_again(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    observer.create("/a", "one", CreateMode::Persistent).await.unwrap();
    let (mut data, mut children) = (session.watch_data("/a"), session.watch_children("/a"));
    soon("the first value", data.next()).await.unwrap();
    soon("the first value", children.next()).await.unwrap();
    bed.while_cut(&session, async || {}).await;
    observer.set("/a", "two", None).await.unwrap();
    observer.create("/a/1", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(soon("the next data", data.next()).await.unwrap().value.unwrap().data, b"two");
    assert_eq!(soon("the next children", children.next()).await.unwrap().value.unwrap().names, ["1"]);
}

async fn watches_go_on_in_a_new_session(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    observer.create("/a", "one", CreateMode::Persistent).await.unwrap();
    let (mut data, mut children) = (session.watch_data("/a"), session.watch_children("/a"));
    soon("the first value", data.next()).await.unwrap();
    soon("the first value", children.next()).await.unwrap();
    lose_session(&bed, &session).await;
    let observed = soon("the value in the new session", data.next()).await.unwrap();
    assert_eq!((observed.epoch, observed.value.unwrap().data), (Epoch(2), b"one".to_vec()));
    assert_eq!(soon("the value in the new session", children.next()).await.unwrap().epoch, Epoch(2));
    observer.set("/a", "two", None).await.unwrap();
    assert_eq!(soon("the next change", data.next()).await.unwrap().value.unwrap().data, b"two");
}

/// Keeps the session away from the server until both know that it is over, and lets a new one be made.
async fn lose_session(bed: &Bed, session: &Session) -> SessionId {
    let before = session.active().await.unwrap();
    bed.proxy.refuse(true).await.unwrap();
    bed.proxy.cut().await;
    wait_state(session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
    bed.proxy.refuse(false).await.unwrap();
    wait_state(session, "a new session", |state| state.is_active()).await;
    before.session_id()
}

async fn the_wait_for_the_next_value_can_be_dropped(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let mut watch = session.watch_data("/a");
    // At every point of its way.
    for polls in 0..40 {
        let mut next = Box::pin(watch.next());
        for _ in 0..polls {
            if futures_util::poll!(&mut next).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    observer.create("/a", "one", CreateMode::Persistent).await.unwrap();
    let told = soon("the value", async {
        loop {
            if let Some(node) = watch.next().await.unwrap().value {
                return node.data;
            }
        }
    });
    assert_eq!(told.await, b"one");
}

async fn a_stream_yields_what_next_returns_and_ends_with_the_session(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let data = session.watch_data("/a").map(|observed| observed.unwrap().value.map(|node| node.data));
    let children = session.watch_children("/a");
    let children = children.map(|observed| observed.unwrap().value.map(|children| children.names));
    let changes = session.watch_tree("/a").map(Result::unwrap).map(|change| (change.kind, change.path));
    let (mut data, mut children, mut changes) = (pin!(data), pin!(children), pin!(changes));
    assert_eq!(soon("no data", data.next()).await, Some(None));
    assert_eq!(soon("no children", children.next()).await, Some(None));
    assert_eq!(soon("a gap", changes.next()).await, Some((ChangeKind::Gap, "/a".to_owned())));
    observer.create("/a", "one", CreateMode::Persistent).await.unwrap();
    assert_eq!(soon("the data", data.next()).await, Some(Some(b"one".to_vec())));
    assert_eq!(soon("the children", children.next()).await, Some(Some(vec![])));
    observer.create("/a/b", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(soon("a child", children.next()).await, Some(Some(vec!["b".to_owned()])));
    for path in ["/a", "/a/b"] {
        assert_eq!(soon("a change", changes.next()).await, Some((ChangeKind::Created, path.to_owned())));
    }
    // Those that wait wake up, and those that are polled later end, too.
    let waiting = async { (data.next().await, changes.next().await) };
    let (ended, _) = soon("the end", join(waiting, session.close(PATIENCE))).await;
    assert_eq!(ended, (None, None));
    assert_eq!(soon("the end", children.next()).await, None);
    assert_eq!(soon("the same end", children.next()).await, None);
}

async fn a_stream_that_is_polled_now_and_then_loses_nothing(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let mut watch = session.watch_data("/a");
    let mut tree = session.watch_tree("/a");
    let mut told = Vec::new();
    let mut changes = 0;
    observer.create("/a", "0", CreateMode::Persistent).await.unwrap();
    // Each future is dropped after one poll. That of the method abandons its request, so there is one for each item; the
    // stream keeps its request.
    let mut by_method = true;
    soon("the last value", async {
        for round in 1_usize.. {
            let item = match std::mem::take(&mut by_method) {
                true => poll!(pin!(watch.next())).map(Result::unwrap),
                false => poll!(StreamExt::next(&mut watch)).map(|item| item.unwrap().unwrap()),
            };
            if let Poll::Ready(observed) = item {
                by_method = true;
                told.extend(observed.value.map(|node| node.stat.version));
                if told.len() < 10 {
                    observer.set("/a", round.to_string(), None).await.unwrap();
                }
            }
            if let Poll::Ready(change) = poll!(StreamExt::next(&mut tree)) {
                changes += usize::from(change.unwrap().unwrap().kind == ChangeKind::DataChanged);
            }
            if told.len() >= 10 && changes >= 5 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert!(told.is_sorted_by(|one, next| one < next), "{told:?}");
}

async fn watches_end_with_the_session(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let mut waiting = session.watch_data("/a");
    waiting.next().await.unwrap();
    let waiting = tokio::spawn(async move { waiting.next().await });
    session.close(PATIENCE).await;
    assert!(soon("the end of the watch", waiting).await.unwrap().is_err());
    assert!(session.watch_children("/a").next().await.is_err());
}

fn is_held(status: &HeldStatus) -> bool {
    matches!(status, HeldStatus::Held { .. })
}

async fn a_held_ephemeral_comes_with_its_parents_and_changes_its_data(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let held = session.hold_ephemeral("/some/where/me", "one").unwrap();
    let mut status = held.subscribe();
    wait_for(&mut status, "held", is_held).await;
    observer.barrier().await.unwrap();
    let node = observer.get("/some/where/me").await.unwrap().unwrap();
    assert!(node.stat.is_owned_by(session.active().await.unwrap().session_id()));
    assert_eq!(node.data, b"one");
    held.set_data("two");
    wait_for(
        &mut status,
        "version 1",
        |status| matches!(status, HeldStatus::Held { stat, .. } if stat.version == 1),
    )
    .await;
    observer.barrier().await.unwrap();
    assert_eq!(observer.get("/some/where/me").await.unwrap().unwrap().data, b"two");
    soon("the release", held.release()).await;
    observer.barrier().await.unwrap();
    assert_eq!(observer.get("/some/where/me").await, Ok(None));
    assert!(matches!(session.hold_ephemeral("me", ""), Err(OpError::Invalid { .. })));
}

async fn a_held_ephemeral_is_created_again_after_its_deletion(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let held = session.hold_ephemeral("/me", "").unwrap();
    let mut last = 0;
    // Each time as soon as it is there, often before its holder has had a look at what it has created.
    for _ in 0..200 {
        let is_newer =
            |status: &HeldStatus| matches!(status, HeldStatus::Held { stat, .. } if stat.czxid > last);
        let status = wait_for(&mut held.subscribe(), "held again", is_newer).await;
        let HeldStatus::Held { stat, .. } = status else { unreachable!() };
        last = stat.czxid;
        observer.delete("/me", None).await.unwrap();
    }
}

/// Keeps the session away until it is over and its ephemerals are gone, lets something happen, and lets a new one be made.
async fn while_away(bed: &Bed, session: &Session, observer: &Session, happening: impl AsyncFnOnce()) {
    bed.proxy.refuse(true).await.unwrap();
    bed.proxy.cut().await;
    wait_state(session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
    eventually("the end of its znode", || async { observer.get("/me").await == Ok(None) }).await;
    happening().await;
    bed.proxy.refuse(false).await.unwrap();
    wait_state(session, "a new session", |state| state.is_active()).await;
}

async fn what_changed_while_the_session_was_away_is_held_in_the_next(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let held = session.hold_ephemeral("/me", "one").unwrap();
    wait_for(&mut held.subscribe(), "held", is_held).await;
    while_away(&bed, &session, &observer, async || {
        assert!(!is_held(&held.status()), "{:?}", held.status());
        held.set_data("two");
    })
    .await;
    wait_for(&mut held.subscribe(), "held in the new session", |status| {
        matches!(status, HeldStatus::Held { epoch: Epoch(2), .. })
    })
    .await;
    let id = session.active().await.unwrap().session_id();
    eventually("the znode of the new session", || async {
        matches!(observer.get("/me").await, Ok(Some(node)) if node.stat.is_owned_by(id) && node.data == b"two")
    })
    .await;
}

async fn who_took_the_place_while_the_session_was_away_keeps_it(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let held = session.hold_ephemeral("/me", "one").unwrap();
    let mut status = held.subscribe();
    wait_for(&mut status, "held", is_held).await;
    let theirs = observer.active().await.unwrap().session_id();
    let mut stat = None;
    while_away(&bed, &session, &observer, async || {
        stat = Some(observer.create("/me", "theirs", CreateMode::Ephemeral).await.unwrap().stat);
    })
    .await;
    wait_for(&mut status, "a conflict", |status| *status == HeldStatus::Conflict { owner: Some(theirs) })
        .await;
    // Nothing is done about it, by other data neither.
    held.set_data("two");
    session.barrier().await.unwrap();
    observer.barrier().await.unwrap();
    let there = observer.get("/me").await.unwrap().unwrap();
    assert_eq!((there.data.as_slice(), Some(there.stat)), (&b"theirs"[..], stat));
    assert_eq!(held.status(), HeldStatus::Conflict { owner: Some(theirs) });
    observer.delete("/me", None).await.unwrap();
    wait_for(&mut status, "held", is_held).await;
    observer.barrier().await.unwrap();
    assert_eq!(observer.get("/me").await.unwrap().unwrap().data, b"two");
}

async fn a_held_ephemeral_waits_for_anothers_and_takes_its_place(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    observer.create("/me", "theirs", CreateMode::Ephemeral).await.unwrap();
    let theirs = observer.active().await.unwrap().session_id();
    let held = session.hold_ephemeral("/me", "mine").unwrap();
    let mut status = held.subscribe();
    wait_for(&mut status, "a conflict", |status| *status == HeldStatus::Conflict { owner: Some(theirs) })
        .await;
    assert_eq!(observer.get("/me").await.unwrap().unwrap().data, b"theirs");
    observer.close(PATIENCE).await;
    wait_for(&mut status, "held", is_held).await;
    assert_eq!(session.get("/me").await.unwrap().unwrap().data, b"mine");
}

/// However the creations of the one and the deletions of others fall between the looks of the other.
async fn two_who_hold_the_same_path_take_turns(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (one, other, observer) = (bed.session().await, bed.session().await, bed.observer().await);
    let (one, other) =
        (one.hold_ephemeral("/me", "one").unwrap(), other.hold_ephemeral("/me", "other").unwrap());
    let mut last = 0;
    for round in 0..200 {
        let newest = || {
            let czxid = |status| match status {
                HeldStatus::Held { stat, .. } => stat.czxid,
                _ => 0,
            };
            czxid(one.status()).max(czxid(other.status()))
        };
        eventually("somebody who holds it", async || newest() > last).await;
        last = newest();
        if round < 199 {
            observer.delete("/me", None).await.unwrap();
        }
    }
    let in_conflict = |status: HeldStatus| matches!(status, HeldStatus::Conflict { owner: Some(_) });
    eventually("one of them in conflict", async || in_conflict(one.status()) != in_conflict(other.status()))
        .await;
    let (holder, next) = if is_held(&one.status()) { (one, other) } else { (other, one) };
    soon("the release", holder.release()).await;
    wait_for(&mut next.subscribe(), "its turn", is_held).await;
}

async fn one_session_holds_a_path_once(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let own = session.active().await.unwrap().session_id();
    let first = session.hold_ephemeral("/some/me", "one").unwrap();
    wait_for(&mut first.subscribe(), "held", is_held).await;
    // The same znode by another path.
    let second = session.chroot("/some").unwrap().hold_ephemeral("/me", "two").unwrap();
    let mut status = second.subscribe();
    let in_conflict = HeldStatus::Conflict { owner: Some(own) };
    wait_for(&mut status, "a conflict", |status| *status == in_conflict).await;
    first.set_data("new");
    let is_new = |status: &HeldStatus| matches!(status, HeldStatus::Held { stat, .. } if stat.version == 1);
    wait_for(&mut first.subscribe(), "new data", is_new).await;
    session.barrier().await.unwrap();
    let there = session.get("/some/me").await.unwrap().unwrap();
    assert_eq!((there.data.as_slice(), there.stat.version), (&b"new"[..], 1), "each wrote once");
    assert_eq!(second.status(), in_conflict);
    // One that waits can give up.
    let third = session.hold_ephemeral("/some/me", "three").unwrap();
    soon("its release", third.release()).await;
    assert!(is_held(&first.status()));
    soon("the release", first.release()).await;
    wait_for(&mut status, "its turn", is_held).await;
    assert_eq!(session.get("/some/me").await.unwrap().unwrap().data, b"two");
}

async fn a_dropped_held_ephemeral_goes(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let held = session.hold_ephemeral("/me", "").unwrap();
    wait_for(&mut held.subscribe(), "held", is_held).await;
    drop(held);
    eventually("its end", || async { observer.get("/me").await == Ok(None) }).await;
    // Of a session that lives on.
    assert!(TIMEOUT > Duration::ZERO && session.state().is_active());
}

async fn what_was_begun_outside_the_runtime_of_the_session_goes_on_after_it(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    observer.create("/a", "", CreateMode::Persistent).await.unwrap();
    session.barrier().await.unwrap();
    let elsewhere = session.clone();
    let begun = std::thread::spawn(move || {
        let without = elsewhere.hold_ephemeral("/without", "").unwrap();
        // Armed, and held, on a runtime that is no more when something happens.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut data, mut children) = (elsewhere.watch_data("/a"), elsewhere.watch_children("/a"));
            let mut tree = elsewhere.watch_tree("/a");
            data.next().await.unwrap();
            children.next().await.unwrap();
            tree.next().await.unwrap();
            let within = elsewhere.hold_ephemeral("/within", "").unwrap();
            wait_for(&mut within.subscribe(), "held", is_held).await;
            (without, within, data, children, tree)
        })
    });
    let (without, within, mut data, mut children, mut tree) = begun.join().unwrap();
    observer.create("/a/child", "", CreateMode::Persistent).await.unwrap();
    observer.set("/a", "new", None).await.unwrap();
    let told = soon("the data", data.next()).await.unwrap().value.unwrap();
    assert_eq!(told.data, b"new");
    assert_eq!(soon("the children", children.next()).await.unwrap().value.unwrap().names, ["child"]);
    assert_eq!(soon("the change", tree.next()).await.unwrap().kind, ChangeKind::Created);
    for held in [without, within] {
        let HeldStatus::Held { stat, .. } = wait_for(&mut held.subscribe(), "held", is_held).await else {
            unreachable!()
        };
        observer.delete(held.path(), None).await.unwrap();
        wait_for(
            &mut held.subscribe(),
            "held again",
            |status| matches!(status, HeldStatus::Held { stat: again, .. } if again.czxid > stat.czxid),
        )
        .await;
    }
}
