//! The verbs under headings, as `--help` lists them. clap lists all under one.

use std::fmt::Write as _;

use clap::Command;

const HEADINGS: [(&str, &[&str]); 6] = [
    ("Look", &["list", "explain", "simulate", "history", "logs", "watch", "doctor", "can-restart", "assert"]),
    (
        "Move leadership",
        &["switchover", "failover", "cancel", "confirm", "drain", "fail-site", "maintenance", "prefer"],
    ),
    ("Hold", &["pause", "resume", "mode", "stay", "stop", "start", "restart"]),
    ("Practise", &["drill"]),
    ("Set up", &["init", "run", "dev", "config", "notify", "upgrade", "completions"]),
    ("Recover", &["ack", "raise-token", "remove-ghosts", "forget", "emergency-lead"]),
];

/// The command with its verbs under headings.
pub(super) fn with_headings(command: Command) -> Command {
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, verbs) in HEADINGS {
        let _ = write!(template, "\n{heading}:\n");
        for verb in verbs.iter().filter_map(|verb| command.find_subcommand(verb)) {
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
        let mut listed: Vec<_> = HEADINGS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
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
