//! Finds the sites whose last ready standby is gone, by what the members publish of their standbys and by the roster of those that
//! are absent.
//!
//! A standby that is restarted, a worker that is upgraded, and a leader that moves leave a site without a ready standby for a
//! moment. So a site counts only after it has been without one for a while, and was read again then.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use election_admin::{Observer, Snapshot};
use election_core::{
    Paths,
    config::{MemberId, SiteId},
    internals::calendar::utc,
};
use futures_util::FutureExt as _;
use serde_json::json;
use tokio::{sync::mpsc, time::sleep};
use zk_session::{BootTime, Session};

use super::event::Event;
use crate::{
    config::NotifyEvent,
    wall::{ms, unix_ms},
    znodes::{STANDBY_ATTRIBUTE, StandbyReport},
};

/// The least time between two looks: each reads the whole election.
const PAUSE: Duration = Duration::from_secs(2);

/// Sends the events of sites until the session is closed or this is dropped: of those that are without a ready standby for
/// `patience`, and of those that have one again.
pub(super) async fn follow(
    session: Session,
    paths: Paths,
    (since_ms, patience): (u64, Duration),
    events: mpsc::Sender<Event>,
) {
    // What the sender before this one did not send for want of patience is news.
    let mut sites = Sites::new(since_ms.saturating_sub(ms(patience)), patience);
    let mut changes = session.watch_tree(paths.nodes());
    loop {
        let snapshot = match session.incarnation() {
            Some(incarnation) => Observer::new(incarnation).snapshot(&paths).await.ok(),
            None => None,
        };
        let seen = snapshot.map(|snapshot| SiteStandbys::all(&snapshot));
        let found = match &seen {
            Some(seen) => sites.look(seen, BootTime::now(), unix_ms()),
            None => Found { look_again: Some(PAUSE), ..Found::default() },
        };
        for event in found.events {
            // The receiver may have ended.
            let _ = events.send(event).await;
        }
        tokio::select! {
            changed = changes.next_allowed() => if changed.is_err() { return },
            () = sleep(found.look_again.unwrap_or_default()), if found.look_again.is_some() => {}
        }
        sleep(PAUSE).await;
        // The look that follows shows these as well.
        while let Some(Ok(_)) = changes.next_allowed().now_or_never() {}
    }
}

/// The standbys of a site as read. A member that leads has none.
#[derive(Clone, Debug, Default, PartialEq)]
struct SiteStandbys {
    ready: BTreeSet<MemberId>,
    /// Those that are not ready any more, and the members that are absent, with the time if that is known.
    gone: BTreeMap<MemberId, Option<u64>>,
    leading: BTreeSet<MemberId>,
    /// Until when the absent ones led that are or were named last, in milliseconds since the Unix epoch.
    led_until: BTreeMap<MemberId, u64>,
}

impl SiteStandbys {
    fn all(snapshot: &Snapshot) -> BTreeMap<SiteId, Self> {
        let mut sites = BTreeMap::<SiteId, Self>::new();
        let leaders: BTreeSet<_> =
            snapshot.leader_znodes.iter().flatten().map(|znode| &znode.record.member).collect();
        for member in &snapshot.members {
            let (site, id) = (sites.entry(member.site.clone()).or_default(), member.member.clone());
            if leaders.contains(&id) {
                site.leading.insert(id);
                continue;
            }
            match member.attributes.get(STANDBY_ATTRIBUTE).and_then(|text| StandbyReport::read(text)) {
                Some(StandbyReport::Ready) => site.ready.extend([id]),
                Some(StandbyReport::Gone { since_ms }) => site.gone.extend([(id, Some(since_ms))]),
                Some(StandbyReport::Starting) | None => {}
            }
        }
        let slots = snapshot.elected.iter().flat_map(|decision| &decision.record.slots);
        let led = slots.flat_map(|slot| {
            let before = slot.given.previous.as_ref().map(|led| (&led.member, slot.given.decided_at_ms));
            let now = slot.named.as_ref().map(|named| (&named.member, u64::MAX));
            before.into_iter().chain(now)
        });
        let led: Vec<_> = led.collect();
        for absent in &snapshot.absent {
            let site = sites.entry(absent.site.clone()).or_default();
            site.gone.insert(absent.member.clone(), absent.since_ms);
            let until =
                led.iter().filter(|(member, _)| **member == absent.member).map(|(_, until)| *until).max();
            site.led_until.extend(until.map(|until| (absent.member.clone(), until)));
        }
        sites
    }

    /// The one of these that was ready last.
    fn last_of(&self, members: &BTreeSet<MemberId>) -> Option<Loss> {
        let gone = self.gone.iter().filter(|(member, _)| members.contains(*member));
        let known = gone.filter_map(|(member, since_ms)| Some((*since_ms.as_ref()?, member)));
        known.max().map(|(since_ms, member)| Loss { member: member.clone(), since_ms })
    }
}

/// The end of the last ready standby of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Loss {
    member: MemberId,
    since_ms: u64,
}

/// What is known of the sites.
#[derive(Debug)]
struct Sites {
    /// What has ended earlier was sent by another member.
    since_ms: u64,
    patience: Duration,
    sites: Option<BTreeMap<SiteId, Site>>,
}

#[derive(Debug, Default)]
struct Site {
    /// Those that were ready when one was ready last.
    last: BTreeSet<MemberId>,
    /// Since when this member knows that none is ready, by its own two clocks.
    without_since: Option<(BootTime, u64)>,
    /// The loss, if a record shows it.
    loss: Option<Loss>,
    is_reported: bool,
}

/// What a look has found.
#[derive(Debug, Default)]
struct Found {
    events: Vec<Event>,
    /// When to look again, also without a change.
    look_again: Option<Duration>,
}

impl Sites {
    fn new(since_ms: u64, patience: Duration) -> Self {
        Self { since_ms, patience, sites: None }
    }

    fn look(&mut self, seen: &BTreeMap<SiteId, SiteStandbys>, now: BootTime, now_ms: u64) -> Found {
        let is_first = self.sites.is_none();
        let sites = self.sites.get_or_insert_default();
        for site in seen.keys() {
            sites.entry(site.clone()).or_default();
        }
        let ready: usize = seen.values().map(|site| site.ready.len()).sum();
        let (mut found, none) = (Found::default(), SiteStandbys::default());
        for (id, site) in sites {
            let seen = seen.get(id).unwrap_or(&none);
            if is_first && seen.ready.is_empty() {
                site.begin(seen, self.since_ms, (now_ms, ms(self.patience)));
            }
            if let Some(member) = seen.ready.first() {
                if let Some(loss) = site.loss.take().filter(|_| site.is_reported) {
                    found.events.push(returned(id, &loss, member));
                }
                *site = Site { last: seen.ready.clone(), ..Site::default() };
                continue;
            }
            let Some(member) = site.last.difference(&seen.leading).next().filter(|_| !site.is_reported)
            else {
                // It is known, or the last one has been promoted, or there was none.
                site.without_since = None;
                continue;
            };
            let (since, since_ms) = *site.without_since.get_or_insert((now, now_ms));
            // A worker that was started again publishes nothing of a standby that is not ready yet.
            let unknown = || Loss { member: member.clone(), since_ms };
            let loss = seen.last_of(&site.last).or(site.loss.take()).unwrap_or_else(unknown);
            let left = (since + self.patience).duration_since(now);
            if left.is_zero() {
                found.events.push(lost(id, &loss, ready));
                site.is_reported = true;
            } else {
                found.look_again = Some(found.look_again.map_or(left, |other| other.min(left)));
            }
            site.loss = Some(loss);
        }
        found
    }
}

impl Site {
    /// The site has no ready standby when this member begins to send. It is not known whether the standby of an absent member was
    /// ready; one that led until then had none. Its absence is noted in the roster a moment later.
    fn begin(&mut self, seen: &SiteStandbys, since_ms: u64, (now_ms, patience_ms): (u64, u64)) {
        let gone = seen.gone.iter().map(|(member, since_ms)| (since_ms.unwrap_or(now_ms), member));
        let led = |(since_ms, member): &(u64, &MemberId)| {
            seen.led_until.get(*member).is_some_and(|until| until.saturating_add(patience_ms) >= *since_ms)
        };
        let Some((gone_ms, member)) = gone.filter(|gone| !led(gone)).max() else { return };
        let loss = Loss { member: member.clone(), since_ms: gone_ms };
        self.is_reported = loss.since_ms < since_ms;
        self.last.insert(loss.member.clone());
        self.loss = Some(loss);
    }
}

fn lost(site: &SiteId, Loss { member, since_ms }: &Loss, ready: usize) -> Event {
    let others = match ready {
        0 => "no other site has one".to_owned(),
        1 => "1 is ready in another site".to_owned(),
        more => format!("{more} are ready in other sites"),
    };
    Event {
        kind: NotifyEvent::StandbysLost,
        key: format!("{site}/{member}/{since_ms}"),
        text: format!(
            "the last ready standby of site {site} is gone: that of {member} at {}; {others}",
            utc(*since_ms)
        ),
        facts: json!({ "site": site, "member": member, "since_ms": since_ms, "ready_elsewhere": ready }),
    }
}

fn returned(site: &SiteId, loss: &Loss, member: &MemberId) -> Event {
    Event {
        kind: NotifyEvent::StandbysReturned,
        key: format!("{site}/{}/{}", loss.member, loss.since_ms),
        text: format!("site {site} has a ready standby again: that of {member}"),
        facts: json!({ "site": site, "member": member, "since_ms": loss.since_ms }),
    }
}

#[cfg(test)]
#[path = "standbys_tests.rs"]
mod tests;
