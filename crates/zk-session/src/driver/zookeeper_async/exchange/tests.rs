//! Scripts of frames, and what follows from them.

use super::*;

fn request(op: i32, path: &str) -> Frame {
    Frame::build(|out| {
        // An id that means an event: the client gets there in time.
        out.extend_from_slice(&(-1i32).to_be_bytes());
        out.extend_from_slice(&op.to_be_bytes());
        put_bytes(out, path.as_bytes());
        out.push(0);
    })
}

fn reply(xid: i32, zxid: i64, err: i32, body: &[u8]) -> Frame {
    Frame::build(|out| {
        out.extend_from_slice(&xid.to_be_bytes());
        out.extend_from_slice(&zxid.to_be_bytes());
        out.extend_from_slice(&err.to_be_bytes());
        out.extend_from_slice(body);
    })
}

fn event(kind: i32, path: &str) -> Frame {
    let mut body = kind.to_be_bytes().to_vec();
    body.extend_from_slice(&3i32.to_be_bytes());
    put_bytes(&mut body, path.as_bytes());
    reply(xid::EVENT, -1, 0, &body)
}

fn send(exchange: &mut Exchange, op: i32, path: &str) -> i32 {
    match exchange.take_request(request(op, path)).unwrap() {
        FromClient::Forward(frame) => Fields(frame.payload()).i32().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Sends a read with a watch; the token's number is the request's id.
fn watch(exchange: &mut Exchange, op: i32, path: &str) -> i32 {
    let token = WatchToken(exchange.last_xid as u64 + 1);
    send(exchange, op, &path_with_token(path, token))
}

fn error_of(frame: &Frame) -> i32 {
    ReplyHeader::parse(frame.payload()).unwrap().0.err
}

#[test]
fn ids_stay_positive_for_ever() {
    let mut exchange = Exchange { last_xid: i32::MAX - 1, ..Exchange::default() };
    assert_eq!(send(&mut exchange, op::DELETE, "/a"), i32::MAX);
    assert_eq!(send(&mut exchange, op::DELETE, "/a"), 1);
}

#[test]
fn a_reply_out_of_turn_is_an_error() {
    let mut exchange = Exchange::default();
    let first = send(&mut exchange, op::DELETE, "/a");
    let second = send(&mut exchange, op::DELETE, "/b");
    assert_ne!(first, second);
    assert!(exchange.take_reply(reply(second, 9, 0, b"")).is_err());
    assert!(Exchange::default().take_reply(reply(1, 9, 0, b"")).is_err());
    let ping = reply(xid::PING, 9, 0, b"");
    assert!(Exchange::default().take_reply(ping).is_err());
}

#[test]
fn what_would_break_the_client_is_an_error() {
    let garbage: [(i32, &[u8]); 6] = [
        (op::EXISTS, b"short"),
        (op::GET_DATA, &[0x7f, 0xff, 0xff, 0xff]),
        (op::GET_CHILDREN, &[0x7f, 0xff, 0xff, 0xff]),
        (op::GET_CHILDREN, &[0, 0, 0, 1, 0, 0, 0, 1, 0xff]),
        (op::GET_CHILDREN, &[0, 0, 0, 0]),
        (op::CREATE2, &[0, 0, 0, 1, 0xff]),
    ];
    for (op, body) in garbage {
        let mut exchange = Exchange::default();
        let xid = send(&mut exchange, op, "/a");
        assert!(exchange.take_reply(reply(xid, 9, 0, body)).is_err(), "{op}");
        assert_eq!(exchange.cut().len(), 1, "the request is answered all the same");
    }
}

#[test]
fn a_cut_fails_what_is_in_flight_and_nothing_else() {
    let mut exchange = Exchange::default();
    send(&mut exchange, op::DELETE, "/a");
    send(&mut exchange, op::SET_DATA, "/a");
    exchange.ping();
    let failed = exchange.cut();
    let codes: Vec<i32> = failed.iter().map(error_of).collect();
    assert_eq!(codes, [PERHAPS_APPLIED, PERHAPS_APPLIED]);
    assert!(exchange.is_idle() && !exchange.is_pinging());
    assert!(exchange.cut().is_empty());
    let refused = Exchange::refuse(&request(op::DELETE, "/a")).unwrap();
    assert_eq!(error_of(&refused), NOT_SENT);
}

#[test]
fn the_clients_pings_are_answered_in_their_turn() {
    let mut exchange = Exchange::default();
    let ping = bare_frame(xid::PING, op::PING);
    let step = exchange.take_request(ping.clone()).unwrap();
    assert!(matches!(step, FromClient::Answer(Some(_))), "{step:?}");
    let xid = send(&mut exchange, op::DELETE, "/a");
    let step = exchange.take_request(ping).unwrap();
    assert!(matches!(step, FromClient::Answer(None)), "{step:?}");
    let out = exchange.take_reply(reply(xid, 1, 0, b"")).unwrap();
    assert_eq!(out.to_client.len(), 2);
    assert_eq!(out.to_client[1], pong_frame());
}

#[test]
fn a_watch_is_armed_by_the_reply_and_fires_once() {
    let mut exchange = Exchange::default();
    let stat = [0; STAT_LEN];
    let here = watch(&mut exchange, op::EXISTS, "/here");
    exchange.take_reply(reply(here, 5, 0, &stat)).unwrap();
    let missing = watch(&mut exchange, op::EXISTS, "/missing");
    exchange.take_reply(reply(missing, 6, code::NO_NODE, b"")).unwrap();
    let failed = watch(&mut exchange, op::GET_DATA, "/missing");
    exchange.take_reply(reply(failed, 7, code::NO_NODE, b"")).unwrap();

    let fired = exchange.take_reply(event(2, "/here")).unwrap().fired;
    assert_eq!(fired, [(WatchToken(here as u64), WatchKind::Deleted, "/here".to_owned())]);
    assert_eq!(exchange.take_reply(event(2, "/here")).unwrap().fired, []);
    let fired = exchange.take_reply(event(1, "/missing")).unwrap().fired;
    assert_eq!(fired, [(WatchToken(missing as u64), WatchKind::Created, "/missing".to_owned())]);
}

#[test]
fn an_event_before_the_reply_is_not_the_new_watchs() {
    let mut exchange = Exchange::default();
    let mut data = 0i32.to_be_bytes().to_vec();
    data.extend_from_slice(&[0; STAT_LEN]);
    let old = watch(&mut exchange, op::GET_DATA, "/a");
    exchange.take_reply(reply(old, 5, 0, &data)).unwrap();
    let new = watch(&mut exchange, op::GET_DATA, "/a");
    let fired = exchange.take_reply(event(3, "/a")).unwrap().fired;
    assert_eq!(fired.len(), 1);
    assert_eq!(fired[0].0, WatchToken(old as u64));
    exchange.take_reply(reply(new, 6, 0, &data)).unwrap();
    let fired = exchange.take_reply(event(3, "/a")).unwrap().fired;
    assert_eq!(fired[0].0, WatchToken(new as u64));
}

#[test]
fn a_forgotten_watch_is_not_armed_by_a_late_reply() {
    let mut exchange = Exchange::default();
    let xid = watch(&mut exchange, op::EXISTS, "/a");
    exchange.forget(WatchToken(xid as u64));
    exchange.take_reply(reply(xid, 5, code::NO_NODE, b"")).unwrap();
    assert_eq!(exchange.take_reply(event(1, "/a")).unwrap().fired, []);
}

#[test]
fn after_a_gap_watches_are_set_again_and_acknowledged() {
    let mut exchange = Exchange::default();
    assert_eq!(exchange.resume(), []);
    assert!(!exchange.is_settling());
    let xid = watch(&mut exchange, op::EXISTS, "/a");
    exchange.take_reply(reply(xid, 8, code::NO_NODE, b"")).unwrap();
    let again = exchange.resume();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].payload()[8..16], 8i64.to_be_bytes());
    assert!(exchange.is_settling());
    let done = reply(xid::SET_WATCHES, 8, 0, b"");
    exchange.take_reply(done.clone()).unwrap();
    assert!(!exchange.is_settling());
    assert!(exchange.take_reply(done).is_err(), "one reply too many");
}

#[test]
fn the_token_does_not_leave_the_process() {
    let mut exchange = Exchange::default();
    let path = path_with_token("/secret", WatchToken(12345));
    let step = exchange.take_request(request(op::GET_DATA, &path)).unwrap();
    let FromClient::Forward(frame) = step else { panic!("{step:?}") };
    let mut fields = Fields(&frame.payload()[8..]);
    assert_eq!(fields.str(), Ok("/secret"));
    assert_eq!(fields.bool(), Ok(true));
    assert!(exchange.take_request(request(op::GET_DATA, "/a\0b")).is_err());
}

#[test]
fn children_bring_their_parents_stat() {
    let mut exchange = Exchange::default();
    let xid = send(&mut exchange, op::GET_CHILDREN, "/p");
    let stat: [u8; STAT_LEN] = std::array::from_fn(|n| n as u8 * 3);
    let mut body = 2i32.to_be_bytes().to_vec();
    put_bytes(&mut body, b"a");
    put_bytes(&mut body, b"bc");
    body.extend_from_slice(&stat);
    let out = exchange.take_reply(reply(xid, 1, 0, &body)).unwrap();
    let (_, mut fields) = ReplyHeader::parse(out.to_client[0].payload()).unwrap();
    assert_eq!(fields.i32().unwrap(), 3);
    assert_eq!(fields.str().unwrap(), "a");
    assert_eq!(fields.str().unwrap(), "bc");
    let mark = fields.str().unwrap();
    assert_eq!(marked_stat(mark).unwrap(), stat);
    assert_eq!(marked_stat("name"), None);
    assert_eq!(marked_stat("/0"), None);
}
