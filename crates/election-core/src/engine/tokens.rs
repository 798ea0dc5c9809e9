//! The base of the fencing tokens, which an operator raises after the ensemble was
//! restored from a copy.
//!
//! A token is a czxid plus this base, and zxids go back with a copy: what leads then
//! gets tokens that were given out before, and a resource that refuses older tokens
//! refuses it. So somebody who knows the newest token that a resource has seen says so
//! here, and every later leadership has a newer one.

use crate::record::{Cause, Elected, VERSION};

/// The largest base. With any czxid on top the token still fits into 64 signed bits,
/// which is what databases keep.
pub const MAX_TOKEN_BASE: u64 = 1 << 62;

/// Why the base can't be raised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{above} is no token that was ever given out: the largest base is {MAX_TOKEN_BASE}; \
     ask the resource for the newest token that it has seen"
)]
pub struct NoSuchToken {
    /// What was asked for.
    pub above: u64,
}

/// The decision that raises the base, so that every leadership from then on has a token
/// above `above`; `None` if that is so already. `leads` is the token of whoever is in
/// office.
///
/// It is the next term, naming whoever was named before: that one takes its office up
/// anew, for the token that it has may be too old.
///
/// # Errors
/// When the base would be too large.
pub fn raise_tokens(
    elected: Option<&Elected>,
    in_office: Option<u64>,
    above: u64,
    by: &str,
    unix_ms: u64,
) -> Result<Option<Elected>, NoSuchToken> {
    if above > MAX_TOKEN_BASE {
        return Err(NoSuchToken { above });
    }
    let base = elected.map_or(0, |e| e.token_base);
    if base >= above || in_office.is_some_and(|token| token > above) {
        return Ok(None);
    }
    let sentence = format!("tokens are above {above} from now on, by order of {by}");
    let Some(elected) = elected else {
        return Ok(Some(Elected {
            v: VERSION,
            term: 1,
            slots: vec![None],
            succession: Vec::new(),
            exclusions: Vec::new(),
            attempts: Vec::new(),
            token_base: above,
            // Nobody knows yet who will read it.
            cause: Cause::TokensRaised.in_format(VERSION),
            sentence,
            decided_by: by.to_owned(),
            decided_at_ms: unix_ms,
            noticed_at_ms: unix_ms,
            request: None,
            last_request: None,
            previous: None,
        }));
    };
    let previous = elected.named().map(|named| named.as_previous()).or_else(|| elected.previous.clone());
    Ok(Some(Elected {
        term: elected.term + 1,
        token_base: above,
        // As all members read it.
        cause: Cause::TokensRaised.in_format(elected.v),
        sentence,
        decided_by: by.to_owned(),
        decided_at_ms: unix_ms,
        noticed_at_ms: unix_ms,
        request: None,
        previous,
        ..elected.clone()
    }))
}

/// The token of a leadership.
pub fn fencing_token(czxid: i64, base: u64) -> u64 {
    u64::try_from(czxid).unwrap_or(0).saturating_add(base)
}
