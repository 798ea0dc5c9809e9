//! The other members: each is asked for `/liveness`, over the network that the jobs' clients
//! use as well. Any answer counts: a worker that says no is not out of reach.
//!
//! What is measured is the time from the request to the head of the answer, on a connection
//! that stands: one round trip, and what the other worker takes to answer. The first answer
//! from a member, and the first one after it has not answered, may have come on a new
//! connection, after two round trips, and is not measured.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use election_core::{Ballot, MemberId, Paths, operator::Observer};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use zk_session::Session;

use super::{
    prober::Prober,
    published::{Published, Whom},
};

/// How many rounds of probes there are within `suspect_after`, at least.
const ROUNDS: u32 = 4;

/// After how long a member whose record could not be read is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Where a living member answers.
#[derive(Clone, Debug)]
struct Peer {
    id: MemberId,
    http: String,
}

/// The living members, by their ballots.
type Peers = BTreeMap<Ballot, Peer>;

/// Probes the other members of an election, for ever.
pub(super) async fn probe(prober: &Prober, published: &Published) {
    let (sender, peers) = watch::channel(Peers::new());
    tokio::select! {
        () = follow(&prober.session, &prober.paths, sender) => {}
        () = rounds(prober, published, &peers) => {}
    }
}

/// Keeps the addresses as the membership is. A ballot is one incarnation of a member, so what
/// was read for it stays true.
async fn follow(session: &Session, paths: &Paths, peers: watch::Sender<Peers>) {
    let mut ballots = session.watch_children(paths.election());
    let mut names = Vec::new();
    let mut known: BTreeMap<Ballot, Option<Peer>> = BTreeMap::new();
    loop {
        let missing = names.iter().any(|ballot| !known.contains_key(ballot));
        tokio::select! {
            seen = ballots.next() => {
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
                known.insert(ballot.clone(), member.http.map(|http| Peer { id, http }));
            }
        }
        let reachable = known.iter().filter_map(|(ballot, peer)| Some((ballot.clone(), peer.clone()?)));
        peers.send_replace(reachable.collect());
    }
}

/// How often all are asked, and for how long each may take to answer.
fn pace(prober: &Prober) -> (Duration, Duration) {
    let probes = &prober.probes;
    match prober.suspect_after {
        Some(after) if prober.needs.peers => (probes.interval.min(after / ROUNDS), after / 2),
        Some(after) => (after / ROUNDS, after / 2),
        None => (probes.interval, probes.timeout),
    }
}

async fn rounds(prober: &Prober, published: &Published, peers: &watch::Receiver<Peers>) {
    // No proxy, no redirect: it is this worker that has to answer. Connections are kept: what
    // goes through one shows that the network and the worker live, and costs one round trip.
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let client = match client.pool_idle_timeout(None).build() {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%error, "no HTTP client: this worker can't tell whom it does not reach");
            return std::future::pending().await;
        }
    };
    let (interval, patience) = pace(prober);
    let mut connected: BTreeSet<Ballot> = BTreeSet::new();
    loop {
        let next = Instant::now() + interval;
        let me = prober.election.status_now().ballot;
        let mut others = peers.borrow().clone();
        others.retain(|ballot, _| me.as_ref() != Some(ballot));
        let mut probes = JoinSet::new();
        for (ballot, peer) in &others {
            let probe = ask(client.clone(), format!("http://{}/liveness", peer.http));
            let ballot = ballot.clone();
            probes.spawn(async move { (ballot, timeout(patience, probe).await.ok().flatten()) });
        }
        let mut answers: BTreeMap<Ballot, Duration> = BTreeMap::new();
        while let Some(probed) = probes.join_next().await {
            if let Ok((ballot, Some(after))) = probed {
                answers.insert(ballot, after);
            }
        }
        if prober.suspect_after.is_some() {
            prober.election.probed(others.keys().filter(|b| !answers.contains_key(b)).cloned().collect());
        }
        // A former process of this very member is no other.
        let measured = others.iter().filter(|(_, peer)| peer.id != prober.me);
        for (ballot, peer) in measured {
            let whom = Whom::Peer(peer.id.clone());
            match answers.get(ballot) {
                Some(after) => {
                    published.answered(whom, connected.contains(ballot).then_some(*after));
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

/// How long the answer took.
async fn ask(client: reqwest::Client, url: String) -> Option<Duration> {
    let begun = Instant::now();
    let answer = client.get(url).send().await.ok()?;
    let after = begun.elapsed();
    // Only an answer that has been read leaves the connection to the next request.
    answer.bytes().await.ok()?;
    Some(after)
}
