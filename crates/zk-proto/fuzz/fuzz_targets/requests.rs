//! What a server reads after the handshake. The input is an op code and a body.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use zk_proto::{OpCode, Request, RequestHeader, cut_frame};

fuzz_target!(|input: &[u8]| {
    let Some((op, body)) = input.split_first_chunk() else { return };
    let Ok(request) = Request::decode(OpCode(i32::from_be_bytes(*op)), body) else { return };
    let mut out = BytesMut::new();
    request.encode(7, &mut out);
    let frame = cut_frame(&mut out, usize::MAX).expect("a length").expect("a whole frame");
    assert!(out.is_empty());
    let header = RequestHeader::decode(&frame).expect("a header");
    assert_eq!((header.xid, header.op), (7, request.op()));
    assert_eq!(Request::decode(header.op, &frame[RequestHeader::LEN..]).as_ref(), Ok(&request));
});
