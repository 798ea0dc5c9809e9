//! The loads of the clients, and their results.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::setting::DATA;

/// The number of concurrent operations in the wide loads.
pub(crate) const WIDTH: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// One after the other.
    Reads,
    Writes,
    /// Many at a time.
    WideReads,
    WideWrites,
}

impl Load {
    pub(crate) const ALL: [Self; 4] = [Self::Reads, Self::Writes, Self::WideReads, Self::WideWrites];

    /// Its name in an order to a child.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Reads => "read",
            Self::Writes => "write",
            Self::WideReads => "wide-read",
            Self::WideWrites => "wide-write",
        }
    }

    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Writes | Self::WideWrites)
    }

    pub(crate) fn width(self) -> usize {
        match self {
            Self::Reads | Self::Writes => 1,
            Self::WideReads | Self::WideWrites => WIDTH,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reads => "reads, one after the other",
            Self::Writes => "writes, one after the other",
            Self::WideReads => "reads, 64 at a time",
            Self::WideWrites => "writes, 64 at a time",
        })
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|load| load.word() == word).ok_or_else(|| format!("no such load: {word}"))
    }
}

/// One client under one load for one slice of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    /// Microseconds of one operation.
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.per_second, self.median, self.p99)
    }
}

impl FromStr for Sample {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let fields: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        match fields.as_deref() {
            Ok(&[per_second, median, p99]) => Ok(Self { per_second, median, p99 }),
            _ => Err(format!("not three numbers: {line:?}")),
        }
    }
}

/// Runs the load for that time, on the tasks of the runtime.
pub(crate) async fn bear(
    client: &Client,
    path: &'static str,
    load: Load,
    slice: Duration,
) -> Result<Sample, String> {
    let begun = Instant::now();
    let end = begun + slice;
    let workers: Vec<_> = match client.clone() {
        Client::Socket(socket) => {
            vec![tokio::spawn(async move { socket.lock().await.bear(load, path, end).await })]
        }
        client => {
            (0..load.width()).map(|_| tokio::spawn(one_by_one(client.clone(), load, path, end))).collect()
        }
    };
    let mut times = Vec::new();
    for worker in workers {
        times.append(&mut worker.await.map_err(|error| error.to_string())??);
    }
    let took = begun.elapsed();
    times.sort_unstable();
    let at = |share: f64| {
        let rank = (times.len() as f64 * share) as usize;
        times.get(rank.min(times.len().saturating_sub(1))).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    };
    Ok(Sample { per_second: times.len() as f64 / took.as_secs_f64(), median: at(0.5), p99: at(0.99) })
}

async fn one_by_one(client: Client, load: Load, path: &str, end: Instant) -> Result<Vec<Duration>, String> {
    let data = [7; DATA];
    let mut times = Vec::new();
    let mut started = Instant::now();
    while started < end {
        if load.writes() {
            client.write(path, &data).await?;
        } else {
            client.read(path).await?;
        }
        let ended = Instant::now();
        times.push(ended.duration_since(started));
        started = ended;
    }
    Ok(times)
}
