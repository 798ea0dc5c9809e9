//! The program `contestant` as a child: words in, lines out.

use std::{collections::VecDeque, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::moment::Moment;

/// The longest wait for one more line, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A line of its output: `WORD [detail] [candidate] time`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The first word.
    pub word: String,
    /// The words between the first one and the candidate.
    pub detail: Option<String>,
    /// Which candidate; `None` in the lines about all.
    pub candidate: Option<usize>,
    /// When it was printed.
    pub at: Moment,
}

impl Line {
    /// # Errors
    /// If it is not a line of that form, or reports an error.
    pub fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split(' ').collect();
        let (word, detail, candidate, at) = match words[..] {
            ["ERR", ..] => return Err(line.to_owned()),
            [word, at] => (word, None, None, at),
            [word, candidate, at] => (word, None, Some(candidate), at),
            [word, detail, candidate, at] => (word, Some(detail.to_owned()), Some(candidate), at),
            _ => return Err(format!("no line of the protocol: {line:?}")),
        };
        let wrong = |error| format!("no line of the protocol: {line:?}: {error}");
        let candidate = candidate.map(str::parse).transpose().map_err(wrong)?;
        Ok(Self { word: word.to_owned(), detail, candidate, at: Moment(at.parse().map_err(wrong)?) })
    }
}

/// A process that prints the lines of `contestant`. Killed when dropped.
pub struct Contestant {
    name: String,
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// Read, and not asked for.
    waiting: VecDeque<Line>,
    all: Vec<Line>,
}

impl Contestant {
    /// Starts it. `name` is for errors.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn start(name: impl Into<String>, mut command: Command) -> Result<Self, String> {
        let name = name.into();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // A Ctrl-C is for the benchmark, which ends it.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| format!("{name} can't be started: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{name} was started without pipes"));
        };
        let lines = BufReader::new(output).lines();
        Ok(Self { name, child, input, lines, waiting: VecDeque::new(), all: Vec::new() })
    }

    /// Its process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends it a line.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn say(&mut self, words: &str) -> Result<(), String> {
        let said = self.input.write_all(format!("{words}\n").as_bytes()).await;
        said.map_err(|error| format!("{}: {error}", self.name))
    }

    /// Waits for a line with that first word. Lines before it can still be asked for.
    ///
    /// # Errors
    /// If it reports an error, ends, or is silent for two minutes.
    pub async fn hear(&mut self, wanted: &str) -> Result<Line, String> {
        if let Some(at) = self.waiting.iter().position(|line| line.word == wanted)
            && let Some(line) = self.waiting.remove(at)
        {
            return Ok(line);
        }
        loop {
            let line = self.next().await.map_err(|error| format!("{error}, while {wanted} is awaited"))?;
            if line.word == wanted {
                return Ok(line);
            }
            self.waiting.push_back(line);
        }
    }

    /// The next line, whichever it is.
    ///
    /// # Errors
    /// As of [`hear`](Self::hear).
    pub async fn next(&mut self) -> Result<Line, String> {
        let name = &self.name;
        let line = match timeout(PATIENCE, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => return Err(format!("{name} has ended before its time")),
            Ok(Err(error)) => return Err(format!("{name}: {error}")),
            Err(_) => return Err(format!("{name} prints nothing for {PATIENCE:?}")),
        };
        let line = Line::parse(&line).map_err(|error| format!("{name}: {error}"))?;
        self.all.push(line.clone());
        Ok(line)
    }

    /// The lines since the last call, heard or not.
    pub fn take_lines(&mut self) -> Vec<Line> {
        self.waiting.clear();
        std::mem::take(&mut self.all)
    }

    /// Lets it end by itself: its candidates leave, its sessions are closed.
    ///
    /// # Errors
    /// If it does not end, or fails.
    pub async fn end(mut self) -> Result<(), String> {
        self.say("quit").await?;
        let name = &self.name;
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("{name}: {status}")),
            Ok(Err(error)) => Err(format!("{name}: {error}")),
            Err(_) => Err(format!("{name} has not ended after {PATIENCE:?}")),
        }
    }

    /// Kills it, and waits for its end.
    pub async fn kill(mut self) {
        let _ = self.child.kill().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_word_and_a_time_and_perhaps_a_candidate() {
        let line = |word: &str, detail: Option<&str>, candidate, at| Line {
            word: word.to_owned(),
            detail: detail.map(str::to_owned),
            candidate,
            at: Moment(at),
        };
        assert_eq!(Line::parse("READY 17"), Ok(line("READY", None, None, 17)));
        assert_eq!(Line::parse("LEADER 2 18"), Ok(line("LEADER", None, Some(2), 18)));
        assert_eq!(Line::parse("SESSION 1ff 2 19"), Ok(line("SESSION", Some("1ff"), Some(2), 19)));
        for wrong in ["", "READY", "LEADER x 18", "LEADER 2 late", "A b 1 2 3", "ERR no session"] {
            assert!(Line::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_line_that_was_passed_over_can_be_heard_later() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo STOPPED 0 1; echo LEADER 1 2; read word; echo $word 3; echo ERR broken; read word",
        ]);
        let mut child = Contestant::start("sh", command).unwrap();
        assert_eq!(child.hear("LEADER").await.unwrap().candidate, Some(1));
        assert_eq!(child.hear("STOPPED").await.unwrap().candidate, Some(0));
        child.say("READY").await.unwrap();
        assert_eq!(child.hear("READY").await.unwrap().at, Moment(3));
        let words: Vec<_> = child.take_lines().into_iter().map(|line| line.word).collect();
        assert_eq!(words, ["STOPPED", "LEADER", "READY"]);
        let error = child.hear("LEADER").await.unwrap_err();
        assert!(error.contains("broken") && error.contains("LEADER"), "{error}");
    }
}
