//! The frame of a benchmark: its exit code, and its end by a signal.

use std::{future::Future, process::ExitCode, time::Duration};

use tokio::signal::unix::{SignalKind, signal};
use zk_testkit::Ensemble;

/// Runs a benchmark until it is done or a signal arrives. Then everything that it has started ends, because it is dropped.
pub async fn run(benchmark: impl Future<Output = Result<(), String>>) -> ExitCode {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        eprintln!("signals can't be handled");
        return ExitCode::FAILURE;
    };
    tokio::select! {
        _ = interrupt.recv() => {
            eprintln!("interrupted");
            ExitCode::from(130)
        }
        _ = terminate.recv() => {
            eprintln!("terminated");
            ExitCode::from(143)
        }
        done = benchmark => match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }
}

/// An ensemble of three servers, each with memory for the sessions of hundreds of members.
///
/// # Errors
/// If it can't be started.
pub async fn ensemble(tick: Duration) -> Result<Ensemble, String> {
    let builder = Ensemble::builder().servers(3).tick_time(tick).jvm_flag("-Xmx512m");
    builder.start().await.map_err(|error| error.to_string())
}
