//! The members of one election, each with a session of its own.

/// The commands to the members.
pub(crate) trait Members {
    /// The leader resigns and leaves. Returns its number.
    async fn release(&mut self) -> Result<usize, String>;

    /// It joins again, behind all others.
    async fn rejoin(&mut self, member: usize) -> Result<(), String>;

    /// Ends them all.
    async fn end(self);
}
