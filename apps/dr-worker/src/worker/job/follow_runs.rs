use std::{future::pending, sync::Arc};

use job_guard::JobRun;
use tokio::sync::watch;

/// Calls `seen` after each change of a process: of the run's, and of which run it is, if any. `turns` counts the latter. It ends
/// when the sender is dropped.
pub(crate) async fn follow_runs(
    turns: &watch::Sender<u64>,
    run: impl Fn() -> Option<Arc<JobRun>>,
    seen: impl Fn(),
) {
    let mut turns = turns.subscribe();
    loop {
        turns.borrow_and_update();
        let mut status = run().map(|run| run.status());
        seen();
        let same_run = async {
            if let Some(status) = &mut status {
                while status.changed().await.is_ok() {
                    seen();
                }
            }
            pending::<()>().await;
        };
        tokio::select! {
            turned = turns.changed() => if turned.is_err() { return },
            () = same_run => {}
        }
    }
}
