//! How an elector continues above everything that members remember if the decision is missing or old: see [`Memory`].

use super::pass::Pass;
use crate::{
    engine::{reading::Reading, tokens::above, znode::Meta},
    record::{Current, Elected, Remembered},
};

impl Pass<'_> {
    /// The latest decision that any member remembers.
    fn remembered(&self) -> Option<Remembered> {
        let members = self.members.iter().filter_map(|member| member.remembers);
        let own = self.reading.and_then(Reading::remembers);
        members.chain(own).reduce(Remembered::or_newer)
    }

    /// For a missing decision: the remembered one, to be written again.
    pub(crate) fn restored(&self) -> Option<Elected> {
        let latest = self.latest?;
        let (decision, _) = &**self.reading?.memory.decision.as_ref()?;
        (decision.term >= latest.term)
            .then(|| Elected { token_base: decision.token_base.max(latest.token), ..decision.clone() })
    }

    /// For a missing decision: what the first one must exceed.
    pub(crate) fn latest(&self) -> Option<Remembered> {
        // While there is a decision, a successor's leader znode may be ahead of it.
        let of_leader = |current: &Current| Remembered {
            term: current.term,
            token: current.fencing_token.unwrap_or(0),
            ..Remembered::default()
        };
        let leading = self.leaders.iter().filter_map(|leader| leader.record().map(of_leader));
        self.remembered().into_iter().chain(leading).reduce(Remembered::or_newer)
    }

    /// The next decision, if the present one is older than what a member remembers.
    pub(crate) fn caught_up(&self, elected: &Elected, meta: Meta) -> Option<Elected> {
        let remembered = self.remembered().filter(|r| r.is_newer_than(elected, meta.mzxid))?;
        let sentence = format!(
            "the decision of term {} is older than what members have seen (term {}, fencing token {}): all go on \
             above that",
            elected.term, remembered.term, remembered.token
        );
        let elected =
            Elected { last_request: self.decided_up_to.max(remembered.last_request), ..elected.clone() };
        let token_base = elected.token_base.max(remembered.token);
        Some(above(&elected, remembered.term, token_base, &sentence, self.decider, self.now.unix_ms))
    }
}
