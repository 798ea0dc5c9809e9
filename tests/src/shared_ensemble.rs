//! The ensembles.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use zk_testkit::{Ensemble, EnsembleBuilder};

/// The servers' tick: short, so that short sessions are granted.
pub const TICK: Duration = Duration::from_millis(500);

/// Names the directory of an ensemble that the tests of all processes share: `cargo xtask test` starts one.
const GIVEN: &str = "E2E_ENSEMBLE";

/// Three servers that tests share, each under its own root. For tests that do not disturb the servers.
///
/// # Panics
/// If they don't start.
pub async fn ensemble() -> Arc<Ensemble> {
    static SHARED: OnceCell<Arc<Ensemble>> = OnceCell::const_new();
    let shared = SHARED.get_or_init(async || match std::env::var_os(GIVEN) {
        Some(dir) => {
            Arc::new(Ensemble::attach(dir).unwrap_or_else(|error| panic!("the ensemble of {GIVEN}: {error}")))
        }
        None => own_ensemble(|builder| builder).await,
    });
    Arc::clone(shared.await)
}

/// Three servers for one test alone.
///
/// # Panics
/// If they don't start.
pub async fn own_ensemble(settings: impl FnOnce(EnsembleBuilder) -> EnsembleBuilder) -> Arc<Ensemble> {
    let builder = settings(Ensemble::builder().servers(3).tick_time(TICK));
    Arc::new(builder.start().await.unwrap_or_else(|error| panic!("the ensemble: {error}")))
}
