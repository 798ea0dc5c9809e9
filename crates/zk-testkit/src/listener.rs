//! A port that is listened on, or only kept.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;
/// The pause after an error that passes with time, such as too many open files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// On loopback a listening socket accepts at once.
const ANSWERS_WITHIN: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    state: PortState,
}

#[derive(Debug)]
enum PortState {
    Listening(TcpListener),
    /// The same socket, bound and not listening: a connection is refused, and the port stays ours.
    Refusing(TcpSocket),
    /// After an error: connections are refused, and another program can take the port.
    Lost,
}

impl Listener {
    /// Listens. On port 0: on a free one. A port on which another socket listens is in use, also where that one
    /// would share it (`SO_REUSEPORT`).
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        if address.port() != 0 {
            // The queue of a socket that accepts nothing is full at some time: no answer then.
            match std::net::TcpStream::connect_timeout(&address, ANSWERS_WITHIN) {
                Err(error) if error.kind() != io::ErrorKind::TimedOut => {}
                _ => return Err(io::ErrorKind::AddrInUse.into()),
            }
        }
        let listener = listen(address)?;
        Ok(Self { address: listener.local_addr()?, state: PortState::Listening(listener) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection; none comes while it refuses them. After an error it tries again.
    pub(crate) async fn accept(&self) -> (TcpStream, SocketAddr) {
        let PortState::Listening(listener) = &self.state else { return std::future::pending().await };
        loop {
            match listener.accept().await {
                Ok(accepted) => return accepted,
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            }
        }
    }

    /// Refuses connections from now on, or listens again.
    pub(crate) fn refuse(&mut self, refuse: bool) -> io::Result<()> {
        self.state = match std::mem::replace(&mut self.state, PortState::Lost) {
            PortState::Listening(listener) if refuse => PortState::Refusing(stop_listening(listener)?),
            PortState::Refusing(socket) if !refuse => PortState::Listening(socket.listen(BACKLOG)?),
            PortState::Lost if !refuse => PortState::Listening(listen(self.address)?),
            state => state,
        };
        Ok(())
    }
}

/// The socket is never closed, so no other program can bind its port before it listens again: while it listens
/// the kernel refuses every other bind, and after that every other one since this socket shares its address
/// with none but those that share their port as well (`SO_REUSEPORT`): its own earlier connections.
fn stop_listening(listener: TcpListener) -> io::Result<TcpSocket> {
    let stream = std::net::TcpStream::from(OwnedFd::from(listener.into_std()?));
    let same = stream.try_clone()?;
    let socket = TcpSocket::from_std_stream(stream);
    // Before it stops listening, or another program could bind in between.
    socket.set_reuseaddr(false)?;
    same.shutdown(Shutdown::Read)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = bind(address)?;
    if address.port() != 0 {
        return socket.listen(BACKLOG);
    }
    // A socket that stops listening keeps its port only if it was bound to that one by its number.
    let by_number = bind(socket.local_addr()?)?;
    drop(socket);
    by_number.listen(BACKLOG)
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // The port's earlier connections may still exist: those of others, and this socket's own when it listens
    // again.
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use tokio::time::timeout;

    #[tokio::test]
    async fn an_accept_that_fails_is_tried_again() {
        let listener = Listener::open(([127, 0, 0, 1], 0).into()).unwrap();
        let PortState::Listening(socket) = &listener.state else { panic!("it listens") };
        let same = std::net::TcpStream::from(socket.as_fd().try_clone_to_owned().unwrap());
        // Until it listens again each attempt fails.
        same.shutdown(Shutdown::Read).unwrap();
        assert!(timeout(4 * ACCEPT_AGAIN, listener.accept()).await.is_err());
        let _same = TcpSocket::from_std_stream(same).listen(BACKLOG).unwrap();
        let client = std::net::TcpStream::connect(listener.address()).unwrap();
        let (_, peer) = timeout(Duration::from_secs(10), listener.accept()).await.expect("a connection");
        assert_eq!(peer, client.local_addr().unwrap());
    }
}
