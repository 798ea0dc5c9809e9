//! `ledger status` and `ledger wait`.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::output::print_json;
use crate::store::{self, Progress, Store, StoreAddress, StoreError};

const POLL: Duration = Duration::from_millis(25);

/// Prints the ledger's progress.
pub(crate) fn status(address: &StoreAddress) -> Result<(), Failure> {
    print_json(&store::open_existing(address)?.progress()?)
}

/// Waits until this many orders are booked, then prints the status.
pub(crate) fn wait(address: &StoreAddress, wanted: u64, timeout: Duration) -> Result<(), Failure> {
    let started = Instant::now();
    let mut opened = None;
    loop {
        let progress = look(address, &mut opened)?;
        if progress.booked >= wanted {
            return print_json(&progress);
        }
        if started.elapsed() >= timeout {
            return Err(Failure::NotInTime { booked: progress.booked, wanted, waited: timeout });
        }
        std::thread::sleep(POLL);
    }
}

/// The progress. If there is no ledger, or it can't be read at this moment, that of an empty ledger.
fn look(address: &StoreAddress, opened: &mut Option<Box<dyn Store>>) -> Result<Progress, StoreError> {
    let store = match opened {
        Some(store) => store,
        None => match store::open_existing(address) {
            Ok(store) => opened.insert(store),
            Err(StoreError::Missing { .. } | StoreError::Busy { .. }) => {
                return Ok(Progress::default());
            }
            Err(error) => return Err(error),
        },
    };
    match store.progress() {
        Err(StoreError::Busy { .. }) => Ok(Progress::default()),
        result => result,
    }
}
