//! The first frame of either side, without its length.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use zk_proto::{ConnectRequest, ConnectResponse, cut_frame};

fuzz_target!(|frame: &[u8]| {
    let again = |write: &dyn Fn(&mut BytesMut)| {
        let mut out = BytesMut::new();
        write(&mut out);
        cut_frame(&mut out, usize::MAX).expect("a length").expect("a whole frame")
    };
    if let Ok(request) = ConnectRequest::decode(frame) {
        assert_eq!(ConnectRequest::decode(&again(&|out| request.encode(out))), Ok(request));
    }
    if let Ok(response) = ConnectResponse::decode(frame) {
        assert_eq!(ConnectResponse::decode(&again(&|out| response.encode(out))), Ok(response));
    }
});
