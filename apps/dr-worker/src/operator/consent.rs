//! The confirmation of commands that are dangerous: on a terminal they ask, unless `--yes` is given. A script is not
//! asked; few commands then need `--yes`.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use anstream::eprint;

use crate::error::Error;

/// The argument of every dangerous command.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct Consent {
    /// Don't ask on a terminal.
    #[arg(long)]
    pub(super) yes: bool,
}

impl Consent {
    /// Whether an operator sees a question and can answer it.
    pub(super) fn can_ask() -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks for a word, unless `--yes` was given.
    ///
    /// # Errors
    /// If another word is typed, or there is no terminal to ask on.
    pub(super) fn approve(self, what: &str, word: &str) -> Result<(), Error> {
        if self.yes {
            return Ok(());
        }
        if !Self::can_ask() {
            let message =
                format!("{what} needs an approval: run it on a terminal, or with --yes; nothing was changed");
            return Err(Error::NotNow(message));
        }
        match Self::answer(&format!("{what} needs an approval. Type {word} to approve it: "))? {
            typed if typed == word => Ok(()),
            _ => Err(Error::Failed("not approved; nothing was changed".to_owned())),
        }
    }

    /// Asks, unless `--yes` was given. A script needs `--yes`.
    ///
    /// # Errors
    /// If the answer is not yes, or there is no terminal to ask on.
    pub(super) fn require(self, what: &str) -> Result<(), Error> {
        if self.yes || Self::can_ask() {
            return self.ask(what);
        }
        Err(Error::NotNow(format!("{what}: run it on a terminal, or with --yes; nothing was changed")))
    }

    /// Asks, unless `--yes` was given or there is no terminal to ask on, as in a script.
    ///
    /// # Errors
    /// If the answer is not yes.
    pub(super) fn ask(self, what: &str) -> Result<(), Error> {
        if self.yes || !Self::can_ask() {
            return Ok(());
        }
        match Self::answer(&format!("{what}. Continue? [y/N] "))?.to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Error::Failed("not confirmed; nothing was changed".to_owned())),
        }
    }

    /// The line that an operator answers on the terminal.
    ///
    /// # Errors
    /// If standard input can't be read.
    pub(super) fn answer(question: &str) -> Result<String, Error> {
        eprint!("{question}");
        // Without it the question is still answered.
        let _ = io::stderr().flush();
        let mut answer = String::new();
        io::stdin()
            .lock()
            .read_line(&mut answer)
            .map_err(|e| Error::Failed(format!("the answer can't be read: {e}; nothing was changed")))?;
        Ok(answer.trim().to_owned())
    }
}
