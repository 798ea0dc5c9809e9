//! Single fields: what they are read as when a peer writes them oddly, and numbers that nobody knows.

use bytes::{Bytes, BytesMut};
use zk_proto::{Aftermath, ErrorCode, OpCode, Reply, ReplyHeader, Request, cut_frame};

/// A body after the header of a reply.
fn replied(op: OpCode, body: &[u8]) -> Option<Reply> {
    Reply::decode(op, &Bytes::from([&[0; ReplyHeader::LEN], body].concat())).ok()
}

fn buffer(content: &[u8]) -> Vec<u8> {
    [&u32::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
}

#[test]
fn lengths_are_not_believed() {
    let (huge, negative) = (i32::MAX.to_be_bytes(), (-2_i32).to_be_bytes());
    for length in [huge, negative] {
        assert!(Request::decode(OpCode::SYNC, &length).is_err());
        assert!(Request::decode(OpCode::SASL, &length).is_err());
    }
    assert_eq!(replied(OpCode::GET_CHILDREN, &huge), None);
    assert_eq!(replied(OpCode::GET_CHILDREN, &negative), Some(Reply::Names(Vec::new())));
}

#[test]
fn only_lists_of_paths_must_not_be_null() {
    let null = (-1_i32).to_be_bytes();
    assert_eq!(replied(OpCode::GET_CHILDREN, &null), Some(Reply::Names(Vec::new())));
    let set_acl = [&buffer(b"/")[..], &null, &null].concat();
    assert!(Request::decode(OpCode::SET_ACL, &set_acl).is_ok());
    let set_watches = [&[0; 8][..], &null, &[0; 8]].concat();
    assert!(Request::decode(OpCode::SET_WATCHES, &set_watches).is_err());
}

#[test]
fn a_character_beyond_the_first_plane_survives_java() {
    for text in ["plain", "ä", "a😀b", "😀😀", "\u{d7ff}\u{e000}😀"] {
        let header = ReplyHeader { xid: 1, zxid: 1, error: ErrorCode::OK };
        let (written, mut frame) = (Reply::Path(text.to_owned()), BytesMut::new());
        written.encode(header, &mut frame);
        let frame = cut_frame(&mut frame, 1024).unwrap().unwrap();
        assert_eq!(Reply::decode(OpCode::SYNC, &frame), Ok(written));
    }
}

#[test]
fn invalid_utf_8_is_replaced_as_java_does_it() {
    let read_by_server = |bytes: &[u8]| match Request::decode(OpCode::SYNC, &buffer(bytes)) {
        Ok(Request::Sync { path }) => path.into_owned(),
        other => panic!("{other:?}"),
    };
    let read_by_client = |bytes: &[u8]| match replied(OpCode::SYNC, &buffer(bytes)) {
        Some(Reply::Path(path)) => path,
        other => panic!("{other:?}"),
    };
    let pair = b"\xed\xa0\xbd\xed\xb8\x80";
    assert_eq!((read_by_client(pair), read_by_server(pair)), ("😀".into(), "\u{fffd}\u{fffd}".into()));
    for (bytes, replaced) in [
        // Surrogates without their other half, or the wrong way round.
        (&b"\xed\xa0\xbd"[..], "\u{fffd}"),
        (b"\xed\xb8\x80x\xed\xa0\xbd", "\u{fffd}x\u{fffd}"),
        (b"\xed\xb8\x80\xed\xa0\xbd", "\u{fffd}\u{fffd}"),
        // What only begins like one.
        (b"\xed\xa0A\xed\xb0B", "\u{fffd}A\u{fffd}B"),
        (b"a\xed", "a\u{fffd}"),
        (b"\xff\xfe", "\u{fffd}\u{fffd}"),
    ] {
        assert_eq!(read_by_server(bytes), replaced, "{bytes:x?}");
        assert_eq!(read_by_client(bytes), replaced, "{bytes:x?}");
    }
}

#[test]
fn a_code_that_nobody_knows_keeps_its_number_and_proves_nothing() {
    let unknown = ErrorCode(-4711);
    assert_eq!(unknown.to_string(), "error -4711");
    assert_eq!(unknown.aftermath(), Aftermath::Unknown);
    assert_eq!(ErrorCode::THROTTLED.aftermath(), Aftermath::Retry);
    assert_eq!(ErrorCode::NO_NODE.aftermath(), Aftermath::Refused);
}
