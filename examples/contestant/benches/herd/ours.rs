//! Members of one of our elections: `contestant`.

use election_bench::{Contestant, Kind, Setting};

use crate::members::Members;

/// Killed when dropped.
pub(crate) struct Ours {
    contestant: Contestant,
    leader: usize,
}

impl Ours {
    pub(crate) async fn start(setting: &Setting, kind: Kind, number: usize) -> Result<Self, String> {
        let mut contestant =
            Contestant::start("contestant", setting.command(kind, number, "/herd/election"))?;
        let leader = contestant.hear("LEADER").await?.candidate.unwrap_or_default();
        contestant.hear("READY").await?;
        Ok(Self { contestant, leader })
    }
}

impl Members for Ours {
    async fn release(&mut self) -> Result<usize, String> {
        let old = self.leader;
        self.contestant.say(&format!("release {old}")).await?;
        self.leader = self.contestant.hear("LEADER").await?.candidate.unwrap_or_default();
        Ok(old)
    }

    async fn rejoin(&mut self, member: usize) -> Result<(), String> {
        self.contestant.say(&format!("rejoin {member}")).await?;
        self.contestant.hear("ENROLLED").await?;
        Ok(())
    }

    async fn end(self) {
        self.contestant.kill().await;
    }
}
