#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod patch_window;

pub use patch_window::PatchWindow;

use strategies::{Registry, registry::RegistryError};

/// The stages of `my-worker` besides the built-in ones.
///
/// # Errors
/// Never, unless a later version has a built-in stage of the same name.
pub fn registry() -> Result<Registry, RegistryError> {
    Registry::default().stage(PatchWindow::NAME, PatchWindow::stage)
}
