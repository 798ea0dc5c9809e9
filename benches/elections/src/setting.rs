//! The kinds of members, and how they are started.

use std::{fmt, time::Duration};

use clap::ValueEnum;
use tokio::process::Command;

/// Who decides, and whether that member leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The recipe `elector`; the leader is the elector, and both roles move together.
    Elector,
    /// The recipe `elector` with an elector that never leads.
    ElectorStays,
    /// The recipe `queue`.
    Queue,
    /// The recipe `single`.
    Single,
}

impl Kind {
    /// The name of its recipe.
    #[must_use]
    pub fn recipe(self) -> &'static str {
        match self {
            Self::Elector | Self::ElectorStays => "elector",
            Self::Queue => "queue",
            Self::Single => "single",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

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
