//! Many members of whom nearly all only look on, and one that begins to look after all of them.

use super::*;
use zk_testkit::Op;

/// Members beyond the elector, the leader and the line of eight.
const FEW: usize = 12;
const MORE: usize = 20;

/// The shortest delay before a passive member reads a change, so that changes in between cost no reads.
const LEISURE: Duration = Duration::from_millis(125);

over_both_drivers! {
    /// Independent of the other members and their number, a passive member occasionally reads two small znodes, and lists
    /// no children.
    async fn who_looks_on_reads_little(world: &World) {
        let mut members = Vec::new();
        for number in 1..FEW {
            members.push(world.join(&format!("m{number}"), "east").await);
            wait_for("its ballot", SOON, || members[number - 1].status().ballot.is_some()).await;
        }
        let onlooker = world.join_through_proxy("onlooker", "east").await;
        wait_for("the first leads", SOON, || members[0].leads()).await;
        is_passive(world, &onlooker).await;
        for number in FEW..MORE {
            members.push(world.join(&format!("m{number}"), "east").await);
        }
        wait_for("all are candidates", SOON, || members.iter().all(|m| m.status().ballot.is_some())).await;
        is_passive(world, &onlooker).await;
        // Nor is it forgotten.
        let request =
            world.ask(RequestKind::Switchover, Target::Member("onlooker".parse().unwrap()), false).await;
        assert!(matches!(request.state, RequestState::Done { .. }), "{request:?}");
        wait_for("it leads", SOON, || onlooker.leads()).await;
        world.no_overlap();
    }
}

async fn is_passive(world: &World, onlooker: &members::Member) {
    let knows_line = || onlooker.status().elected.is_some_and(|e| e.line_of(0).len() == 8);
    wait_for("the line is full", SOON, knows_line).await;
    let elected = world.paths().elected();
    let count = || {
        let proxy = onlooker.proxy();
        let writes = [Op::Create, Op::SetData, Op::Multi].map(|op| proxy.seen(op)).iter().sum::<u64>();
        (proxy.seen(Op::GetData), proxy.seen(Op::GetChildren), writes)
    };
    let (began, before) = (BootTime::now(), count());
    for leader in ["m2", "m3", "m2"] {
        world.ask(RequestKind::Switchover, Target::Member(leader.parse().unwrap()), false).await;
    }
    // The decision is written again without a change, repeatedly. It is news for every member that reads each time.
    let operator = world.operator();
    let mut written = 0;
    while written < 200 {
        let node = operator.get(&elected).await.unwrap().unwrap();
        // The elector may be quicker.
        written += usize::from(operator.set(&elected, &node.data, Some(node.stat.version)).await.is_ok());
    }
    // The last change reaches it.
    wait_for("the onlooker knows the leader", SOON, || {
        let status = onlooker.status();
        let term = status.elected.map(|e| e.term);
        let leader = status.leaders.iter().flatten().next().cloned();
        leader.is_some_and(|c| c.member.as_str() == "m2" && Some(c.term) == term)
    })
    .await;
    let (reads, lists, writes) = count();
    let elapsed = BootTime::now().duration_since(began);
    // Of either znode, and some more, should the connection be lost.
    let at_most = 20 + 2 * (1 + u64::try_from(elapsed.as_millis() / LEISURE.as_millis()).unwrap());
    let read = reads - before.0;
    assert!(read <= at_most, "{read} reads within {elapsed:?}, {at_most} at the most would be at leisure");
    assert_eq!((lists, writes), (before.1, before.2), "it lists or writes something");
}

over_both_drivers! {
    /// A passive member whose status is not followed sends nothing at a change of leadership. Nevertheless it takes over once it
    /// is named. Another one, whose status is followed, knows each leader.
    async fn who_does_not_follow_reads_nothing(world: &World) {
        let mut members = Vec::new();
        for number in 1..FEW {
            members.push(world.join(&format!("m{number}"), "east").await);
            wait_for("its ballot", SOON, || members[number - 1].status().ballot.is_some()).await;
        }
        let follower = world.join("follower", "east").await;
        let silent = world.join_through_proxy("silent", "east").await;
        wait_for("both are candidates", SOON, || {
            [&follower, &silent].iter().all(|member| member.status().ballot.is_some())
        })
        .await;
        let mut followed = follower.election().status();
        let count = || {
            // A session's probes are of the kind `Exists`. Data is read by another kind first.
            let reads = [Op::GetData, Op::GetChildren, Op::MultiRead];
            let writes = [Op::Create, Op::SetData, Op::Multi];
            reads.into_iter().chain(writes).map(|op| (op, silent.proxy().seen(op))).collect::<Vec<_>>()
        };
        let mut before = None;
        // In the first rounds it reads what had changed when it was looked at.
        for (round, leader) in ["m2", "m3", "m2", "m3", "m2", "m3"].into_iter().enumerate() {
            if round == 3 {
                before = Some(count());
            }
            world.ask(RequestKind::Switchover, Target::Member(leader.parse().unwrap()), false).await;
            let knows = followed.wait_for(|status| {
                status.leaders.iter().flatten().any(|current| current.member.as_str() == leader)
            });
            tokio::time::timeout(SOON, knows).await.expect("the follower knows the leader");
        }
        assert_eq!(Some(count()), before, "it reads or writes something");
        world.ask(RequestKind::Switchover, Target::Member("silent".parse().unwrap()), false).await;
        wait_for("it leads", SOON, || silent.leads()).await;
        world.no_overlap();
    }
}

over_both_drivers! {
    /// The number of its requests does not depend on the number of members; nor does that of an elector that leaves.
    async fn the_next_elector_reads_all_members_by_few_requests(world: &World) {
        let first = world.join_through_proxy("first", "east").await;
        wait_for("the first leads", SOON, || first.leads()).await;
        let next = world.join_through_proxy("next", "east").await;
        wait_for("the next one's ballot", SOON, || next.status().ballot.is_some()).await;
        let mut members = Vec::new();
        for number in 0..MORE {
            members.push(world.join(&format!("m{number}"), "east").await);
        }
        let all_in_line = || first.status().elected.is_some_and(|e| e.line_of(0).len() == 8);
        wait_for("all are candidates", SOON, || members.iter().all(|m| m.status().ballot.is_some())).await;
        wait_for("the line is full", SOON, all_in_line).await;
        let count = |of: &members::Member| {
            let proxy = of.proxy();
            [Op::GetData, Op::Exists, Op::GetChildren, Op::AddWatch, Op::RemoveWatches].map(|op| proxy.seen(op))
        };
        let (before, groups) = ([&first, &next].map(count), next.proxy().seen(Op::MultiRead));
        assert_eq!(first.election().leave().await, Ended::Left);
        wait_for("the next one leads", SOON, || next.leads()).await;
        wait_for("it reads many records by one request", SOON, || next.proxy().seen(Op::MultiRead) > groups)
            .await;
        let after = [&first, &next].map(count);
        for ((of, before), after) in ["first", "next"].into_iter().zip(before).zip(after) {
            let sent: Vec<u64> = before.iter().zip(after).map(|(before, after)| after - before).collect();
            assert!(sent.iter().sum::<u64>() < MORE as u64, "{of}: {sent:?} reads and watches");
        }
        // It follows each of them.
        let is_in_line = |member: &members::Member| {
            let (Some(elected), Some(ballot)) = (next.status().elected, member.status().ballot) else {
                return false;
            };
            elected.place_in_line(0, &ballot).is_some()
        };
        let in_line = members.iter().position(is_in_line).unwrap();
        let gone = members.remove(in_line);
        let ballot = gone.status().ballot.unwrap();
        assert_eq!(gone.election().leave().await, Ended::Left);
        wait_for("members that have left are no longer in line", SOON, || {
            next.status().elected.is_some_and(|elected| elected.place_in_line(0, &ballot).is_none())
        })
        .await;
        world.no_overlap();
    }
}
