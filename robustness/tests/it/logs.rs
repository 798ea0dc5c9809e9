//! The servers' transaction log.

use robustness::checker::Report;
use robustness::history::{Event, History, Leadership, RequestState, Witness, read_log};

/// A log with the entries that these write.
pub(crate) fn log(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"ZKLG\0\0\0\x02\0\0\0\0\0\0\0\0".to_vec();
    for entry in entries {
        bytes.extend([0; 8]);
        bytes.extend(buffer(entry));
        bytes.push(b'B');
    }
    // The file is preallocated.
    bytes.extend([0; 64]);
    bytes
}

fn buffer(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short").to_be_bytes();
    [&length[..], bytes].concat()
}

pub(crate) fn entry(session: i64, zxid: i64, at_ms: i64, kind: i32, body: &[u8]) -> Vec<u8> {
    let numbers =
        [&session.to_be_bytes()[..], &[0; 4], &zxid.to_be_bytes(), &at_ms.to_be_bytes(), &kind.to_be_bytes()];
    [&numbers.concat()[..], body].concat()
}

/// A path and data, as `create` and `setData` begin.
pub(crate) fn znode(path: &str, data: &str) -> Vec<u8> {
    [buffer(path.as_bytes()), buffer(data.as_bytes()), vec![0; 9]].concat()
}

fn multi(changes: &[(i32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = u32::try_from(changes.len()).expect("short").to_be_bytes().to_vec();
    for (kind, body) in changes {
        bytes.extend(kind.to_be_bytes());
        bytes.extend(buffer(body));
    }
    bytes
}

#[test]
fn the_lines_of_an_election_are_read_from_it() {
    let elected =
        r#"{"slots":[{"named":{"member":"east-1"},"given":{"term":3,"cause":"switchover"}}],"token_base":0}"#;
    let request = r#"{"kind":"switchover","state":{"state":"accepted","term":3}}"#;
    let current = r#"{"member":"east-1","slot":0,"term":3}"#;
    let both = [
        (5, znode("/dr/orders/leader/elected", elected)),
        (5, znode("/dr/orders/requests/r-0000000004", request)),
    ];
    // Created without data, and written in the same transaction.
    let acquires =
        [(1, znode("/dr/orders/leader/current", "")), (5, znode("/dr/orders/leader/current", current))];
    let bytes = log(&[
        entry(7, 20, 1000, 14, &multi(&both)),
        entry(7, 21, 1010, 14, &multi(&acquires)),
        entry(7, 22, 1015, 5, &znode("/dr/orders/leader/current", current)),
        entry(7, 23, 1020, 1, &znode("/dr/other/leader/current", current)),
        entry(8, 24, 1030, -11, &[]),
        // By the clock of another server.
        entry(7, 25, 1002, -11, &[]),
    ]);
    let txns = read_log(&bytes).unwrap();
    // Two servers have the same log.
    let lines = Witness::lines("/dr/", "orders", 1_000_000, txns.iter().chain(&txns).cloned());
    let behind = Witness::lines("/dr", "orders", -1_000_000, txns.iter().cloned());
    assert_eq!((behind.len(), behind[0].at), (lines.len(), 1_001_000_000));
    let leadership =
        Leadership { job: "orders".into(), slot: 0, member: "east-1".into(), term: 3, token: 21 };
    let (job, member, cause) = ("orders".to_owned(), Some("east-1".to_owned()), "switchover".to_owned());
    let expected = [
        (999, Event::Decided { job, slot: 0, term: 3, member, cause }),
        (
            999,
            Event::Request {
                request: "r-0000000004".into(),
                kind: Some("switchover".into()),
                state: RequestState::Accepted { term: 3 },
            },
        ),
        (1009, Event::Acquired(leadership.clone())),
        (1009, Event::Released(leadership)),
    ];
    let found: Vec<_> = lines.into_iter().map(|line| (line.at / 1_000_000, line.event)).collect();
    assert_eq!(found, expected);
}

#[test]
fn without_an_elector_the_term_is_the_token() {
    let contender = r#"{"member":"east-1","status":"PROGRESS"}"#;
    let bytes = log(&[
        entry(7, 20, 1000, 1, &znode("/dr/orders/tokens", r#"{"token_base":100}"#)),
        entry(7, 21, 1010, 1, &znode("/dr/orders/leader/current", contender)),
    ]);
    let lines = Witness::lines("/dr", "orders", 0, read_log(&bytes).unwrap());
    let (job, member) = ("orders".to_owned(), "east-1".to_owned());
    let leadership = Leadership { job, slot: 0, member, term: 121, token: 121 };
    assert_eq!(lines.into_iter().map(|line| line.event).collect::<Vec<_>>(), [Event::Acquired(leadership)]);
}

#[test]
fn a_record_that_is_not_understood_is_counted() {
    let records = [
        ("/dr/orders/leader/elected", "no JSON"),
        ("/dr/orders/leader/elected", r#"{"slots":[{"named":null}]}"#),
        ("/dr/orders/requests/r-0000000004", r#"{"state":{"state":"unheard of"}}"#),
        ("/dr/orders/leader/current", r#"{"slot":0}"#),
        ("/dr/orders/nodes/east-1", "no JSON"),
    ];
    let entries: Vec<_> =
        (20..).zip(records).map(|(zxid, (path, data))| entry(7, zxid, 1000, 1, &znode(path, data))).collect();
    let history = History::of(Witness::lines("/dr", "orders", 0, read_log(&log(&entries)).unwrap()));
    let report = Report::of(&history);
    assert_eq!(report.unread(), 4, "{:?}", history.lines());
    assert!(report.text(&history).contains("records of the servers that can't be read: 4"));
    assert_eq!(report.json(&history)["unread"], 4);
}

#[test]
fn a_log_that_a_killed_server_has_left_ends_where_it_is_incomplete() {
    let whole = log(&[entry(7, 20, 1000, 2, &buffer(b"/a")), entry(7, 21, 1000, 2, &buffer(b"/b"))]);
    for length in 16..whole.len() {
        let read = read_log(&whole[..length]).unwrap();
        assert!(read.len() <= 2, "{length}");
    }
    assert_eq!(read_log(&whole).unwrap().len(), 2);
    assert!(read_log(&log(&[b"too short".to_vec()])).is_err(), "an entry that is whole");
    assert!(read_log(b"ZKLG").is_err() && read_log(b"something else entirely").is_err());
}
