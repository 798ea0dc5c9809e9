//! Sessions, as the server that leads keeps them, and when they end.
//!
//! A session ends with the tick that follows its timeout: times are rounded up to
//! whole ticks, so that sessions end in groups and a touch is cheap.

use std::collections::{BTreeSet, HashMap};

use zk_proto::{ErrorCode, PASSWORD_LEN};

#[derive(Debug, Default)]
pub(super) struct Sessions {
    tick_ms: u64,
    by_id: HashMap<i64, Session>,
    /// When each ends that is not closing, in milliseconds of the server's clock, and its id.
    ending: BTreeSet<(u64, i64)>,
}

#[derive(Debug)]
struct Session {
    timeout_ms: u64,
    ends: u64,
    closing: bool,
    /// The server that its client is connected to.
    at: usize,
}

impl Sessions {
    pub(super) fn new(tick_ms: u64) -> Self {
        Self { tick_ms: tick_ms.max(1), ..Self::default() }
    }

    pub(super) fn open(&mut self, id: i64, timeout_ms: u64, at: usize, now_ms: u64) {
        let ends = end_after(self.tick_ms, now_ms, timeout_ms);
        self.by_id.insert(id, Session { timeout_ms, ends, closing: false, at });
        self.ending.insert((ends, id));
    }

    /// False if there is no such session, or no longer.
    fn change(&mut self, id: i64, change: impl FnOnce(&mut Session)) -> bool {
        let Some(session) = self.by_id.get_mut(&id).filter(|session| !session.closing) else { return false };
        let before = session.ends;
        change(session);
        if session.closing {
            self.ending.remove(&(before, id));
        } else if session.ends != before {
            self.ending.remove(&(before, id));
            self.ending.insert((session.ends, id));
        }
        true
    }

    /// Its client was active. False if the session does not exist, or has expired.
    pub(super) fn touch(&mut self, id: i64, timeout_ms: u64, now_ms: u64) -> bool {
        let ends = end_after(self.tick_ms, now_ms, timeout_ms);
        self.change(id, |session| (session.timeout_ms, session.ends) = (timeout_ms, ends))
    }

    /// There is a new leader, which has the sessions of the log: all count as active just now, and none is
    /// about to end unless its end was logged.
    pub(super) fn start_anew(&mut self, now_ms: u64) {
        self.ending.clear();
        for (id, session) in &mut self.by_id {
            session.closing = false;
            session.ends = end_after(self.tick_ms, now_ms, session.timeout_ms);
            self.ending.insert((session.ends, *id));
        }
    }

    /// Its time is over now, if there is such a session.
    pub(super) fn end_now(&mut self, id: i64) -> bool {
        self.change(id, |session| session.ends = 0)
    }

    /// Its client has connected to that server. False if the session does not exist, or has expired.
    pub(super) fn move_to(&mut self, id: i64, at: usize, timeout_ms: u64, now_ms: u64) -> bool {
        self.touch(id, timeout_ms, now_ms) && self.change(id, |session| session.at = at)
    }

    /// Whether requests that come through that server are still to be carried out.
    pub(super) fn check(&self, id: i64, at: usize) -> Result<(), ErrorCode> {
        let session = self.by_id.get(&id).ok_or(ErrorCode::UNKNOWN_SESSION)?;
        if session.closing {
            return Err(ErrorCode::SESSION_EXPIRED);
        }
        if session.at == at { Ok(()) } else { Err(ErrorCode::SESSION_MOVED) }
    }

    /// From now on nothing is done for it. False if that was so before.
    pub(super) fn begin_to_close(&mut self, id: i64) -> bool {
        self.change(id, |session| session.closing = true)
    }

    pub(super) fn remove(&mut self, id: i64) {
        if let Some(session) = self.by_id.remove(&id) {
            self.ending.remove(&(session.ends, id));
        }
    }

    /// Those whose time is over, in a certain order.
    pub(super) fn over(&self, now_ms: u64) -> Vec<i64> {
        self.ending.range(..=(now_ms, i64::MAX)).map(|(_, id)| *id).collect()
    }

    pub(super) fn next_end(&self) -> Option<u64> {
        self.ending.first().map(|(ends, _)| *ends)
    }

    pub(super) fn has(&self, id: i64) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Id, timeout in milliseconds, server; by id.
    pub(super) fn list(&self) -> Vec<(i64, u64, usize)> {
        let open = self.by_id.iter().filter(|(_, session)| !session.closing);
        let mut list: Vec<_> = open.map(|(id, session)| (*id, session.timeout_ms, session.at)).collect();
        list.sort_unstable();
        list
    }
}

fn end_after(tick_ms: u64, now_ms: u64, timeout_ms: u64) -> u64 {
    ((now_ms + timeout_ms) / tick_ms + 1) * tick_ms
}

/// What a client must show to come back to its session: made of the id, so that any
/// of the servers can check it, and of a secret.
pub(super) fn password(id: i64, secret: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(secret ^ id.cast_unsigned());
    let mut password = vec![0; PASSWORD_LEN];
    random.fill(&mut password);
    password
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_with_the_tick_after_its_timeout() {
        let mut sessions = Sessions::new(500);
        sessions.open(1, 1000, 0, 100);
        assert_eq!(sessions.next_end(), Some(1500));
        assert!(sessions.over(1499).is_empty());
        assert_eq!(sessions.over(1500), [1]);
        assert!(sessions.touch(1, 1000, 600));
        assert!(sessions.over(1999).is_empty());
        assert_eq!(sessions.over(2000), [1]);
        // Never before the timeout is over, on the dot included.
        assert!(sessions.touch(1, 1000, 1000));
        assert_eq!(sessions.next_end(), Some(2500));
    }

    #[test]
    fn a_closing_session_is_neither_touched_nor_served() {
        let mut sessions = Sessions::new(500);
        sessions.open(1, 1000, 0, 0);
        assert_eq!(sessions.check(1, 0), Ok(()));
        assert_eq!(sessions.check(1, 1), Err(ErrorCode::SESSION_MOVED));
        assert_eq!(sessions.check(2, 0), Err(ErrorCode::UNKNOWN_SESSION));
        assert!(sessions.begin_to_close(1));
        assert!(!sessions.begin_to_close(1));
        assert!(!sessions.touch(1, 1000, 0));
        assert_eq!(sessions.check(1, 0), Err(ErrorCode::SESSION_EXPIRED));
        assert_eq!(sessions.next_end(), None);
        sessions.remove(1);
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn an_end_that_was_not_logged_is_forgotten() {
        let mut sessions = Sessions::new(500);
        sessions.open(1, 1000, 0, 0);
        sessions.open(2, 1000, 0, 0);
        assert!(sessions.begin_to_close(1));
        sessions.start_anew(100);
        assert_eq!(sessions.check(1, 0), Ok(()));
        assert_eq!(sessions.next_end(), Some(1500));
        assert_eq!(sessions.over(1500), [1, 2]);
        assert!(sessions.end_now(2) && !sessions.end_now(3));
        assert_eq!(sessions.over(100), [2]);
    }

    #[test]
    fn passwords_differ_by_id_and_secret() {
        assert_eq!(password(1, 2), password(1, 2));
        assert_ne!(password(1, 2), password(2, 2));
        assert_ne!(password(1, 2), password(1, 3));
    }
}
