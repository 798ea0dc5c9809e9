//! A contender of this crate.

use std::{
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
};

use election_core::{
    Election, ElectionConfig, Handler, Leadership, Paths,
    config::{Profile, QueueFormat, Recipe},
    handler::{Failure, StopOrder},
};
use tokio::runtime::Runtime;
use zk_session::Session;

use super::{ELECTION, child::wait_for, connect};

/// A member with a session of its own.
pub(crate) struct Ours {
    session: Session,
    config: ElectionConfig,
    lock_file: PathBuf,
    tokens: Arc<Mutex<Vec<u64>>>,
    election: Option<Election>,
}

impl Ours {
    pub(crate) fn new(
        session: Session,
        name: &str,
        format: QueueFormat,
        election: (&str, &str),
        lock_file: PathBuf,
    ) -> Self {
        let profile = Profile::new(name.parse().unwrap()).in_site("here".parse().unwrap());
        let paths = Paths::new(election.0, election.1).unwrap();
        let config = ElectionConfig::new(paths, profile, Recipe::Queue(format));
        Self { session, config, lock_file, tokens: Arc::default(), election: None }
    }

    pub(crate) fn join(&mut self, runtime: &Runtime) {
        let _guard = runtime.enter();
        let app = App {
            name: self.config.member().to_string(),
            lock_file: self.lock_file.clone(),
            tokens: Arc::clone(&self.tokens),
        };
        self.election = Some(Election::join(self.session.clone(), self.config.clone(), app));
    }

    pub(crate) fn leads(&self) -> bool {
        self.election.as_ref().is_some_and(|election| election.status().now().leads_now())
    }

    pub(crate) fn leave(&mut self, runtime: &Runtime) {
        if let Some(election) = self.election.take() {
            runtime.block_on(election.leave());
        }
    }

    /// The tokens that it has led with.
    pub(crate) fn tokens(&self) -> Vec<u64> {
        self.tokens.lock().unwrap().clone()
    }
}

/// Where a process of this test finds what it is to be.
const ROLE: &str = "ELECTION_CORE_CONTENDER";

/// This very program, as a contender that can be killed.
pub(crate) fn process(hosts: &str, format: QueueFormat, lock_file: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    // As the test harness names it: without the crate.
    let module = module_path!().split_once("::").map_or("", |(_, module)| module);
    command.args(["--exact", &format!("{module}::a_process_of_its_own"), "--nocapture"]);
    command.env(ROLE, format!("{hosts} {} {}", format.as_str(), lock_file.display()));
    command
}

/// Does nothing unless it was started by [`process`]. It uses standard error, because the test harness uses standard
/// output.
#[test]
fn a_process_of_its_own() {
    let Ok(role) = env::var(ROLE) else { return };
    let [hosts, format, lock_file] = role.split(' ').collect::<Vec<_>>()[..] else { panic!("{role}") };
    let formats = [QueueFormat::LeaderLatch, QueueFormat::KazooElection];
    let format = formats.into_iter().find(|known| known.as_str() == format).unwrap();
    let runtime = Runtime::new().unwrap();
    let session = connect(&runtime, hosts);
    let mut ours = Ours::new(session, "process", format, ELECTION, PathBuf::from(lock_file));
    eprintln!("CONNECTED");
    for word in io::stdin().lines() {
        assert_eq!(word.unwrap(), "join");
        ours.join(&runtime);
        wait_for("this process leads", || ours.leads());
        eprintln!("LEADS");
    }
}

/// Creates what only a leader may create.
struct App {
    name: String,
    lock_file: PathBuf,
    tokens: Arc<Mutex<Vec<u64>>>,
}

impl Handler for App {
    async fn takeover(&self, leadership: &Leadership) -> Result<(), Failure> {
        let mut file = fs::File::create_new(&self.lock_file).unwrap_or_else(|error| {
            panic!("{} leads beside {:?}: {error}", self.name, fs::read(&self.lock_file))
        });
        file.write_all(self.name.as_bytes())?;
        self.tokens.lock().unwrap().push(leadership.fencing_token());
        Ok(())
    }

    async fn lead(&self, _: &Leadership) -> Result<(), Failure> {
        std::future::pending().await
    }

    async fn stop(&self, _: &StopOrder) {
        if fs::read(&self.lock_file).is_ok_and(|name| name == self.name.as_bytes()) {
            fs::remove_file(&self.lock_file).unwrap();
        }
    }
}
