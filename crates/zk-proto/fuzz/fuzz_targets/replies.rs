//! What a client reads after the handshake. The input is the op code that was asked, and a frame without its length.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use zk_proto::{OpCode, Reply, ReplyHeader, WatchEvent, cut_frame};

fuzz_target!(|input: &[u8]| {
    let Some((op, frame)) = input.split_first_chunk() else { return };
    let (op, frame) = (OpCode(i32::from_be_bytes(*op)), Bytes::copy_from_slice(frame));
    let Ok(header) = ReplyHeader::decode(&frame) else {
        assert!(Reply::decode(op, &frame).is_err() && WatchEvent::decode(&frame).is_err());
        return;
    };
    let again = |write: &dyn Fn(&mut BytesMut)| {
        let mut out = BytesMut::new();
        write(&mut out);
        let frame = cut_frame(&mut out, usize::MAX).expect("a length").expect("a whole frame");
        assert!(out.is_empty());
        frame
    };
    if let Ok(reply) = Reply::decode(op, &frame) {
        let written = again(&|out| reply.encode(header, out));
        assert_eq!(ReplyHeader::decode(&written), Ok(header));
        assert_eq!(Reply::decode(op, &written), Ok(reply));
    }
    if let Ok(event) = WatchEvent::decode(&frame) {
        let written = again(&|out| event.encode(out));
        assert_eq!(WatchEvent::decode(&written), Ok(event));
    }
});
