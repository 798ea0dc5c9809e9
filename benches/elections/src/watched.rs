//! An ensemble behind proxies that record.

use std::{net::SocketAddr, time::Duration};

use zk_testkit::{Ensemble, Proxy};

use crate::{
    clients::Clients,
    options::Crowd,
    party::Party,
    run::ensemble,
    wire::{Decoder, Message},
};

/// A party whose messages are recorded.
pub struct Recorded {
    /// The servers.
    pub ensemble: Ensemble,
    /// The proxies before them.
    pub watched: Watched,
    /// Connected through the proxies too, so that W is that of the members.
    pub clients: Clients,
    /// The first recipe and number of members that are asked for.
    pub party: Party,
}

impl Recorded {
    /// Starts the servers with this tickTime, and the members by the program `contestant` at that path.
    ///
    /// # Errors
    /// If they don't get so far.
    pub async fn gather(crowd: &Crowd, program: &'static str, tick: Duration) -> Result<Self, String> {
        let (kind, members) = crowd.first_case();
        let ensemble = ensemble(tick).await?;
        let watched = Watched::start(&ensemble.addresses()).await?;
        let clients = Clients::connect(&watched.addresses(), tick).await?;
        let setting = crowd.options.setting(program, watched.connect_string(), tick);
        let party = Party::gather(&setting, kind, members, clients.of(0).clone()).await?;
        Ok(Self { ensemble, watched, clients, party })
    }
}

/// A recording proxy before each server.
pub struct Watched {
    proxies: Vec<Proxy>,
    decoder: Decoder,
}

impl Watched {
    /// # Errors
    /// If a proxy can't listen.
    pub async fn start(servers: &[SocketAddr]) -> Result<Self, String> {
        let mut proxies = Vec::new();
        for server in servers {
            let proxy = Proxy::start(*server).await.map_err(|error| error.to_string())?;
            proxy.record();
            proxies.push(proxy);
        }
        Ok(Self { proxies, decoder: Decoder::default() })
    }

    /// Where clients connect.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.proxies.iter().map(Proxy::addr).collect()
    }

    /// The same for the clients' `connect`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addresses().iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
    }

    /// The events and the answered requests since the last call, in the order of their times.
    pub fn take(&mut self) -> Vec<Message> {
        for (number, proxy) in self.proxies.iter().enumerate() {
            for frame in proxy.take_record() {
                self.decoder.feed(number, &frame);
            }
        }
        self.decoder.take()
    }

    /// What it has put together so far.
    #[must_use]
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }
}
