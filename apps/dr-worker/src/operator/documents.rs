//! The commands that documents name are commands of this program: its own parser reads each.

use std::{collections::BTreeSet, ffi::OsString, fs, path::Path};

use clap::error::ErrorKind;

use super::parse;

/// Where documents are, besides `docs`.
const OTHERS: [&str; 3] = ["README.md", "apps/dr-worker/README.md", "CONTRIBUTING.md"];

/// Words before a command in a line of a shell, and before its name.
const BEFORE: [&str; 10] = ["sudo", "exec", "until", "while", "if", "!", "do", "then", "else", "("];

/// Each document, with its path.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let names = |directory: &str| -> Vec<String> {
        let all = fs::read_dir(root.join(directory)).unwrap();
        all.map(|entry| format!("{directory}/{}", entry.unwrap().file_name().to_string_lossy())).collect()
    };
    let mut paths: BTreeSet<String> = OTHERS.map(str::to_owned).into();
    paths.extend(names("docs").into_iter().filter(|path| path.ends_with(".md")));
    paths.extend(names("examples").into_iter().map(|path| format!("{path}/README.md")));
    let read = |path: String| Some((fs::read_to_string(root.join(&path)).ok()?, path));
    paths.into_iter().filter_map(read).map(|(text, path)| (path, text)).collect()
}

/// The lines that a reader types: those of blocks in `sh`, and those after a prompt in blocks in `console`.
fn typed(text: &str) -> Vec<String> {
    let (mut lines, mut language, mut is_open) = (Vec::<String>::new(), "", false);
    for line in text.lines() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            let first = fence.split(' ').next().unwrap_or_default();
            language = if language.is_empty() && !first.is_empty() { first } else { "" };
            is_open = false;
            continue;
        }
        let after_prompt = line.strip_prefix("$ ").or_else(|| {
            let (_, line) = line.strip_prefix("root@")?.split_once(":~# ")?;
            Some(line)
        });
        let line = match (language, after_prompt) {
            ("sh", _) => line,
            ("console", Some(line)) => line,
            ("console", None) if is_open => line,
            _ => continue,
        };
        match lines.last_mut().filter(|_| is_open) {
            Some(last) => last.push_str(line),
            None => lines.push(line.to_owned()),
        }
        is_open = line.ends_with('\\');
        if is_open {
            lines.last_mut().unwrap().pop();
        }
    }
    lines
}

/// The commands in code within the text, such as `dr-worker list`. They can lack what the reader fills in.
fn mentioned(text: &str) -> Vec<String> {
    let mut is_block = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_block ^= is_fence;
        !is_fence && !is_block
    });
    let prose = lines.map(|line| format!("{} ", line.trim())).collect::<String>();
    let spans = prose.split('`').skip(1).step_by(2);
    spans.filter(|span| span.starts_with("dr-worker ")).map(str::to_owned).collect()
}

/// The simple commands of a line of a shell, each with its words.
fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut parts, mut quote, mut last) = (vec![String::new()], None, ' ');
    for symbol in line.chars() {
        let part = parts.last_mut().unwrap();
        match (symbol, quote) {
            ('\'' | '"', None) => quote = Some(symbol),
            (_, Some(open)) if open == symbol => quote = None,
            ('#', None) if last == ' ' => break,
            ('|' | '&' | ';' | '<' | '>' | '(' | ')', None) => {
                // The descriptor of a redirection is no argument.
                if symbol == '>' && part.ends_with([' ', '1', '2']) {
                    part.truncate(part.trim_end_matches(['1', '2']).len());
                }
                parts.push(String::new());
                last = symbol;
                continue;
            }
            _ => {}
        }
        last = symbol;
        part.push(symbol);
    }
    let words = |part: String| {
        let words = shlex::split(&part).unwrap_or_default();
        let is_before = |word: &String| {
            BEFORE.contains(&word.as_str())
                || word.split_once('=').is_some_and(|(name, _)| name == name.to_uppercase())
        };
        words.into_iter().skip_while(is_before).collect::<Vec<_>>()
    };
    let all = parts.into_iter().map(words);
    all.filter(|words| words.first().is_some_and(|word| word == "dr-worker" || word.ends_with("/dr-worker")))
        .collect()
}

/// Why this program does not accept these words.
fn refusal(words: &[String], is_complete: bool) -> Option<String> {
    let error = parse(words.iter().map(OsString::from)).err()?;
    // A sentence can leave out what is not its subject, and have `N` for a number.
    let may_be_left_out = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
        ErrorKind::MissingSubcommand,
        ErrorKind::ValueValidation,
    ];
    let is_fine = !error.use_stderr() || !is_complete && may_be_left_out.contains(&error.kind());
    (!is_fine).then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}

#[test]
fn each_command_that_a_document_names_is_accepted() {
    let (mut refused, mut count) = (Vec::new(), 0);
    for (path, text) in documents() {
        let complete = typed(&text).into_iter().map(|line| (line, true));
        for (line, is_complete) in complete.chain(mentioned(&text).into_iter().map(|line| (line, false))) {
            for words in commands(&line) {
                count += 1;
                if let Some(why) = refusal(&words, is_complete) {
                    refused.push(format!("{path}: {}: {why}", words.join(" ")));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(count > 150, "only {count} commands were found");
}

#[test]
fn commands_are_found_in_lines_of_a_shell() {
    let of = |line: &str| commands(line).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(of("until dr-worker can-restart; do sleep 1; done  # dr-worker x"), ["dr-worker can-restart"]);
    assert_eq!(
        of("A=b sudo /usr/bin/dr-worker list 2>/dev/null | jq 'dr-worker; x'"),
        ["/usr/bin/dr-worker list"]
    );
    assert_eq!(of("dr-worker run >/dev/null 2>&1 || echo \"dr-worker\""), ["dr-worker run"]);
    assert_eq!(of("dr-worker --set 'a=[\"b\"]' list > x"), ["dr-worker --set a=[\"b\"] list"]);
    let page = "`dr-worker list\n  --watch`, `x`\n```console\nroot@a:~# dr-worker x \\\n  y\ndr-worker z\n```\n```sh\ndr-worker b\n```\n";
    assert_eq!(typed(page), ["dr-worker x   y", "dr-worker b"]);
    assert_eq!(mentioned(page), ["dr-worker list --watch"]);
}
