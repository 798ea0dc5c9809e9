//! Each leadership has a token of its own, higher than those before, and the resource accepts no older token after a
//! newer one.
//!
//! It depends on the order of czxids. The failure: a controller's late write after the next one's (KAFKA-6082).

use std::collections::BTreeMap;

use super::Verdict;

/// Tokens of one slot, and who got them when.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Fencing {
    granted: BTreeMap<u64, (usize, u64)>,
    accepted: u64,
}

impl Fencing {
    /// `host` in its life `life` enters leadership with `token`.
    pub(crate) fn granted(&mut self, exclusive: bool, host: usize, life: u64, token: u64) -> Verdict {
        if let Some((other, _)) = self.granted.insert(token, (host, life)) {
            return Err(format!("fencing: token {token} of host {host} was host {other}'s before"));
        }
        match self.granted.range(token + 1..).next() {
            Some((newer, (other, _))) if exclusive => {
                Err(format!("fencing: host {host} enters with token {token} after host {other} with {newer}"))
            }
            _ => Ok(()),
        }
    }

    /// The resource has accepted a write.
    pub(crate) fn accepted(&mut self, host: usize, token: u64) -> Verdict {
        if token < self.accepted {
            let newer = self.accepted;
            return Err(format!("fencing: a write of host {host} with {token} was accepted after {newer}"));
        }
        self.accepted = token;
        Ok(())
    }

    /// The resource has refused a write: only a newer leadership is a reason.
    pub(crate) fn refused(&mut self, exclusive_and_valid: bool, host: usize, token: u64) -> Verdict {
        match self.granted.range(token + 1..).next() {
            None => Err(format!("fencing: host {host} was refused with the newest token {token}")),
            Some((newer, _)) if exclusive_and_valid => Err(format!(
                "fencing: host {host} acts with token {token} on a valid lease, and {newer} was granted already"
            )),
            Some(_) => Ok(()),
        }
    }
}
