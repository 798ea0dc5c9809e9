//! An election moves to another ensemble or another root: the decision that ends it at the old place, and the one with which
//! it goes on at the new place.

use crate::{
    engine::tokens::{MAX_TOKEN_BASE, NoSuchToken, first},
    record::{Cause, Elected, Given, Previous, Slot},
};

/// How an operator decides.
#[derive(Clone, Copy, Debug)]
pub struct ByOperator<'a> {
    /// The decision's sentence.
    pub sentence: &'a str,
    /// The operator.
    pub by: &'a str,
    /// When, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

impl ByOperator<'_> {
    fn given(&self, term: u64, previous: Option<Previous>) -> Given {
        Given::at_once(term, Cause::StandingOrder, self.sentence.to_owned(), self.unix_ms, previous)
    }

    /// The decision of this term with the slots of another one, none of which has a named member or a line of succession.
    fn vacant(&self, elected: &Elected, term: u64) -> Elected {
        let vacant = |slot: &Slot| Slot {
            named: None,
            given: self.given(term, slot.led_before()),
            succession: Vec::new(),
            ..slot.clone()
        };
        Elected {
            term,
            slots: elected.slots.iter().map(vacant).collect(),
            decided_by: self.by.to_owned(),
            ..elected.clone()
        }
    }
}

/// The decision that ends an election which moves away: the next term, and no member is named or in line. `None` if that is
/// so already. What is remembered stays in it.
pub fn move_away(elected: Option<&Elected>, decides: ByOperator<'_>) -> Option<Elected> {
    let Some(elected) = elected else { return Some(first(decides.given(1, None), 0, decides.by)) };
    let is_vacant = |slot: &Slot| slot.named.is_none() && slot.succession.is_empty();
    if elected.slots.iter().all(is_vacant) {
        return None;
    }
    Some(decides.vacant(elected, elected.term.saturating_add(1)).bounded())
}

/// The decision with which an election goes on that has moved in from another place: above the terms of both, and with
/// tokens above `token`. `here` is the decision that it replaces, `from` the last one of the other place.
///
/// It remembers what `from` remembers by names and by times: failures of members and sites, lost leaders, the latest
/// acknowledgement, takeovers and moves of each slot, and the previous leaders. Exclusions and the youngest member are known by
/// ballots, which don't exist here, and the latest request by a transaction of the other ensemble: they stay behind.
///
/// # Errors
/// If the tokens would be too large.
pub fn move_in(
    here: Option<&Elected>,
    from: Option<&Elected>,
    token: u64,
    decides: ByOperator<'_>,
) -> Result<Elected, NoSuchToken> {
    let token_base = here.map_or(0, |here| here.token_base).max(token);
    if token_base > MAX_TOKEN_BASE {
        return Err(NoSuchToken { above: token_base });
    }
    let term = [here, from].into_iter().flatten().map(|elected| elected.term).max().unwrap_or(0);
    let term = term.saturating_add(1);
    let Some(from) = from else { return Ok(first(decides.given(term, None), token_base, decides.by)) };
    let next = Elected {
        exclusions: Vec::new(),
        youngest: None,
        token_base,
        last_request: None,
        ..decides.vacant(from, term)
    };
    Ok(next.bounded())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record as _, VERSION};

    const MOVES: ByOperator<'static> = ByOperator { sentence: "it moves", by: "ann", unix_ms: 50 };

    /// Two slots: one with a leader and a successor, and one that is vacant.
    fn decided() -> Elected {
        let who =
            |member: &str| format!(r#"{{"member":"{member}","ballot":"{member}-0000000001","site":"east"}}"#);
        let given = r#""given":{"term":7,"cause":"startup","sentence":"s","decided_at_ms":1}"#;
        let led = format!(
            r#"{{"named":{},{given},"succession":[{}],"attempts":[3,4],"obeyed":[5]}}"#,
            who("a"),
            who("b")
        );
        let text = format!(
            r#"{{"v":{VERSION},"term":9,"slots":[{led},{{"named":null,{given}}}],
            "exclusions":[{{"member":"c","ballot":"c-0000000001","until_ms":99,"reason":"r"}}],
            "failures":[{{"member":"c","at_ms":8,"cause":"work-failed","term":6}}],
            "site_failures":[{{"site":"west","at_ms":9,"why":"w","overruled":"ann"}}],"losses":{{"west":[9,10]}},
            "acknowledged_at_ms":11,"youngest":"b-0000000001","token_base":100,"decided_by":"b","last_request":12}}"#
        );
        Elected::decode("/elected", text.as_bytes()).unwrap()
    }

    #[test]
    fn nobody_is_named_where_an_election_has_ended_and_once_is_enough() {
        let before = decided();
        let ended = move_away(Some(&before), MOVES).unwrap();
        assert_eq!((ended.term, ended.leaders().count()), (10, 0));
        assert!(ended.slots.iter().all(|slot| slot.succession.is_empty() && slot.given.term == 10));
        let led = ended.slots[0].given.previous.as_ref().map(|previous| previous.member.as_str());
        assert_eq!((led, &ended.slots[1].given.previous), (Some("a"), &None));
        assert_eq!((&ended.exclusions, ended.last_request), (&before.exclusions, before.last_request));
        assert_eq!(move_away(Some(&ended), MOVES), None);
        // No member had been named yet, and none is named from now on.
        let first = move_away(None, MOVES).unwrap();
        assert_eq!((first.term, first.named(0)), (1, None));
        assert_eq!(move_away(Some(&first), MOVES), None);
    }

    #[test]
    fn what_is_known_by_names_and_times_goes_along_and_terms_and_tokens_rise() {
        let from = move_away(Some(&decided()), MOVES).unwrap();
        let here = move_in(None, None, 5, MOVES).unwrap();
        assert_eq!((here.term, here.token_base), (1, 5));
        let next = move_in(Some(&here), Some(&from), 1000, MOVES).unwrap();
        assert_eq!((next.term, next.token_base, next.leaders().count()), (11, 1000, 0));
        assert_eq!((&next.failures, &next.site_failures), (&from.failures, &from.site_failures));
        assert_eq!((&next.losses, next.acknowledged_at_ms), (&from.losses, 11));
        assert_eq!(next.site_failures[0].overruled.as_deref(), Some("ann"));
        for (slot, was) in next.slots.iter().zip(&from.slots) {
            assert_eq!((&slot.attempts, &slot.obeyed), (&was.attempts, &was.obeyed));
            assert_eq!((&slot.given.previous, slot.given.term), (&was.given.previous, 11));
        }
        assert_eq!((&next.exclusions[..], &next.youngest, next.last_request), (&[][..], &None, None));
        next.encode("/elected").unwrap();
        // The new place was ahead.
        let ahead = Elected { term: 40, token_base: 2000, ..here };
        let next = move_in(Some(&ahead), Some(&from), 1000, MOVES).unwrap();
        assert_eq!((next.term, next.token_base), (41, 2000));
        assert!(move_in(None, Some(&from), MAX_TOKEN_BASE + 1, MOVES).is_err());
    }
}
