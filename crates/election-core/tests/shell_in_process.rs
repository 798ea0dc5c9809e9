//! The tests of the shell once more, on the server in the process.

#[path = "shell/main.rs"]
mod shell;
