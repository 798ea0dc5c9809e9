//! Reserved ports that stay free while no process listens on them.
//!
//! Binding port 0 and closing the socket again yields a port from the range that the kernel also uses for
//! outgoing connections. A server that is killed and started again some seconds later may then find its
//! port taken by some client's connection. So ports come from below that range,
//! in blocks that a lock file reserves: two test processes never get the same
//! block, and the end of a process, by any cause, releases its block.

use std::fs::{File, OpenOptions, TryLockError};
use std::net::{Ipv4Addr, TcpListener};

use crate::Error;
use crate::error::Context as _;

/// Ports in one block.
const BLOCK: u16 = 16;
/// The lowest port used.
const LOWEST: u16 = 10_000;
/// The start of the kernel's own range if it can't be read.
const USUAL_EPHEMERAL_START: u16 = 32_768;

/// Ports on loopback that no other reservation gets while this value exists.
/// Nothing is bound: the owner of the reservation may bind, close and bind again. Dropping it, and the end of
/// the process, release the ports.
#[derive(Debug)]
pub struct PortReservation {
    ports: Vec<u16>,
    // Each lock ends with its file.
    _locks: Vec<File>,
}

impl PortReservation {
    /// Reserves `count` ports that are free now.
    ///
    /// # Errors
    /// [`Error::Ports`] if there are not enough free ones left, [`Error::Io`] if
    /// the lock files cannot be made in the temporary directory.
    pub fn take(count: usize) -> Result<Self, Error> {
        let dir = std::env::temp_dir().join("zk-testkit-ports");
        std::fs::create_dir_all(&dir).context(|| format!("cannot create {}", dir.display()))?;
        // Users share a machine's temporary directory; the first one creates it.
        make_shared(&dir);

        let highest = ephemeral_start().max(LOWEST + 100 * BLOCK);
        let blocks = (highest - LOWEST) / BLOCK;
        // Otherwise it would lock those of all others to find that out.
        if count > usize::from(blocks * BLOCK) {
            return Err(Error::Ports(format!("there are no {count} ports between {LOWEST} and {highest}")));
        }
        // Start at a random block, so that parallel processes rarely try the same block.
        let first = fastrand::u16(..blocks);
        let mut ports = Vec::with_capacity(count);
        let mut locks = Vec::new();
        for offset in 0..blocks {
            if ports.len() >= count {
                break;
            }
            let start = LOWEST + (first + offset) % blocks * BLOCK;
            let path = dir.join(format!("{start}.lock"));
            let Ok(lock) = OpenOptions::new().create(true).truncate(false).write(true).open(&path) else {
                continue; // Another user's block.
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => {
                    return Err(Error::Io { context: format!("cannot lock {}", path.display()), error });
                }
            }
            let before = ports.len();
            ports.extend((start..start + BLOCK).filter(|port| is_free(*port)).take(count - before));
            if ports.len() > before {
                locks.push(lock);
            }
        }
        if ports.len() < count {
            return Err(Error::Ports(format!(
                "no {count} free ports between {LOWEST} and {highest}: {} are free and not reserved \
                 by another test process (locks in {})",
                ports.len(),
                dir.display()
            )));
        }
        Ok(Self { ports, _locks: locks })
    }

    /// The reserved ports.
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }
}

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn ephemeral_start() -> u16 {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(USUAL_EPHEMERAL_START)
}

fn make_shared(dir: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    // Another user's: its owner has done it already.
    let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o1777));
}
