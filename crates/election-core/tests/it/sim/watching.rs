//! Watches as in `zk-session`: they read after every change and every gap, and report a value that differs from the
//! last reported one.

use std::collections::BTreeMap;

use election_core::internals::{Epoch, Event, Watched};

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

    /// The client is connected again, and sends its watches. The server compares each znode's last change with what the
    /// client has seen. It does not report a znode that went back with an older copy of the ensemble.
    pub(super) fn arm_watches_again(&mut self, host: usize) {
        let lagging = self.zk.zxid_at(self.now.saturating_sub(self.hosts[host].net.lag));
        let Some(client) = self.hosts[host].process.as_ref().and_then(|p| p.client.as_ref()) else { return };
        let (seen, view) = (client.seen, lagging.max(client.seen));
        let fires = |(watched, told): &(&Watched, &Told)| {
            let Some(value) = told.value.as_ref().filter(|_| !told.missed) else { return true };
            let now: BTreeMap<_, _> = match watched {
                Watched::Node(path) => {
                    self.zk.get_at(path, view).map(|node| (String::new(), node.clone())).into_iter().collect()
                }
                Watched::Tree(parent) => self.zk.tree_at(parent, view),
            };
            let is_node = matches!(watched, Watched::Node(_));
            value.keys().any(|name| now.get(name).is_none_or(|node| node.mzxid > seen))
                || now.iter().any(|(name, node)| !value.contains_key(name) && (is_node || node.czxid > seen))
        };
        let fired: Vec<_> = client.watched.iter().filter(fires).map(|(watched, _)| watched.clone()).collect();
        for watched in fired {
            self.read_watch_later(host, watched);
        }
    }

    /// Everything that is watched is read again.
    pub(super) fn read_all_watches(&mut self, host: usize) {
        let watched: Vec<_> =
            self.client_of(host).into_iter().flat_map(|c| c.watched.keys().cloned()).collect();
        for watched in watched {
            self.read_watch_later(host, watched);
        }
    }

    /// Reads what a passive member has left unread, if it is not passive any more.
    pub(super) fn read_what_was_left(&mut self, host: usize) {
        let Some(process) = self.hosts[host].process.as_mut().filter(|it| !it.engine.is_passive()) else {
            return;
        };
        let watches = process.client.iter_mut().flat_map(|client| &mut client.watched);
        let left: Vec<_> = watches
            .filter_map(|(watched, told)| std::mem::take(&mut told.unread).then(|| watched.clone()))
            .collect();
        for watched in left {
            self.read_watch_later(host, watched);
        }
    }

    /// Reads what is watched, and reports it if it differs from the last report.
    pub(super) fn read_watch(&mut self, host: usize, epoch: Epoch, watched: &Watched) {
        let target = &mut self.hosts[host];
        if let Some(process) = target.process.as_mut().filter(|_| !target.follows_leaders)
            && process.engine.is_passive()
            && process.engine.reports_leaders(watched)
            && let Some(told) = process.client.as_mut().and_then(|client| client.watched.get_mut(watched))
            && told.value.is_some()
        {
            told.unread = true;
            return;
        }
        // Servers send the event of a change before newer data, so it is also read before. The members of a contest rest on
        // that: who was raised above its predecessor's tokens leads only after the predecessor has gone.
        let tokens = (!self.has_elector()).then(|| Watched::node(self.paths.tokens()));
        let tokens = tokens.filter(|tokens| tokens != watched);
        if let Some(tokens) = &tokens {
            self.read_watch(host, epoch, tokens);
        }
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
        if client.link != Link::Connected || cut {
            client.watched.entry(watched.clone()).and_modify(|told| told.missed = true);
            return;
        }
        let view = minority.unwrap_or(lagging).max(client.seen);
        client.seen = view;
        let after = tokens.and_then(|tokens| client.watched.get(&tokens)).map_or(0, |told| told.delivered_at);
        let Some(told) = client.watched.get_mut(watched) else {
            return;
        };
        told.missed = false;
        let (value, event) = match watched {
            Watched::Node(path) => {
                let node = self.zk.get_at(path, view).cloned();
                let value = node.iter().map(|n| (String::new(), (n.czxid, n.mzxid))).collect();
                (value, Event::Seen { epoch, path: path.to_string(), node })
            }
            Watched::Tree(parent) => {
                let nodes = self.zk.tree_at(parent, view);
                let value: BTreeMap<_, _> =
                    nodes.iter().map(|(name, n)| (name.clone(), (n.czxid, n.mzxid))).collect();
                (value, Event::SeenTree { epoch, parent: parent.to_string(), nodes })
            }
        };
        if told.value.as_ref() == Some(&value) {
            return;
        }
        told.value = Some(value);
        told.delivered_at = told.delivered_at.max(now + delay).max(after);
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
