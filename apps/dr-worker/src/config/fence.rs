//! Commands that fence a former leader before the next one starts the job.

use std::time::Duration;

use super::{
    parse::{HOUR, MILLISECOND, choice},
    reader::Section,
    table::{each, required, table, value},
};

const MOST_COMMANDS: usize = 16;

table! {
    /// How a leader that did not leave cleanly is fenced.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Fence {
        /// The commands, in this order; all must succeed within their timeouts.
        pub commands: Vec<FenceCommand> = Vec::new() => each(FenceCommand::default()).example(
            "[{ name = \"ipmi\", command = [\"/usr/bin/fence-node\"], timeout = \"10s\" }]"
        );
        /// "stop" does not take over, and tries again later; "continue" starts the job, which may then run twice.
        pub on_failure: FenceFailure = FenceFailure::Stop => value();
    }
    check Fence::check;
}

table! {
    /// One command that fences.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FenceCommand {
        /// Its name in logs and reports. Default: that of the program.
        pub name: String = String::new() => value();
        /// The program and its arguments; environment and directory as for the job.
        pub command: Vec<String> = Vec::new() => required("the program that fences and its arguments, such as [\"/usr/bin/fence\"]");
        /// After that it is killed with everything that it started, and has failed.
        pub timeout: Duration = Duration::from_secs(10) => value().within(MILLISECOND..=HOUR);
    }
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
