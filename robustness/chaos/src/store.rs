//! The store that jobs write to: a list of values, and the highest token that it has seen.
//!
//! It has a network of its own, as it were: the hosts of workers reach it as long as they reach anything.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

#[derive(Debug, Default)]
struct Contents {
    token: u64,
    values: Vec<(u64, u64)>,
}

/// The store. It is served until the process ends.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    contents: Arc<Mutex<Contents>>,
    address: SocketAddr,
}

impl Store {
    pub(crate) fn serve(ip: Ipv4Addr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((ip, 0))?;
        let store = Self { contents: Arc::default(), address: listener.local_addr()? };
        let served = store.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let store = served.clone();
                // A client that is gone ends its thread.
                thread::spawn(move || store.answer(&client));
            }
        });
        Ok(store)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// All values, oldest first, with their tokens.
    pub(crate) fn values(&self) -> Vec<(u64, u64)> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner).values.clone()
    }

    fn answer(&self, client: &TcpStream) -> Option<()> {
        for line in BufReader::new(client).lines() {
            let answer = self.carry_out(&line.ok()?)?;
            writeln!(&mut &*client, "{answer}").ok()?;
        }
        Some(())
    }

    /// `claim TOKEN`, `write TOKEN VALUE` or `read`: `ok`, `ok COUNT` or `stale`.
    fn carry_out(&self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split(' ').collect();
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        let (token, value) = match words[..] {
            ["claim", token] => (token.parse().ok()?, None),
            ["write", token, value] => (token.parse().ok()?, Some(value.parse().ok()?)),
            ["read"] => return Some(format!("ok {}", contents.values.len())),
            _ => return None,
        };
        if token < contents.token {
            return Some("stale".to_owned());
        }
        contents.token = token;
        contents.values.extend(value.map(|value| (token, value)));
        Some("ok".to_owned())
    }
}
