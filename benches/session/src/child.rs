//! The child: one client, and orders from the standard input until that ends.
//!
//! ```text
//! <load> <milliseconds>    answered by: ok <operations per second> <median microseconds> <p99 microseconds>
//! sessions <number>        makes sessions until it has so many more, and keeps them; answered by: ok
//! connect <number>         makes so many sessions, one after the other; answered by: ok <median milliseconds until one is
//!                          made> <and until it has read>
//! ```
//! Before the first order it prints `ok` and the number of its threads before it was connected. The answer to an order
//! that fails is `failed` and the reason. `kazoo_child.py` has the same orders.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::client::{Client, Kind};
use crate::load::{self, Load};
use crate::process;

/// The number of sessions that are created at a time.
const AT_ONE_TIME: usize = 10;

pub(crate) fn run(kind: Kind, address: &str) -> ExitCode {
    // The runtime of `#[tokio::main]`; the measured work runs in its tasks, as in a program.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let threads = process::threads(std::process::id());
    let path: &'static str = format!("/bench-{}", std::process::id()).leak();
    let made = runtime.block_on(async {
        let client = Client::connect(kind, address).await?;
        client.prepare(path).await?;
        client.read(path).await.map(|()| client)
    });
    let (client, threads) = match made.and_then(|client| Ok((client, threads?))) {
        Ok(made) => made,
        Err(error) => {
            answer(Err(error));
            return ExitCode::FAILURE;
        }
    };
    answer(Ok(threads.to_string()));
    let mut kept = Vec::new();
    for order in std::io::stdin().lock().lines().map_while(Result::ok) {
        answer(runtime.block_on(obey(&order, kind, address, &client, path, &mut kept)));
    }
    ExitCode::SUCCESS
}

async fn obey(
    order: &str,
    kind: Kind,
    address: &str,
    client: &Client,
    path: &'static str,
    kept: &mut Vec<Client>,
) -> Result<String, String> {
    let (word, number) = order.split_once(' ').ok_or("an order is a word and a number")?;
    let number: u64 = number.parse().map_err(|error| format!("{number}: {error}"))?;
    if word == "sessions" {
        while let missing @ 1.. = (number as usize).saturating_sub(kept.len()) {
            let making = (0..missing.min(AT_ONE_TIME)).map(|_| async {
                let client = Client::connect(kind, address).await?;
                client.read(path).await.map(|()| client)
            });
            for made in futures_util::future::join_all(making).await {
                kept.push(made?);
            }
        }
        return Ok(String::new());
    }
    if word == "connect" {
        let (mut made, mut times) = (Vec::new(), [Vec::new(), Vec::new()]);
        for _ in 0..number {
            let begun = Instant::now();
            let client = Client::connect(kind, address).await?;
            times[0].push(begun.elapsed());
            client.read(path).await?;
            times[1].push(begun.elapsed());
            made.push(client);
        }
        let medians = times.map(|mut times| {
            times.sort_unstable();
            times.get(times.len() / 2).map_or(f64::NAN, |median| median.as_secs_f64() * 1e3)
        });
        return Ok(format!("{} {}", medians[0], medians[1]));
    }
    let load: Load = word.parse()?;
    load::bear(client, path, load, Duration::from_millis(number)).await.map(|sample| sample.to_string())
}

fn answer(answer: Result<String, String>) {
    let line = match answer {
        Ok(said) => format!("ok {said}"),
        Err(reason) => format!("failed {}", reason.replace('\n', " ")),
    };
    // Without a reader the input has ended too.
    let _ = writeln!(std::io::stdout(), "{line}");
}
