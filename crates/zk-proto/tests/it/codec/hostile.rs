//! Invalid input: it gives an error or a value, never a panic, and reserves memory in proportion to the bytes that have
//! arrived, not to the lengths and counts that they claim.

use bytes::{BufMut as _, Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use zk_proto::{
    ConnectRequest, ConnectResponse, OpCode, Reply, ReplyHeader, Request, RequestHeader, WatchEvent,
    cut_frame, frame_length,
};

use super::memory::peak_of;
use super::messages;
use super::recording::{Side, recordings};

/// How many bytes of memory a value may take for each byte of the message. The largest ratios are those of the empty
/// string, 24 bytes for 4, and of the reply to a deletion in a group, about 110 bytes for 9; a vector that grows may
/// have twice the capacity that it needs.
const MEMORY_PER_BYTE: usize = 32;
/// The smallest capacity of a vector that grows: 4 elements.
const SLACK: usize = 1024;

fn bounded<T>(bytes: usize, decode: impl FnOnce() -> T) -> T {
    let (value, peak) = peak_of(decode);
    assert!(peak <= MEMORY_PER_BYTE * bytes + SLACK, "{peak} bytes of memory for {bytes}");
    value
}

/// Decodes a body as every kind of message. A value that it gives must survive encode and decode.
fn decode_as_anything(op: OpCode, body: &[u8]) {
    let again = |write: &dyn Fn(&mut BytesMut)| {
        let mut out = BytesMut::new();
        write(&mut out);
        cut_frame(&mut out, usize::MAX).unwrap().unwrap()
    };
    if let Ok(request) = bounded(body.len(), || Request::decode(op, body)) {
        let frame = again(&|out| request.encode(1, out));
        let op = RequestHeader::decode(&frame).unwrap().op;
        assert_eq!(Request::decode(op, &frame[RequestHeader::LEN..]), Ok(request));
    }
    let mut frame = vec![0; ReplyHeader::LEN];
    frame.extend_from_slice(body);
    let frame = Bytes::from(frame);
    if let Ok(reply) = bounded(body.len(), || Reply::decode(op, &frame)) {
        let header = ReplyHeader::decode(&frame).unwrap();
        assert_eq!(Reply::decode(op, &again(&|out| reply.encode(header, out))), Ok(reply));
    }
    if let Ok(event) = bounded(body.len(), || WatchEvent::decode(body)) {
        assert_eq!(WatchEvent::decode(&again(&|out| event.encode(out))), Ok(event));
    }
    if let Ok(request) = bounded(body.len(), || ConnectRequest::decode(body)) {
        assert_eq!(ConnectRequest::decode(&again(&|out| request.encode(out))), Ok(request));
    }
    if let Ok(response) = bounded(body.len(), || ConnectResponse::decode(body)) {
        assert_eq!(ConnectResponse::decode(&again(&|out| response.encode(out))), Ok(response));
    }
}

/// Lengths and counts that are negative, too large or just wrong.
fn claims() -> impl Strategy<Value = i32> {
    prop_oneof![Just(i32::MAX), Just(i32::MIN), -3..=3, 0..200, Just(1 << 20), any::<i32>()]
}

/// Overwrites parts of a message with such lengths, and cuts off its end.
fn spoil(mut bytes: Vec<u8>, claims: Vec<(prop::sample::Index, i32)>, end: prop::sample::Index) -> Vec<u8> {
    for (at, claim) in claims {
        if let Some(places) = bytes.len().checked_sub(3).filter(|places| *places > 0) {
            let at = at.index(places);
            bytes[at..at + 4].copy_from_slice(&claim.to_be_bytes());
        }
    }
    bytes.truncate(end.index(bytes.len() + 1));
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn random_bytes(op in messages::ops(), body in vec(prop_oneof![4 => Just(0), 1 => Just(255), 3 => any::<u8>()], 0..120)) {
        decode_as_anything(op, &body);
    }

    #[test]
    fn spoiled_requests(
        request in messages::request(),
        claims in vec((any::<prop::sample::Index>(), claims()), 0..3),
        end in any::<prop::sample::Index>(),
    ) {
        let mut frame = BytesMut::new();
        request.encode(1, &mut frame);
        let body = frame[4 + RequestHeader::LEN..].to_vec();
        decode_as_anything(request.op(), &spoil(body, claims, end));
    }

    #[test]
    fn spoiled_replies(
        (op, reply) in messages::reply(),
        header in messages::reply_header(),
        claims in vec((any::<prop::sample::Index>(), claims()), 0..3),
        end in any::<prop::sample::Index>(),
    ) {
        let mut frame = BytesMut::new();
        reply.encode(header, &mut frame);
        let body = frame[4 + ReplyHeader::LEN..].to_vec();
        decode_as_anything(op, &spoil(body, claims, end));
    }

    #[test]
    fn claimed_frames(claim in claims(), arrived in vec(any::<u8>(), 0..20), limit in 0_usize..200) {
        let mut input = BytesMut::with_capacity(64);
        input.put_i32(claim);
        input.extend_from_slice(&arrived);
        let (cut, peak) = peak_of(|| cut_frame(&mut input, limit));
        // To share a buffer takes a small allocation, whatever the length of the frame.
        prop_assert!(peak <= 64, "{} bytes for a claim of {}", peak, claim);
        let allowed = usize::try_from(claim).ok().filter(|length| *length <= limit);
        match (allowed, cut) {
            (None, cut) => prop_assert!(cut.is_err()),
            (Some(length), Ok(Some(frame))) => prop_assert_eq!(&frame[..], &arrived[..length]),
            (Some(length), Ok(None)) => prop_assert!(arrived.len() < length),
            (Some(_), Err(error)) => prop_assert!(false, "{}", error),
        }
    }
}

/// The message is long enough for the count if each element has the smallest size, but the elements are larger.
#[test]
fn counts_reserve_no_more_than_has_arrived() {
    for op in [OpCode::SET_ACL, OpCode::CREATE, OpCode::SET_WATCHES, OpCode::GET_CHILDREN, OpCode::GET_ACL] {
        for claim in [1_i32 << 14, (1 << 14) + 1, i32::MAX] {
            let mut body = Vec::new();
            if op == OpCode::SET_ACL || op == OpCode::CREATE {
                body.put_i32(0);
            }
            match op {
                OpCode::CREATE => body.put_i32(-1),
                OpCode::SET_WATCHES => body.put_i64(0),
                _ => {}
            }
            body.put_i32(claim);
            // As lengths, these go beyond the end.
            body.extend([0x7f; 4 << 14]);
            decode_as_anything(op, &body);
        }
    }
}

#[test]
fn an_incomplete_length_is_no_error() {
    for arrived in 0..4 {
        assert_eq!(frame_length(&[0xff; 4][..arrived], 10), Ok(None));
    }
}

#[test]
fn recorded_frames_without_their_end_or_with_other_lengths() {
    for recording in recordings() {
        for step in &recording.steps {
            for frame in &step.frames {
                let header = if frame.side == Side::Client { RequestHeader::LEN } else { ReplyHeader::LEN };
                let Some(body) = frame.bytes.get(4 + header..) else { continue };
                let op = frame.op.unwrap_or(OpCode::MULTI);
                for end in 0..body.len() {
                    decode_as_anything(op, &body[..end]);
                    for claim in [-1_i32, -2, i32::MAX, 1 << 16] {
                        let mut spoiled = body.to_vec();
                        if let Some(place) = spoiled.get_mut(end..end + 4) {
                            place.copy_from_slice(&claim.to_be_bytes());
                            decode_as_anything(op, &spoiled);
                        }
                    }
                }
            }
        }
    }
}

/// `FUZZ_CORPUS=write cargo test -p zk-proto --test it fuzz_corpus -- --ignored` writes the recorded frames as the
/// first corpus of the fuzzers.
#[test]
#[ignore = "it writes files for the fuzzers, and tests nothing"]
fn fuzz_corpus() {
    if std::env::var("FUZZ_CORPUS").as_deref() != Ok("write") {
        return;
    }
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut number = 0;
    let mut write = |target: &str, parts: &[&[u8]]| {
        std::fs::create_dir_all(corpus.join(target)).unwrap();
        number += 1;
        std::fs::write(corpus.join(format!("{target}/recorded-{number}")), parts.concat()).unwrap();
    };
    for frame in recordings().iter().flat_map(|recording| &recording.steps).flat_map(|step| &step.frames) {
        let (whole, body) = (&frame.bytes[..], &frame.bytes[4..]);
        write("frames", &[&[255, 7], whole, whole]);
        match (frame.side, frame.op) {
            (Side::Client, Some(_)) => write("requests", &[&body[4..]]),
            (Side::Server, Some(op)) => write("replies", &[&op.0.to_be_bytes(), body]),
            _ => write("handshakes", &[body]),
        }
    }
}
