//! The cluster's znodes, read and damaged by a test.

use std::time::Duration;

use serde_json::Value;
use zk_session::{CreateMode, Session};

use crate::shared_ensemble::TICK;

/// A session of the test.
#[derive(Clone, Debug)]
pub struct Znodes {
    session: Session,
    root: String,
}

impl Znodes {
    pub(crate) async fn connect(connect: &str, root: &str) -> Self {
        let session = Session::builder(connect)
            .session_timeout(Duration::from_secs(10))
            .tick_time(TICK)
            .connect()
            .await
            .unwrap_or_else(|error| panic!("a session for the test itself: {error}"));
        Self { session, root: root.to_owned() }
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// `<root>/<path>`
    pub fn path(&self, path: &str) -> String {
        format!("{}/{path}", self.root)
    }

    /// The data of a znode under the root; `None` if it is not there.
    ///
    /// # Panics
    /// If ZooKeeper does not answer.
    pub async fn get(&self, path: &str) -> Option<Vec<u8>> {
        self.session.barrier().await.expect("a round trip");
        let node = self.session.get(&self.path(path)).await.expect("a read");
        node.map(|node| node.data.to_vec())
    }

    /// The same, as JSON.
    ///
    /// # Panics
    /// If it is not there, or is no JSON.
    pub async fn json(&self, path: &str) -> Value {
        let data = self.get(path).await.unwrap_or_else(|| panic!("there is no {}", self.path(path)));
        serde_json::from_slice(&data).unwrap_or_else(|error| panic!("{}: {error}", self.path(path)))
    }

    /// The decision of a job with one slot: the record's fields with those of the slot and of its decision.
    ///
    /// # Panics
    /// If it is not there, or is no decision.
    pub async fn decision(&self, job: &str) -> Value {
        let mut record = self.json(&format!("{job}/leader/elected")).await;
        let mut slot = record["slots"][0].take();
        for part in [slot["given"].take(), slot] {
            let Value::Object(fields) = part else { panic!("no decision of one slot: {record:#}") };
            record.as_object_mut().expect("a record").extend(fields);
        }
        record
    }

    /// The session that an ephemeral znode under the root belongs to, 0 if it is a persistent one.
    ///
    /// # Panics
    /// If it is not there, or ZooKeeper does not answer.
    pub async fn owner(&self, path: &str) -> i64 {
        self.session.barrier().await.expect("a round trip");
        let node = self.session.get(&self.path(path)).await.expect("a read");
        node.unwrap_or_else(|| panic!("there is no {}", self.path(path))).stat.ephemeral_owner
    }

    /// The names of a znode's children; `None` if it is not there.
    ///
    /// # Panics
    /// If ZooKeeper does not answer.
    pub async fn children(&self, path: &str) -> Option<Vec<String>> {
        self.session.barrier().await.expect("a round trip");
        let children = self.session.children(&self.path(path)).await.expect("a read");
        children.map(|children| children.names)
    }

    /// Writes to a znode under the root, and creates it if it is missing.
    ///
    /// # Panics
    /// If ZooKeeper refuses it.
    pub async fn put(&self, path: &str, data: &[u8]) {
        let path = self.path(path);
        if self.session.get(&path).await.expect("a read").is_some() {
            self.session.set(&path, data.to_vec(), None).await.expect("a write");
        } else {
            self.session.create(&path, data.to_vec(), CreateMode::Persistent).await.expect("a write");
        }
    }

    /// Deletes a znode under the root.
    ///
    /// # Panics
    /// If ZooKeeper refuses it.
    pub async fn delete(&self, path: &str) {
        self.session.delete(&self.path(path), None).await.expect("a deletion");
    }
}
