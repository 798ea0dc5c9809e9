//! `my-worker`: `dr-worker` with the stages of this crate.

use std::process::ExitCode;

use strategies::registry::RegistryError;

fn main() -> Result<ExitCode, RegistryError> {
    Ok(dr_worker::main_with(own_stage::registry()?))
}
