//! Watches as `zk-session` has them: read after every change and every gap, told
//! if the value is another one than was told last.

use std::collections::BTreeMap;

use election_core::engine::{Epoch, Event, Watched};

use super::{
    Due, Sim, ToWorker,
    host::{Link, Told},
    network::ToClient,
};

impl Sim {
    pub(super) fn watch(&mut self, host: usize, epoch: Epoch, set: Vec<Watched>) {
        let Some(client) = self.client_of(host).filter(|c| c.epoch == epoch) else {
            return;
        };
        client.watched.retain(|watched, _| set.contains(watched));
        let mut new = Vec::new();
        for watched in set {
            if !client.watched.contains_key(&watched) {
                client.watches += 1;
                let watch = client.watches;
                client.watched.insert(watched.clone(), Told { watch, ..Told::default() });
                new.push(watched);
            }
        }
        for watched in new {
            self.read_watch_later(host, watched);
        }
    }

    /// The watch has fired, or is new: it is read in a while.
    pub(super) fn read_watch_later(&mut self, host: usize, watched: Watched) {
        let slow = self.hosts[host].net.watch_delay.max(1);
        let delay = self.hosts[host].net.lag + self.rng.u64(1..=slow);
        let Some(epoch) = self.client_of(host).map(|c| c.epoch) else {
            return;
        };
        self.later(host, delay, ToClient::ReadWatch { epoch, watched });
    }

    /// Reads what is watched, and tells it if it differs from what was told last.
    pub(super) fn read_watch(&mut self, host: usize, epoch: Epoch, watched: &Watched) {
        let net = &self.hosts[host].net;
        let (cut, minority, lag, slow) = (net.cut, net.minority, net.lag, net.watch_delay);
        let lagging = self.zk.zxid_at(self.now.saturating_sub(lag));
        let delay = self.rng.u64(0..=slow.max(1));
        let now = self.now;
        let Some(client) =
            self.hosts[host].process.as_mut().and_then(|p| p.client.as_mut()).filter(|c| c.epoch == epoch)
        else {
            return;
        };
        // After a gap everything is read again.
        if client.link != Link::Connected || cut {
            return;
        }
        let view = minority.unwrap_or(lagging).max(client.seen);
        client.seen = view;
        let Some(told) = client.watched.get_mut(watched) else {
            return;
        };
        let (value, event) = match watched {
            Watched::Node(path) => {
                let node = self.zk.get_at(path, view).cloned();
                let value = node.iter().map(|n| (String::new(), (n.czxid, n.mzxid))).collect();
                (value, Event::Seen { epoch, path: path.clone(), node })
            }
            Watched::Tree(parent) => {
                let nodes = self.zk.tree_at(parent, view);
                let value: BTreeMap<_, _> =
                    nodes.iter().map(|(name, n)| (name.clone(), (n.czxid, n.mzxid))).collect();
                (value, Event::SeenTree { epoch, parent: parent.clone(), nodes })
            }
        };
        if told.value.as_ref() == Some(&value) {
            return;
        }
        told.value = Some(value);
        told.delivered_at = told.delivered_at.max(now + delay);
        let (at, watch) = (told.delivered_at, told.watch);
        let life = self.hosts[host].life;
        let tells = ToClient::WatchTells { epoch, watched: watched.clone(), watch, event };
        self.at(at, Due::Worker(host, life, ToWorker::Client(tells)));
    }

    /// What a watch has read arrives, if it is still wanted.
    pub(super) fn watch_tells(
        &mut self,
        host: usize,
        epoch: Epoch,
        watched: &Watched,
        watch: u64,
        event: Event,
    ) {
        let client = self.client_of(host).filter(|c| c.epoch == epoch);
        if client.and_then(|c| c.watched.get(watched)).is_some_and(|told| told.watch == watch) {
            self.feed(host, event);
        }
    }
}
