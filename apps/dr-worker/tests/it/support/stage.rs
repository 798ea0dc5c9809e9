//! A ZooKeeper server that all tests of a process share, and a root on it for each.

use std::{
    fs, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Command, sync::LazyLock, time::Duration,
};

use serde_json::Value;
use tokio::runtime::Runtime;
use zk_session::Session;
use zk_testkit::TestServer;

use super::{Outcome, Running, dr_worker, set};

const TICK: Duration = Duration::from_millis(500);

/// One embedded server for all tests of this process; it ends with the process.
static SHARED: LazyLock<(Runtime, TestServer)> = LazyLock::new(|| {
    let server = TestServer::builder().tick_time(TICK).start_on_thread().expect("a server");
    (Runtime::new().expect("a runtime"), server)
});

/// A root of its own on the server, and workers with a directory of their own.
pub(crate) struct Stage {
    pub(crate) root: &'static str,
    pub(crate) dir: tempfile::TempDir,
}

impl Stage {
    pub(crate) fn new(root: &'static str) -> Self {
        Self { root, dir: tempfile::tempdir().expect("a directory") }
    }

    pub(crate) fn connect_string() -> String {
        SHARED.1.connect_string()
    }

    pub(crate) fn command(&self, settings: &[&str]) -> Command {
        let mut command = dr_worker();
        set(
            &mut command,
            &[
                &format!("zookeeper.connect={}", Self::connect_string()),
                &format!("zookeeper.root={}", self.root),
                &format!("zookeeper.tick_time={}ms", TICK.as_millis()),
                "zookeeper.session_timeout=6s",
                "zookeeper.connect_timeout=30s",
                "policy.sites=[\"east\", \"west\"]",
            ],
        );
        set(&mut command, settings);
        command
    }

    pub(crate) fn worker(&self, id: &str, site: &str, settings: &[&str]) -> Running {
        Running::start(&mut self.worker_command(id, site, settings))
    }

    pub(crate) fn worker_command(&self, id: &str, site: &str, settings: &[&str]) -> Command {
        let mut command = self.command(&[
            &format!("node.id={id}"),
            &format!("node.site={site}"),
            &format!("node.state_dir={}", self.dir.path().join("state").display()),
            "job.orders.command=[\"/bin/sh\", \"-c\", \"while :; do sleep 1; done\"]",
            "job.orders.stop_timeout=1s",
        ]);
        set(&mut command, settings);
        command
    }

    /// A file of tokens for `http.token_file` that only its owner can read, and the setting.
    pub(crate) fn tokens(&self, text: &str) -> (PathBuf, String) {
        let path = self.dir.path().join("tokens");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its permissions");
        let setting = format!("http.token_file={}", path.display());
        (path, setting)
    }

    pub(crate) fn operator(&self, verb: &[&str]) -> Outcome {
        Outcome::of(self.command(&[]).args(verb))
    }

    pub(crate) fn json(&self, verb: &[&str]) -> Value {
        let outcome = self.operator(&[&["--output", "json"], verb].concat());
        outcome.assert(0, &[]);
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {}", outcome.stdout))
    }

    pub(crate) fn with_session<T>(act: impl AsyncFnOnce(Session) -> T) -> T {
        SHARED.0.block_on(async {
            let session = Session::builder(Self::connect_string())
                .connect_timeout(Duration::from_secs(30))
                .connect()
                .await
                .expect("a session");
            let result = act(session.clone()).await;
            session.close(Duration::from_secs(5)).await;
            result
        })
    }
}

/// The line of succession of the first slot, as `list` shows it: the members, first in line first.
pub(crate) fn successors(list: &Value) -> Value {
    let line = list["slots"][0]["decision"]["succession"].as_array().cloned().unwrap_or_default();
    line.iter().map(|named| named["member"].clone()).collect()
}

/// Whether it is the READY leader.
pub(crate) fn leads(worker: &Running) -> bool {
    worker.code("/leader") == 200
}
