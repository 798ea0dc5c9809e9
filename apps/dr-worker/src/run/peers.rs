//! Who of the other members answers: what fast failover rests on.
//!
//! Each member asks every other one for `/liveness`, a few times within `suspect_after`,
//! over the network that the jobs' clients use as well, and tells its election who did
//! not answer. Any answer counts: a worker that says no is not out of reach.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use election_core::{
    Ballot,
    paths::Paths,
    shell::{Election, Observer},
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use zk_session::Session;

use crate::config::HostPort;

/// How many rounds of probes there are within `suspect_after`, at least.
const ROUNDS: u32 = 4;

/// After how long a member whose record could not be read is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Warns if what this worker tells the others leads each of them to itself.
pub(super) fn check_own_address(listen: &HostPort, address: &str) {
    let is_loopback =
        |host: &str| host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) || host == "localhost";
    if is_loopback(&listen.host) && !is_loopback(address) {
        tracing::warn!(
            %listen,
            "http.listen is for this host alone, so members on other hosts can't probe this worker, \
             and fast_failover won't move leadership away from it"
        );
    }
}

/// Where each living member answers, by its ballot.
type Addresses = BTreeMap<Ballot, String>;

/// Probes the other members of an election, for ever.
pub(super) async fn probe(session: Session, paths: Paths, election: Election, suspect_after: Duration) {
    let (sender, addresses) = watch::channel(Addresses::new());
    tokio::select! {
        () = follow(session, paths, sender) => {}
        () = rounds(&election, &addresses, suspect_after) => {}
    }
}

/// Keeps the addresses as the membership is. A ballot is one incarnation of a member, so what
/// was read for it stays true.
async fn follow(session: Session, paths: Paths, addresses: watch::Sender<Addresses>) {
    let mut ballots = session.watch_children(paths.election());
    let mut names = Vec::new();
    let mut known: BTreeMap<Ballot, Option<String>> = BTreeMap::new();
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
            if let Ok(Some(member)) = Observer::new(incarnation).member(&paths, ballot).await {
                known.insert(ballot.clone(), member.http);
            }
        }
        let reachable = known.iter().filter_map(|(ballot, http)| Some((ballot.clone(), http.clone()?)));
        addresses.send_replace(reachable.collect());
    }
}

async fn rounds(election: &Election, addresses: &watch::Receiver<Addresses>, suspect_after: Duration) {
    // No proxy, no redirect: it is this worker that has to answer. Connections are kept: what
    // goes through one shows that the network and the worker live, and costs one round trip.
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build();
    let client = match client {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%error, "no HTTP client: this worker can't tell whom it does not reach");
            return std::future::pending().await;
        }
    };
    let (interval, patience) = (suspect_after / ROUNDS, suspect_after / 2);
    loop {
        let next = Instant::now() + interval;
        let me = election.status_now().ballot;
        let mut others = addresses.borrow().clone();
        others.retain(|ballot, _| me.as_ref() != Some(ballot));
        let mut probes = JoinSet::new();
        for (ballot, address) in &others {
            let request = client.get(format!("http://{address}/liveness"));
            let ballot = ballot.clone();
            probes
                .spawn(async move { (ballot, matches!(timeout(patience, request.send()).await, Ok(Ok(_)))) });
        }
        let mut unanswered: BTreeSet<Ballot> = others.into_keys().collect();
        while let Some(probed) = probes.join_next().await {
            if let Ok((ballot, true)) = probed {
                unanswered.remove(&ballot);
            }
        }
        election.probed(unanswered);
        sleep_until(next).await;
    }
}
