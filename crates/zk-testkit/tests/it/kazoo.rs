//! kazoo, the Python client, works with the embedded server as with Apache
//! ZooKeeper: sessions, znodes, watches, transactions, and its recipes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use zk_testkit::TestServer;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kazoo/client.py");
const PARTS: [&str; 7] =
    ["sessions", "znodes", "watches", "transactions", "locks", "elections", "more_recipes"];

/// A Python that has kazoo. Without one the test is skipped, which `CI` does not let pass.
fn python() -> Option<&'static str> {
    let has_kazoo = |python: &&str| {
        let tried = Command::new(python).args(["-c", "import kazoo"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has_kazoo);
    if found.is_none() {
        zk_testkit::skip("no Python on this machine has kazoo; on Debian: apt-get install python3-kazoo");
    }
    found
}

/// Ends with the test.
struct Kazoo(Child);

impl Drop for Kazoo {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn content_with(servers: usize) {
    let Some(python) = python() else { return };
    let server = TestServer::builder().servers(servers).start().await.unwrap();
    let mut kazoo = Command::new(python)
        .args([PROGRAM, &server.connect_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map(Kazoo)
        .unwrap();
    let mut orders = kazoo.0.stdin.take().unwrap();
    let mut passed = Vec::new();
    for line in BufReader::new(kazoo.0.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let (verb, what) = line.split_once(' ').unwrap_or((&line, ""));
        let session = || u64::from_str_radix(what, 16).unwrap().cast_signed();
        match verb {
            "expire" => server.faults().expire(session()).unwrap(),
            "drop" => assert!(server.faults().disconnect(session()), "{line}"),
            "passed" => {
                passed.push(what.to_owned());
                continue;
            }
            _ => panic!("kazoo's program says {line:?}"),
        }
        writeln!(orders, "done").unwrap();
    }
    let mut complaint = String::new();
    kazoo.0.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    let status = kazoo.0.wait().unwrap();
    assert!(status.success(), "after {passed:?}, {status}: {complaint}");
    assert_eq!(passed, PARTS);
    assert!(server.sessions().is_empty(), "all were closed: {:?}", server.sessions());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kazoo_is_content_with_one_server() {
    content_with(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kazoo_is_content_with_three_servers() {
    content_with(3).await;
}
