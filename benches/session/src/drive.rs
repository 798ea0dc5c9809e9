//! A client under a load.

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::load::{Load, Sample};
use crate::setting::DATA;

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
    // One at least, however late it begins.
    while started < end || times.is_empty() {
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
