//! `dr-worker`: runs a program on exactly one node across two sites.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    // Before anything else: a guard must not load configuration, open sockets or start threads.
    if args.next().is_some_and(|verb| verb == "guard") {
        return dr_worker::guard::main(args);
    }
    dr_worker::cli::main().into()
}
