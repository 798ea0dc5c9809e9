//! The session of a command, and the elections that it is about.

pub(super) use crate::commands::{Operator, asker};
