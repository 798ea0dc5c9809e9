//! The faults of the embedded server happen as ordered, and no others.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::wire::{Client, NO_PASSWORD, OK, create, set};
use zk_proto::{ErrorCode, EventKind, OpCode, Reply, Request, WatchEvent};
use zk_testkit::{Op, TestServer, Which};

const SOON: Duration = Duration::from_secs(15);
const EPHEMERAL: i32 = 1;

async fn start(servers: usize) -> TestServer {
    TestServer::builder().servers(servers).start().await.unwrap()
}

fn client(server: &TestServer, at: usize) -> Client {
    Client::new(server.addresses()[at]).unwrap()
}

/// Asks until it is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !so() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_reset(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_expired_session_is_gone_with_its_ephemerals() {
    let server = start(1).await;
    let (mut mine, mut other) = (client(&server, 0), client(&server, 0));
    assert_eq!(mine.create("/mine", EPHEMERAL).unwrap(), OK);
    let watch = Request::Exists { path: "/mine".into(), watch: true };
    assert_eq!(other.do_it(&watch).unwrap(), OK);
    server.faults().expire(mine.session).unwrap();
    assert!(mine.is_closed());
    let path = "/mine".to_owned();
    let event = WatchEvent { kind: EventKind::DELETED, state: WatchEvent::CONNECTED, path, zxid: -1 };
    assert_eq!(other.frame().unwrap().event(), event);
    assert!(!other.exists("/mine").unwrap());
    assert_eq!(mine.back_at(server.addresses()[0], 0).unwrap().session, 0, "it knows it no more");
    assert!(server.faults().expire(mine.session).unwrap_err().to_string().contains("no session"));
    assert_eq!(server.sessions().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_dropped_connection_leaves_the_session() {
    let server = start(1).await;
    let (mut dropped, mut other) = (client(&server, 0), client(&server, 0));
    assert_eq!(dropped.create("/mine", EPHEMERAL).unwrap(), OK);
    assert!(server.faults().disconnect(dropped.session));
    assert!(is_reset(&dropped.ping().unwrap_err()));
    assert!(!server.faults().disconnect(dropped.session));
    assert!(other.exists("/mine").unwrap());
    let mut back = dropped.back_at(server.addresses()[0], 0).unwrap();
    assert_eq!(back.session, dropped.session);
    back.ping().unwrap();
    assert_eq!(server.faults().disconnect_all(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_black_hole_delays_and_loses_nothing() {
    let server = start(1).await;
    let (mut held, mut other) = (client(&server, 0), client(&server, 0));
    server.faults().black_hole_session(held.session, true);
    let xid = held.ask(&create("/held", 0)).unwrap();
    assert!(held.is_silent());
    assert!(!other.exists("/held").unwrap());
    server.faults().black_hole_session(held.session, false);
    assert_eq!(held.frames_to(xid).unwrap()[0].header.error, OK);

    // All, those that come included.
    server.faults().black_hole(true);
    let address = server.addresses()[0];
    let newcomer = std::thread::spawn(move || Client::new(address));
    until("the newcomer is connected", || server.connections() == 3);
    other.ask(&Request::Ping).unwrap();
    assert!(other.is_silent() && !newcomer.is_finished());
    server.faults().black_hole(false);
    newcomer.join().unwrap().unwrap();
    other.frame().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_has_ended_in_a_black_hole_can_be_reset() {
    let server = start(1).await;
    let mut held = client(&server, 0);
    server.faults().black_hole_session(held.session, true);
    server.faults().expire(held.session).unwrap();
    assert!(held.is_silent(), "it does not hear of its end");
    assert_eq!(server.faults().disconnect_all(), 1);
    assert!(held.is_closed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lost_reply_leaves_the_request_done_and_a_lost_request_does_not() {
    let server = start(1).await;
    let mut observer = client(&server, 0);
    let loss = server.faults().lose_reply(Which::op(Op::Create).skipping(1));
    let mut loser = client(&server, 0);
    assert_eq!(loser.create("/1", 0).unwrap(), OK);
    assert!(is_reset(&loser.create("/2", 0).unwrap_err()));
    let lost = loss.happened(SOON).await.unwrap();
    assert_eq!((lost.op, lost.path.as_deref()), (Op::Create, Some("/2")));
    assert!(observer.exists("/2").unwrap());

    let loss = server.faults().lose_request(Which::write().on_path_with("/3"));
    let mut loser = client(&server, 0);
    assert!(is_reset(&loser.create("/3", 0).unwrap_err()));
    loss.happened(SOON).await.unwrap();
    assert!(!observer.exists("/3").unwrap());
    assert_eq!(loser.back_at(server.addresses()[0], 0).unwrap().create("/3", 0).unwrap(), OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_never_answered_is_done() {
    let server = start(1).await;
    let (mut unanswered, mut observer) = (client(&server, 0), client(&server, 0));
    let loss = server.faults().never_answer(Which::op(Op::Create));
    unanswered.ask(&create("/done", 0)).unwrap();
    loss.happened(SOON).await.unwrap();
    unanswered.ask(&Request::Ping).unwrap();
    assert!(unanswered.is_silent(), "nor is anything after it");
    assert!(observer.exists("/done").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn delays_keep_the_order() {
    const DELAY: Duration = Duration::from_millis(200);
    let server = start(1).await;
    let (mut slow, mut quick) = (client(&server, 0), client(&server, 0));
    let asked = Instant::now();
    let _late = server.faults().delay_reply(Which::op(Op::Create), DELAY);
    let first = slow.ask(&create("/1", 0)).unwrap();
    let second = slow.ask(&Request::Ping).unwrap();
    until("it is done meanwhile", || quick.exists("/1").unwrap());
    assert_eq!(slow.frame().unwrap().header.xid, first);
    assert!(asked.elapsed() >= DELAY);
    assert_eq!(slow.frame().unwrap().header.xid, second);

    server.faults().delay_replies(DELAY);
    let asked = Instant::now();
    quick.ping().unwrap();
    assert!(asked.elapsed() >= DELAY);
    server.faults().delay_replies(Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_longest_times_are_longer_than_a_test() {
    let server = start(3).await;
    let faults = server.faults();
    let (mut first, mut second) = (client(&server, 0), client(&server, 1));
    faults.delay_commits(1, Duration::MAX);
    let xid = second.ask(&create("/never-heard-of", 0)).unwrap();
    until("it is done", || first.exists("/never-heard-of").unwrap());
    assert!(second.is_silent(), "the reply to {xid} comes with the commit");
    faults.reorder_requests(Some(Duration::MAX));
    first.ask(&Request::Ping).unwrap();
    assert!(first.is_silent());
    faults.reorder_requests(None);
    first.frame().unwrap();
    let _late = faults.delay_reply(Which::op(Op::Exists), Duration::MAX);
    faults.delay_replies(Duration::MAX);
    first.ask(&Request::Exists { path: "/".into(), watch: false }).unwrap();
    assert!(first.is_silent());
    faults.delay_replies(Duration::ZERO);
    for _ in 0..2 {
        faults.advance_clock(Duration::MAX);
        assert_eq!(server.sessions(), []);
        assert_eq!(client(&server, 0).create("/a-", 2).unwrap(), OK);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_reset_is_not_delayed_as_replies_are() {
    let server = start(3).await;
    let mut clients = [0, 1, 1].map(|at| client(&server, at));
    server.faults().delay_replies(SOON * 2);
    for client in &mut clients {
        client.ask(&Request::Ping).unwrap();
        client.patience(Duration::from_secs(1));
    }
    assert!(server.faults().disconnect(clients[0].session));
    server.faults().move_session(clients[1].session, 2);
    server.stop(1).await.unwrap();
    for client in &mut clients {
        assert!(is_reset(&client.frame().unwrap_err()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_write_of_an_earlier_connection_can_come_after_a_later_one() {
    for reordered in [false, true] {
        let server = start(1).await;
        let mut early = client(&server, 0);
        assert_eq!(early.create("/who", 0).unwrap(), OK);
        assert_eq!(early.create("/large", 0).unwrap(), OK);
        assert_eq!(early.do_it(&set("/large", &vec![7; 1_000_000])).unwrap(), OK);
        server.faults().hold_requests(early.session, true);
        early.ask(&Request::Ping).unwrap();
        early.ask(&set("/who", b"first")).unwrap();
        // More than is sent to a client that does not read.
        for _ in 0..6 {
            early.ask(&Request::GetData { path: "/large".into(), watch: false }).unwrap();
        }
        early.ask(&set("/who", b"early")).unwrap();
        let mut late = early.back_at(server.addresses()[0], 0).unwrap();
        let session = early.session;
        drop(early);
        assert_eq!(late.set("/who", "late").unwrap(), OK);
        assert_eq!(late.get("/who").unwrap().unwrap(), "late");
        if reordered {
            server.faults().reorder_requests(Some(Duration::from_secs(3600)));
        }
        server.faults().hold_requests(session, false);
        server.faults().reorder_requests(None);
        until("the early one has come", || late.get("/who").unwrap().unwrap() == "early");
        until("its connection is gone", || server.connections() == 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_client_has_sent_into_a_black_hole_arrives_after_it_has_hung_up() {
    let server = start(1).await;
    let (mut gone, mut replaced) = (client(&server, 0), client(&server, 0));
    for held in [&mut gone, &mut replaced] {
        server.faults().black_hole_session(held.session, true);
        held.ask(&Request::Ping).unwrap();
    }
    gone.ask(&create("/sent", 0)).unwrap();
    let session = gone.session;
    drop(gone);
    // The server closes the earlier connection of a client that has come back.
    let mut back = replaced.back_at(server.addresses()[0], 0).unwrap();
    drop(replaced);
    until("that one is gone", || server.connections() == 2);
    assert!(!back.exists("/sent").unwrap());
    server.faults().black_hole_session(session, false);
    assert!(back.exists("/sent").unwrap());
    until("its connection is gone", || server.connections() == 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_are_reordered_by_the_seed() {
    const CLIENTS: usize = 8;
    let order_of = async |seed: u64| {
        let server = TestServer::builder().with(|settings| settings.seed = Some(seed)).start().await.unwrap();
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| client(&server, 0)).collect();
        server.faults().reorder_requests(Some(Duration::from_secs(3600)));
        for (index, client) in clients.iter_mut().enumerate() {
            for part in 0..2 {
                client.ask(&create(&format!("/{index}{part}-"), 2)).unwrap();
            }
        }
        // What is still under way would be carried out in its turn, not by the seed.
        until("all have come", || crate::wire::received(server.addresses()[0]).unwrap() == CLIENTS * 3);
        server.faults().reorder_requests(None);
        let mut created = Vec::new();
        for client in &mut clients {
            for _ in 0..2 {
                match client.frame().unwrap().reply(OpCode::CREATE) {
                    Reply::Path(path) => created.push(path),
                    other => panic!("{other:?}"),
                }
            }
        }
        created.sort_by_key(|path| path[path.len() - 3..].to_owned());
        created.iter().map(|path| path[1..3].to_owned()).collect::<Vec<String>>()
    };
    let first = order_of(5).await;
    assert_eq!(first, order_of(5).await);
    assert_ne!(first, order_of(6).await);
    for index in 0..CLIENTS {
        let mine: Vec<_> = first.iter().filter(|name| name.starts_with(&index.to_string())).collect();
        assert_eq!(mine, [&format!("{index}0"), &format!("{index}1")], "each client's own order stays");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn frozen_time_expires_nobody_and_can_be_put_forward() {
    const TICK: Duration = Duration::from_millis(50);
    let server = TestServer::builder().tick_time(TICK).start().await.unwrap();
    let mut silent = Client::connect(server.addresses()[0], 100, 0, NO_PASSWORD, 0).unwrap();
    server.faults().freeze_clock(true);
    // Much longer than its timeout and the tick after it: nothing may happen.
    std::thread::sleep(TICK * 10);
    assert_eq!(server.sessions().len(), 1);
    silent.ping().unwrap();
    server.faults().advance_clock(TICK * 2 - Duration::from_millis(1));
    assert_eq!(server.sessions().len(), 1);
    server.faults().advance_clock(TICK + Duration::from_millis(1));
    assert_eq!(server.sessions().len(), 0);
    assert!(silent.is_closed());
    server.faults().freeze_clock(false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_space_nobody_is_served() {
    let server = start(1).await;
    let mut writer = client(&server, 0);
    assert_eq!(writer.create("/fits", 0).unwrap(), OK);
    server.faults().limit_log_space(Some(300));
    let failed = (0..10).find_map(|number| Some((number, writer.create(&format!("/{number}"), 0).err()?)));
    let (failed, error) = failed.expect("no room for ten");
    assert!(failed > 0 && is_reset(&error), "{failed}: {error}");
    assert!(Client::connect(server.addresses()[0], 10_000, 0, NO_PASSWORD, 0).is_err());

    server.faults().limit_log_space(None);
    let mut back = writer.back_at(server.addresses()[0], 0).unwrap();
    assert_eq!(back.session, writer.session);
    assert!(back.exists(&format!("/{}", failed - 1)).unwrap());
    assert!(!back.exists(&format!("/{failed}")).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_is_moved_to_a_server_that_lags() {
    let server = start(3).await;
    let (mut moved, mut other) = (client(&server, 0), client(&server, 2));
    assert_eq!(moved.create("/old", 0).unwrap(), OK);
    let seen = server.zxid(1);
    server.faults().hold_commits(1, true);
    assert_eq!(other.create("/new", 0).unwrap(), OK);

    server.faults().move_session(moved.session, 1);
    assert!(is_reset(&moved.ping().unwrap_err()));
    assert!(moved.back_at(server.addresses()[2], seen).is_err(), "this one doesn't take it");
    assert!(moved.back_at(server.addresses()[1], server.zxid(0)).is_err(), "it has seen more");
    let mut moved = moved.back_at(server.addresses()[1], seen).unwrap();
    assert_eq!(server.sessions().iter().find(|info| info.id == moved.session).unwrap().server, 1);
    assert!(moved.exists("/old").unwrap() && !moved.exists("/new").unwrap());
    // Its own write is done, and answered when the server hears of it.
    let xid = moved.ask(&create("/own", 0)).unwrap();
    until("its write is done", || other.exists("/own").unwrap());
    assert!(moved.is_silent());
    server.faults().hold_commits(1, false);
    assert_eq!(moved.frames_to(xid).unwrap().pop().unwrap().header.error, OK);
    assert!(moved.exists("/new").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lagging_follower_tells_later() {
    const LAG: Duration = Duration::from_millis(200);
    let server = start(3).await;
    let (mut reader, mut writer) = (client(&server, 1), client(&server, 0));
    server.faults().delay_commits(1, LAG);
    let written = Instant::now();
    assert_eq!(writer.create("/a", 0).unwrap(), OK);
    // What a `sync` is for.
    let sync = reader.ask(&Request::Sync { path: "/".into() }).unwrap();
    reader.frames_to(sync).unwrap();
    assert!(written.elapsed() >= LAG);
    assert!(reader.exists("/a").unwrap());
}

/// What makes two processes believe that they lead: see `a_follower_that_is_cut_off`
/// in the tests of `isolation`, where real servers do the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_isolated_follower_goes_on_answering_until_the_sync_limit() {
    let server = start(3).await;
    let mut cut_off = Client::connect(server.addresses()[1], 1000, 0, NO_PASSWORD, 0).unwrap();
    let mut other = client(&server, 2);
    assert_eq!(cut_off.create("/mine", EPHEMERAL).unwrap(), OK);
    let cut = Instant::now();
    server.faults().isolate(1);
    until("the others expire its session", || {
        cut_off.ping().unwrap();
        !other.exists("/mine").unwrap()
    });
    assert!(cut_off.exists("/mine").unwrap(), "it does not know");
    cut_off.ask(&set("/mine", b"x")).unwrap();
    assert!(cut_off.is_silent(), "a write waits");
    until("it gives up", || cut_off.is_closed());
    // syncLimit 10 x 500 ms.
    assert!(cut.elapsed() >= Duration::from_secs(5), "{:?}", cut.elapsed());
    assert!(Client::new(server.addresses()[1]).is_err());
    assert!(other.exists("/").unwrap());

    server.faults().rejoin(1);
    let mut back = client(&server, 1);
    assert!(!back.exists("/mine").unwrap());
    assert_eq!(back.create("/again", 0).unwrap(), OK);
    assert_eq!(server.zxid(1), server.zxid(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_isolated_server_goes_on_for_readers_where_that_is_enabled() {
    let server = TestServer::builder()
        .servers(3)
        .with(|settings| settings.read_only_mode = true)
        .start()
        .await
        .unwrap();
    server.faults().freeze_clock(true);
    let address = server.addresses()[1];
    let mut early = client(&server, 1);
    server.faults().isolate(1);
    server.faults().advance_clock(Duration::from_secs(5));
    assert!(early.is_closed(), "the sync limit has passed");
    let reader = || Client::to_read(address, 0, NO_PASSWORD).unwrap();
    let mut readers = [reader(), reader(), reader()];
    assert_eq!(client(&server, 0).create("/news", 0).unwrap(), OK);
    assert!(!readers[0].exists("/news").unwrap(), "it does not know");

    // Their sessions are no part of the ensemble's, and end as all do.
    let ids = readers.each_ref().map(|reader| reader.session);
    assert!(server.sessions().iter().all(|info| !ids.contains(&info.id)));
    server.faults().expire(ids[0]).unwrap();
    assert!(readers[0].is_closed());
    assert!(server.faults().expire(ids[0]).is_err());
    server.faults().advance_clock(Duration::from_secs(6));
    readers[1].ping().unwrap();
    server.faults().advance_clock(Duration::from_secs(6));
    assert!(readers[2].is_closed(), "nobody has heard of it for longer than its timeout");
    readers[1].ping().unwrap();

    // One that is started in the minority serves readers, too.
    server.stop(1).await.unwrap();
    assert!(readers[1].is_closed());
    server.start_server(1).await.unwrap();
    let mut reader = reader();
    server.faults().rejoin(1);
    assert!(reader.is_closed());
    assert!(client(&server, 1).exists("/news").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_short_cut_costs_nothing() {
    let server = start(3).await;
    let (mut cut_off, mut other) = (client(&server, 1), client(&server, 0));
    server.faults().isolate(1);
    let xid = cut_off.ask(&create("/waits", 0)).unwrap();
    assert!(cut_off.is_silent());
    assert!(!other.exists("/waits").unwrap());
    server.faults().rejoin(1);
    assert_eq!(cut_off.frames_to(xid).unwrap()[0].header.error, OK);
    assert!(other.exists("/waits").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_leader_without_followers_serves_nobody() {
    let server = TestServer::builder().servers(3).sync_limit(2).start().await.unwrap();
    let mut client = client(&server, 0);
    server.faults().isolate(1);
    server.faults().isolate(2);
    let xid = client.ask(&create("/waits", 0)).unwrap();
    assert!(client.is_silent());
    until("it gives up", || client.is_closed());
    server.faults().rejoin(1);
    let mut back = client.back_at(server.addresses()[0], 0).unwrap();
    assert_eq!(back.session, client.session, "every session is given time to come back");
    assert!(!back.exists("/waits").unwrap(), "xid {xid} went under with the server");
    assert_eq!(back.create("/waits", 0).unwrap(), OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_old_connection_cannot_write_once_the_session_has_moved() {
    let server = start(3).await;
    let mut old = client(&server, 1);
    let mut new = old.back_at(server.addresses()[2], 0).unwrap();
    assert_eq!(new.create("/new", 0).unwrap(), OK);
    assert!(old.create("/old", 0).is_err());
    assert!(!new.exists("/old").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_follower_that_keeps_or_has_lost_a_znode_disagrees_with_the_others() {
    let server = start(3).await;
    let (mut owner, mut at_follower, mut at_other) =
        (client(&server, 0), client(&server, 1), client(&server, 2));
    assert_eq!(owner.create("/kept", EPHEMERAL).unwrap(), OK);
    assert_eq!(owner.create("/lost", 0).unwrap(), OK);
    until("both followers know them", || (1..3).all(|at| server.data(at, "/lost").is_some()));
    server.faults().keep_znode(1, "/kept", true);
    server.faults().lose_znode(1, "/lost");
    server.faults().expire(owner.session).unwrap();
    until("the others have deleted it", || !at_other.exists("/kept").unwrap());
    // Its reads come from its own znodes, and the log decides by those of the leader.
    let check = |path: &'static str| Request::Check { path: path.into(), version: -1 };
    let group = |path| Request::Multi(vec![check(path)]);
    let errors = |client: &mut Client, path| match client.reply(&group(path)).unwrap().reply(OpCode::MULTI) {
        Reply::Multi(parts) => parts.into_iter().filter_map(|(_, part)| part.err()).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert!(at_follower.exists("/kept").unwrap() && !at_follower.exists("/lost").unwrap());
    assert_eq!(errors(&mut at_follower, "/kept"), [ErrorCode::NO_NODE]);
    assert_eq!(errors(&mut at_follower, "/lost"), []);
    assert_eq!(at_follower.create("/lost", 0).unwrap(), ErrorCode::NODE_EXISTS);
    // The others create it, and this one leaves its own there.
    assert_eq!(at_follower.create("/kept", 0).unwrap(), ErrorCode::NODE_EXISTS);
    assert!(at_other.exists("/kept").unwrap());
    server.faults().keep_znode(1, "/kept", false);
    server.faults().copy_data(1);
    assert_eq!(server.data(1, "/lost"), server.data(0, "/lost"));
    assert!(at_other.exists("/lost").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_copy_of_the_data_ends_what_was_under_way() {
    let server = start(3).await;
    let mut writer = client(&server, 0);
    server.faults().hold_commits(1, true);
    assert_eq!(writer.create("/a", 0).unwrap(), OK);
    assert_eq!(writer.do_it(&Request::Delete { path: "/a".into(), version: -1 }).unwrap(), OK);
    server.faults().copy_data(1);
    // A session that others know can be resumed without a commit.
    let mut reader = writer.back_at(server.addresses()[1], server.zxid(0)).unwrap();
    let watch = Request::Exists { path: "/a".into(), watch: true };
    assert_eq!(reader.do_it(&watch).unwrap(), ErrorCode::NO_NODE);
    server.faults().hold_commits(1, false);
    let mut events = Vec::new();
    reader.ping_for_events(&mut events).unwrap();
    assert_eq!(events, [], "the copy has both already");
}
