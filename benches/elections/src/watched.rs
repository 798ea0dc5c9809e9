//! An ensemble behind proxies that record.

use std::net::SocketAddr;

use zk_testkit::Proxy;

use crate::wire::{Decoder, Message};

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
