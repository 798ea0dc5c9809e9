//! The members of one election, in a process of their own, each with a session of its own.

use std::{collections::BTreeMap, time::Duration};

use election_core::Paths;
use tokio::time::timeout;
use zk_session::Session;

use crate::{
    contestant::{Contestant, Line},
    setting::{Kind, Setting},
};

/// So long nothing may change before the next measurement: longer than passive members wait with their reads, and than a
/// lease takes to be proved.
const QUIET: Duration = Duration::from_secs(1);
/// The longest wait for that.
const PATIENCE: Duration = Duration::from_secs(60);

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
        let first = by_number(names).into_iter().next();
        first.map(|name| format!("{queue}/{name}")).ok_or_else(|| format!("{queue} is empty"))
    }

    /// The member with the second-lowest ballot: the next elector and, among equals, the first in line. Of the recipe
    /// `elector`.
    ///
    /// # Errors
    /// If there is none.
    pub async fn next_in_line(&self) -> Result<usize, String> {
        let parent = self.paths.election();
        let children = self.observer.children(&parent).await.map_err(|error| error.to_string())?;
        let names = children.map(|children| children.names).unwrap_or_default();
        let second =
            by_number(names).into_iter().nth(1).ok_or_else(|| format!("{parent} has no second ballot"))?;
        let path = format!("{parent}/{second}");
        let ballot = self.observer.get(&path).await.map_err(|error| error.to_string())?;
        let data = ballot.map(|node| node.data).unwrap_or_default();
        let text = String::from_utf8_lossy(&data);
        let number = text.rsplit('-').next().and_then(|number| number.parse().ok());
        number.ok_or_else(|| format!("{path} names no contestant: {text}"))
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

/// Sequential znodes, in the order in which they were created.
fn by_number(mut names: Vec<String>) -> Vec<String> {
    names.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
    names
}
