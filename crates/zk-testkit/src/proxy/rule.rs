//! The requests and replies that are to be lost, and the report that they were.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::frame::{Asked, Op};
use crate::Error;

/// The requests to which a fault applies.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Which {
    op: Option<Op>,
    writes_only: bool,
    path_part: Option<String>,
    skip: usize,
}

impl Which {
    /// Any request of a kind that [`Op`] names: not pings, not authentication, not the watches that a client
    /// library sets again after a reconnect. A library may send such requests by itself, such as
    /// [`Op::CloseSession`] and [`Op::Check`].
    pub fn any() -> Self {
        Self::default()
    }

    /// One kind of request.
    pub fn op(op: Op) -> Self {
        Self { op: Some(op), ..Self::default() }
    }

    /// Any request that changes znodes when it succeeds.
    pub fn write() -> Self {
        Self { writes_only: true, ..Self::default() }
    }

    /// Only on paths that contain `part`. A `multi` has no path of its own.
    pub fn on_path_with(mut self, part: impl Into<String>) -> Self {
        self.path_part = Some(part.into());
        self
    }

    /// Skips the first `count` requests that match.
    pub fn skipping(mut self, count: usize) -> Self {
        self.skip = count;
        self
    }

    fn fits(&self, asked: &Asked) -> bool {
        let path = asked.path.as_deref().unwrap_or_default();
        self.op.is_none_or(|op| op == asked.op)
            && (!self.writes_only || asked.op.is_write())
            && self.path_part.as_ref().is_none_or(|part| path.contains(part))
    }
}

/// The request that a fault has hit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The kind of the request.
    pub op: Op,
    /// Its path; `None` for requests without one.
    pub path: Option<String>,
}

/// A fault that waits for its request. Dropping it does not cancel the fault.
#[derive(Debug)]
pub struct Loss {
    hit: oneshot::Receiver<Lost>,
}

impl Loss {
    /// Waits until the fault has happened.
    ///
    /// # Errors
    /// [`Error::Timeout`], also if the proxy or the server is gone, or the connection ended otherwise after the
    /// request had passed and before its reply came.
    pub async fn happened(self, within: Duration) -> Result<Lost, Error> {
        let detail = match tokio::time::timeout(within, self.hit).await {
            Ok(Ok(lost)) => return Ok(lost),
            Ok(Err(_)) => ": the proxy, the server or the connection ended first".to_owned(),
            Err(_) => ": no request matched, or the server did not answer it".to_owned(),
        };
        Err(Error::Timeout { what: "the ordered loss".to_owned(), within, detail })
    }
}

/// The fault of a request. The proxy supports the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// Lost on its way to the server, and the connection with it.
    ToServer,
    /// Its reply is lost, and the connection with it.
    ToClient,
    /// Its reply does not come, nor does anything after it; the connection stays.
    Never,
    /// Its reply and all that comes after it are delayed.
    Late(Duration),
}

#[derive(Debug)]
struct Rule {
    which: Which,
    kind: FaultKind,
    hit: oneshot::Sender<Lost>,
}

/// A rule that has found its request.
#[derive(Debug)]
pub(crate) struct MatchedFault {
    pub(crate) kind: FaultKind,
    pub(crate) xid: i32,
    lost: Lost,
    hit: oneshot::Sender<Lost>,
}

impl MatchedFault {
    pub(crate) fn report(self) {
        // The receiver may have been dropped.
        let _ = self.hit.send(self.lost);
    }
}

/// The faults that wait, oldest first. Each happens once.
#[derive(Debug, Default)]
pub(crate) struct Rules(Mutex<Vec<Rule>>);

impl Rules {
    pub(crate) fn add(&self, which: Which, kind: FaultKind) -> Loss {
        let (hit, receiver) = oneshot::channel();
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rules.push(Rule { which, kind, hit });
        Loss { hit: receiver }
    }

    /// Removes the oldest rule that matches from the list.
    pub(crate) fn take_match(&self, asked: &Asked) -> Option<MatchedFault> {
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut struck = None;
        for (index, rule) in rules.iter_mut().enumerate() {
            if !rule.which.fits(asked) {
                continue;
            }
            if rule.which.skip > 0 {
                rule.which.skip -= 1;
            } else if struck.is_none() {
                struck = Some(index);
            }
        }
        let rule = rules.remove(struck?);
        Some(MatchedFault {
            kind: rule.kind,
            xid: asked.xid,
            lost: Lost { op: asked.op, path: asked.path.clone() },
            hit: rule.hit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rules_strike_one_request_each() {
        let request = Asked { xid: 1, op: Op::GetData, path: None };
        let rules = Rules::default();
        let _first = rules.add(Which::any(), FaultKind::ToServer);
        let _second = rules.add(Which::any(), FaultKind::ToClient);
        let kinds: Vec<FaultKind> =
            (0..2).filter_map(|_| rules.take_match(&request)).map(|fault| fault.kind).collect();
        assert_eq!(kinds, [FaultKind::ToServer, FaultKind::ToClient]);
    }
}
