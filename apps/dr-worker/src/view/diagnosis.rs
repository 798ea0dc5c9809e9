use election_admin::{Observer, ReadError, Snapshot};
use election_core::Paths;

use super::{access, problems::ProblemRow};
use crate::config::ZooKeeperConfig;

/// All problems of the election of `job`.
///
/// # Errors
/// If ZooKeeper does not answer.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn diagnose(
    observer: &Observer,
    config: &ZooKeeperConfig,
    job: &str,
    paths: &Paths,
    snapshot: &Snapshot,
) -> Result<Vec<ProblemRow>, ReadError> {
    let problems = observer.problems(paths, snapshot).await?;
    let mut rows: Vec<_> =
        problems.iter().map(|problem| ProblemRow::new(job, snapshot.layout, problem)).collect();
    rows.extend(access::problem(observer.session(), config, paths).await?);
    Ok(rows)
}
