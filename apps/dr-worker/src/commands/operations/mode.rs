//! `mode`, `pause` and `resume`.

use clap::{Args, ValueEnum};
use election_core::internals::record::{Control, Mode};

use crate::{
    commands::{
        operation::{Ask, Election, Operation},
        standing::StandingOrders,
    },
    error::Error,
};

/// Set the mode: auto, manual or observe.
///
/// In the mode manual only operators decide, in observe nothing is changed.
#[derive(Debug, Args)]
pub(super) struct SetMode {
    /// Mode.
    #[arg(value_enum)]
    mode: Word,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Word {
    /// The elector decides.
    Auto,
    /// Only requests of operators are carried out.
    Manual,
    /// Nothing is carried out; decisions are only explained.
    Observe,
}

impl From<Word> for Mode {
    fn from(word: Word) -> Self {
        match word {
            Word::Auto => Self::Auto,
            Word::Manual => Self::Manual,
            Word::Observe => Self::Observe,
        }
    }
}

/// Suspend automatic decisions: mode manual until `resume`.
///
/// A leader keeps leading, but is not replaced: if it is lost or its worker ends, no member leads until `resume` or `failover`.
#[derive(Debug, Args)]
pub(super) struct Pause {}

/// Restore the mode from before `pause`.
#[derive(Debug, Args)]
pub(super) struct Resume {}

impl Operation for SetMode {
    type Outcome = StandingOrders;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, StandingOrders>, Error> {
        let mode = Mode::from(self.mode);
        let change = move |control: &mut Control| (control.mode, control.paused_in) = (mode, None);
        Ok(StandingOrders::ask(of, format!("mode {mode}"), change))
    }
}

impl Operation for Pause {
    type Outcome = StandingOrders;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, StandingOrders>, Error> {
        Ok(StandingOrders::ask(of, "pause".to_owned(), set_paused))
    }
}

impl Operation for Resume {
    type Outcome = StandingOrders;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, StandingOrders>, Error> {
        Ok(StandingOrders::ask(of, "resume".to_owned(), end_pause))
    }
}

/// A second pause keeps the mode from before the first.
fn set_paused(control: &mut Control) {
    if control.mode != Mode::Manual {
        control.paused_in = Some(control.mode);
        control.mode = Mode::Manual;
    }
}

/// Restores the mode from before the pause. A mode that was set by `mode` ends as well: after `resume` the elector
/// decides.
fn end_pause(control: &mut Control) {
    let found = control.paused_in.take();
    if control.mode == Mode::Manual {
        control.mode = found.unwrap_or(Mode::Auto);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_in_the_mode_that_it_found() {
        for found in [Mode::Auto, Mode::Observe] {
            let mut control = Control::default().with(|control| control.mode = found);
            set_paused(&mut control);
            set_paused(&mut control);
            assert_eq!(control.mode, Mode::Manual);
            end_pause(&mut control);
            assert_eq!((control.mode, control.paused_in), (found, None));
            end_pause(&mut control);
            assert_eq!(control.mode, found);
        }
        let mut chosen = Control::default().with(|control| control.mode = Mode::Manual);
        end_pause(&mut chosen);
        assert_eq!(chosen.mode, Mode::Auto);
    }
}
