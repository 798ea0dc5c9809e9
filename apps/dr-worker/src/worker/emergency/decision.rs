//! Whether a job may be run without ZooKeeper, with which token, and when its node may rejoin. Without clock and I/O.
//!
//! While ZooKeeper has no quorum nothing but an operator can tell that no other member leads. So the command asks a quorum
//! first, has the operator name what was fenced, and gives the job a token above all that this node has seen, by more than
//! any election can have given out since. A resource then refuses every leader of the elections, so the node's worker joins
//! none of them before a quorum has tokens above it. The record of that is written before the job starts.

use election_core::{
    config::{MemberId, SiteId},
    internals::MAX_TOKEN_BASE,
};

use super::{Newest, Record};
use crate::{error::Error, typed::Typed};

/// How far the token of an emergency leadership is above the newest one that is known. A token is a transaction id of
/// ZooKeeper, and each election of a ZooKeeper leader raises these by 2^32, or by 2^40 in a layout that ZooKeeper prepares
/// (24 bits for the elections and 40 for the transactions of each). So the elections of this job may have gone on elsewhere
/// through 4096 of them in either layout since this node last saw a token. An ensemble whose layout changes multiplies its
/// transaction ids by 256, which passes the jump if it has had more than 4096 elections.
///
/// As many as 1024 jumps fit below [`MAX_TOKEN_BASE`].
pub(crate) const JUMP: u64 = 1 << 52;

/// What is known before a job is run without an election.
#[derive(Debug)]
pub(crate) struct EmergencyFacts<'a> {
    pub(crate) job: &'a str,
    /// What this node has seen.
    pub(crate) newest: Option<&'a Newest>,
    /// An earlier emergency leadership of the job on this node.
    pub(crate) record: Option<&'a Record>,
    /// What the operator knows: the newest token that the resource has seen.
    pub(crate) above: Option<u64>,
    /// The time in seconds since the Unix epoch.
    pub(crate) now_s: u64,
}

/// The number and the token of an emergency leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) term: u64,
    pub(crate) token: u64,
    /// The newest token that is known.
    pub(crate) above: u64,
}

impl EmergencyFacts<'_> {
    /// The token: above all that are known. The time is added, so that of two nodes that have seen the same token the one that
    /// is ordered to lead later has the higher one.
    ///
    /// # Errors
    /// If no such token can be found, or later leaders could not have a higher one.
    pub(crate) fn grant(&self) -> Result<Grant, Error> {
        let job = self.job;
        let kept = self.newest.filter(|newest| newest.token > 0).map(|newest| newest.token);
        let earlier = self.record.map(|record| record.token);
        let Some(above) = kept.into_iter().chain(earlier).chain(self.above).max() else {
            return Err(Error::Usage(format!(
                "this node has kept no fencing token of job {job}: ask its resource for the newest token that it has seen, \
                 and give it as --token-above N"
            )));
        };
        let token = above.saturating_add(JUMP).saturating_add(self.now_s);
        if token > MAX_TOKEN_BASE {
            return Err(Error::Usage(format!(
                "a token above {above} would leave no room for newer ones: the largest that `raise-token` accepts is \
                 {MAX_TOKEN_BASE}"
            )));
        }
        let terms = self.newest.map(|newest| newest.term).into_iter().chain(self.record.map(|r| r.term));
        Ok(Grant { term: terms.max().unwrap_or(0).saturating_add(1), token, above })
    }
}

/// Refuses an emergency leadership that is none.
///
/// # Errors
/// With what to do instead.
pub(crate) fn may_start(job: &str, has_quorum: bool) -> Result<(), Error> {
    if !has_quorum {
        return Ok(());
    }
    let failover = Typed::verb("failover").job(job).arg("--force");
    Err(Error::Failed(format!(
        "ZooKeeper answers with a quorum, so job {job} needs no emergency leadership, and another member may lead it. \
         `{failover}` takes leadership from a leader that does not let go; nothing was changed"
    )))
}

/// What an operator must have fenced by hand, as the sentence that confirms it: the leader that this node has seen last, and
/// all other sites.
pub(crate) fn sentence(me: &MemberId, my_site: &SiteId, sites: &[SiteId], newest: Option<&Newest>) -> String {
    let leader = newest.and_then(|newest| newest.leader.as_ref()).filter(|leader| leader.member != *me);
    let mut others: Vec<&SiteId> = sites.iter().filter(|site| *site != my_site).collect();
    if let Some(leader) = leader
        && leader.site != *my_site
        && !others.contains(&&leader.site)
    {
        others.push(&leader.site);
    }
    let mut names: Vec<_> = leader.map(|leader| format!("member {}", leader.member)).into_iter().collect();
    names.extend(others.into_iter().map(|site| format!("site {site}")));
    let all = if names.is_empty() { "every other member".to_owned() } else { names.join(", ") };
    format!("I have fenced: {all}")
}

/// Whether an operator has typed the sentence. Spaces don't count.
pub(crate) fn is_confirmed(sentence: &str, typed: &str) -> bool {
    sentence.split_whitespace().eq(typed.split_whitespace())
}

/// What can go wrong, for the operator who decides.
pub(crate) fn warning(job: &str, member: &str, grant: &Grant, sentence: &str) -> String {
    let Grant { token, above, .. } = grant;
    format!(
        "This runs job {job} on {member} although no quorum of ZooKeeper says who leads. What can go wrong:\n\
         - If the job runs anywhere else, it runs twice, and both write: data is lost, or diverges.\n\
         - The other site may have a quorum that this node can't reach. Then it has a leader now, or soon. So may servers \
         that were restarted as an ensemble of their own.\n\
         - A leader that is only cut off may run its job until its lease ends, and with on_pause = \"keep\" longer. A machine that is \
         off may start its programs when its power returns.\n\
         - A resource that checks fencing tokens refuses late writes: this job gets token {token}, above {above}. Any other \
         resource accepts them.\n\
         - No other member takes over if this node or this command fails.\n\
         - The worker of this node stays out of the job's election afterwards, until the tokens of the ensemble are above \
         {token} and the record of this is cleared.\n\
         Fence by hand first: power off, revoke the access to the data, or cut the network, for all that this sentence \
         names:\n  {sentence}"
    )
}

/// The tokens of an ensemble, as a quorum has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ensemble {
    /// The base of the tokens.
    pub(crate) base: u64,
    /// The lowest token of the leaders, if every slot has one.
    pub(crate) lowest: Option<u64>,
}

/// Whether the node may rejoin the election. The rule is that of `raise-token`.
///
/// # Errors
/// With the command that raises the tokens, if they are not above that of the emergency leadership.
pub(crate) fn may_clear(record: &Record, ensemble: Ensemble) -> Result<(), Error> {
    let Ensemble { base, lowest } = ensemble;
    let Record { job, token, .. } = record;
    if base >= *token || lowest.is_some_and(|lowest| lowest > *token) {
        return Ok(());
    }
    let raise = Typed::verb("raise-token").job(job).arg("--above").arg(token);
    Err(Error::Failed(format!(
        "not cleared: the emergency leadership of {job} had token {token}, and the base of the ensemble's tokens is {base}. A \
         resource that has seen {token} would refuse every leader. First: `{raise}`"
    )))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{newest::SeenLeader, record::tests::record},
        *,
    };

    const NOW: u64 = 1_700_000_000;

    fn facts() -> EmergencyFacts<'static> {
        EmergencyFacts { job: "orders", newest: None, record: None, above: None, now_s: NOW }
    }

    fn newest(token: u64, leader: Option<(&str, &str)>) -> Newest {
        let leader = leader.map(|(member, site)| SeenLeader {
            member: member.parse().unwrap(),
            site: site.parse().unwrap(),
        });
        Newest { term: 7, token, leader, at_ms: 1 }
    }

    #[test]
    fn the_token_is_above_all_that_is_known() {
        let (seen, earlier) = (newest(70, None), record("orders", 900));
        let grant = |facts: EmergencyFacts<'_>| facts.grant().unwrap();
        let with = |above| Grant { term: 8, token: above + JUMP + NOW, above };
        assert_eq!(grant(EmergencyFacts { newest: Some(&seen), ..facts() }), with(70));
        assert_eq!(grant(EmergencyFacts { newest: Some(&seen), above: Some(60), ..facts() }), with(70));
        assert_eq!(grant(EmergencyFacts { newest: Some(&seen), above: Some(80), ..facts() }), with(80));
        let again = EmergencyFacts { newest: Some(&seen), record: Some(&earlier), ..facts() };
        assert_eq!(grant(again), Grant { term: 9, ..with(900) });
        // Nothing is kept, and the operator knows.
        assert_eq!(grant(EmergencyFacts { above: Some(0), ..facts() }), Grant { term: 1, ..with(0) });
    }

    /// In either layout of transaction ids, with 32 and with 40 bits for the transactions of an election.
    #[test]
    fn the_token_is_above_those_of_thousands_of_elections_elsewhere() {
        for bits in [32, 40] {
            let seen = newest((7 << bits) + 90, None);
            let elsewhere = ((7 + 4096) << bits) + 50;
            assert!(
                EmergencyFacts { newest: Some(&seen), ..facts() }.grant().unwrap().token > elsewhere,
                "{bits}"
            );
        }
        // One node after another, with what the one before has given out.
        let mut kept = newest(70, None);
        for _ in 0..1000 {
            kept.token = EmergencyFacts { newest: Some(&kept), ..facts() }.grant().unwrap().token;
        }
    }

    #[test]
    fn the_node_that_is_ordered_later_has_the_higher_token() {
        let seen = newest(70, None);
        let at = |now_s| EmergencyFacts { newest: Some(&seen), now_s, ..facts() }.grant().unwrap().token;
        assert!(at(NOW + 1) > at(NOW));
    }

    #[test]
    fn no_token_that_can_not_be_followed() {
        let why = |facts: EmergencyFacts<'_>| facts.grant().unwrap_err().to_string();
        let none = newest(0, None);
        assert!(why(EmergencyFacts { newest: Some(&none), ..facts() }).contains("--token-above N"));
        assert!(why(facts()).contains("--token-above N"));
        assert!(why(EmergencyFacts { above: Some(MAX_TOKEN_BASE), ..facts() }).contains("the largest"));
        assert!(why(EmergencyFacts { above: Some(u64::MAX), ..facts() }).contains("the largest"));
    }

    #[test]
    fn a_quorum_that_answers_refuses() {
        assert!(may_start("orders", false).is_ok());
        let why = may_start("orders", true).unwrap_err().to_string();
        assert!(why.contains("failover --job orders --force"), "{why}");
    }

    #[test]
    fn the_sentence_names_the_last_leader_and_the_other_sites() {
        let (me, east): (MemberId, SiteId) = ("east-1".parse().unwrap(), "east".parse().unwrap());
        let sites: Vec<SiteId> = ["east", "west"].map(|site| site.parse().unwrap()).into();
        let of = |sites: &[SiteId], leader: Option<(&str, &str)>| {
            let newest = leader.map(|leader| newest(70, Some(leader)));
            sentence(&me, &east, sites, newest.as_ref())
        };
        assert_eq!(of(&sites, None), "I have fenced: site west");
        assert_eq!(of(&sites, Some(("east-1", "east"))), "I have fenced: site west");
        assert_eq!(of(&sites, Some(("east-2", "east"))), "I have fenced: member east-2, site west");
        assert_eq!(of(&sites, Some(("west-1", "west"))), "I have fenced: member west-1, site west");
        assert_eq!(of(&[], Some(("north-1", "north"))), "I have fenced: member north-1, site north");
        assert_eq!(of(&[], None), "I have fenced: every other member");
    }

    #[test]
    fn only_the_whole_sentence_confirms() {
        let sentence = "I have fenced: member west-1, site west";
        assert!(is_confirmed(sentence, " I have fenced:  member west-1, site west \n"));
        for typed in ["", "y", "yes", "I have fenced: site west", "i have fenced: member west-1, site west"] {
            assert!(!is_confirmed(sentence, typed), "{typed}");
        }
    }

    #[test]
    fn a_record_is_cleared_once_the_tokens_are_above_it() {
        let record = record("orders", 900);
        let may = |base, lowest| may_clear(&record, Ensemble { base, lowest }).is_ok();
        assert!(may(900, None) && may(901, Some(901)) && may(0, Some(901)));
        assert!(!may(0, None) && !may(899, None) && !may(899, Some(900)));
        let why = may_clear(&record, Ensemble { base: 3, lowest: None }).unwrap_err().to_string();
        assert!(why.contains("raise-token --job orders --above 900"), "{why}");
    }
}
