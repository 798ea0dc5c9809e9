//! The base of the fencing tokens, which an operator raises after the ensemble was
//! restored from a copy.
//!
//! A token is a czxid plus this base, and zxids decrease when a copy is restored. A leader then gets tokens that were
//! given out before, and a resource that refuses older tokens refuses this leader. So an operator who knows the
//! newest token that a resource has seen sets it here, and every later leadership has a newer one.

use std::collections::BTreeMap;

pub use crate::record::limits::MAX_TOKEN_BASE;
use crate::record::{Cause, Elected, Given, Slot, VERSION, limits::MAX_TOKEN};

/// Why the base can't be raised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{above} is no token that was ever given out: the largest base is {MAX_TOKEN_BASE}; \
     ask the resource for the newest token that it has seen"
)]
pub struct NoSuchToken {
    /// The requested minimum.
    pub above: u64,
}

/// The decision that raises the base, so that every leadership from then on has a token above `above`; `None` if that
/// is already so. `lowest_token` is the lowest token of the leaders, if every slot has one.
///
/// It is the next term in all slots, and names the same members as before. Each of them takes over again, since the
/// token that it has may be too old.
///
/// # Errors
/// If the base would be too large.
pub fn raise_tokens(
    elected: Option<&Elected>,
    lowest_token: Option<u64>,
    above: u64,
    by: &str,
    unix_ms: u64,
) -> Result<Option<Elected>, NoSuchToken> {
    if above > MAX_TOKEN_BASE {
        return Err(NoSuchToken { above });
    }
    let base = elected.map_or(0, |e| e.token_base);
    if base >= above || lowest_token.is_some_and(|token| token > above) {
        return Ok(None);
    }
    let sentence = format!("tokens are above {above} from now on, by order of {by}");
    let Some(elected) = elected else {
        return Ok(Some(first(Given::at_once(1, Cause::TokensRaised, sentence, unix_ms, None), above, by)));
    };
    Ok(Some(self::above(elected, elected.term, above, &sentence, by, unix_ms)))
}

/// A first decision, by an operator: no member is named in its slot.
pub(crate) fn first(given: Given, token_base: u64, by: &str) -> Elected {
    Elected {
        v: VERSION,
        term: given.term,
        slots: vec![Slot::new(None, given)],
        exclusions: Vec::new(),
        failures: Vec::new(),
        site_failures: Vec::new(),
        losses: BTreeMap::new(),
        acknowledged_at_ms: 0,
        youngest: None,
        token_base,
        decided_by: by.to_owned(),
        last_request: None,
        generation: 0,
    }
    .bounded()
}

/// The next term in all slots, above this one, with this base of the tokens.
pub(crate) fn above(
    elected: &Elected,
    term: u64,
    token_base: u64,
    sentence: &str,
    by: &str,
    unix_ms: u64,
) -> Elected {
    let term = elected.term.max(term).saturating_add(1);
    // The previous leader distinguishes a slot that is being vacated from one that has no candidate.
    let given = Given::at_once(term, Cause::TokensRaised, sentence.to_owned(), unix_ms, None);
    let anew =
        |slot: &Slot| Slot { given: Given { previous: slot.led_before(), ..given.clone() }, ..slot.clone() };
    Elected {
        term,
        slots: elected.slots.iter().map(anew).collect(),
        token_base,
        decided_by: by.to_owned(),
        ..elected.clone()
    }
    .bounded()
}

/// The token of a leadership: none above [`MAX_TOKEN`], and no two that are the same.
pub fn fencing_token(czxid: i64, base: u64) -> Option<u64> {
    let token = u64::try_from(czxid).ok()?.checked_add(base)?;
    (token <= MAX_TOKEN).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::elector::decided::is_vacated,
        ids::Ballot,
        record::{Named, Previous},
    };

    fn who(member: &str) -> Named {
        let ballot = Ballot::new(format!("{member}-0000000001")).unwrap();
        Named { member: member.parse().unwrap(), ballot, site: "east".parse().unwrap() }
    }

    fn slot(term: u64, named: Option<Named>, previous: Option<Previous>) -> Slot {
        Slot::new(named, Given::at_once(term, Cause::Failover, "it was so".to_owned(), 1, previous))
    }

    /// What was under way in a slot continues in the next term.
    #[test]
    fn every_slot_begins_a_term_and_stays_what_it_was() {
        let mut elected = raise_tokens(None, None, 1, "ann", 1).unwrap().unwrap();
        elected.term = 9;
        let all =
            [slot(7, Some(who("a")), None), slot(8, None, Some(who("b").as_previous())), slot(6, None, None)];
        for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            elected.slots = order.map(|slot: usize| all[slot].clone()).to_vec();
            let raised = raise_tokens(Some(&elected), None, 5, "ann", 2).unwrap().unwrap();
            for (slot, was) in order.into_iter().enumerate() {
                assert_eq!(raised.term_of(slot), 10, "{order:?}");
                assert_eq!(raised.named(slot), all[was].named.as_ref());
                assert_eq!(is_vacated(&raised, slot), was == 1, "{order:?} {slot}");
                assert_eq!(raised.given(slot).unwrap().cause, Cause::TokensRaised);
            }
            let led = order.iter().position(|was| *was == 0).unwrap();
            assert_eq!(raised.given(led).unwrap().previous, Some(who("a").as_previous()));
        }
    }

    #[test]
    fn once_is_enough_and_too_much_is_refused() {
        let elected = raise_tokens(None, None, 5, "ann", 1).unwrap().unwrap();
        assert_eq!(raise_tokens(Some(&elected), None, 5, "ann", 2), Ok(None));
        assert_eq!(raise_tokens(Some(&elected), Some(7), 6, "ann", 2), Ok(None));
        assert!(raise_tokens(Some(&elected), None, MAX_TOKEN_BASE + 1, "ann", 2).is_err());
    }
}
