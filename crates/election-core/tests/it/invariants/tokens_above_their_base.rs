//! After an operator has raised the base of the tokens, every leadership of that term or a later one has a token above
//! the requested number.
//!
//! It depends on the base in the decision, which every later decision keeps. The failure: an ensemble that was restored
//! from a copy, whose zxids go back (V28).

use super::Verdict;

/// What was asked for, and in which term it was decided.
#[derive(Debug, Default)]
pub(crate) struct Raised {
    orders: Vec<(u64, u64)>,
}

impl Raised {
    pub(crate) fn raised(&mut self, term: u64, above: u64) {
        self.orders.push((term, above));
    }

    pub(crate) fn len(&self) -> u64 {
        self.orders.len() as u64
    }

    /// A leadership of `term` begins with `token`.
    pub(crate) fn granted(&self, term: u64, token: u64) -> Verdict {
        match self.orders.iter().find(|(since, above)| term >= *since && token <= *above) {
            None => Ok(()),
            Some((since, above)) => Err(format!(
                "tokens above their base: term {term} has token {token}, and they are above {above} since \
                 term {since}"
            )),
        }
    }
}
