//! From the first session to the end.

use std::time::Duration;

use anyhow::Context as _;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines, Stdin},
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use zk_session::{ConnectError, Session};

use crate::{
    arguments::{Arguments, Mode},
    candidate::Candidate,
    out,
};

/// How long to wait until ZooKeeper has ended a session.
const FAREWELL: Duration = Duration::from_millis(500);

/// How many connect at the same time. A busy server accepts hundreds, and answers too late.
const CONNECTING: usize = 32;

/// A command from standard input.
enum Command {
    Go,
    Release(usize),
    Rejoin(usize),
    Quit,
}

/// Runs until the line `quit`, the end of its standard input, or a signal.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let mut contest = Contest::default();
    let result = tokio::select! {
        result = contest.take_part(&arguments) => result,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    contest.end().await;
    result
}

#[derive(Default)]
struct Contest {
    sessions: Vec<Session>,
    candidates: Vec<Candidate>,
}

impl Contest {
    async fn take_part(&mut self, arguments: &Arguments) -> anyhow::Result<()> {
        let mut input = BufReader::new(tokio::io::stdin()).lines();
        self.connect(arguments).await?;
        if arguments.mode == Mode::Many {
            out::say("CONNECTED");
            loop {
                match next(&mut input).await? {
                    Command::Go => break,
                    Command::Quit => return Ok(()),
                    Command::Release(_) | Command::Rejoin(_) => out::error("nothing is begun before `go`"),
                }
            }
            out::say("START");
        }
        for number in 0..arguments.n {
            // One session for all, or one for each.
            let session = self.sessions.get(number).or(self.sessions.first()).context("no session")?;
            self.candidates.push(Candidate::new(number, session.clone(), arguments)?);
        }
        for (number, candidate) in self.candidates.iter_mut().enumerate() {
            candidate.join().await;
            if arguments.witness && number == 0 {
                candidate.enrolled().await;
            }
        }
        for candidate in &self.candidates {
            candidate.enrolled().await;
        }
        out::say("READY");
        loop {
            match next(&mut input).await? {
                Command::Go => out::error("it has begun already"),
                Command::Release(number) => {
                    if let Some(candidate) = self.candidate(number) {
                        candidate.release();
                    }
                }
                Command::Rejoin(number) => {
                    if let Some(candidate) = self.candidate(number) {
                        candidate.join().await;
                    }
                }
                Command::Quit => return Ok(()),
            }
        }
    }

    async fn connect(&mut self, arguments: &Arguments) -> anyhow::Result<()> {
        let sessions = if arguments.mode == Mode::Many { 1 } else { arguments.n };
        let mut connecting: JoinSet<Result<Session, ConnectError>> = JoinSet::new();
        for _ in 0..sessions {
            if connecting.len() == CONNECTING
                && let Some(connected) = connecting.join_next().await
            {
                self.sessions.push(connected?.with_context(|| format!("--connect {}", arguments.connect))?);
            }
            let builder = Session::builder(arguments.connect.clone())
                .session_timeout(arguments.session_timeout())
                .tick_time(arguments.tick())
                .driver(arguments.driver());
            connecting.spawn(builder.connect());
        }
        while let Some(connected) = connecting.join_next().await {
            self.sessions.push(connected?.with_context(|| format!("--connect {}", arguments.connect))?);
        }
        Ok(())
    }

    fn candidate(&mut self, number: usize) -> Option<&mut Candidate> {
        let found = self.candidates.get_mut(number);
        if found.is_none() {
            out::error(&format!("there is no candidate {number}"));
        }
        found
    }

    /// All candidates leave at once, then the sessions end.
    async fn end(self) {
        let mut leaving = JoinSet::new();
        for mut candidate in self.candidates {
            leaving.spawn(async move { candidate.leave().await });
        }
        while leaving.join_next().await.is_some() {}
        let mut closing = JoinSet::new();
        for session in self.sessions {
            closing.spawn(async move {
                let _ = session.close(FAREWELL).await;
            });
        }
        while closing.join_next().await.is_some() {}
    }
}

/// The next command. An unknown one is answered with ERR. The end of the input is `quit`.
async fn next(input: &mut Lines<BufReader<Stdin>>) -> anyhow::Result<Command> {
    loop {
        let Some(line) = input.next_line().await.context("standard input")? else {
            return Ok(Command::Quit);
        };
        let words: Vec<_> = line.split_whitespace().collect();
        let number = words.get(1).and_then(|word| word.parse().ok());
        match (words.as_slice(), number) {
            ([], _) => {}
            (["go"], _) => return Ok(Command::Go),
            (["quit"], _) => return Ok(Command::Quit),
            (["release", _], Some(number)) => return Ok(Command::Release(number)),
            (["rejoin", _], Some(number)) => return Ok(Command::Rejoin(number)),
            _ => out::error(&format!("no such command: {line}; there are go, release I, rejoin I, quit")),
        }
    }
}
