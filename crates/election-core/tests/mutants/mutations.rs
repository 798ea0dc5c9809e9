//! The rules on which the election depends, and what the engine is without each of them.
//!
//! A test that can't fail tests nothing. `build.rs` puts every mutation into one copy of the engine, each behind a
//! switch, and a test drops one rule at a time: what finds no failure without a rule does not test it.

use std::{collections::BTreeMap, fs, path::Path};

/// A rule of the engine.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    /// What drops it.
    pub(crate) edits: &'static [Edit],
}

/// A file below `src`, a text that it has exactly once, and what that becomes. White space of any length is equal. In
/// the new text `$0` is the old one, and `DROPPED` is true while the rule is dropped.
pub(crate) type Edit = (&'static str, &'static str, &'static str);

const fn rule(name: &'static str, edits: &'static [Edit]) -> Rule {
    Rule { name, edits }
}

pub(crate) const RULES: [Rule; 37] = [
    // A leader stops as its lease nears its end.
    rule(
        "Lease",
        &[(
            "engine/core/session.rs",
            "let session = self.session.as_ref()?; match self.config.policy.on_pause {",
            "if DROPPED { return Some(Time::ZERO + FAR); } $0",
        )],
    ),
    // On every event, the deadline is checked first.
    rule(
        "DeadlineFirst",
        &[(
            "engine/mod.rs",
            "if self.leader.held().is_some() { self.leader.advance(core);",
            "if !DROPPED && self.leader.held().is_some() { self.leader.advance(core);",
        )],
    ),
    // A member is named by ballot, not by its id alone.
    rule(
        "Ballots",
        &[
            (
                "engine/appointment.rs",
                "elected.slot_of(ballot)",
                "elected.leaders().find(|(_, named)| named.ballot == *ballot || DROPPED && named.member == self.config.member.member).map(|(slot, _)| slot)",
            ),
            (
                "engine/appointment.rs",
                "|n| n.ballot == claim.ballot",
                "$0 || DROPPED && n.member == self.config.member.member",
            ),
            (
                "engine/leader/acquire.rs",
                "|n| n.ballot == acquiring.claim.ballot",
                "$0 || DROPPED && n.member == core.config.member.member",
            ),
            (
                "engine/leader/held.rs",
                "|n| n.ballot == claim.ballot",
                "$0 || DROPPED && n.member == core.config.member.member",
            ),
            (
                "engine/elector/leads_on.rs",
                "|m| m.ballot == named.ballot)",
                "|m| m.ballot == named.ballot || DROPPED && m.member == named.member)",
            ),
            (
                "engine/elector/phases.rs",
                "if current.ballot != named.ballot ||",
                "if current.ballot != named.ballot && !(DROPPED && current.member == named.member) ||",
            ),
        ],
    ),
    // A leader znode is the member's own only if its session owns it.
    rule(
        "OwnerChecked",
        &[
            (
                "engine/leader/acquire.rs",
                "Some(node) if self.is_own(core, node)",
                "$0 || DROPPED && Current::decode(\"\", &node.data).is_ok_and(|c| c.member == core.config.member.member)",
            ),
            (
                "engine/candidacy/contest/steps.rs",
                "core.is_own_leader_znode(&known)",
                "$0 || DROPPED && self.is_of_this_member(core, node)",
            ),
        ],
    ),
    // After a lost reply, a leader znode that this session owns is adopted.
    rule(
        "AdoptOwnZnode",
        &[
            ("engine/leader/acquire.rs", "known if core.is_own_leader_znode(known)", "$0 && !DROPPED"),
            ("engine/leader/acquire.rs", "Some(node) if", "Some(node) if !DROPPED &&"),
        ],
    ),
    // The leader znode is created only while the decision that names its creator is in force.
    rule(
        "NamedAtCreation",
        &[(
            "engine/leader/acquire.rs",
            "let Some(mut next) = written.clone().filter(|_| claim.is_uncommitted()) else {",
            "$0 if DROPPED { return Some(create.into()); }",
        )],
    ),
    // A successor writes the decision with the leader znode, in one transaction.
    rule(
        "Commit",
        &[
            (
                "engine/leader/acquire.rs",
                "match ZnodeWrite::decision(&paths, &mut next, *over, generation) {",
                "if DROPPED && !is_first { return Some(create.into()); } $0",
            ),
            (
                "engine/leader/acquire.rs",
                "if is_uncommitted {",
                "if is_uncommitted && (is_first || !DROPPED) {",
            ),
        ],
    ),
    // An elector that names itself in the first decision writes that with the leader znode, in one transaction.
    rule(
        "CommitFirst",
        &[
            (
                "engine/leader/acquire.rs",
                "match ZnodeWrite::decision(&paths, &mut next, *over, generation) {",
                "if DROPPED && is_first { return Some(create.into()); } $0",
            ),
            ("engine/leader/acquire.rs", "if is_uncommitted &&", "$0 (!is_first || !DROPPED) &&"),
        ],
    ),
    // A successor has itself seen the named member lead.
    rule(
        "SeenLeading",
        &[("engine/reading/mod.rs", "elected.named(slot).is_some_and(has_vanished)", "$0 || DROPPED")],
    ),
    // A decision replaces the one that it was made from, and no other.
    rule(
        "CompareAndSet",
        &[
            (
                "engine/elector/mod.rs",
                "Act::Write(mut elected, over) | Act::Depose(_, mut elected, over) => {",
                "$0 let over = over.map(|version| if DROPPED { -1 } else { version });",
            ),
            (
                "engine/elector/mod.rs",
                "Act::Begin(mut elected, over, begun) => {",
                "$0 let over = over.map(|version| if DROPPED { -1 } else { version });",
            ),
            (
                "engine/leader/acquire.rs",
                "let version = meta.version;",
                "let version = if DROPPED { -1 } else { meta.version };",
            ),
        ],
    ),
    // The decision contains the exclusions, so that the next elector knows them.
    rule(
        "ExclusionsInDecision",
        &[
            ("engine/elector/decision.rs", "exclude.into_iter()", "$0.filter(|_| !DROPPED)"),
            ("engine/elector/penalties.rs", "member.gave_up.as_ref()", "$0.filter(|_| !DROPPED)"),
        ],
    ),
    // Exclusions end.
    rule(
        "ExclusionsEnd",
        &[(
            "engine/elector/decision.rs",
            "self.now.unix_ms.saturating_add(limits::millis(span))",
            "if DROPPED { crate::record::limits::MAX_MS } else { $0 }",
        )],
    ),
    // Exclusions are dropped rather than exclude the last candidate.
    rule("LastCandidate", &[("engine/elector/decision.rs", "if !ranking.order.is_empty()", "$0 || DROPPED")]),
    // A znode to be deleted on the way out is read first if it may be another member's.
    rule(
        "DeleteOwnOnly",
        &[
            (
                "engine/leader/release.rs",
                "match self.decision_that_took_nothing(core, term) {",
                "$0 _ if DROPPED => ReleaseStep::Delete { version, unchanged: None },",
            ),
            (
                "engine/leader/release.rs",
                "if !sent && matches!(release.step, ReleaseStep::Delete { .. })",
                "$0 && !DROPPED",
            ),
            (
                "engine/leader/release.rs",
                "(ReleaseStep::Delete { .. }, _) =>",
                "(ReleaseStep::Delete { version, .. }, _) if DROPPED => {
                     release.step = ReleaseStep::Delete { version, unchanged: None };
                 }
                 $0",
            ),
        ],
    ),
    // The elector decides only on a valid lease.
    rule("ElectorLease", &[("engine/elector/mod.rs", "core.lease_is_valid()", "($0 || DROPPED)")]),
    // The elector makes a pass after every event, not only when the membership changes.
    rule(
        "LevelTriggered",
        &[
            ("engine/mod.rs", "if is_late {", "let membership = matches!(event, Event::SeenTree { .. }); $0"),
            ("engine/mod.rs", "self.advance();", "self.advance(membership || !DROPPED);"),
            ("engine/mod.rs", "fn advance(&mut self) {", "fn advance(&mut self, decides: bool) {"),
            ("engine/mod.rs", "self.candidacy.decide(core);", "if decides { $0 }"),
        ],
    ),
    // A request that was decided, in this term or before, is not decided again.
    rule(
        "DecidedOnce",
        &[(
            "engine/elector/requests.rs",
            "RequestState::Pending => Some(which.czxid)",
            "_ if DROPPED => !request.state.is_final(), $0",
        )],
    ),
    // A ballot whose creation had no answer is searched for and removed.
    rule(
        "SweepBallots",
        &[(
            "engine/candidacy/line.rs",
            "names.iter().map(String::as_str).filter(move |name|",
            "$0 !DROPPED &&",
        )],
    ),
    // The leader znode is released only after the work has ended.
    rule(
        "WorkEndsFirst",
        &[(
            "engine/leader/release.rs",
            "self.turn(core, LeadershipState::Stopping(stopping));",
            "if DROPPED {
                 let request = ZnodeWrite::delete(core.leader_znode_path(self.slot), None);
                 core.perform(request, Pending::GivenUp);
             }
             $0",
        )],
    ),
    // The new leader's time runs while the leader znode is free or its own.
    rule(
        "TimerPerPhase",
        &[
            (
                "engine/elector/phase_timers.rs",
                "let known = self.slot(slot).phase.take()",
                "let is_takeover = matches!(phase, Phase::Acquire | Phase::Release);
                 let phase = if DROPPED && is_takeover { Phase::Takeover } else { phase };
                 $0",
            ),
            (
                "engine/elector/phases.rs",
                "self.phase(at, Phase::Release, Some(limit));",
                "$0
                 if DROPPED && waited >= limit {
                     let what = format!(\"{} did not take over within {limit:?}\", named.member);
                     return self.exclude(at, Cause::TakeoverFailed, &what, what.clone());
                 }",
            ),
        ],
    ),
    // A member that does not take over in time is excluded.
    rule(
        "TakeoverTimeout",
        &[(
            "engine/elector/phases.rs",
            "if waited < limit { let wait",
            "if waited < limit || DROPPED { let wait",
        )],
    ),
    // READY is written only in the version of the own leader znode.
    rule(
        "ReadyOnOwnZnode",
        &[
            ("engine/leader/held.rs", "if other {", "if other && !DROPPED {"),
            (
                "engine/leader/held.rs",
                "let (claim, znode) = (held.claim.clone(), held.znode);",
                "$0 let znode = HeldZnode { version: if DROPPED { -1 } else { znode.version }, ..znode };",
            ),
        ],
    ),
    // A leader znode is removed by force only from the ballot that is excluded.
    rule("VacateExcludedOnly", &[("engine/elector/states.rs", "if excluded {", "if excluded || DROPPED {")]),
    // A leader that is removed by force has its stop budget first.
    rule(
        "ForceWaits",
        &[(
            "engine/elector/states.rs",
            "let waited = self.phase(",
            "let limit = if DROPPED { std::time::Duration::ZERO } else { limit }; $0",
        )],
    ),
    // A leader stops when another member, or another term, is named.
    rule("StandDown", &[("engine/leader/held.rs", "if moved &&", "$0 !DROPPED &&")]),
    // A leader is deposed only on the reports of more than one site.
    rule("WitnessesOfTwoSites", &[("engine/witnesses.rs", "|| seen_from.len() > 1", "$0 || DROPPED")]),
    // A decision keeps the base of the tokens.
    rule(
        "TokenBaseKept",
        &[("engine/elector/decision.rs", ".or(self.latest.map(|r| r.token))", "$0.filter(|_| !DROPPED)")],
    ),
    // The next decision is above what any member has seen decided.
    rule(
        "Remembered",
        &[(
            "engine/elector/restoring.rs",
            "members.chain(own).reduce(Remembered::or_newer)",
            "$0.filter(|_| !DROPPED)",
        )],
    ),
    // A member reports in its record what it remembers and ZooKeeper lacks.
    rule(
        "MemoryShared",
        &[("engine/core/members.rs", "self.reading.remembers()", "$0.filter(|_| !DROPPED)")],
    ),
    // A member is named for one slot at most.
    rule(
        "OneSlot",
        &[("engine/elector/decision.rs", "self.slot_taken_by(ballot, slot).is_some()", "!DROPPED && $0")],
    ),
    // A decision leaves all slots but its own as they are.
    rule(
        "SlotsCarried",
        &[(
            "engine/elector/decision.rs",
            "let unknown = \"nothing is known of it\"",
            "if DROPPED { next.slots.iter_mut().for_each(|slot| slot.given.term = next.term); } $0",
        )],
    ),
    // A leader uses the term in which its slot was decided.
    rule(
        "TermOfSlot",
        &[("engine/leader/held.rs", "elected.term_of(slot)", "(if DROPPED { elected.term } else { $0 })")],
    ),
    // In the queue: after the znode before has gone, the queue is read again before this member leads, unless that znode
    // was the only one before its own.
    rule(
        "RanksAgain",
        &[("engine/candidacy/contest/steps.rs", "if was_alone {", "if was_alone || DROPPED {")],
    ),
    // A result of a watch on the decision that is older than what is known changes nothing.
    rule(
        "OlderReadings",
        &[("engine/core/seeing.rs", "if !self.reading.view.elected.is_newer_than(node)", "$0 || DROPPED")],
    ),
    // A successor that knows itself to be unfit leaves it to the elector who follows a lost leader.
    rule(
        "FitSuccessor",
        &[(
            "engine/appointment.rs",
            "let unfit = self.own.ill_health();",
            "$0 let unfit = unfit.filter(|_| !DROPPED);",
        )],
    ),
    // A leader that stops as planned keeps its lease.
    rule(
        "LeaseWhileStopping",
        &[(
            "engine/leader/state.rs",
            "!matches!(self, Self::Idle | Self::Cleaning | Self::Releasing(_))",
            "$0 && !(DROPPED && matches!(self, Self::Stopping(_)))",
        )],
    ),
    // A leader znode that a watch reports lost is read again before its leader stops.
    rule(
        "DoubtedFirst",
        &[(
            "engine/leader/held.rs",
            "n.czxid != held.znode.czxid) { held.doubted = true;",
            "$0 if DROPPED { self.stop(core, StopReason::LeaderZnodeLost); }",
        )],
    ),
];

/// The files of `src` that have a mutation, with all of them; and what is wrong with the table.
pub(crate) fn mutated(src: &Path) -> (BTreeMap<&'static str, String>, Vec<String>) {
    let (mut files, mut wrong) = (BTreeMap::new(), Vec::new());
    let edits =
        RULES.iter().enumerate().flat_map(|(at, rule)| rule.edits.iter().map(move |edit| (at, rule, edit)));
    for (at, rule, (file, text, becomes)) in edits {
        let source =
            files.entry(*file).or_insert_with(|| fs::read_to_string(src.join(file)).unwrap_or_default());
        let becomes = becomes.replace("DROPPED", &format!("crate::is_dropped({at})"));
        if let Err(times) = replace(source, text, &becomes) {
            wrong.push(format!(
                "the mutation of the rule {}: src/{file} must have this text once, and has it {times} times: `{text}`; \
                 correct it in crates/election-core/tests/mutants/mutations.rs",
                rule.name,
            ));
        }
    }
    (files, wrong)
}

/// Makes one edit. The error is how often the text is there.
pub(crate) fn replace(source: &mut String, text: &str, becomes: &str) -> Result<(), usize> {
    let places = places(source, text);
    let &[(from, to)] = &places[..] else { return Err(places.len()) };
    let new = becomes.replace("$0", &source[from..to]);
    source.replace_range(from..to, &new);
    Ok(())
}

/// Where `text` begins and ends.
fn places(source: &str, text: &str) -> Vec<(usize, usize)> {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let starts = source.match_indices(first).map(|(from, _)| from);
    let whole = starts.filter_map(|from| {
        let end = words
            .clone()
            .try_fold(&source[from + first.len()..], |rest, word| rest.trim_start().strip_prefix(word))?;
        Some((from, source.len() - end.len()))
    });
    whole.collect()
}
