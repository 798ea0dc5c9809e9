//! Each leadership has a token of its own, higher than those of the leaderships that began before it, and the resource
//! accepts no write of a leadership after one of a later leadership.
//!
//! It depends on the order of czxids. The failure: a controller's late write after the next one's (KAFKA-6082).

use super::Verdict;

/// The leaderships of one slot, in the order in which they began.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Fencing {
    began: Vec<Leadership>,
    /// The number in that order of the latest one of which a write was accepted.
    latest: Option<usize>,
}

#[derive(Clone, Debug, Hash)]
struct Leadership {
    token: u64,
    host: usize,
    life: u64,
}

impl Fencing {
    /// `host` in its life `life` enters leadership with `token`. It is not `promised` that no later one has begun if its
    /// leader znode was taken from it: then it counts as one that began before those.
    pub(crate) fn granted(&mut self, promised: bool, host: usize, life: u64, token: u64) -> Verdict {
        if let Some(known) = self.began.iter().find(|known| known.token == token) {
            let Leadership { host: other, life: before, .. } = known;
            return Err(format!(
                "fencing: token {token} of host {host} in its life {life} was host {other}'s in its life {before}"
            ));
        }
        let at = self.began.iter().position(|known| known.token > token);
        if let Some(newer) = at.filter(|_| promised).map(|at| &self.began[at]) {
            let Leadership { token: newer, host: other, .. } = newer;
            return Err(format!(
                "fencing: host {host} enters with token {token} after host {other} with {newer}"
            ));
        }
        let at = at.unwrap_or(self.began.len());
        self.latest = self.latest.map(|latest| if at <= latest { latest + 1 } else { latest });
        self.began.insert(at, Leadership { token, host, life });
        Ok(())
    }

    /// The resource has accepted a write, which is `promised` to follow no write of a later leadership.
    pub(crate) fn accepted(&mut self, promised: bool, host: usize, token: u64) -> Verdict {
        if let Some(latest) = self.latest.filter(|_| promised && self.is_superseded(token)) {
            let newer = self.began[latest].token;
            return Err(format!("fencing: a write of host {host} with {token} was accepted after {newer}"));
        }
        self.latest = self.latest.max(self.number_of(token));
        Ok(())
    }

    /// Whether a write of a later leadership was accepted.
    pub(crate) fn is_superseded(&self, token: u64) -> bool {
        self.number_of(token).is_some_and(|number| Some(number) < self.latest)
    }

    /// The resource has refused a write: only a newer leadership is a reason.
    pub(crate) fn refused(&mut self, exclusive_and_valid: bool, host: usize, token: u64) -> Verdict {
        match self.began.iter().find(|known| known.token > token) {
            None => Err(format!("fencing: host {host} was refused with the newest token {token}")),
            Some(newer) if exclusive_and_valid => Err(format!(
                "fencing: host {host} acts with token {token} on a valid lease, and {} was granted already",
                newer.token
            )),
            Some(_) => Ok(()),
        }
    }

    /// Its place in the order; none of one that began before the ensemble was restored from a copy.
    fn number_of(&self, token: u64) -> Option<usize> {
        self.began.iter().position(|known| known.token == token)
    }
}
