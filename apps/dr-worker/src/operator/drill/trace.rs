//! Makes events of what has changed between two reads.

use std::{collections::BTreeMap, time::Duration};

use election_core::{config::MemberId, internals::record::RequestKind};

use super::seen::{Decided, Leader, Seen};
use crate::{commands::drill::report::DrillEvent, wall::ms, znodes::DrillState};

/// How much of what was read has become events.
#[derive(Debug, Default)]
pub(super) struct Trace {
    leader: Option<Option<Leader>>,
    decision: Option<u64>,
    request: Option<String>,
    steps: BTreeMap<MemberId, usize>,
}

/// An event.
pub(super) fn event(at: Duration, who: &str, what: String) -> DrillEvent {
    DrillEvent { at_ms: ms(at), who: who.to_owned(), what }
}

impl Trace {
    /// The news of what was read `at` this time after `started_ms`.
    pub(super) fn news(&mut self, seen: &Seen, at: Duration, started_ms: u64) -> Vec<DrillEvent> {
        let mut events = Vec::new();
        for answer in &seen.answers {
            let shown = self.steps.entry(answer.member.clone()).or_default();
            let from = std::mem::replace(shown, answer.steps.len()).min(answer.steps.len());
            for step in &answer.steps[from..] {
                let what = match step.state {
                    DrillState::Accepted => "agrees",
                    DrillState::Refused => "refuses",
                    DrillState::Started => "begins",
                    DrillState::Ready => "its job is ready",
                    DrillState::Ended => "has ended it",
                    DrillState::Failed => "fails",
                    DrillState::Unknown => "takes a step that this program does not know",
                };
                let why = step.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                let at = Duration::from_millis(answer.unix_ms(step.after_ms).saturating_sub(started_ms));
                events.push(event(at, answer.member.as_str(), format!("{what}{why}")));
            }
        }
        if let Some(decided) = &seen.decision {
            let is_news = self.decision.is_some_and(|term| term != decided.term);
            self.decision = Some(decided.term);
            if is_news {
                let Decided { term, sentence, by, .. } = decided;
                events.push(event(at, by, format!("decides term {term}: {sentence}")));
            }
        }
        let request = seen.request.as_ref().map(|state| RequestKind::Switchover.progress(state));
        if request != self.request {
            let news = request.iter().map(|progress| format!("the switchover is {progress}"));
            events.extend(news.map(|news| event(at, "election", news)));
            self.request = request;
        }
        if let Some(before) = self.leader.replace(seen.leader.clone()).filter(|b| *b != seen.leader) {
            match (before, &seen.leader) {
                (Some(before), None) => {
                    let what = "does not lead any more".to_owned();
                    events.push(event(at, before.who.member.as_str(), what));
                }
                (_, Some(leader)) => {
                    let what = if leader.is_ready { "is READY" } else { "takes over" };
                    let what = format!("{what} in term {}", leader.term);
                    events.push(event(at, leader.who.member.as_str(), what));
                }
                (None, None) => {}
            }
        }
        events
    }
}
