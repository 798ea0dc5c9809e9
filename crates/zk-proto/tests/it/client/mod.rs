//! Connection and handshake against a server that this file plays, by the server's side of the codec.

mod noise;
mod watches;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use zk_proto::{
    ConnectRequest, ConnectResponse, Connection, Credentials, ErrorCode, EventKind, Handshake, Input, Limits,
    NotSent, OpCode, Outcome, Output, Purpose, Refusal, Reply, ReplyHeader, Request, RequestHeader,
    SessionId, Stat, Ticket, WatchEvent, WatchId, WatchKind, WatchMode, WatcherType, ancestors, cut_frame,
    xid,
};

const TIMEOUT: Duration = Duration::from_secs(10);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn ticket() -> Ticket {
    Ticket { session_id: SessionId(0x77), password: vec![7; 16], timeout: TIMEOUT, last_zxid: 0 }
}

fn connection() -> Connection<u32> {
    let mut connection = Connection::new(ms(0), ticket(), Limits::default());
    assert_eq!(outputs(&mut connection), [Output::Ready]);
    connection
}

fn outputs(connection: &mut Connection<u32>) -> Vec<Output<u32>> {
    std::iter::from_fn(|| connection.poll()).collect()
}

/// What is written, all of it: number, kind, body.
fn written(connection: &mut Connection<u32>, now: Duration) -> Vec<(i32, OpCode, Bytes)> {
    let mut bytes = BytesMut::from(connection.outgoing());
    connection.handle(now, Input::Written(bytes.len()));
    let mut requests = Vec::new();
    while let Some(frame) = cut_frame(&mut bytes, usize::MAX).unwrap() {
        let header = RequestHeader::decode(&frame).unwrap();
        requests.push((header.xid, header.op, frame.slice(RequestHeader::LEN..)));
    }
    assert!(bytes.is_empty());
    requests
}

fn ask(connection: &mut Connection<u32>, now: Duration, request: &Request<'_>, watch: Option<u64>, tag: u32) {
    let watch = watch.map(WatchId);
    connection.handle(now, Input::Request { request, watch, heartbeat: false, tag });
}

fn get(path: &str, watch: bool) -> Request<'_> {
    Request::GetData { path: path.into(), watch }
}

fn answer(connection: &mut Connection<u32>, now: Duration, xid: i32, error: ErrorCode, reply: &Reply) {
    let mut bytes = BytesMut::new();
    reply.encode(ReplyHeader { xid, zxid: 5, error }, &mut bytes);
    connection.handle(now, Input::Received(&mut bytes));
}

fn event(connection: &mut Connection<u32>, now: Duration, kind: EventKind, path: &str) {
    let mut bytes = BytesMut::new();
    WatchEvent { kind, state: WatchEvent::CONNECTED, path: path.to_owned(), zxid: -1 }.encode(&mut bytes);
    connection.handle(now, Input::Received(&mut bytes));
}

fn data() -> Reply {
    Reply::Data(Some(Bytes::from_static(b"x")), Stat::default())
}

fn watch(id: u64, kind: WatchKind, path: &str) -> Output<u32> {
    Output::Watch { id: WatchId(id), kind, path: path.to_owned() }
}

#[test]
fn a_reply_is_matched_by_its_number_and_any_other_costs_the_connection() {
    let mut connection = connection();
    ask(&mut connection, ms(1), &get("/a", false), None, 1);
    ask(&mut connection, ms(1), &get("/b", false), None, 2);
    let numbers: Vec<i32> = written(&mut connection, ms(1)).iter().map(|(xid, ..)| *xid).collect();
    answer(&mut connection, ms(2), numbers[0], ErrorCode::OK, &data());
    assert_eq!(outputs(&mut connection), [Output::Ended { tag: 1, outcome: Outcome::Answered(Ok(data())) }]);
    assert_eq!(connection.ticket().last_zxid, 5);
    answer(&mut connection, ms(3), numbers[0], ErrorCode::OK, &data());
    let after = outputs(&mut connection);
    assert!(
        matches!(
            &after[..],
            [Output::Ended { tag: 2, outcome: Outcome::PerhapsApplied(_) }, Output::Lost { .. }]
        ),
        "{after:?}"
    );
}

#[test]
fn what_no_byte_was_written_of_is_certainly_not_sent() {
    let mut connection = connection();
    for tag in 1..=3 {
        ask(&mut connection, ms(1), &get("/a", false), None, tag);
    }
    // The first, and one byte of the second.
    let third = connection.outgoing().len() / 3;
    connection.handle(ms(1), Input::Written(third + 1));
    connection.handle(ms(2), Input::Lost("reset".to_owned()));
    let ended = outputs(&mut connection);
    let lost = || Outcome::PerhapsApplied("reset".to_owned());
    let not_sent = || Outcome::NotSent(NotSent::Disconnected("reset".to_owned()));
    let expected = [
        Output::Ended { tag: 1, outcome: lost() },
        Output::Ended { tag: 2, outcome: lost() },
        Output::Ended { tag: 3, outcome: not_sent() },
        Output::Lost { reason: "reset".to_owned() },
    ];
    assert_eq!(ended, expected);
    ask(&mut connection, ms(3), &get("/a", false), None, 4);
    assert_eq!(outputs(&mut connection), [Output::Ended { tag: 4, outcome: not_sent() }]);
    assert_eq!(connection.deadline(), None);
}

#[test]
fn a_request_that_is_too_large_is_refused_and_costs_nobody_anything() {
    let mut connection = connection();
    ask(&mut connection, ms(1), &get("/a", false), None, 1);
    let large = vec![0; 0xf_ffff];
    let request = Request::SetData { path: "/a".into(), data: Some(large.into()), version: -1 };
    ask(&mut connection, ms(1), &request, None, 2);
    let ended = outputs(&mut connection);
    let Output::Ended { tag: 2, outcome: Outcome::NotSent(NotSent::TooLarge { size, limit: 0xf_ffff }) } =
        ended[0]
    else {
        panic!("{ended:?}")
    };
    // Header, path with its length, data with its length, version.
    assert_eq!(size, 8 + 6 + 4 + 0xf_ffff + 4);
    let fits = vec![0; 0xf_ffff - 22];
    let request = Request::SetData { path: "/a".into(), data: Some(fits.into()), version: -1 };
    ask(&mut connection, ms(1), &request, None, 3);
    assert_eq!(written(&mut connection, ms(1)).len(), 2);
}

#[test]
fn a_read_whose_answer_is_too_large_ends_for_good_and_what_comes_after_it_is_read() {
    const LIMIT: usize = 200;
    let limits = Limits { reply: LIMIT, ..Limits::default() };
    let mut connection: Connection<u32> = Connection::new(ms(0), ticket(), limits);
    outputs(&mut connection);
    ask(&mut connection, ms(1), &get("/a", true), Some(1), 1);
    ask(&mut connection, ms(1), &get("/b", false), None, 2);
    let numbers: Vec<i32> = written(&mut connection, ms(1)).iter().map(|(xid, ..)| *xid).collect();
    let large = Reply::Data(Some(vec![b'x'; 1000].into()), Stat::default());
    let mut bytes = BytesMut::new();
    for (xid, reply) in numbers.into_iter().zip([&large, &data()]) {
        reply.encode(ReplyHeader { xid, zxid: 5, error: ErrorCode::OK }, &mut bytes);
    }
    let mut arrived = BytesMut::new();
    for piece in bytes.chunks(7) {
        arrived.extend_from_slice(piece);
        connection.handle(ms(2), Input::Received(&mut arrived));
        assert!(arrived.len() < LIMIT, "it is not kept");
    }
    let size = ReplyHeader::LEN + 4 + 1000 + 68;
    let expected = [
        Output::Ended { tag: 1, outcome: Outcome::TooLarge { size, limit: LIMIT } },
        Output::Ended { tag: 2, outcome: Outcome::Answered(Ok(data())) },
    ];
    assert_eq!(outputs(&mut connection), expected);
    event(&mut connection, ms(3), EventKind::DATA_CHANGED, "/a");
    assert_eq!(outputs(&mut connection), [], "its watch is not armed");
    // What became of a write is not known without its answer; nor is anything else that large in order.
    for (special, tag) in [(None, 3), (Some(xid::EVENT), 4)] {
        let set = Request::SetData { path: "/a".into(), data: None, version: -1 };
        ask(&mut connection, ms(4), &set, None, tag);
        let number = written(&mut connection, ms(4))[0].0;
        answer(&mut connection, ms(4), special.unwrap_or(number), ErrorCode::OK, &large);
        let after = outputs(&mut connection);
        let [Output::Ended { tag: ended, outcome: Outcome::PerhapsApplied(_) }, Output::Lost { reason }] =
            &after[..]
        else {
            panic!("{after:?}")
        };
        assert!(*ended == tag && reason.contains("limit"), "{after:?}");
        let ticket = connection.ticket().clone();
        connection.handle(ms(4), Input::Attached(ticket));
        assert_eq!(outputs(&mut connection), [Output::Ready]);
    }
}

#[test]
fn it_pings_when_it_has_said_nothing_and_gives_a_silent_server_up() {
    let mut connection = connection();
    assert_eq!(connection.deadline(), Some(ms(1000)));
    connection.handle(ms(1000), Input::Tick);
    assert_eq!(written(&mut connection, ms(1000)), [(xid::PING, OpCode::PING, Bytes::new())]);
    connection.handle(ms(1500), Input::Tick);
    assert!(connection.outgoing().is_empty(), "one ping at a time");
    answer(&mut connection, ms(1600), xid::PING, ErrorCode::OK, &Reply::Empty);
    assert_eq!(outputs(&mut connection), []);
    connection.handle(ms(2000), Input::Tick);
    assert_eq!(written(&mut connection, ms(2000)).len(), 1);
    // Three tenths of the session timeout after the last word.
    connection.handle(ms(4599), Input::Tick);
    assert_eq!(outputs(&mut connection), []);
    assert_eq!(connection.deadline(), Some(ms(4600)));
    connection.handle(ms(4600), Input::Tick);
    assert!(matches!(&outputs(&mut connection)[..], [Output::Lost { reason }] if reason.contains("silent")));
}

#[test]
fn a_process_that_stood_still_writes_nothing_that_waited() {
    let mut connection = connection();
    ask(&mut connection, ms(1), &get("/a", false), None, 1);
    connection.handle(ms(6000), Input::Tick);
    assert!(connection.outgoing().is_empty());
    let ended = outputs(&mut connection);
    assert!(matches!(ended[0], Output::Ended { tag: 1, outcome: Outcome::NotSent(_) }), "{ended:?}");
}

#[test]
fn a_heartbeat_that_takes_unusually_long_makes_the_server_suspicious() {
    let mut connection = connection();
    let heartbeat = Request::Delete { path: "/none/none".into(), version: -1 };
    let mut now = ms(0);
    for tag in 0..50 {
        connection.handle(now, Input::Request { request: &heartbeat, watch: None, heartbeat: true, tag });
        let number = written(&mut connection, now)[0].0;
        now += ms(3);
        answer(&mut connection, now, number, ErrorCode::NO_NODE, &Reply::Empty);
        outputs(&mut connection);
        now += ms(100);
    }
    assert!(!connection.suspects(now));
    connection.handle(now, Input::Request { request: &heartbeat, watch: None, heartbeat: true, tag: 99 });
    let number = written(&mut connection, now)[0].0;
    // A twentieth of the session timeout.
    assert_eq!(connection.deadline(), Some(now + ms(500)));
    assert!(!connection.suspects(now + ms(499)));
    assert!(connection.suspects(now + ms(500)));
    connection.handle(now + ms(500), Input::Tick);
    assert!(connection.deadline() > Some(now + ms(500)));
    answer(&mut connection, now + ms(600), number, ErrorCode::NO_NODE, &Reply::Empty);
    assert!(!connection.suspects(now + ms(600)));
}

#[test]
fn a_server_is_checked_while_nothing_arrives_and_only_a_few_times() {
    let limits = Limits { suspect_after: Some(ms(300)), ..Limits::default() };
    let mut connection: Connection<u32> = Connection::new(ms(0), ticket(), limits);
    outputs(&mut connection);
    // What is sent is no sign of life of the server.
    ask(&mut connection, ms(50), &get("/a", false), None, 1);
    let number = written(&mut connection, ms(50))[0].0;
    let pings = |connection: &mut Connection<u32>, now: u64| {
        connection.handle(ms(now), Input::Tick);
        written(connection, ms(now)).len()
    };
    assert_eq!(connection.deadline(), Some(ms(75)));
    assert_eq!(pings(&mut connection, 75), 1);
    answer(&mut connection, ms(100), number, ErrorCode::OK, &data());
    assert_eq!(outputs(&mut connection).len(), 1);
    // An answer to a request counts as well as one to a ping.
    assert_eq!([150, 175, 225, 250, 325].map(|now| pings(&mut connection, now)), [0, 1, 0, 1, 1]);
    assert_eq!([400, 475, 550].map(|now| pings(&mut connection, now)), [0, 0, 0], "it is asked often enough");
    assert!(connection.suspects(ms(400)) && !connection.suspects(ms(262)));
    for now in 600..604 {
        answer(&mut connection, ms(now), xid::PING, ErrorCode::OK, &Reply::Empty);
    }
    assert!(!connection.suspects(ms(604)));
}

#[test]
fn a_ping_behind_a_write_waits_for_a_quorum() {
    let limits = Limits { suspect_after: Some(ms(300)), ..Limits::default() };
    let mut connection: Connection<u32> = Connection::new(ms(0), ticket(), limits);
    let write = Request::SetData { path: "/a".into(), data: None, version: -1 };
    ask(&mut connection, ms(1), &write, None, 1);
    connection.handle(ms(80), Input::Tick);
    let requests = written(&mut connection, ms(80));
    assert_eq!(requests.iter().map(|(_, op, _)| *op).collect::<Vec<_>>(), [OpCode::SET_DATA, OpCode::PING]);
    assert!(!connection.suspects(ms(1000)));
    answer(&mut connection, ms(1000), requests[0].0, ErrorCode::OK, &Reply::Stat(Stat::default()));
    answer(&mut connection, ms(1001), xid::PING, ErrorCode::OK, &Reply::Empty);
    connection.handle(ms(1100), Input::Tick);
    assert_eq!(written(&mut connection, ms(1100)).len(), 1);
    assert!(connection.suspects(ms(1300)), "this one does not");
}

#[test]
fn no_duration_is_too_long() {
    for (timeout, after) in [
        (Duration::ZERO, None),
        (Duration::ZERO, Some(Duration::ZERO)),
        (Duration::MAX, None),
        (Duration::MAX, Some(Duration::MAX)),
        (TIMEOUT, Some(Duration::MAX)),
        (TIMEOUT, Some(Duration::ZERO)),
    ] {
        let limits = Limits { suspect_after: after, ..Limits::default() };
        let mut connection: Connection<u32> = Connection::new(ms(0), Ticket { timeout, ..ticket() }, limits);
        outputs(&mut connection);
        ask(&mut connection, ms(1), &get("/a", false), None, 1);
        for now in [2, 10, 1000] {
            connection.handle(ms(now), Input::Tick);
            let _ = (connection.suspects(ms(now)), connection.deadline());
        }
    }
}

#[test]
fn ancestors_of_each_depth() {
    for (path, expected) in [("", &[][..]), ("/", &[]), ("/a", &["/"]), ("/a/b/c", &["/a/b", "/a", "/"])] {
        assert_eq!(ancestors(path).collect::<Vec<_>>(), expected, "{path}");
    }
}

#[test]
fn watches_are_armed_by_replies_and_set_again_on_the_next_transport() {
    let mut connection = connection();
    ask(&mut connection, ms(1), &get("/data", true), Some(1), 1);
    ask(&mut connection, ms(1), &Request::Exists { path: "/none".into(), watch: true }, Some(2), 2);
    ask(&mut connection, ms(1), &get("/missing", true), Some(3), 3);
    let lasting = Request::AddWatch { path: "/tree".into(), mode: WatchMode::Recursive.number() };
    ask(&mut connection, ms(1), &lasting, Some(4), 4);
    let numbers: Vec<i32> = written(&mut connection, ms(1)).iter().map(|(xid, ..)| *xid).collect();
    // It comes before the reply, so it is about something older.
    event(&mut connection, ms(2), EventKind::DATA_CHANGED, "/data");
    assert_eq!(outputs(&mut connection), []);
    answer(&mut connection, ms(2), numbers[0], ErrorCode::OK, &data());
    answer(&mut connection, ms(2), numbers[1], ErrorCode::NO_NODE, &Reply::Empty);
    answer(&mut connection, ms(2), numbers[2], ErrorCode::NO_NODE, &Reply::Empty);
    answer(&mut connection, ms(2), numbers[3], ErrorCode::OK, &Reply::Int(0));
    assert_eq!(outputs(&mut connection).len(), 4);
    event(&mut connection, ms(3), EventKind::CREATED, "/tree/a");
    assert_eq!(outputs(&mut connection), [watch(4, WatchKind::Created, "/tree/a")]);

    connection.handle(ms(4), Input::Lost("reset".to_owned()));
    outputs(&mut connection);
    let ticket = connection.ticket().clone();
    connection.handle(ms(5), Input::Attached(ticket));
    assert_eq!(outputs(&mut connection), [], "not before they are armed");
    let requests = written(&mut connection, ms(5));
    let [(xid::SET_WATCHES, OpCode::SET_WATCHES2, body)] = &requests[..] else { panic!("{requests:?}") };
    let Request::SetWatches { relative_zxid: 5, data: held, exist, child, persistent, recursive } =
        Request::decode(OpCode::SET_WATCHES2, body).unwrap()
    else {
        panic!()
    };
    assert_eq!((held, exist, recursive), (vec!["/data".into()], vec!["/none".into()], vec!["/tree".into()]));
    assert!(child.is_empty() && persistent.is_empty());
    event(&mut connection, ms(6), EventKind::CREATED, "/none");
    answer(&mut connection, ms(6), xid::SET_WATCHES, ErrorCode::OK, &Reply::Empty);
    let expected = [
        watch(2, WatchKind::Created, "/none"),
        // The server does not tell what happened meanwhile.
        watch(4, WatchKind::Gap, "/tree"),
        Output::Ready,
    ];
    assert_eq!(outputs(&mut connection), expected);
    event(&mut connection, ms(7), EventKind::DELETED, "/data");
    assert_eq!(outputs(&mut connection), [watch(1, WatchKind::Deleted, "/data")]);
}

#[test]
fn a_one_shot_watch_does_not_take_the_place_of_a_lasting_one() {
    let mut connection = connection();
    let lasting = Request::AddWatch { path: "/a".into(), mode: WatchMode::Persistent.number() };
    ask(&mut connection, ms(1), &lasting, Some(1), 1);
    // The lasting one is still under way.
    ask(&mut connection, ms(1), &get("/a", true), Some(2), 2);
    let requests = written(&mut connection, ms(1));
    let sent = Request::decode(requests[1].1, &requests[1].2).unwrap();
    assert_eq!(sent, get("/a", false));
    answer(&mut connection, ms(2), requests[0].0, ErrorCode::OK, &Reply::Int(0));
    answer(&mut connection, ms(2), requests[1].0, ErrorCode::OK, &data());
    outputs(&mut connection);
    event(&mut connection, ms(3), EventKind::DATA_CHANGED, "/a");
    let mut told = outputs(&mut connection);
    told.sort_by_key(|output| matches!(output, Output::Watch { id: WatchId(2), .. }));
    assert_eq!(told, [watch(1, WatchKind::DataChanged, "/a"), watch(2, WatchKind::DataChanged, "/a")]);

    // Given up while another read goes by it: the read is told to look again.
    ask(&mut connection, ms(4), &get("/a", true), Some(3), 3);
    connection.handle(ms(4), Input::Forget(WatchId(1)));
    let requests = written(&mut connection, ms(4));
    assert_eq!(requests[1].1, OpCode::REMOVE_WATCHES);
    answer(&mut connection, ms(5), requests[0].0, ErrorCode::OK, &data());
    let told = outputs(&mut connection);
    assert_eq!(told[1], watch(3, WatchKind::Gap, "/a"), "{told:?}");
}

#[test]
fn a_watch_that_is_given_up_before_its_reply_fires_for_nobody() {
    let mut connection = connection();
    ask(&mut connection, ms(1), &get("/a", true), Some(1), 1);
    let number = written(&mut connection, ms(1))[0].0;
    connection.handle(ms(1), Input::Forget(WatchId(1)));
    answer(&mut connection, ms(2), number, ErrorCode::OK, &data());
    outputs(&mut connection);
    event(&mut connection, ms(3), EventKind::DATA_CHANGED, "/a");
    assert_eq!(outputs(&mut connection), []);
}

#[test]
fn a_lasting_watch_that_is_given_up_does_not_take_the_next_one_of_its_path_along() {
    let mut connection = connection();
    let lasting = Request::AddWatch { path: "/a".into(), mode: WatchMode::Recursive.number() };
    let added = Reply::Int(0);
    let now = ms(1);
    ask(&mut connection, now, &lasting, Some(1), 1);
    connection.handle(now, Input::Forget(WatchId(1)));
    ask(&mut connection, now, &lasting, Some(2), 2);
    let numbers: Vec<i32> = written(&mut connection, now).into_iter().map(|(number, ..)| number).collect();
    for number in numbers {
        answer(&mut connection, now, number, ErrorCode::OK, &added);
        // It would come to the server after the second request, and remove what that has armed.
        assert_eq!(written(&mut connection, now), []);
    }
    outputs(&mut connection);
    event(&mut connection, now, EventKind::CREATED, "/a/b");
    assert_eq!(outputs(&mut connection), [watch(2, WatchKind::Created, "/a/b")]);

    // The same where the first is armed already.
    ask(&mut connection, now, &lasting, Some(3), 3);
    connection.handle(now, Input::Forget(WatchId(2)));
    let requests = written(&mut connection, now);
    assert_eq!(requests.iter().map(|(_, op, _)| *op).collect::<Vec<_>>(), [OpCode::ADD_WATCH]);
    answer(&mut connection, now, requests[0].0, ErrorCode::OK, &added);
    outputs(&mut connection);
    event(&mut connection, now, EventKind::CREATED, "/a/c");
    assert_eq!(outputs(&mut connection), [watch(3, WatchKind::Created, "/a/c")]);
    connection.handle(now, Input::Forget(WatchId(3)));
    assert_eq!(written(&mut connection, now)[0].1, OpCode::REMOVE_WATCHES);
}

#[test]
fn a_session_is_closed_once_and_nothing_follows() {
    let mut connection = connection();
    ask(&mut connection, ms(1), &get("/a", false), None, 1);
    connection.handle(ms(1), Input::Close(2));
    ask(&mut connection, ms(1), &get("/b", false), None, 3);
    assert_eq!(
        outputs(&mut connection),
        [Output::Ended { tag: 3, outcome: Outcome::NotSent(NotSent::Closing) }]
    );
    assert!(!connection.is_close_written());
    let requests = written(&mut connection, ms(1));
    assert!(connection.is_close_written());
    answer(&mut connection, ms(2), requests[0].0, ErrorCode::OK, &data());
    answer(&mut connection, ms(2), requests[1].0, ErrorCode::OK, &Reply::Empty);
    let ended = outputs(&mut connection);
    assert_eq!(
        ended[1..],
        [Output::Ended { tag: 2, outcome: Outcome::Answered(Ok(Reply::Empty)) }, Output::Closed]
    );
    assert!(!connection.is_attached());
}

#[test]
fn a_server_that_does_not_serve_the_session_is_left() {
    const UNKNOWN: ErrorCode = ErrorCode(-999);
    let always = [
        ErrorCode::SESSION_EXPIRED,
        ErrorCode::SESSION_MOVED,
        ErrorCode::AUTH_FAILED,
        ErrorCode::SESSION_CLOSED_REQUIRE_SASL,
    ];
    // An operation may have its own reasons; to a heartbeat such an answer is none.
    let heartbeat = [ErrorCode::SYSTEM_ERROR, ErrorCode::NOT_READ_ONLY, ErrorCode::REQUEST_TIMEOUT, UNKNOWN];
    let never = [ErrorCode::NO_NODE, ErrorCode::NO_AUTH, ErrorCode::THROTTLED];
    for (error, is_heartbeat, left) in always
        .iter()
        .flat_map(|error| [(*error, false, true), (*error, true, true)])
        .chain(heartbeat.iter().flat_map(|error| [(*error, false, false), (*error, true, true)]))
        .chain(never.iter().flat_map(|error| [(*error, false, false), (*error, true, false)]))
    {
        let mut connection = connection();
        let request = get("/a", false);
        connection.handle(
            ms(1),
            Input::Request { request: &request, watch: None, heartbeat: is_heartbeat, tag: 1 },
        );
        ask(&mut connection, ms(1), &get("/a", false), None, 2);
        let number = written(&mut connection, ms(1))[0].0;
        answer(&mut connection, ms(2), number, error, &Reply::Empty);
        let told = outputs(&mut connection);
        assert_eq!(told[0], Output::Ended { tag: 1, outcome: Outcome::Answered(Err(error)) });
        assert_eq!(
            matches!(told.last(), Some(Output::Lost { .. })),
            left,
            "{error}, {is_heartbeat}: {told:?}"
        );
        assert_eq!(connection.is_attached(), !left, "{error}, {is_heartbeat}");
    }
}

fn credentials() -> Credentials<'static> {
    Credentials::new(&[("digest", b"ann:secret"), ("ip", b"")])
}

fn response(session_id: i64, timeout_ms: i32, read_only: bool) -> BytesMut {
    let mut bytes = BytesMut::new();
    let read_only = Some(read_only);
    ConnectResponse { timeout_ms, session_id, password: vec![9; 16], read_only }.encode(&mut bytes);
    bytes
}

#[test]
fn a_handshake_says_everything_at_once_and_waits_for_every_answer() {
    let mut handshake = Handshake::new(&Purpose::New(TIMEOUT), credentials());
    let mut bytes = handshake.outgoing();
    let hello = ConnectRequest::decode(&cut_frame(&mut bytes, 1024).unwrap().unwrap()).unwrap();
    assert_eq!((hello.session_id, hello.timeout_ms, hello.read_only), (0, 10_000, Some(false)));
    for _ in 0..2 {
        let frame = cut_frame(&mut bytes, 1024).unwrap().unwrap();
        assert_eq!(
            RequestHeader::decode(&frame).unwrap(),
            RequestHeader { xid: xid::AUTH, op: OpCode::AUTH }
        );
    }
    let probe = RequestHeader::decode(&cut_frame(&mut bytes, 1024).unwrap().unwrap()).unwrap();
    assert_eq!(probe.op, OpCode::EXISTS);
    assert!(bytes.is_empty());
    let mut input = response(0x77, 8000, false);
    let accepted = ReplyHeader { xid: xid::AUTH, zxid: 0, error: ErrorCode::OK };
    Reply::Empty.encode(accepted, &mut input);
    assert_eq!(handshake.receive(&mut input), Ok(None));
    Reply::Empty.encode(accepted, &mut input);
    assert_eq!(handshake.receive(&mut input), Ok(None));
    let root = ReplyHeader { xid: probe.xid, zxid: 3, error: ErrorCode::OK };
    Reply::Stat(Stat::default()).encode(root, &mut input);
    input.extend_from_slice(b"rest");
    let granted = handshake.receive(&mut input).unwrap().unwrap();
    assert_eq!(
        (granted.session_id, granted.timeout, &granted.password[..]),
        (SessionId(0x77), ms(8000), &[9; 16][..])
    );
    assert_eq!(granted.last_zxid, 3, "what the first answer has seen");
    assert_eq!(&input[..], b"rest");
}

#[test]
fn a_handshake_is_refused_for_what_it_is() {
    let begin = |purpose: &Purpose| Handshake::new(purpose, credentials());
    let new = Purpose::New(TIMEOUT);
    let resume = Purpose::Resume(ticket());
    let said = |purpose: &Purpose, mut input: BytesMut| begin(purpose).receive(&mut input).unwrap_err();
    assert_eq!(said(&resume, response(0, 0, false)), Refusal::Expired);
    assert_eq!(said(&resume, response(0x78, 8000, false)), Refusal::AnotherSession);
    assert_eq!(said(&new, response(0x77, 8000, true)), Refusal::ReadOnly);
    assert!(matches!(said(&new, BytesMut::from(&[0xff; 8][..])), Refusal::Malformed(_)));
    let mut refused = response(0x77, 8000, false);
    Reply::Empty.encode(ReplyHeader { xid: xid::AUTH, zxid: 0, error: ErrorCode::AUTH_FAILED }, &mut refused);
    let Refusal::AuthFailed(reason) = said(&new, refused) else { panic!() };
    assert!(reason.contains("digest") && !reason.contains("secret"), "{reason}");
    for error in [ErrorCode::SYSTEM_ERROR, ErrorCode(-999)] {
        let mut unanswered = response(0x77, 8000, false);
        Reply::Empty.encode(ReplyHeader { xid: xid::AUTH, zxid: 0, error }, &mut unanswered);
        assert!(matches!(said(&new, unanswered), Refusal::Unanswered(_)), "{error}");
    }
    let mut refused = response(0x77, 8000, false);
    let error = ErrorCode::SESSION_CLOSED_REQUIRE_SASL;
    Reply::Empty.encode(ReplyHeader { xid: i32::MAX, zxid: 0, error }, &mut refused);
    let Refusal::AuthFailed(reason) = said(&new, refused) else { panic!() };
    assert!(reason.contains("SASL"), "{reason}");
}

#[test]
fn a_ticket_and_a_handshake_do_not_print_secrets() {
    let shown = format!("{:?} {:?}", ticket(), Handshake::new(&Purpose::Resume(ticket()), credentials()));
    assert!(!shown.contains("7, 7") && !shown.contains("secret"), "{shown}");
}

/// What happens in a random run.
#[derive(Clone, Debug)]
enum Step {
    Ask,
    /// So many thousandths of what is outgoing are written.
    Write(usize),
    /// The server answers so many of the requests that have reached it whole.
    Answer(usize),
    Lose,
    Attach,
    Garbage(Vec<u8>),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Ask),
        6 => (0..=1000_usize).prop_map(Step::Write),
        6 => (1..5_usize).prop_map(Step::Answer),
        1 => Just(Step::Lose),
        2 => Just(Step::Attach),
        1 => prop::collection::vec(any::<u8>(), 1..40).prop_map(Step::Garbage),
        3 => (0..900_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Each request ends exactly once; what is told to be answered was answered, and what is told not to be sent has
    /// not reached the server, not with a single byte.
    #[test]
    fn every_request_ends_once_and_as_it_is_told(steps in prop::collection::vec(step(), 1..120)) {
        let mut connection = connection();
        let mut now = ms(0);
        let mut wire = BytesMut::new();
        let mut arrived: VecDeque<(i32, u32)> = VecDeque::new();
        // By the tag in the path: whether a byte of it was written, whether it was answered.
        let (mut touched, mut answered) = (HashMap::new(), HashMap::new());
        let mut asked = 0;
        let mut ended: HashMap<u32, Outcome> = HashMap::new();
        // The tags of the requests under way, with where they end among the bytes of this transport.
        let mut sent: Vec<(u32, usize, usize)> = Vec::new();
        let (mut queued, mut given) = (0, 0);
        for step in steps {
            match step {
                Step::Ask => {
                    asked += 1;
                    let path = format!("/{asked}");
                    let before = connection.outgoing().len();
                    ask(&mut connection, now, &get(&path, true), Some(u64::from(asked)), asked);
                    let more = connection.outgoing().len().saturating_sub(before);
                    sent.push((asked, queued, queued + more));
                    queued += more;
                }
                Step::Write(thousandths) => {
                    let count = connection.outgoing().len() * thousandths / 1000;
                    wire.extend_from_slice(&connection.outgoing()[..count]);
                    connection.handle(now, Input::Written(count));
                    given += count;
                    for (tag, ..) in sent.iter().filter(|(_, begin, end)| begin < end && *begin < given) {
                        touched.insert(*tag, ());
                    }
                    while let Some(frame) = cut_frame(&mut wire, usize::MAX).unwrap() {
                        let header = RequestHeader::decode(&frame).unwrap();
                        if header.op == OpCode::GET_DATA {
                            let body = frame.slice(RequestHeader::LEN..);
                            let request = Request::decode(header.op, &body).unwrap();
                            arrived.push_back((header.xid, request.path().unwrap()[1..].parse().unwrap()));
                        }
                    }
                }
                Step::Answer(count) => {
                    for _ in 0..count.min(arrived.len()) {
                        let (xid, tag) = arrived.pop_front().unwrap();
                        answered.insert(tag, ());
                        answer(&mut connection, now, xid, ErrorCode::OK, &data());
                    }
                }
                Step::Lose => connection.handle(now, Input::Lost("lost".to_owned())),
                Step::Attach => {
                    let ticket = connection.ticket().clone();
                    connection.handle(now, Input::Attached(ticket));
                    wire.clear();
                    arrived.clear();
                    sent.clear();
                    given = 0;
                    queued = connection.outgoing().len();
                }
                Step::Garbage(bytes) => {
                    connection.handle(now, Input::Received(&mut BytesMut::from(&bytes[..])));
                }
                Step::Wait(time) => {
                    now += ms(time);
                    let before = connection.outgoing().len();
                    connection.handle(now, Input::Tick);
                    queued += connection.outgoing().len().saturating_sub(before);
                }
            }
            if !connection.is_attached() {
                wire.clear();
                arrived.clear();
            }
            while let Some(output) = connection.poll() {
                if let Output::Ended { tag, outcome } = output {
                    match &outcome {
                        Outcome::Answered(_) => prop_assert!(answered.contains_key(&tag), "{} was not answered", tag),
                        Outcome::NotSent(_) => prop_assert!(!touched.contains_key(&tag), "{} was written", tag),
                        Outcome::TooLarge { .. } => panic!("{tag} was answered by too much"),
                        Outcome::PerhapsApplied(_) => {
                            prop_assert!(touched.contains_key(&tag), "{} was not written", tag);
                        }
                    }
                    prop_assert!(ended.insert(tag, outcome).is_none(), "{} ended twice", tag);
                }
            }
        }
        connection.handle(now, Input::Lost("the end".to_owned()));
        while let Some(output) = connection.poll() {
            if let Output::Ended { tag, outcome } = output {
                prop_assert!(ended.insert(tag, outcome).is_none(), "{} ended twice", tag);
            }
        }
        prop_assert_eq!(ended.len() as u32, asked);
    }

    /// Whatever a server says, it neither panics nor reserves memory for what it only claims.
    #[test]
    fn no_bytes_do_harm(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..20)) {
        let mut connection = connection();
        ask(&mut connection, ms(1), &get("/a", true), Some(1), 1);
        let mut bytes = BytesMut::new();
        let mut handshake = Handshake::new(&Purpose::New(TIMEOUT), credentials());
        let mut greeting = BytesMut::new();
        for chunk in &chunks {
            bytes.extend_from_slice(chunk);
            greeting.extend_from_slice(chunk);
            connection.handle(ms(2), Input::Received(&mut bytes));
            let _ = handshake.receive(&mut greeting);
            prop_assert!(bytes.capacity() < 1 << 16 && greeting.capacity() < 1 << 16);
        }
    }
}
