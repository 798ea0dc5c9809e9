//! What a member sends while it takes over.

use super::*;
use zk_testkit::{PassedFrame, Proxy, Sender};

/// How long a takeover comes before all reads, less what the request may need on its way to the proxy (`UNDISTURBED` in
/// `runner.rs` is twice that). On a busy machine a takeover may take longer, and shows nothing.
const UNDISTURBED: Duration = Duration::from_millis(25);
const TRIES: usize = 5;

/// The codes of requests by which an election is read; `exists` of its znodes among them.
const READS: [i32; 5] = [3, 4, 8, 12, 22];
const MULTI: i32 = 14;

over_both_drivers! {
    /// From the transaction that creates the leader znode to the one that announces READY: the ballots that it may have to
    /// watch, the decision, and its own leader znode are read afterwards.
    async fn nothing_is_read_before_ready(world: &World) {
        let elector = world.join("zero", "west").await;
        wait_for("its ballot", SOON, || elector.status().ballot.is_some()).await;
        let one = world.join("one", "east").await;
        let proxy = Proxy::start_many(world.addresses()).await.unwrap();
        proxy.record();
        let session = world.session(Some(&proxy)).await;
        let two = world.join_over(session, "two", "east", Fate::Lead, world.paths().clone());
        wait_for("its ballot", SOON, || two.status().ballot.is_some()).await;
        for _ in 0..TRIES {
            move_to(world, &one).await;
            drop(proxy.take_record());
            move_to(world, &two).await;
            let mut frames = Vec::new();
            let mut steps = None;
            wait_for("READY, and reads after it", SOON, || {
                frames.extend(proxy.take_record().into_iter().filter(|frame| frame.sender == Sender::Client));
                steps = created_and_ready(&frames);
                steps.is_some_and(|[_, ready]| frames[ready..].iter().any(|frame| reads(frame, world)))
            })
            .await;
            let [created, ready] = steps.unwrap();
            let since = |frame: &PassedFrame| frame.at - frames[created].at;
            let early: Vec<_> = frames[created..ready]
                .iter()
                .filter(|frame| reads(frame, world) && since(frame) < UNDISTURBED)
                .collect();
            let took = since(&frames[ready]);
            assert!(early.is_empty(), "{took:?} from creation to READY: {early:?}");
            if took < UNDISTURBED {
                return;
            }
        }
        panic!("each of {TRIES} takeovers took longer than {UNDISTURBED:?}: the machine is too busy");
    }
}

async fn move_to(world: &World, member: &members::Member) {
    if !member.leads() {
        let to = Target::Member(member.id().parse().unwrap());
        let request = world.ask(RequestKind::Switchover, to, false).await;
        // It may have begun to lead meanwhile.
        let leads_already =
            matches!(&request.state, RequestState::Failed { reason, .. } if reason.contains("leads already"));
        assert!(leads_already || matches!(request.state, RequestState::Done { .. }), "{request:?}");
    }
    wait_for("it leads", SOON, || member.leads()).await;
}

/// The places of the transactions that create the leader znode and announce READY.
fn created_and_ready(frames: &[PassedFrame]) -> Option<[usize; 2]> {
    let multi = |part| frames.iter().position(|frame| code(frame) == MULTI && contains(frame, part));
    Some([multi("/leader/current")?, multi("/history/")?])
}

/// Whether it reads something of the election.
fn reads(frame: &PassedFrame, world: &World) -> bool {
    READS.contains(&code(frame)) && contains(frame, world.root())
}

fn code(frame: &PassedFrame) -> i32 {
    frame.bytes.get(4..8).map_or(0, |code| i32::from_be_bytes(code.try_into().unwrap()))
}

fn contains(frame: &PassedFrame, part: &str) -> bool {
    frame.bytes.windows(part.len()).any(|window| window == part.as_bytes())
}
