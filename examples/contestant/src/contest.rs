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
    candidate::{Candidate, Common, Many},
    out,
};

/// How long to wait until ZooKeeper has ended a session.
const FAREWELL: Duration = Duration::from_millis(500);

/// How long the end of a crashed candidate's session may take.
const CLOSING: Duration = Duration::from_secs(10);

/// How many connect at the same time. A busy server accepts hundreds, and answers too late.
const CONNECTING: usize = 32;

/// A command from standard input.
enum Command {
    Go,
    Release(usize),
    Rejoin(usize),
    Crash(Vec<usize>),
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
    /// With `many`, instead of candidates.
    many: Many,
}

impl Contest {
    async fn take_part(&mut self, arguments: &Arguments) -> anyhow::Result<()> {
        let mut input = BufReader::new(tokio::io::stdin()).lines();
        self.connect(arguments).await?;
        out::say("CONNECTED");
        if arguments.mode == Mode::Many {
            loop {
                match next(&mut input).await? {
                    Command::Go => break,
                    Command::Quit => return Ok(()),
                    Command::Release(_) | Command::Rejoin(_) | Command::Crash(_) => {
                        out::error("nothing is begun before `go`")
                    }
                }
            }
            out::say("START");
            let session = self.sessions.first().context("no session")?;
            self.many = Many::join(session, arguments)?;
            self.many.enrolled().await;
        } else {
            self.enroll(arguments).await?;
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
                        candidate.enrolled().await;
                        candidate.say_session();
                        out::say_of("ENROLLED", number);
                    }
                }
                // Several at once: `crash 0 1`.
                Command::Crash(numbers) => self.crash(&numbers).await?,
                Command::Quit => return Ok(()),
            }
        }
    }

    /// Each candidate joins its election, on a session of its own.
    async fn enroll(&mut self, arguments: &Arguments) -> anyhow::Result<()> {
        let common = Common::new(arguments)?;
        for (number, session) in self.sessions.iter().enumerate() {
            self.candidates.push(Candidate::new(number, session.clone(), arguments, &common)?);
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
        self.candidates.iter().for_each(Candidate::say_session);
        Ok(())
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
            connecting.spawn(arguments.session().connect());
        }
        while let Some(connected) = connecting.join_next().await {
            self.sessions.push(connected?.with_context(|| format!("--connect {}", arguments.connect))?);
        }
        Ok(())
    }

    /// Crashes some at once, and gives each another session.
    async fn crash(&mut self, numbers: &[usize]) -> anyhow::Result<()> {
        let mut left = Vec::new();
        for &number in numbers {
            let Some(candidate) = self.candidate(number) else { continue };
            match candidate.crash().await {
                Ok(session) => left.push((number, session)),
                Err(error) => out::error(&format!("{error:#}")),
            }
        }
        let mut closing = JoinSet::new();
        for (number, session) in left {
            out::say_of("CRASH", number);
            closing.spawn(async move {
                session.close(CLOSING).await;
                number
            });
        }
        while let Some(closed) = closing.join_next().await {
            if let Some(candidate) = self.candidate(closed?) {
                let session = candidate.reconnect().await?;
                self.sessions.push(session);
            }
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
        leaving.spawn(self.many.leave());
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
            (["crash", candidates @ ..], Some(_)) => {
                return Ok(Command::Crash(candidates.iter().filter_map(|word| word.parse().ok()).collect()));
            }
            _ => out::error(&format!(
                "no such command: {line}; there are go, release I, rejoin I, crash I..., quit"
            )),
        }
    }
}
