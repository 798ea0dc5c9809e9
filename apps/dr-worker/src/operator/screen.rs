//! A terminal that shows one text, redrawn in place.
//!
//! No mode of the terminal is changed and no other screen is used: whatever ends this program, the terminal is as it was,
//! with the last text on it.

use std::io::{self, ErrorKind, IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice, adapter::strip_str};

use super::output;
use crate::error::Error;

/// The terminal of standard output.
pub(super) struct Screen {
    is_drawn: bool,
}

impl Screen {
    /// `None` if standard output is no terminal, or one that can't be redrawn.
    pub(super) fn new() -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        (io::stdout().is_terminal() && !is_dumb).then_some(Self { is_drawn: false })
    }

    /// Shows `text` instead of the last one, as far as it fits.
    ///
    /// # Errors
    /// If the terminal can't be written to.
    pub(super) fn draw(&mut self, text: &str) -> Result<(), Error> {
        let height = output::size().1;
        let mut all = String::new();
        if !self.is_drawn {
            // What is on the terminal moves up.
            all.push_str(&"\n".repeat(height));
            self.is_drawn = true;
        }
        all.push_str(&frame(&output::harmless(text), height));
        let mut stdout = io::stdout().lock();
        match stdout.write_all(all.as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Error::Failed(format!("can't write to standard output: {error}")))
            }
            _ => Ok(()),
        }
    }
}

/// What draws a text over another one, on a terminal of this height.
fn frame(text: &str, height: usize) -> String {
    const FIRST_LINE: &str = "\x1b[H";
    const REST_OF_LINE: &str = "\x1b[K";
    const REST: &str = "\x1b[J";
    let text = match AutoStream::choice(&io::stdout()) {
        ColorChoice::Never => strip_str(text).to_string(),
        _ => text.to_owned(),
    };
    // The last line is the cursor's.
    let fits = height.saturating_sub(1).max(2);
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    if lines.len() > fits {
        let more = lines.len() - (fits - 1);
        lines.truncate(fits - 1);
        lines.push(format!("... {more} more lines"));
    }
    let lines = lines.into_iter().map(|line| line + REST_OF_LINE + "\n").collect::<String>();
    format!("{FIRST_LINE}{lines}{REST}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_covers_the_last_one_and_fits() {
        assert_eq!(frame("a\nb", 24), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(frame("a\nb\nc\nd", 4), "\x1b[Ha\x1b[K\nb\x1b[K\n... 2 more lines\x1b[K\n\x1b[J");
    }
}
