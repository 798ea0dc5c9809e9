//! A short conversation, byte by byte, as Apache ZooKeeper 3.8.0 has it. The codec of the
//! server is on neither side of the comparison: an error in it can't cancel itself out.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use zk_testkit::{Release, TestServer};

/// What the client sends, and what it is answered, in hexadecimal; `..` is a byte that
/// differs from server to server (ids of sessions, passwords, times).
const CONVERSATION: &[(&str, &str)] = &[
    // Connects, with a timeout of 10 s.
    (
        "0000002d 00000000 0000000000000000 00002710 0000000000000000 \
         00000010 00000000000000000000000000000000 00",
        "00000025 00000000 00002710 ................ 00000010 ................................ 00",
    ),
    // create /a, data "x", for world:anyone.
    (
        "00000032 00000001 00000001 00000002 2f61 00000001 78 \
         00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000000",
        "00000016 00000001 0000000000000002 00000000 00000002 2f61",
    ),
    // create2 /a once more: it exists.
    (
        "00000032 00000002 0000000f 00000002 2f61 00000001 78 \
         00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000000",
        "00000010 00000002 0000000000000003 ffffff92",
    ),
    // getData /a, with a watch.
    (
        "0000000f 00000003 00000004 00000002 2f61 01",
        "00000059 00000003 0000000000000003 00000000 00000001 78 \
         0000000000000002 0000000000000002 ................ ................ 00000000 00000000 00000000 \
         0000000000000000 00000001 00000000 0000000000000002",
    ),
    // setData /a to null, any version: the event, and then the reply.
    (
        "00000016 00000004 00000005 00000002 2f61 ffffffff ffffffff",
        "0000001e ffffffff ffffffffffffffff 00000000 00000003 00000003 00000002 2f61 \
         00000054 00000004 0000000000000004 00000000 \
         0000000000000002 0000000000000004 ................ ................ 00000001 00000000 00000000 \
         0000000000000000 00000000 00000000 0000000000000002",
    ),
    // getAcl /a.
    (
        "0000000e 00000005 00000006 00000002 2f61",
        "0000006f 00000005 0000000000000004 00000000 \
         00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 \
         0000000000000002 0000000000000004 ................ ................ 00000001 00000000 00000000 \
         0000000000000000 00000000 00000000 0000000000000002",
    ),
    // getChildren of /.
    (
        "0000000e 00000006 00000008 00000001 2f 00",
        "00000026 00000006 0000000000000004 00000000 00000002 00000001 61 00000009 7a6f6f6b6565706572",
    ),
    // multi: check /a at version 1, delete /none; none of it is done.
    (
        "0000003a 00000007 0000000e 0000000d 00 ffffffff 00000002 2f61 00000001 \
         00000002 00 ffffffff 00000005 2f6e6f6e65 ffffffff ffffffff 01 ffffffff",
        "00000033 00000007 0000000000000005 00000000 ffffffff 00 00000000 00000000 \
         ffffffff 00 ffffff9b ffffff9b ffffffff 01 ffffffff",
    ),
    // A ping, and the session is closed.
    ("00000008 fffffffe 0000000b", "00000010 fffffffe 0000000000000005 00000000"),
    ("00000008 00000008 fffffff5", "00000010 00000008 0000000000000006 00000000"),
];

/// `None` for a byte that is not compared.
fn bytes(hex: &str) -> Vec<Option<u8>> {
    let digits: String = hex.split_whitespace().collect();
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| (pair != "..").then(|| u8::from_str_radix(pair, 16).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_bytes_are_those_of_apache_zookeeper() {
    compare(Release::V3_8, str::to_owned).await;
}

/// The same, but for the event: it names the transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_bytes_are_those_of_the_next_release() {
    const EVENT: [&str; 2] = ["ffffffff ffffffffffffffff 00000000", "ffffffff 0000000000000004 00000000"];
    compare(Release::V3_9, |answer| answer.replace(EVENT[0], EVENT[1])).await;
}

async fn compare(release: Release, expect: impl Fn(&str) -> String) {
    let server = TestServer::builder().with(|settings| settings.release = release).start().await.unwrap();
    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for (request, expected) in CONVERSATION {
        let request: Vec<u8> = bytes(request).into_iter().flatten().collect();
        stream.write_all(&request).unwrap();
        let expected = bytes(&expect(expected));
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).unwrap();
        let compared = answer.iter().zip(&expected).map(|(byte, expected)| expected.and(Some(*byte)));
        assert_eq!(compared.collect::<Vec<_>>(), expected, "{request:x?} was answered {answer:x?}");
    }
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it says no more");
}
