//! The members of one election, in a process of their own, each with a session of its own.

use std::{collections::BTreeMap, time::Duration};

use election_core::Paths;
use tokio::{process::Command, time::timeout};
use zk_session::Session;

use crate::{
    contestant::{Contestant, Line},
    options::Kind,
};

/// So long nothing may change before the next measurement: longer than passive members wait with their reads, and than a
/// lease takes to be proved.
const QUIET: Duration = Duration::from_secs(1);
/// The longest wait for that.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the members are started.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The path of the program `contestant`.
    pub program: &'static str,
    /// The servers.
    pub connect: String,
    /// Their tickTime.
    pub tick: Duration,
    /// The session timeout of the members.
    pub session_timeout: Duration,
    /// The name of their driver.
    pub driver: String,
}

impl Setting {
    /// The command for these members of the election at that path.
    #[must_use]
    pub fn command(&self, kind: Kind, members: usize, path: &str) -> Command {
        let mut command = Command::new(self.program);
        command.args([
            "--connect",
            &self.connect,
            "--path",
            path,
            "--mode",
            "cand",
            "--recipe",
            kind.recipe(),
        ]);
        command.args(["--session", &self.session_timeout.as_millis().to_string()]);
        command.args(["--tick", &self.tick.as_millis().to_string()]);
        command.args(["--driver", &self.driver, "--n", &members.to_string()]);
        if kind == Kind::ElectorStays {
            command.arg("--witness");
        }
        command
    }
}

/// Members of one election, one of which leads.
pub struct Party {
    contestant: Contestant,
    observer: Session,
    paths: Paths,
    kind: Kind,
    leader: usize,
    members: BTreeMap<i64, usize>,
}

impl Party {
    /// Starts so many members of a new election, and waits until one leads and all is quiet. `observer` only reads.
    ///
    /// # Errors
    /// If they don't get so far.
    pub async fn gather(
        setting: &Setting,
        kind: Kind,
        members: usize,
        observer: Session,
    ) -> Result<Self, String> {
        let path = format!("/bench/{kind}-{members}");
        let paths = Paths::at(&path).map_err(|error| error.to_string())?;
        let contestant = Contestant::start("contestant", setting.command(kind, members, &path))?;
        let mut party = Self { contestant, observer, paths, kind, leader: 0, members: BTreeMap::new() };
        party.leader = candidate(&party.contestant.hear("LEADER").await?)?;
        party.contestant.hear("ANNOUNCED").await?;
        party.contestant.hear("READY").await?;
        party.settle().await?;
        Ok(party)
    }

    /// The paths of the election.
    #[must_use]
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The member that leads.
    #[must_use]
    pub fn leader(&self) -> usize {
        self.leader
    }

    /// The member of each session that it has had.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<i64, usize> {
        &self.members
    }

    /// The process.
    pub fn contestant(&mut self) -> &mut Contestant {
        &mut self.contestant
    }

    /// Waits for the next leader, and returns its lines: that it leads, and that it is READY.
    ///
    /// # Errors
    /// As of [`Contestant::hear`].
    pub async fn next_leader(&mut self) -> Result<[Line; 2], String> {
        let leads = self.contestant.hear("LEADER").await?;
        let ready = self.contestant.hear("ANNOUNCED").await?;
        if leads.candidate != ready.candidate {
            return Err(format!("{leads:?} leads, and {ready:?} is READY"));
        }
        self.leader = candidate(&leads)?;
        Ok([leads, ready])
    }

    /// Lets a member join again, behind all others, and waits until all is quiet.
    ///
    /// # Errors
    /// If that fails.
    pub async fn rejoin(&mut self, members: &[usize]) -> Result<(), String> {
        for member in members {
            self.contestant.say(&format!("rejoin {member}")).await?;
            self.contestant.hear("ENROLLED").await?;
        }
        self.settle().await
    }

    /// The leader znode. Its deletion ends the leadership.
    ///
    /// # Errors
    /// If there is none.
    pub async fn leader_znode(&self) -> Result<String, String> {
        if self.kind != Kind::Queue {
            return Ok(self.paths.leader_znode(0));
        }
        let queue = self.paths.queue();
        let children = self.observer.children(&queue).await.map_err(|error| error.to_string())?;
        let names = children.map(|children| children.names).unwrap_or_default();
        let number = |name: &String| name.rsplit('-').next().map(str::to_owned);
        let first = names.iter().min_by_key(|name| number(name));
        first.map(|name| format!("{queue}/{name}")).ok_or_else(|| format!("{queue} is empty"))
    }

    /// Waits until nothing has changed for a second.
    ///
    /// # Errors
    /// If that does not happen within a minute.
    pub async fn settle(&mut self) -> Result<(), String> {
        // A recipe without a decision has no znode there, so the first reading is the only one.
        let mut decision = self.observer.watch_data(self.paths.elected());
        let quiet = async {
            while let Ok(read) = timeout(QUIET, decision.next()).await {
                read.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        };
        timeout(PATIENCE, quiet)
            .await
            .map_err(|_| format!("no second without a decision in {PATIENCE:?}"))??;
        for line in self.contestant.take_lines() {
            if let ("SESSION", Some(id), Some(member)) = (&*line.word, &line.detail, line.candidate) {
                let id = i64::from_str_radix(id, 16).map_err(|error| format!("{line:?}: {error}"))?;
                self.members.insert(id, member);
            }
        }
        Ok(())
    }

    /// Ends all members.
    pub async fn end(self) {
        self.contestant.kill().await;
    }
}

fn candidate(line: &Line) -> Result<usize, String> {
    line.candidate.ok_or_else(|| format!("{line:?} names no candidate"))
}
