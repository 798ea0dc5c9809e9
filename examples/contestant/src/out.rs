//! The output: one line at a time, flushed, stamped with CLOCK_MONOTONIC.

use std::io::{Write as _, stdout};

use nix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in nanoseconds: the same clock in every process of a machine.
fn now() -> i128 {
    let Ok(time) = clock_gettime(ClockId::CLOCK_MONOTONIC) else { return 0 };
    i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec())
}

fn line(text: &str) {
    // The lock is held over the flush, so that no two lines mix. The reader may have gone; the error is then ignored.
    let mut out = stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// `WHAT t`
pub(crate) fn say(what: &str) {
    line(&format!("{what} {}", now()));
}

/// `WHAT i t`
pub(crate) fn say_of(what: &str, candidate: usize) {
    line(&format!("{what} {candidate} {}", now()));
}

/// `ERR why`
pub(crate) fn error(why: &str) {
    line(&format!("ERR {}", why.replace('\n', " ")));
}
