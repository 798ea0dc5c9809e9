//! The listener of the HTTP endpoints: the first one, that of the program before this one, and one that replaces it.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::mpsc};

use super::upgrade::Upgrades;
use crate::{
    config::{Config, HostPort},
    error::Error,
    host_fault::HostFault,
};

/// The pause between two tries to listen.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Where the worker listens, and how to have it listen elsewhere.
pub(super) struct HttpPort {
    pub(super) port: u16,
    pub(super) upgrades: Arc<Upgrades>,
    pub(super) replace: mpsc::Sender<TcpListener>,
}

impl HttpPort {
    /// The listener that replaces the present one, if this configuration has another address.
    ///
    /// # Errors
    /// Why the worker can't listen there.
    pub(super) async fn other(old: &Config, new: &Config) -> Result<Option<TcpListener>, Error> {
        let (was, is) = (&old.http.listen, &new.http.listen);
        if was == is {
            return Ok(None);
        }
        match listen(is).await {
            Err(_) if was.port == is.port && is.port != 0 => Err(Error::Setting {
                key: "http.listen",
                message: format!(
                    "can't listen at {is} while this worker listens at {was}: restart the worker, or choose another port"
                ),
            }),
            listening => listening.map(Some),
        }
    }

    /// Listens there from now on. Open connections stay.
    pub(super) fn take_over(&mut self, listener: TcpListener) {
        self.port = listener.local_addr().map_or(self.port, |address| address.port());
        self.upgrades.listens(&listener);
        if self.replace.try_send(listener).is_err() {
            tracing::error!("the HTTP server does not run: it can't listen at another address");
        }
    }
}

/// The listener, if there can be one now. `inherited`: that of the program before this one, and where it listens.
pub(super) async fn first_listener(
    at: &HostPort,
    inherited: Option<(OwnedFd, String)>,
) -> Result<Option<TcpListener>, Error> {
    let inherited = match inherited {
        Some((listener, was_at)) if was_at == at.to_string() => {
            return adopt_listener(listener, at).map(Some);
        }
        other => other,
    };
    match (listen(at).await, inherited) {
        (Ok(listener), _) => Ok(Some(listener)),
        // The job runs, and must not end for this.
        (Err(error), Some((listener, _))) => {
            tracing::error!(%error, "the worker listens where it did before");
            adopt_listener(listener, at).map(Some)
        }
        (Err(error), None) => {
            tracing::warn!(%error, "the worker runs its jobs without HTTP endpoints, and tries again until it can listen");
            Ok(None)
        }
    }
}

pub(super) fn port(config: &Config, listener: Option<&TcpListener>) -> Result<u16, Error> {
    let address = listener.map(TcpListener::local_addr).transpose();
    let address = address.map_err(|e| cannot_listen(&config.http.listen, &e))?;
    Ok(address.map_or(config.http.listen.port, |address| address.port()))
}

fn adopt_listener(listener: OwnedFd, at: &HostPort) -> Result<TcpListener, Error> {
    let listener = std::net::TcpListener::from(listener);
    let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    listener.map_err(|error| cannot_listen(at, &error))
}

pub(super) async fn listen(at: &HostPort) -> Result<TcpListener, Error> {
    TcpListener::bind((at.host.as_str(), at.port)).await.map_err(|e| cannot_listen(at, &e))
}

/// Waits until the port is free, and its address there.
pub(super) async fn until_listening(at: &HostPort) -> TcpListener {
    loop {
        tokio::time::sleep(LISTEN_AGAIN).await;
        match listen(at).await {
            Ok(listener) => return listener,
            Err(error) => tracing::debug!(%error, "still no HTTP endpoints"),
        }
    }
}

fn cannot_listen(at: &HostPort, error: &std::io::Error) -> Error {
    let key = "http.listen";
    let message = format!("can't listen at {at}: {error}");
    match error.kind() {
        std::io::ErrorKind::AddrInUse => Error::NotNow(format!(
            "{key}: {message}; another program listens there: wait for its end, or choose another port"
        )),
        // The network may come up later, and with it a name.
        kind => Error::on_host(key, HostFault::of_kind(message, kind)),
    }
}
