//! Every message survives encode and decode, and no truncated one decodes.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use zk_proto::{
    ConnectRequest, ConnectResponse, Reply, ReplyHeader, Request, RequestHeader, WatchEvent, cut_frame, xid,
};

use super::messages;

const LIMIT: usize = 1 << 20;

/// What comes after a message, to be left alone or ignored.
const MORE: &[u8] = b"\0\0\0\x01\xff";

/// The frame that was written, without its length.
fn framed(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    write(&mut out);
    out.extend_from_slice(MORE);
    let frame = cut_frame(&mut out, LIMIT).unwrap().unwrap();
    assert_eq!(out, MORE, "the length is not that of what was written");
    frame
}

/// Every beginning of it.
fn beginnings(frame: &Bytes, from: usize) -> impl Iterator<Item = Bytes> {
    (from..frame.len()).map(|end| frame.slice(..end))
}

/// A message with something behind it.
fn longer(frame: &[u8]) -> Bytes {
    [frame, MORE].concat().into()
}

proptest! {
    #[test]
    fn requests(request in messages::request(), xid in any::<i32>()) {
        let frame = framed(|out| request.encode(xid, out));
        let op = request.op();
        prop_assert_eq!(RequestHeader::decode(&frame), Ok(RequestHeader { xid, op }));
        let body = frame.slice(RequestHeader::LEN..);
        let read = Request::decode(op, &body);
        prop_assert!(read.as_ref() == Ok(&request), "{:?} became {:?}", request, read);
        if !matches!(request, Request::Other { .. }) {
            let longer = longer(&body);
            prop_assert!(Request::decode(op, &longer) == Ok(request), "what follows the last field is ignored");
            for cut in beginnings(&body, 0) {
                prop_assert!(Request::decode(op, &cut).is_err(), "{} bytes of {}", cut.len(), body.len());
            }
        }
        for cut in beginnings(&frame.slice(..RequestHeader::LEN), 0) {
            prop_assert!(RequestHeader::decode(&cut).is_err());
        }
    }

    #[test]
    fn replies((op, reply) in messages::reply(), header in messages::reply_header()) {
        let frame = framed(|out| reply.encode(header, out));
        prop_assert_eq!(ReplyHeader::decode(&frame), Ok(header));
        let read = Reply::decode(op, &frame);
        prop_assert_eq!(read.as_ref(), Ok(&reply));
        for data in data_of(&read.unwrap()) {
            prop_assert!(data.is_empty() || frame.as_ptr_range().contains(&data.as_ptr()), "data is copied");
        }
        for cut in beginnings(&frame.slice(..ReplyHeader::LEN), 0) {
            prop_assert!(ReplyHeader::decode(&cut).is_err());
            prop_assert!(Reply::decode(op, &cut).is_err());
        }
        if matches!(reply, Reply::Other(_)) {
            return Ok(());
        }
        prop_assert_eq!(Reply::decode(op, &longer(&frame)), Ok(reply));
        for cut in beginnings(&frame, ReplyHeader::LEN) {
            prop_assert!(Reply::decode(op, &cut).is_err(), "{} bytes of {}", cut.len(), frame.len());
        }
    }

    #[test]
    fn events(event in messages::event()) {
        let frame = framed(|out| event.encode(out));
        prop_assert_eq!(ReplyHeader::decode(&frame).unwrap().xid, xid::EVENT);
        prop_assert_eq!(WatchEvent::decode(&frame), Ok(event.clone()));
        prop_assert_eq!(WatchEvent::decode(&longer(&frame)), Ok(event));
        for cut in beginnings(&frame, 0) {
            prop_assert!(WatchEvent::decode(&cut).is_err());
        }
    }

    #[test]
    fn handshakes(request in messages::connect_request(), response in messages::connect_response()) {
        let frame = framed(|out| request.encode(out));
        prop_assert_eq!(ConnectRequest::decode(&frame), Ok(request.clone()));
        for cut in beginnings(&frame, 0) {
            // Without its last byte it is that of an old client.
            let old = ConnectRequest { read_only: None, ..request.clone() };
            let whole = request.read_only.is_some() && cut.len() + 1 == frame.len();
            prop_assert_eq!(ConnectRequest::decode(&cut).ok(), whole.then_some(old));
        }
        let frame = framed(|out| response.encode(out));
        prop_assert_eq!(ConnectResponse::decode(&frame), Ok(response.clone()));
        for cut in beginnings(&frame, 0) {
            let old = ConnectResponse { read_only: None, ..response.clone() };
            let whole = response.read_only.is_some() && cut.len() + 1 == frame.len();
            prop_assert_eq!(ConnectResponse::decode(&cut).ok(), whole.then_some(old));
        }
    }

    /// Frames come out whole and in their order, however the stream is cut.
    #[test]
    fn streams(
        requests in proptest::collection::vec(messages::request(), 1..6),
        chunks in proptest::collection::vec(1_usize..40, 1..20),
    ) {
        let mut stream = BytesMut::new();
        for (xid, request) in (1..).zip(&requests) {
            request.encode(xid, &mut stream);
        }
        let mut input = BytesMut::new();
        let mut expected = (1..).zip(&requests);
        let mut sizes = chunks.into_iter().cycle();
        while !stream.is_empty() {
            let size = sizes.next().unwrap().min(stream.len());
            input.extend_from_slice(&stream.split_to(size));
            while let Some(frame) = cut_frame(&mut input, LIMIT).unwrap() {
                let (xid, request) = expected.next().expect("no more frames than were written");
                let header = RequestHeader::decode(&frame).unwrap();
                prop_assert_eq!(header, RequestHeader { xid, op: request.op() });
                let read = Request::decode(header.op, &frame[RequestHeader::LEN..]);
                prop_assert!(read.as_ref() == Ok(request), "{:?} became {:?}", request, read);
            }
        }
        prop_assert!(input.is_empty());
        prop_assert!(expected.next().is_none());
    }
}

fn data_of(reply: &Reply) -> Vec<&Bytes> {
    match reply {
        Reply::Data(Some(data), _) | Reply::Token(Some(data)) | Reply::Other(data) => vec![data],
        Reply::Multi(parts) => parts
            .iter()
            .filter_map(|part| match part {
                (_, Ok(Reply::Data(data, _))) => data.as_ref(),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}
