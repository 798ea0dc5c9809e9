//! The commands of a document, and what it shows that they print.

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The host of the prompt before it.
    pub host: String,
    /// What is typed; several lines if each but the last one ends with a backslash.
    pub line: String,
    /// The lines of its output.
    pub shows: Vec<String>,
}

/// Stands for any lines of an output.
const ANY: &str = "...";

/// The commands of all blocks that begin with "```console": the lines with a prompt `root@HOST:~# `.
///
/// # Panics
/// If a block has an output before its first command.
pub fn steps(document: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in document.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").expect("the end of a block");
        let (before, mut is_open) = (steps.len(), false);
        for text in block.lines() {
            let typed = text.strip_prefix("root@").and_then(|rest| rest.split_once(":~# "));
            if let Some((host, line)) = typed {
                steps.push(Step { host: host.to_owned(), line: line.to_owned(), shows: Vec::new() });
                is_open = line.ends_with('\\');
                continue;
            }
            assert!(steps.len() > before, "output before a command: {text}");
            let step = steps.last_mut().expect("a command");
            if is_open {
                step.line.push('\n');
                step.line.push_str(text);
                is_open = text.ends_with('\\');
            } else {
                step.shows.push(text.to_owned());
            }
        }
    }
    steps
}

impl Step {
    /// Whether an output is the one that the document shows. Numbers and the widths of spaces may differ, and `...` is
    /// for any lines.
    pub fn is_shown_by(&self, output: &str) -> bool {
        let shows: Vec<_> = self.shows.iter().map(|line| stable(line)).collect();
        let lines: Vec<_> = output.lines().map(stable).collect();
        matches(&shows, &lines)
    }
}

fn matches(shows: &[String], lines: &[String]) -> bool {
    match shows.split_first() {
        None => lines.is_empty(),
        Some((any, rest)) if any == ANY => (0..=lines.len()).any(|skipped| matches(rest, &lines[skipped..])),
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, more)| line == first && matches(rest, more))
        }
    }
}

/// A line without what differs from run to run: each number is 0, and each space is one.
fn stable(line: &str) -> String {
    let mut text = String::new();
    for word in line.split_whitespace() {
        text.push_str(if text.is_empty() { "" } else { " " });
        for symbol in word.chars() {
            match symbol {
                '0'..='9' if text.ends_with('0') => {}
                '0'..='9' => text.push('0'),
                _ => text.push(symbol),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "text\n```console\nroot@east-1:~# date\nMon 1 Jan\n```\n```sh\nnot typed\n```\n\
        ```console\nroot@west-1:~# echo a \\\n    b\na   b\n...\nc\nroot@west-1:~# true\n```\n";

    #[test]
    fn commands_have_a_host_and_an_output() {
        let steps = steps(DOCUMENT);
        let typed: Vec<_> = steps.iter().map(|step| (step.host.as_str(), step.line.as_str())).collect();
        assert_eq!(typed, [("east-1", "date"), ("west-1", "echo a \\\n    b"), ("west-1", "true")]);
        let shown: Vec<_> = steps.iter().map(|step| step.shows.len()).collect();
        assert_eq!(shown, [1, 3, 0]);
    }

    #[test]
    fn numbers_and_spaces_may_differ_and_nothing_else() {
        let steps = steps(DOCUMENT);
        assert!(steps[0].is_shown_by("Mon  12  Jan\n") && !steps[0].is_shown_by("Tue 12 Jan\n"));
        for (output, is_shown) in
            [("a b\nc", true), ("a b\nx\ny\nc", true), ("a b\nc\nx", false), ("a b", false)]
        {
            assert_eq!(steps[1].is_shown_by(output), is_shown, "{output:?}");
        }
        assert!(steps[2].is_shown_by("") && !steps[2].is_shown_by("x"));
    }
}
