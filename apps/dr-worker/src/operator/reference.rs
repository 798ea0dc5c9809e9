//! `docs/reference/commands.md`: every command, with its help.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use super::{Arguments, headings::by_http};
use crate::reference::{cell, compare};

const TITLE: &str = "# Commands

What `dr-worker COMMAND --help` prints, without the options of every command, which are [below](#options-of-every-command).
`dr-worker man DIRECTORY` writes the same as manual pages, `dr-worker completions SHELL` completes it.
[How the commands work](../commands.md) describes their behaviour, [exit codes](exit-codes.md) what they end with.

| command | does |
|---|---|
";

const BY_HTTP: &str = "
## Commands by HTTP

A POST takes the arguments of the command as the fields of a JSON object, for one job: [HTTP endpoints](http.md).

| command | by HTTP |
|---|---|
";

/// All commands that are shown, with their words.
fn commands<'c>(of: &'c Command, words: &str, found: &mut Vec<(String, &'c Command)>) {
    for command in of.get_subcommands().filter(|command| !command.is_hide_set()) {
        let words = format!("{words} {}", command.get_name()).trim().to_owned();
        if !command.is_subcommand_required_set() {
            found.push((words.clone(), command));
        }
        commands(command, &words, found);
    }
}

/// The help without colours, without the options that other commands have too.
fn help(command: &Command) -> String {
    let own = command.clone().mut_args(|argument| {
        let is_hidden = argument.is_hide_set() || argument.is_global_set() || argument.get_id() == "help";
        argument.hide(is_hidden)
    });
    trimmed(&own.term_width(80).render_long_help().to_string())
}

fn trimmed(text: &str) -> String {
    let lines: Vec<_> = text.trim_matches('\n').lines().map(str::trim_end).collect();
    lines.join("\n")
}

#[test]
fn the_reference_has_the_help_of_each_command() {
    let mut all = Arguments::command();
    all.build();
    let mut found = Vec::new();
    commands(&all, "", &mut found);
    let mut page = TITLE.to_owned();
    for (words, command) in &found {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let aliases: String = command.get_visible_aliases().map(|alias| format!(", `{alias}`")).collect();
        writeln!(page, "| [`{words}`](#{}){aliases} | {} |", words.replace(' ', "-"), cell(&about)).unwrap();
    }
    let every = all.clone().mut_subcommands(|command| command.hide(true));
    let every = every.help_template("{options}").term_width(80).render_long_help().to_string();
    write!(page, "\n## Options of every command\n\n```text\n{}\n```\n", trimmed(&every)).unwrap();
    for (words, command) in &found {
        write!(page, "\n## {words}\n\n```text\n{}\n```\n", help(command)).unwrap();
    }
    page.push_str(BY_HTTP);
    for (verb, how) in by_http() {
        writeln!(page, "| `{verb}` | {} |", cell(&how)).unwrap();
    }
    compare("commands.md", &page);
}
