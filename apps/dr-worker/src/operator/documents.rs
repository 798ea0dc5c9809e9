//! The commands that documents and messages name are commands of this program: its own parser reads each.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use clap::error::ErrorKind;

use super::{command, parse};

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

/// Crates whose messages an operator reads.
const SOURCES: [&str; 4] =
    ["apps/dr-worker", "crates/election-core", "crates/strategies", "crates/zk-session"];

/// The sources of these crates without their tests, each with its path.
fn sources() -> Vec<(String, String)> {
    fn visit(directory: PathBuf, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let is_test = path.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("tests"));
            match path.is_dir() {
                true if !is_test => visit(path, found),
                false if !is_test => found.push(path),
                _ => {}
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    SOURCES.iter().for_each(|name| visit(root.join(name).join("src"), &mut found));
    found.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    found.retain(|path| !path.ends_with("documents.rs") && !path.ends_with("reference.rs"));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
        (path.strip_prefix(&root).unwrap().display().to_string(), text[..end].to_owned())
    };
    found.into_iter().map(read).collect()
}

/// The commands that a source builds by [`Typed`](crate::typed::Typed), with `x` for what is known only when it runs.
fn built(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, start) in source.match_indices("Typed::verb(\"") {
        let (verb, mut rest) = source[at + start.len()..].split_once("\")").unwrap();
        let mut line = format!("dr-worker {verb}");
        while let Some((method, after)) = rest.trim_start().strip_prefix('.').and_then(|r| r.split_once('('))
        {
            let mut depth = 1;
            let end = after.find(|symbol| {
                depth += i32::from(symbol == '(') - i32::from(symbol == ')');
                depth == 0
            });
            let argument = &after[..end.unwrap()];
            let is_literal = argument.len() > 1 && argument.starts_with('"') && argument.ends_with('"');
            let argument = if is_literal { argument.trim_matches('"') } else { "x" };
            match method {
                "job" => line.push_str(&format!(" --job {argument}")),
                "arg" => line.push_str(&format!(" {argument}")),
                _ => break,
            }
            rest = &after[end.unwrap() + 1..];
        }
        found.push(line);
    }
    found
}

/// The commands in the messages of a source, and in its texts for help.
fn written(source: &str) -> Vec<String> {
    let comment = |line: &str| line.trim_start().starts_with("//") && !line.trim_start().starts_with("///");
    let lines =
        source.lines().filter(|line| !comment(line)).map(|line| line.trim_start().trim_start_matches("///"));
    let text = lines.map(|line| format!("{} ", line.trim_end_matches('\\').trim())).collect::<String>();
    let verbs: BTreeSet<_> = command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let mut found = Vec::new();
    for (at, name) in text.match_indices("dr-worker ") {
        let rest = &text[at + name.len()..];
        let verb = rest.split(|symbol: char| !symbol.is_ascii_alphanumeric() && symbol != '-').next();
        if verbs.contains(verb.unwrap_or_default()) {
            let end = rest.find(['`', '"']).unwrap_or(rest.len());
            found.push(format!("dr-worker {}", &rest[..end]));
        }
    }
    found
}

/// Whether a command leaves out the job where it would have to be named if there were several.
fn lacks_job(words: &[String]) -> bool {
    let mut verb = command();
    for word in words.iter().skip(1) {
        let Some(next) = verb.find_subcommand(word).cloned() else { break };
        verb = next;
    }
    let mut options = verb.get_arguments().filter(|argument| argument.get_long().is_some());
    let job = options.find(|argument| argument.get_id() == "job");
    let help = job.and_then(|job| job.get_help()).map(ToString::to_string).unwrap_or_default();
    help.contains("the only one") && !words.iter().any(|word| word == "--job" || word == "--all")
}

/// A source of the daemon builds a command that has an argument: a part of a text could name what is no argument.
#[test]
fn each_command_in_a_message_is_accepted() {
    let (mut refused, mut count) = (Vec::new(), 0);
    for (path, text) in sources() {
        let built = built(&text);
        count += built.len();
        for line in built.iter().chain(&written(&text)) {
            let is_ours = path.starts_with("apps/dr-worker");
            if is_ours && line.contains('{') {
                refused.push(format!("{path}: {line}: build it with Typed"));
            }
            let line = line.replace(['{', '}'], "");
            for words in commands(&line) {
                if let Some(why) = refusal(&words, false) {
                    refused.push(format!("{path}: {line}: {why}"));
                }
                let names_verb_only = words.len() <= 2 && !built.contains(&line);
                // The sentences of keys are about any job.
                let is_of_key = path.starts_with("apps/dr-worker/src/config/") && !built.contains(&line);
                if !names_verb_only && !is_of_key && lacks_job(&words) {
                    refused.push(format!("{path}: {line}: no --job"));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(count > 20, "only {count} commands were found");
}

#[test]
fn commands_are_found_in_sources() {
    let source =
        "x(Typed::verb(\"drill show\").arg(&a.b(c)).job(x).arg(\"--y\").to_string(), Typed::verb(\"list\"));";
    assert_eq!(built(source), ["dr-worker drill show x --job x --y", "dr-worker list"]);
    let source = "// dr-worker list\n/// as `dr-worker\n/// stop`\nlet x = \"y: dr-worker \\\n   ack --fenced\"; \"this dr-worker was\"";
    assert_eq!(written(source), ["dr-worker stop", "dr-worker ack --fenced"]);
    let lacks = |line: &str| lacks_job(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    assert!(
        lacks("dr-worker drill list")
            && !lacks("dr-worker drill list --job x")
            && !lacks("dr-worker ack --all")
    );
}
