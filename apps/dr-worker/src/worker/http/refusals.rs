//! How many refused requests are logged: everyone who reaches the port can send more than the log has room for.

use std::time::Duration;

use parking_lot::Mutex;
use zk_session::BootTime;

/// The most that are logged within [`WINDOW`].
const MOST: u32 = 20;

const WINDOW: Duration = Duration::from_secs(60);

/// The requests without the credentials that they need.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    window: Mutex<Option<Window>>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    began: BootTime,
    logged: u32,
    omitted: u64,
}

impl Refusals {
    /// Counts one. If it is to be logged, returns how many before it were not.
    pub(super) fn count(&self, now: BootTime) -> Option<u64> {
        let mut present = self.window.lock();
        let new = Window { began: now, logged: 0, omitted: present.map_or(0, |window| window.omitted) };
        let window = present.get_or_insert(new);
        if now >= window.began + WINDOW {
            *window = new;
        }
        if window.logged >= MOST {
            window.omitted += 1;
            return None;
        }
        window.logged += 1;
        Some(std::mem::take(&mut window.omitted))
    }

    /// How many were not logged and not reported yet.
    pub(super) fn take(&self) -> u64 {
        self.window.lock().as_mut().map_or(0, |window| std::mem::take(&mut window.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_reported_with_the_next_one_that_is_logged() {
        let (refusals, began) = (Refusals::default(), BootTime::from_duration(Duration::from_secs(100)));
        let logged: Vec<_> = (0..1000).map(|ms| refusals.count(began + Duration::from_millis(ms))).collect();
        assert!(
            logged[..20].iter().all(|omitted| *omitted == Some(0))
                && logged[20..].iter().all(Option::is_none)
        );
        assert_eq!(refusals.count(began + WINDOW), Some(980));
        assert_eq!(refusals.count(began + WINDOW), Some(0));
    }

    #[test]
    fn a_flood_that_has_ended_is_reported_with_the_next_request() {
        let (refusals, began) = (Refusals::default(), BootTime::from_duration(Duration::from_secs(100)));
        assert_eq!(refusals.take(), 0);
        for _ in 0..50 {
            let _ = refusals.count(began);
        }
        assert_eq!((refusals.take(), refusals.take()), (30, 0));
        assert_eq!(refusals.count(began), None, "the log still has no room");
    }
}
