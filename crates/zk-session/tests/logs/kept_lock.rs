//! A lock that ZooKeeper does not let go is logged.

use crate::common::{Captured, eventually};
use zk_session::{Acl, AclEntry, CreateMode, Id, Lock, Session, permission};
use zk_testkit::TestServer;

#[tokio::test]
async fn a_dropped_guard_that_cannot_release_its_lock_is_logged() {
    let log = Captured::of_process();
    let server = TestServer::start().await.unwrap();
    let session = Session::builder(server.connect_string()).connect().await.unwrap();
    let undeletable =
        AclEntry { permissions: permission::READ | permission::CREATE, id: Id::new("world", "anyone") };
    let guarded = session.with_acl(&Acl::Entries([undeletable].into()));
    guarded.create("/kept", "", CreateMode::Persistent).await.unwrap();
    let guard = Lock::new(&session, "/kept").acquire().await.unwrap();
    let words = format!("cannot release a lock: it is held until its session ends path={}", guard.path());
    drop(guard);
    eventually("it is logged", async || log.text().contains(&words)).await;
}
