//! A stream. The input is a limit, the size of the pieces that the stream arrives in, and the stream: however it is cut,
//! the same frames come out, and they are the stream.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use zk_proto::cut_frame;

fuzz_target!(|input: &[u8]| {
    let [limit, size, stream @ ..] = input else { return };
    let (limit, size) = (usize::from(*limit) * 16, usize::from(*size).max(1));
    let pieces = frames(stream.chunks(size), limit);
    assert_eq!(pieces, frames([stream].into_iter(), limit));
    let whole: Vec<u8> = pieces
        .iter()
        .flat_map(|frame| {
            let length = u32::try_from(frame.len()).expect("it is within the limit").to_be_bytes();
            length.into_iter().chain(frame.iter().copied())
        })
        .collect();
    assert!(stream.starts_with(&whole));
    assert!(pieces.iter().all(|frame| frame.len() <= limit));
});

/// Up to the first that is none.
fn frames<'a>(pieces: impl Iterator<Item = &'a [u8]>, limit: usize) -> Vec<Bytes> {
    let mut frames = Vec::new();
    let mut input = BytesMut::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match cut_frame(&mut input, limit) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return frames,
            }
        }
    }
    frames
}
