//! `ledger run`: claim, read, book.

use std::time::{Duration, Instant};

use crate::cli::RunArguments;
use crate::failure::Failure;
use crate::leadership::Leadership;
use crate::orders::{self, Order};
use crate::output::say;
use crate::stop::StopRequest;
use crate::store::{self, Booking, Claim, Store, StoreError};

/// Pause between two tries while another process holds the store's lock.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Books every order that is not booked yet. Returns when it is asked to stop, or, if so requested, when all are
/// booked.
pub(crate) fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let mut turn = Turn {
        stop: StopRequest::listen()?,
        patience: arguments.patience,
        leadership: &arguments.leadership,
    };
    match turn.take(arguments) {
        Ok(()) => Ok(()),
        Err(Ended::Stopped) => {
            say(format_args!("stopped by {}", turn.stop.requested().unwrap_or("a signal")));
            Ok(())
        }
        Err(Ended::Failed(failure)) => Err(failure),
    }
}

/// One run of the program, under one leadership.
struct Turn<'a> {
    stop: StopRequest,
    patience: Duration,
    leadership: &'a Leadership,
}

/// Why a run ends before all is booked.
enum Ended {
    Stopped,
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Turn<'_> {
    fn take(&mut self, arguments: &RunArguments) -> Result<(), Ended> {
        let address = &arguments.store.address;
        let mut store = self.patiently(|| store::open(address))?;

        // The claim comes first. What is read after it stays true: an earlier leader can no longer add to it.
        self.claim(store.as_mut())?;
        let orders = orders::read(&arguments.orders)?;
        let booked = self.patiently(|| store.booked())?;

        let open: Vec<&Order> = orders.iter().filter(|order| !booked.contains(&order.order_id)).collect();
        say(format_args!(
            "token {} (term {}, member {}) is claimed at {address}; {} of {} orders are booked{}",
            self.leadership.token,
            self.leadership.term,
            self.leadership.member,
            orders.len() - open.len(),
            orders.len(),
            open.first().map_or(String::new(), |next| format!(", the next is {}", next.order_id)),
        ));
        self.book_all(store.as_mut(), &open, arguments.pace)?;

        say(format_args!("all {} orders are booked", orders.len()));
        if arguments.exit_when_done {
            return Ok(());
        }
        self.stop.wait(None);
        Err(Ended::Stopped)
    }

    fn claim(&mut self, store: &mut dyn Store) -> Result<(), Ended> {
        let leadership = self.leadership;
        let mine = leadership.token;
        match self.patiently(|| store.claim(leadership))? {
            Claim::Granted => Ok(()),
            Claim::Refused { token, member } if token == mine => {
                Err(Failure::TokenOfAnother { token, holder: member, member: leadership.member.clone() }
                    .into())
            }
            Claim::Refused { token: seen, .. } => {
                Err(Failure::Deposed { seen, mine, what: "my claim".into() }.into())
            }
        }
    }

    fn book_all(&mut self, store: &mut dyn Store, open: &[&Order], pace: Duration) -> Result<(), Ended> {
        let leadership = self.leadership;
        for order in open {
            match self.patiently(|| store.book(leadership, order))? {
                Booking::Booked | Booking::AlreadyBooked => {}
                Booking::Refused { token: seen } => {
                    let what = format!("order {}", order.order_id);
                    return Err(Failure::Deposed { seen, mine: leadership.token, what }.into());
                }
            }
            if self.stop.wait(Some(pace)) {
                return Err(Ended::Stopped);
            }
        }
        Ok(())
    }

    /// Repeats a step that failed only because the store was locked, until a stop is requested or patience ends.
    /// Between two tries it holds no lock.
    fn patiently<T>(&mut self, mut work: impl FnMut() -> Result<T, StoreError>) -> Result<T, Ended> {
        let started = Instant::now();
        loop {
            if self.stop.requested().is_some() {
                return Err(Ended::Stopped);
            }
            match work() {
                Err(StoreError::Busy { .. }) if started.elapsed() < self.patience => {
                    self.stop.wait(Some(RETRY_PAUSE));
                }
                result => return result.map_err(Ended::from),
            }
        }
    }
}
