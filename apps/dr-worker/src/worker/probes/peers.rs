//! Probes the other members: a GET of `/liveness` over the network that the jobs' clients use as well. Any answer
//! counts, even a refusal: the worker can be reached. That includes one with a certificate that has expired or that this
//! worker can't verify, which must not cost a leader its leadership; it is reported, and its time is not measured.
//!
//! Measures the time from the request to the head of the answer on an established connection: one round trip, and the
//! other worker's time to answer. The first answer of a member, and the first one after a missed one, may use a new
//! connection and take two round trips. They are not measured.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use election_admin::Observer;
use election_core::{Paths, config::MemberId, status::Ballot};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use zk_session::{BootTime, Session};

use super::{
    prober::Prober,
    published::{Published, Whom},
};
use crate::{
    client,
    worker::metrics,
    workers::{NoAnswer, Workers},
};

/// The least number of rounds of probes within `suspect_after`.
const ROUNDS: u32 = 4;

/// The longest answer that is read, in bytes.
const LONGEST: usize = 64 * 1024;

/// After how long an unreadable member record is read again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A living member, and the URL of its endpoints.
#[derive(Clone, Debug)]
struct PeerUrl {
    id: MemberId,
    http: String,
}

/// The living members by ballot.
type Peers = BTreeMap<Ballot, PeerUrl>;

/// Probes the other members of an election until it is dropped.
pub(super) async fn probe(prober: &Prober, published: &Published) {
    let (sender, peers) = watch::channel(Peers::new());
    tokio::select! {
        () = follow(&prober.session, &prober.paths, sender) => {}
        () = rounds(prober, published, &peers) => {}
    }
}

/// Keeps the addresses up to date. A ballot is one incarnation of a member, so its address does not change.
async fn follow(session: &Session, paths: &Paths, peers: watch::Sender<Peers>) {
    let mut ballots = session.watch_children(paths.election());
    let mut names = Vec::new();
    let mut known: BTreeMap<Ballot, Option<PeerUrl>> = BTreeMap::new();
    loop {
        let missing = names.iter().any(|ballot| !known.contains_key(ballot));
        tokio::select! {
            seen = ballots.next_allowed() => {
                let Ok(seen) = seen else { return };
                let listed = seen.value.map(|children| children.names).unwrap_or_default();
                names = listed.into_iter().filter_map(|name| Ballot::new(name).ok()).collect();
                known.retain(|ballot, _| names.contains(ballot));
            }
            () = sleep(LOOK_AGAIN), if missing => {}
        }
        for ballot in &names {
            let (false, Some(incarnation)) = (known.contains_key(ballot), session.incarnation()) else {
                continue;
            };
            if let Ok(Some(member)) = Observer::new(incarnation).member(paths, ballot).await {
                let id = member.member;
                known.insert(ballot.clone(), member.http.map(|http| PeerUrl { id, http }));
            }
        }
        let reachable = known.iter().filter_map(|(ballot, peer)| Some((ballot.clone(), peer.clone()?)));
        peers.send_replace(reachable.collect());
    }
}

/// The interval of the rounds, and the timeout of a probe.
fn pace(prober: &Prober) -> (Duration, Duration) {
    let probes = &prober.probes;
    match prober.suspect_after {
        Some(after) if prober.needs.peers => (probes.interval.min(after / ROUNDS), after / 2),
        Some(after) => (after / ROUNDS, after / 2),
        None => (probes.interval, probes.timeout),
    }
}

async fn rounds(prober: &Prober, published: &Published, peers: &watch::Receiver<Peers>) {
    // Connections are kept: an answer on one shows that the network and the worker are alive, and costs one round trip.
    let mut certificates = prober.certificates.clone();
    let mut client = Workers::new(&certificates.borrow_and_update().client);
    let mut refused: BTreeSet<MemberId> = BTreeSet::new();
    let (interval, patience) = pace(prober);
    metrics::begin_detection();
    let mut connected: BTreeSet<Ballot> = BTreeSet::new();
    loop {
        let (next, sent) = (Instant::now() + interval, BootTime::now());
        if certificates.has_changed().unwrap_or(false) {
            client = Workers::new(&certificates.borrow_and_update().client);
            connected.clear();
        }
        let me = prober.election.status().now().ballot;
        let mut others = peers.borrow().clone();
        others.retain(|ballot, _| me.as_ref() != Some(ballot));
        let mut probes = JoinSet::new();
        for (ballot, peer) in &others {
            let probe = ask(client.clone(), format!("{}/liveness", peer.http));
            let ballot = ballot.clone();
            probes.spawn(async move { (ballot, timeout(patience, probe).await.ok().flatten()) });
        }
        let mut answers: BTreeMap<Ballot, Result<Duration, String>> = BTreeMap::new();
        while let Some(probed) = probes.join_next().await {
            if let Ok((ballot, Some(answer))) = probed {
                answers.insert(ballot, answer);
            }
        }
        prober.answers.record(sent, others.keys().map(|ballot| (ballot, answers.contains_key(ballot))));
        if prober.suspect_after.is_some() {
            prober.election.probed(others.keys().filter(|b| !answers.contains_key(b)).cloned().collect());
        }
        // An earlier process of this member is not another member.
        let measured = others.iter().filter(|(_, peer)| peer.id != prober.me);
        for (ballot, peer) in measured {
            let whom = Whom::Peer(peer.id.clone());
            match answers.get(ballot) {
                Some(Ok(after)) => {
                    refused.remove(&peer.id);
                    published.answered(whom, connected.contains(ballot).then_some(*after));
                }
                Some(Err(why)) => {
                    // Once: the reason may contain the time.
                    if refused.insert(peer.id.clone()) {
                        let (peer, url) = (&peer.id, &peer.http);
                        tracing::warn!(
                            %peer, url, why,
                            "this member answers, but not as TLS requires it: it counts as reachable, and is not \
                             measured; check its certificate, and http.tls.ca_file of this worker"
                        );
                    }
                    published.answered(whom, None);
                }
                None => published.missed(&whom, patience),
            }
        }
        published.retain_peers(&others.values().map(|peer| &peer.id).collect());
        if prober.needs.peers {
            published.publish();
        }
        connected = answers.into_keys().collect();
        sleep_until(next).await;
    }
}

/// After which time there was an answer, if there is one; an error if this worker does not trust it.
async fn ask(client: Workers, url: String) -> Option<Result<Duration, String>> {
    let begun = Instant::now();
    let answer = match client.get(&url).await {
        Ok(answer) => answer,
        Err(NoAnswer::Refused(why)) => return Some(Err(why)),
        Err(NoAnswer::Unreachable) => return None,
    };
    let after = begun.elapsed();
    // The connection is reused only after the answer has been read.
    client::body(answer, LONGEST).await?;
    Some(Ok(after))
}
