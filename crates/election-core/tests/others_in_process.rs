//! The contenders of others once more, on the server in the process.

#[path = "others/main.rs"]
mod others;
