//! From a connection that is lost to the next one, for both drivers: when a silent connection is given up, which servers
//! are tried in which order, and how long each attempt and each pause lasts.
//!
//! # How the session timeout is shared out
//! A session that is heard of every quarter of its timeout has three quarters left when its link dies. Silence is
//! noticed at 0.35 of the timeout at the latest; an attempt at a server that says nothing takes no more than another
//! 0.3, so a second one can still be reached in time. The server that has just been lost is the last to be tried.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info};

use super::{ConnectSpec, DriverEvent, Host};
use crate::backoff::Backoff;
use crate::resolve::Resolver;
use crate::time::{BootTime, sleep_until};

/// Between rounds over all servers.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));

/// The clients of a server lose it all at once: each waits for a part of this, by chance, before it tries another one.
fn stagger(session_timeout: Duration) -> Duration {
    (session_timeout / 20).min(Duration::from_millis(200))
}

/// How long one host may take to accept a connection, while a session is made and others are still to be tried.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// How long a connection may be silent before it is given up.
pub(super) fn silence(session_timeout: Duration) -> Duration {
    session_timeout * 3 / 10
}

/// How long the steps of one attempt may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) connect: Duration,
    /// Once there is a connection.
    pub(super) handshake: Duration,
}

impl Patience {
    /// With a session that must be carried on: at the most.
    fn for_session(timeout: Duration) -> Self {
        Self {
            connect: (timeout / 8).clamp(Duration::from_millis(150), Duration::from_secs(3)),
            handshake: (timeout / 6).clamp(Duration::from_millis(200), Duration::from_secs(5)),
        }
    }

    /// Up to a quarter less, by chance: sessions that wait for the same silent server must not go on in step.
    fn jittered(self) -> Self {
        let part = 1.0 - fastrand::f64() / 4.0;
        Self { connect: self.connect.mul_f64(part), handshake: self.handshake.mul_f64(part) }
    }

    #[cfg_attr(
        not(feature = "zookeeper-client"),
        allow(dead_code, reason = "the other driver keeps them apart")
    )]
    pub(super) fn total(&self) -> Duration {
        self.connect + self.handshake
    }
}

/// Why a server did not become the session's server.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Another one may, or this one at another time.
    Unavailable(String),
    /// The session is over.
    Expired,
    /// The credentials are not accepted.
    AuthFailed(String),
}

/// Where a session can be carried on.
#[derive(Clone)]
pub(super) struct Seeker {
    resolver: Arc<Resolver>,
    hosts: Vec<Host>,
}

impl Seeker {
    pub(super) fn new(spec: &ConnectSpec) -> Self {
        Self { resolver: Arc::clone(&spec.resolver), hosts: spec.hosts.clone() }
    }

    /// Tries the servers until one takes the session or says that it is over. Names are looked up again in each round;
    /// where that takes long, the addresses of before are tried meanwhile.
    ///
    /// # Cancel safety
    /// Cancel safe where `attach` is.
    pub(super) async fn seek<T, F>(
        mut self,
        lost: SocketAddr,
        session_timeout: Duration,
        attach: impl Fn(Host, Patience) -> F,
    ) -> Result<(SocketAddr, T), Refusal>
    where
        F: Future<Output = Result<T, Refusal>>,
    {
        let patience = Patience::for_session(session_timeout);
        let mut backoff = BACKOFF;
        let mut pause = stagger(session_timeout).mul_f64(fastrand::f64());
        loop {
            sleep_until(BootTime::now() + pause).await;
            self.resolver.refresh(&mut self.hosts, session_timeout / 50).await;
            fastrand::shuffle(&mut self.hosts);
            // The sort is stable: the others stay shuffled.
            self.hosts.sort_by_key(|host| host.address == lost);
            for host in &self.hosts {
                let address = host.address;
                match attach(host.clone(), patience.jittered()).await {
                    Ok(attached) => return Ok((address, attached)),
                    Err(Refusal::Unavailable(reason)) => {
                        debug!(server = %address, %reason, "the session finds no home here");
                    }
                    Err(over) => return Err(over),
                }
            }
            pause = backoff.next();
        }
    }
}

/// The first server, in the order given, that makes a session; `note` is told what each of the others said.
pub(super) async fn first<T, F>(
    spec: &ConnectSpec,
    note: impl Fn(SocketAddr, &str),
    attach: impl Fn(Host, Patience) -> F,
) -> Result<Option<(SocketAddr, T)>, Refusal>
where
    F: Future<Output = Result<T, Refusal>>,
{
    for (at, host) in spec.hosts.iter().enumerate() {
        // An even share of the time left, so that one host that says nothing does not use up all of it.
        let left = spec.deadline.duration_since(BootTime::now());
        let share = left / u32::try_from(spec.hosts.len() - at).unwrap_or(u32::MAX);
        let patience = Patience { connect: share.min(CONNECT_WITHIN), handshake: share };
        note(host.address, "no answer yet");
        match attach(host.clone(), patience).await {
            Ok(attached) => return Ok(Some((host.address, attached))),
            Err(Refusal::Unavailable(reason)) => note(host.address, &reason),
            Err(Refusal::Expired) => note(host.address, "the server granted no session"),
            Err(refused @ Refusal::AuthFailed(_)) => return Err(refused),
        }
    }
    Ok(None)
}

/// A server has taken the session over and granted it a timeout, perhaps another one than before.
///
/// A shorter one ends the session: leases may have been given by the longer one. A longer one changes nothing: what was
/// computed from the shorter one stays right.
pub(super) fn judge_grant(server: SocketAddr, before: Duration, now: Duration) -> Result<(), DriverEvent> {
    if now < before {
        let reason =
            format!("{server} would keep the session for {now:?} only, and {before:?} had been granted");
        return Err(DriverEvent::Dead { reason });
    }
    if now > before {
        info!(%server, ?before, ?now, "this server would keep the session for longer; it goes on with the timeout of before");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;
    use crate::hosts::ConnectString;

    fn host(port: u16) -> Host {
        Host { name: "127.0.0.1".to_owned(), address: SocketAddr::from(([127, 0, 0, 1], port)) }
    }

    fn seeker(resolver: Resolver, hosts: Vec<Host>) -> Seeker {
        Seeker { resolver: Arc::new(resolver), hosts }
    }

    #[tokio::test]
    async fn the_server_that_was_lost_is_tried_last_and_the_others_in_any_order() {
        let mut firsts = std::collections::HashSet::new();
        for _ in 0..50 {
            let seeker = seeker(Resolver::new(&[]), [1, 2, 3].map(host).to_vec());
            let tried = Mutex::new(Vec::new());
            let attach = |host: Host, _| {
                tried.lock().unwrap().push(host.address.port());
                let enough = tried.lock().unwrap().len() == 3;
                async move { if enough { Ok(()) } else { Err(Refusal::Unavailable("no".to_owned())) } }
            };
            seeker.seek(host(2).address, Duration::from_secs(10), attach).await.unwrap();
            let tried = tried.into_inner().unwrap();
            assert_eq!(tried[2], 2, "{tried:?}");
            firsts.insert(tried[0]);
        }
        assert_eq!(firsts.len(), 2);
    }

    #[tokio::test]
    async fn a_name_is_looked_up_again_in_each_round() {
        // The name moves to another address while the session looks for its server.
        let looked = Arc::new(AtomicU8::new(0));
        let servers = ConnectString::parse("zk.example:2181").unwrap().servers;
        let resolver = Resolver::with_lookup(&servers, {
            let looked = looked.clone();
            move |_| Ok(vec![SocketAddr::from(([127, 0, 0, looked.fetch_add(1, Ordering::SeqCst)], 2181))])
        });
        let lost = SocketAddr::from(([127, 0, 0, 99], 2181));
        let known = Host { name: "zk.example".to_owned(), address: lost };
        let seeker = seeker(resolver, vec![known]);
        let tried = Mutex::new(Vec::new());
        let attach = |host: Host, _| {
            tried.lock().unwrap().push(host.address.ip().to_string());
            let enough = host.address.ip().to_string() == "127.0.0.3";
            async move { if enough { Ok(()) } else { Err(Refusal::Unavailable("no".to_owned())) } }
        };
        seeker.seek(lost, Duration::from_secs(60), attach).await.unwrap();
        let tried = tried.into_inner().unwrap();
        assert_eq!(tried, ["127.0.0.0", "127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    }

    #[test]
    fn only_a_shorter_grant_ends_a_session() {
        let (short, long) = (Duration::from_secs(4), Duration::from_secs(10));
        let server = host(2181).address;
        assert_eq!(judge_grant(server, short, short), Ok(()));
        assert_eq!(judge_grant(server, short, long), Ok(()));
        let Err(DriverEvent::Dead { reason }) = judge_grant(server, long, short) else {
            panic!("it goes on")
        };
        assert!(reason.contains("4s") && reason.contains("10s"), "{reason}");
    }

    #[test]
    fn two_silent_servers_leave_time_for_a_third() {
        for seconds in [2, 4, 10, 30, 60] {
            let timeout = Duration::from_secs(seconds);
            // 0.05 are the interval at which silence is looked for.
            let noticed = silence(timeout) + timeout / 20;
            let used = noticed + stagger(timeout) + Patience::for_session(timeout).total();
            assert!(used < timeout.mul_f64(0.70), "{timeout:?}: {used:?}");
        }
    }
}
