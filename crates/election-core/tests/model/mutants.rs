//! One rule switched off at a time: the checker must find each that is missing.

use election_core::engine::Rule;

pub(crate) const ALL: [Rule; 25] = [
    Rule::Lease,
    Rule::DeadlineFirst,
    Rule::Ballots,
    Rule::OwnerChecked,
    Rule::AdoptOwnPlace,
    Rule::Reread,
    Rule::Commit,
    Rule::SeenInOffice,
    Rule::SuccessorReads,
    Rule::CompareAndSet,
    Rule::ExclusionsInDecision,
    Rule::ExclusionsEnd,
    Rule::LastCandidate,
    Rule::DeleteOwnOnly,
    Rule::ElectorLease,
    Rule::LevelTriggered,
    Rule::DecidedOnce,
    Rule::SweepBallots,
    Rule::WorkEndsFirst,
    Rule::TimerPerPhase,
    Rule::TakeoverTimeout,
    Rule::ReadyOnOwnPlace,
    Rule::VacateExcludedOnly,
    Rule::StandDown,
    Rule::WitnessesOfTwoSites,
];
