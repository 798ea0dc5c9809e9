//! The contenders that open the elections, each in a process of its own.

use std::time::Duration;

use election_bench::{Contestant, Curator, Usage};
use tokio::process::Command;

/// The requested session timeout.
const SESSION_MS: &str = "20000";

/// The contenders that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Elector,
    Queue,
    Single,
    Curator,
}

impl Kind {
    /// The reference for the ratios comes last.
    pub(crate) const ALL: [Self; 4] = [Self::Elector, Self::Queue, Self::Single, Self::Curator];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Elector => "recipe elector",
            Self::Queue => "recipe queue",
            Self::Single => "recipe single",
            Self::Curator => "Curator's LeaderLatch",
        }
    }

    /// The name of the recipe; `None` for Curator.
    pub(crate) const fn recipe(self) -> Option<&'static str> {
        match self {
            Self::Elector => Some("elector"),
            Self::Queue => Some("queue"),
            Self::Single => Some("single"),
            Self::Curator => None,
        }
    }

    fn command(
        self,
        connect: &str,
        elections: usize,
        driver: &str,
        curator: Option<&Curator>,
    ) -> Result<Command, String> {
        let number = elections.to_string();
        let Some(recipe) = self.recipe() else {
            let curator = curator.ok_or("Curator's program is not compiled")?;
            return Ok(curator.command(connect, "/many", SESSION_MS, elections));
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_contestant"));
        command.args(["--connect", connect, "--path", "/many", "--session", SESSION_MS, "--n", &number]);
        command.args(["--mode", "many", "--recipe", recipe, "--driver", driver]);
        Ok(command)
    }
}

/// Starts it, connected and with no election yet.
pub(crate) async fn start(
    kind: Kind,
    connect: &str,
    elections: usize,
    driver: &str,
    curator: Option<&Curator>,
) -> Result<Contestant, String> {
    let mut contestant = Contestant::start(kind.name(), kind.command(connect, elections, driver, curator)?)?;
    contestant.hear("CONNECTED").await?;
    Ok(contestant)
}

/// Opens the elections. Returns how long it takes until all have a leader.
pub(crate) async fn open(contestant: &mut Contestant, elections: usize) -> Result<Duration, String> {
    contestant.say("go").await?;
    let begun = contestant.hear("START").await?.at;
    let mut last = begun;
    let mut led = 0;
    while led < elections {
        let line = contestant.next().await?;
        match line.word.as_str() {
            "LEADER" => {
                led += 1;
                last = last.max(line.at);
            }
            "LOST" => return Err(format!("a leadership was lost: {line:?}")),
            _ => {}
        }
    }
    Ok(last.since(begun))
}

/// The memory that the process has in RAM, in bytes.
pub(crate) fn resident(contestant: &Contestant) -> Result<u64, String> {
    let pid = contestant.pid().ok_or("the contestant has ended")?;
    Ok(Usage::of(pid, None)?.resident)
}
