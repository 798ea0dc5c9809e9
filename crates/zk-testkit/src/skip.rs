//! Tests that this machine can't run.

use std::fmt;
use std::fs::File;
use std::io::Write as _;

/// Says that a test is skipped, and why: on standard error, and as a line of the file that the environment variable
/// `TEST_SKIPS` names, if it is set.
///
/// ```no_run
/// # fn a_proxy_routes_to_the_leader() {
/// # let has_haproxy = false;
/// if !has_haproxy {
///     return zk_testkit::skip("there is no haproxy: apt-get install haproxy");
/// }
/// # }
/// ```
///
/// # Panics
/// If the environment variable `CI` is set: a test that CI skips is never run.
pub fn skip(why: impl fmt::Display) {
    eprintln!("SKIPPED: {why}");
    if let Some(file) = std::env::var_os("TEST_SKIPS") {
        let opened = File::options().create(true).append(true).open(file);
        // In one write, because other processes write there, too.
        let written = opened.and_then(|mut file| file.write_all(format!("{why}\n").as_bytes()));
        written.unwrap_or_else(|error| panic!("the file of TEST_SKIPS: {error}"));
    }
    assert!(std::env::var_os("CI").is_none(), "{why}");
}
