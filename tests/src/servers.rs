//! Which servers lead, and which have the sessions: for clusters on hosts.

use std::net::Ipv4Addr;

use crate::cluster::Cluster;
use crate::wait::{SOON, wait_for};
use crate::worker::Worker;

impl Cluster {
    /// Makes a server lead the ensemble, or follow, by cutting off the one that leads until another one does. Of equal
    /// servers the last one becomes the leader.
    ///
    /// # Panics
    /// If the ensemble is not in namespaces.
    pub async fn let_server_lead(&self, server: usize, leads: bool) {
        let ensemble = self.ensemble();
        // Each of the others may be elected before the one that is wanted.
        wait_for("another leader of the ensemble", 3 * SOON, async || {
            let leader = ensemble.leader().await.ok_or("no server leads")?;
            if (leader == server) == leads {
                return Ok(());
            }
            ensemble.faults().isolate(leader).expect("a server that can be isolated");
            wait_for("its successor", SOON, async || match ensemble.leader().await {
                Some(next) if next != leader => Ok(()),
                other => Err(format!("{other:?}")),
            })
            .await;
            ensemble.faults().rejoin(leader).expect("a server that can rejoin");
            ensemble.wait_serving(SOON).await.expect("servers that serve");
            Err(format!("server {leader} led"))
        })
        .await;
    }

    /// Brings the sessions of all workers on other hosts to this server: they reach no other one for a while.
    ///
    /// # Panics
    /// If the workers are not on hosts.
    pub async fn gather_sessions(&mut self, server: usize) {
        let ensemble = self.ensemble();
        let ip_of = |server| ensemble.server(server).host().expect("a server in a namespace").ip();
        let here = ip_of(server);
        let others: Vec<_> =
            (0..ensemble.servers().len()).filter(|other| *other != server).map(ip_of).collect();
        let elsewhere = |worker: &&mut Worker| worker.host().ip() != here;
        let mut workers: Vec<Ipv4Addr> = Vec::new();
        for worker in self.workers().iter_mut().filter(elsewhere) {
            worker.host().cut_from(&others).expect("a host that can be cut off");
            workers.push(worker.host().ip());
        }
        wait_for("the sessions", SOON, async || {
            let told = self.ensemble().admin(server, "cons").await.map_err(|error| error.to_string())?;
            let is_here = |ip: &Ipv4Addr| {
                told.lines().any(|line| line.contains(&format!("/{ip}:")) && line.contains("sid="))
            };
            if workers.iter().all(is_here) { Ok(()) } else { Err(told.clone()) }
        })
        .await;
        self.workers().iter_mut().filter(elsewhere).for_each(Worker::plug_in);
        let running = self.workers().iter().filter(|worker| worker.is_started()).count();
        self.standing_by(running - 1).await;
    }
}
