//! The members of one election, each with a session of its own.

/// What is done to them.
pub(crate) trait Members {
    /// The leader gives up, and takes part no more; who that was.
    async fn release(&mut self) -> Result<usize, String>;

    /// It takes part again, behind everyone.
    async fn rejoin(&mut self, member: usize) -> Result<(), String>;

    /// Ends them all.
    async fn end(self);
}
