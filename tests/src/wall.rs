//! Wrong wall clocks, for one process and its children.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Loaded before the C library: advances the time of day by the value in the environment. Other clocks are unchanged.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, id, time);
    const char *ahead = getenv("WALL_AHEAD_S");
    if (!failed && id == CLOCK_REALTIME && ahead)
        time->tv_sec += atol(ahead);
    return (int)failed;
}
"#;

/// The environment of a process whose wall clock is ahead by so many seconds.
///
/// # Panics
/// Without a C compiler.
pub fn wall_ahead(dir: &Path, seconds: u32) -> Vec<(OsString, OsString)> {
    let (source, library) = (dir.join("wall.c"), dir.join("wall.so"));
    fs::write(&source, SHIM).expect("write the shim");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.expect("a C compiler, cc").success(), "the shim can't be compiled");
    vec![("LD_PRELOAD".into(), library.into()), ("WALL_AHEAD_S".into(), seconds.to_string().into())]
}
