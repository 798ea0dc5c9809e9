#![doc = include_str!("../README.md")]

use std::{io, os::fd::AsFd, time::Duration};

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `WDIOC_SETTIMEOUT`.
const SET_TIMEOUT: Opcode = opcode::read_write::<i32>(b'W', 6);

/// Sets after which time without a write the device resets the machine, and returns what the device has made of that: it
/// may support certain values only. The time is rounded down to whole seconds, but to no less than one.
///
/// # Errors
/// ENOTTY for a file that is no watchdog device, EOPNOTSUPP for a device with a fixed timeout, EINVAL for a value that it does
/// not support.
pub fn set_timeout(device: impl AsFd, timeout: Duration) -> io::Result<Duration> {
    let mut seconds = whole_seconds(timeout);
    // SAFETY: the request reads and writes one `int` behind the pointer (linux/watchdog.h), and nothing else.
    unsafe { ioctl(device, Updater::<SET_TIMEOUT, i32>::new(&mut seconds)) }?;
    Ok(Duration::from_secs(seconds.try_into().unwrap_or(0)))
}

/// Not 0: to some drivers that means that the device is to stop.
fn whole_seconds(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn the_request_is_that_of_the_kernel_s_header() {
        assert_eq!(SET_TIMEOUT, 0xc004_5706);
    }

    #[test]
    fn a_timeout_is_a_second_at_least() {
        let seconds = [0, 1, 999, 1_000, 1_999].map(|ms| whole_seconds(Duration::from_millis(ms)));
        assert_eq!(seconds, [1, 1, 1, 1, 1]);
        assert_eq!((whole_seconds(Duration::from_secs(7)), whole_seconds(Duration::MAX)), (7, i32::MAX));
    }

    #[test]
    fn a_file_that_is_no_watchdog_has_no_timeout() {
        let file = File::open("/dev/null").expect("a file");
        let refused = set_timeout(&file, Duration::from_secs(4));
        assert_eq!(refused.map_err(|error| error.raw_os_error()), Err(Some(25)));
    }
}
