//! How long a run of the checker takes: figures for a table, and nothing else.

/// Measures.
#[derive(Debug)]
pub(crate) struct Stopwatch(std::time::Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "a run of the checker is measured, not the engine's time")]
    pub(crate) fn start() -> Self {
        Self(std::time::Instant::now())
    }

    #[allow(clippy::disallowed_methods, reason = "a run of the checker is measured, not the engine's time")]
    pub(crate) fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}
