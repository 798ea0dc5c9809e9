//! A port that is listened on, or merely kept.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;

#[derive(Debug)]
pub(crate) struct Door {
    address: SocketAddr,
    state: State,
}

#[derive(Debug)]
enum State {
    Open(TcpListener),
    /// Bound without listening: who connects is refused, and nobody is given it as a free port.
    Shut(TcpSocket),
    /// Neither worked: refused as well, but somebody else could take the port.
    Lost,
}

impl Door {
    /// Listens. On port 0: on a free one.
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let listener = listen(address)?;
        Ok(Self { address: listener.local_addr()?, state: State::Open(listener) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection; none comes while it is shut.
    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match &self.state {
            State::Open(listener) => listener.accept().await,
            State::Shut(_) | State::Lost => std::future::pending().await,
        }
    }

    /// Shuts it, or opens it again.
    pub(crate) fn turn(&mut self, shut: bool) -> io::Result<()> {
        let turned = match std::mem::replace(&mut self.state, State::Lost) {
            State::Open(listener) if shut => {
                // First: two sockets can't hold the port while one listens.
                drop(listener);
                bind(self.address).map(State::Shut)
            }
            State::Shut(socket) if !shut => socket.listen(BACKLOG).map(State::Open),
            State::Lost if !shut => listen(self.address).map(State::Open),
            state => Ok(state),
        };
        let listen_again = || listen(self.address).map_or(State::Lost, State::Open);
        let (state, result) =
            turned.map_or_else(|error| (listen_again(), Err(error)), |state| (state, Ok(())));
        self.state = state;
        result
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // The port's earlier connections may still exist.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bind(address)?.listen(BACKLOG)
}
