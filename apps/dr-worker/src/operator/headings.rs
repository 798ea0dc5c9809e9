//! The verbs under headings, as `--help` lists them. clap lists all under one.

use std::fmt::Write as _;

use clap::Command;

use crate::commands::{
    operation::{HOLD, MOVE, RECOVER},
    operations::ALL,
};

/// The verbs that are no operations, each with its endpoint, or why it has none. Those follow the operations of the same
/// heading.
const HEADINGS: [(&str, &[(&str, &str)]); 6] = [
    (
        "Look",
        &[
            ("list", "GET `/cluster`"),
            ("explain", "GET `/explain`"),
            ("simulate", "GET `/simulate`"),
            ("history", "GET `/history`"),
            ("logs", "GET `/logs`, of the jobs of that node"),
            ("watch", "GET `/events`"),
            ("doctor", "none: it looks at the files and the clock of the node where it runs"),
            ("can-restart", "GET `/can-restart`, about that worker"),
            ("check-trace", "none: it reads files where it runs"),
            ("assert", "none: `fencing_token` of GET `/leader` is the token"),
        ],
    ),
    (MOVE, &[]),
    (HOLD, &[]),
    ("Practise", &[("drill", "none: it takes minutes, and its report is written where the command runs")]),
    (
        "Set up",
        &[
            ("init", "none: it writes a file of the node where it runs"),
            ("run", "none: it is the worker"),
            ("dev", "none: it is a worker"),
            (
                "config",
                "GET `/config` for `config show`; none for the others: they read or write files where they run",
            ),
            ("notify", "none: it tries the receivers from the node where it runs"),
            (
                "upgrade",
                "none: it executes the program on that node's disk, which its package manager replaces",
            ),
            ("completions", "none: it is for the shell where it runs"),
        ],
    ),
    (
        RECOVER,
        &[
            ("remove-ghosts", "none: it needs a session with each server"),
            ("forget", "none: no worker runs such a job"),
            ("migrate", "none: it needs a session with both ensembles"),
            ("emergency-lead", "none: there is no quorum then, and the worker is stopped"),
        ],
    ),
];

/// All verbs under this heading.
fn verbs(heading: &str, others: &[(&'static str, &str)]) -> Vec<&'static str> {
    let operations = ALL.iter().filter(|declared| declared.heading == heading);
    operations.map(|declared| declared.verb).chain(others.iter().map(|(verb, _)| *verb)).collect()
}

/// Each verb with its endpoint, or why it has none.
#[cfg(test)]
pub(super) fn by_http() -> Vec<(&'static str, String)> {
    let operations = ALL.iter().map(|declared| (declared.verb, format!("POST `/{}`", declared.verb)));
    let others = HEADINGS.iter().flat_map(|(_, others)| others.iter());
    operations.chain(others.map(|(verb, how)| (*verb, (*how).to_owned()))).collect()
}

/// The command with its verbs under headings.
pub(super) fn with_headings(command: Command) -> Command {
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, others) in HEADINGS {
        let _ = write!(template, "\n{heading}:\n");
        for verb in verbs(heading, others).iter().filter_map(|verb| command.find_subcommand(verb)) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {:<14}  {about}", verb.get_name());
        }
    }
    template.push_str("\nGlobal options:\n{options}{after-help}");
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::operator::Arguments;

    #[test]
    fn each_verb_is_under_one_heading() {
        let command = Arguments::command();
        let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name);
        let mut shown: Vec<_> = shown.collect();
        let mut listed: Vec<_> =
            HEADINGS.iter().flat_map(|(heading, others)| verbs(heading, others)).collect();
        if cfg!(not(feature = "dev")) {
            listed.retain(|verb| *verb != "dev");
        }
        shown.sort_unstable();
        listed.sort_unstable();
        assert_eq!(shown, listed);
        let help = with_headings(command).term_width(80).render_help().to_string();
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}
