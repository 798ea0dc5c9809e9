//! Who answers 200 at `/leader`, and when the machine itself did nothing.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use boot_time::BootTime;
use e2e::JOB;
use robustness::history::{Answer, Call, Event, Leadership, Recorder};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::http;

/// Between two questions to a member.
const ASKS_EACH: Duration = Duration::from_millis(150);
/// How long a member may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// How long the canary sleeps.
const SLEEPS: Duration = Duration::from_millis(20);
/// A longer delay is a stall.
const STALL: Duration = Duration::from_millis(300);

/// The time of the history.
pub(crate) fn now() -> u64 {
    u64::try_from(BootTime::now().as_duration().as_nanos()).unwrap_or(u64::MAX)
}

/// The member that answered 200 last, and its leadership.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Arc<Mutex<Option<(u64, Leadership)>>>);

impl Seen {
    /// The leader, as far as it was seen within this time.
    pub(crate) fn leader(&self, within: Duration) -> Option<Leadership> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let since = now().saturating_sub(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX));
        seen.filter(|(at, _)| *at >= since).map(|(_, leadership)| leadership)
    }

    fn has_answered(&self, leadership: Leadership) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now(), leadership));
    }
}

/// Asks each member until the tasks are dropped.
pub(crate) fn ask(members: Vec<(String, SocketAddr)>, recorder: &Arc<Recorder>, seen: &Seen) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (member, address) in members {
        let (recorder, seen) = (Arc::clone(recorder), seen.clone());
        tasks.spawn(async move {
            loop {
                if let Some(leadership) = asked(&member, address, &recorder).await {
                    seen.has_answered(leadership);
                }
                tokio::time::sleep(ASKS_EACH).await;
            }
        });
    }
    tasks
}

/// Only answers 200 are recorded: others say nothing.
async fn asked(member: &str, address: SocketAddr, recorder: &Recorder) -> Option<Leadership> {
    let from = now();
    let path = format!("/leader?job={JOB}");
    let (code, body) = http::ask(address, &http::get(address, &path), ANSWERS_WITHIN).await.ok()?;
    let to = now();
    let status: Value = serde_json::from_str(&body).ok()?;
    if code != 200 {
        return None;
    }
    let leadership = Leadership {
        job: JOB.to_owned(),
        slot: status["slot"].as_u64()?,
        member: status["member"].as_str()?.to_owned(),
        term: status["term"].as_u64()?,
        token: status["fencing_token"].as_u64()?,
    };
    let op = recorder.next_op();
    let call = Call::Leader { member: member.to_owned(), job: JOB.to_owned() };
    let answer = Answer::Status { code, leadership: Some(leadership.clone()) };
    recorder.record(from, Event::Invoke { op, call }).ok()?;
    recorder.record(to, Event::Ok { op, answer }).ok()?;
    Some(leadership)
}

/// Measures when nothing on this machine got to run, until this process ends.
pub(crate) fn canary(recorder: &Arc<Recorder>) {
    let recorder = Arc::clone(recorder);
    thread::spawn(move || {
        loop {
            let before = BootTime::now();
            thread::sleep(SLEEPS);
            let late = BootTime::now().duration_since(before).saturating_sub(SLEEPS);
            if late > STALL {
                let ms = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
                let _ = recorder.record(now(), Event::Stall { ms });
            }
        }
    });
}
