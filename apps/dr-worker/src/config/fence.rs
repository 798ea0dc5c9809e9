//! Commands that fence a former leader before the next one starts the job.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};

use super::{
    parse::{HOUR, MILLISECOND, Parse, choice},
    reader::Section,
    table::{required, table, value},
};

const MOST_COMMANDS: usize = 16;

table! {
    /// How a leader that did not leave cleanly is fenced.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Fence {
        /// The commands, in this order; all must succeed within their timeouts.
        pub commands: Vec<FenceCommand> = Vec::new() => required(
            "the commands that fence the former leader, such as [{ command = [\"/usr/bin/fence\"] }]"
        ).example("[{ name = \"ipmi\", command = [\"/usr/bin/fence-node\"], timeout = \"10s\" }]");
        /// "stop" does not take over, and tries again later; "continue" starts the job, which may then run twice.
        pub on_failure: FenceFailure = FenceFailure::Stop => value();
    }
    check Fence::check;
}

/// One command that fences.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a table such as { command = [\"/usr/bin/fence\"], timeout = \"10s\" }")]
pub struct FenceCommand {
    /// Its name in logs and reports.
    #[serde(default)]
    pub name: String,
    /// The program and its arguments; environment and directory as for the job.
    #[serde(deserialize_with = "Parse::read")]
    pub command: Vec<String>,
    /// After which it is killed with everything it started, and counts as failed.
    #[serde(default = "usual_timeout", deserialize_with = "read_timeout")]
    pub timeout: Duration,
}

fn usual_timeout() -> Duration {
    Duration::from_secs(10)
}

fn read_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let timeout = Duration::read(from)?;
    if !(MILLISECOND..=HOUR).contains(&timeout) {
        return Err(D::Error::custom(format!("{timeout:?} is out of range; 1ms to 1h is valid")));
    }
    Ok(timeout)
}

choice! {
    /// What follows if a former leader could not be fenced.
    pub enum FenceFailure {
        /// The takeover fails, and is tried again after a pause, here or on another member.
        Stop = "stop",
        /// The takeover continues: the job may run twice.
        Continue = "continue",
    }
}

impl Fence {
    fn check(&mut self, section: &mut Section<'_>) {
        let (found, is_read) = (self.commands.len(), section.is_sound("commands"));
        if is_read && !(1..=MOST_COMMANDS).contains(&found) {
            let message = format!(
                "{found} commands; 1 to {MOST_COMMANDS} are valid. Leave [fence] out to fence no one"
            );
            return section.problem("commands", message);
        }
        for at in 0..self.commands.len() {
            if self.commands[at].name.is_empty() {
                self.commands[at].name = usual_name(&self.commands[at].command, at);
            }
            let name = &self.commands[at].name;
            if self.commands[..at].iter().any(|other| other.name == *name) {
                section
                    .problem("commands", format!("two commands have the name {name:?}; set `name` for each"));
            }
        }
    }

    /// The longest time that fencing one former leader takes.
    pub fn longest(&self) -> Duration {
        self.commands.iter().map(|command| command.timeout).sum()
    }
}

/// The name of the program, or the position.
fn usual_name(command: &[String], at: usize) -> String {
    let program = command.first().and_then(|program| program.rsplit('/').next());
    program.filter(|name| !name.is_empty()).map_or_else(|| (at + 1).to_string(), str::to_owned)
}

impl Parse for FenceCommand {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }

    fn show(&self) -> String {
        let name =
            if self.name.is_empty() { String::new() } else { format!("name = {}, ", self.name.show()) };
        format!("{{ {name}command = {}, timeout = {} }}", self.command.show(), self.timeout.show())
    }

    #[cfg(test)]
    fn schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let (command, timeout) = (Vec::<String>::schema(generator), Duration::schema(generator));
        let name = String::schema(generator);
        schemars::json_schema!({
            "type": "object",
            "properties": { "name": name, "command": command, "timeout": timeout },
            "required": ["command"],
            "additionalProperties": false
        })
    }
}
