//! `dr-worker`: runs a program on exactly one node across two sites.

use std::process::ExitCode;

use dr_worker::Registry;

fn main() -> ExitCode {
    dr_worker::main_with(Registry::default())
}
