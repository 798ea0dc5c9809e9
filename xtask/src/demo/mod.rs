//! `cargo xtask demo`.

use std::process::ExitCode;

use anyhow::bail;

pub(crate) async fn run(_keep: bool) -> anyhow::Result<ExitCode> {
    bail!("the demo is not written yet")
}
