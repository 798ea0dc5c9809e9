//! The way to the service manager: the socket and the watchdog that it names in the environment.

use std::{
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

/// The socket of `NOTIFY_SOCKET`.
#[derive(Debug)]
pub(super) struct Socket {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Socket {
    /// For the value of `NOTIFY_SOCKET`: an absolute path, or an abstract name behind '@'.
    ///
    /// # Errors
    /// If it is neither, or there is no descriptor.
    pub(super) fn of(value: &OsStr) -> io::Result<Self> {
        let address = match value.as_bytes() {
            [b'@', name @ ..] if !name.is_empty() => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(value)?,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "it is neither a path nor an abstract name",
                ));
            }
        };
        let socket = UnixDatagram::unbound()?;
        // A service manager that does not read must not stop the worker.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address })
    }

    /// Sends one message.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the service manager has too many unread messages.
    pub(super) fn send(&self, message: &str) -> io::Result<()> {
        self.socket.send_to_addr(message.as_bytes(), &self.address).map(drop)
    }
}

/// The watchdog's timeout for the process `own`, by the values of `WATCHDOG_USEC` and `WATCHDOG_PID`.
///
/// # Errors
/// If a value can't be read, with its variable.
pub(super) fn watchdog(
    micros: Option<&str>,
    pid: Option<&str>,
    own: u32,
) -> Result<Option<Duration>, &'static str> {
    let Some(micros) = micros else { return Ok(None) };
    if let Some(pid) = pid
        && pid.parse::<u32>().map_err(|_| "WATCHDOG_PID")? != own
    {
        return Ok(None);
    }
    match micros.parse() {
        Ok(0) | Err(_) => Err("WATCHDOG_USEC"),
        Ok(micros) => Ok(Some(Duration::from_micros(micros))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_that_of_this_process() {
        let three = Ok(Some(Duration::from_secs(3)));
        assert_eq!(watchdog(Some("3000000"), Some("7"), 7), three);
        assert_eq!(watchdog(Some("3000000"), None, 7), three);
        assert_eq!(watchdog(Some("3000000"), Some("8"), 7), Ok(None), "another process");
        assert_eq!(watchdog(None, Some("7"), 7), Ok(None));
        for bad in ["", "0", "-1", "3s"] {
            assert_eq!(watchdog(Some(bad), None, 7), Err("WATCHDOG_USEC"), "{bad:?}");
        }
        assert_eq!(watchdog(Some("1"), Some("x"), 7), Err("WATCHDOG_PID"));
    }

    #[test]
    fn an_address_is_a_path_or_an_abstract_name() {
        for good in ["/run/systemd/notify", "@abstract"] {
            assert!(Socket::of(good.as_ref()).is_ok(), "{good}");
        }
        for bad in ["", "@", "relative", "vsock:2:1234"] {
            assert!(Socket::of(bad.as_ref()).is_err(), "{bad}");
        }
    }
}
