//! A job's command that measures its member, with real processes.

use std::time::Duration;

use crate::support::{Tree, guards, spec};
use dr_worker::config::{JobSpec, Measure};
use dr_worker::worker::job::{JobEnv, run_measure};

fn measuring(tree: &Tree, script: &str, timeout: Duration) -> JobSpec {
    let command = vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()];
    let second = Duration::from_secs(1);
    let measure = Measure { command, interval: second, timeout, keep: second };
    JobSpec { measure: Some(measure), ..spec(tree, "true") }
}

async fn measured(tree: &Tree, script: &str) -> Result<Vec<(String, String)>, String> {
    let env = JobEnv { job: "orders".to_owned(), member: "east-1".to_owned(), ..JobEnv::default() };
    let spec = measuring(tree, script, Duration::from_secs(20));
    run_measure(&spec, &env, "standby", &guards()).await.map(|all| all.into_iter().collect())
}

#[tokio::test]
async fn what_it_prints_is_what_is_measured() {
    let tree = Tree::new();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let script = "echo lag=3; echo who=$DR_MEMBER-$DR_JOB-$DR_ROLE; echo not this >&2";
    assert_eq!(
        measured(&tree, script).await,
        Ok(vec![pair("lag", "3"), pair("who", "east-1-orders-standby")])
    );
    assert_eq!(measured(&tree, "printf '{\"lag\": 3}'").await, Ok(vec![pair("lag", "3")]));
    assert_eq!(measured(&tree, "true").await, Ok(Vec::new()));
    assert_eq!(tree.living(), []);
}

#[tokio::test]
async fn what_is_wrong_with_it_is_said() {
    let tree = Tree::new();
    let error = measured(&tree, "echo lag=3; echo no replica here >&2; exit 3").await.unwrap_err();
    assert!(error.contains("exit code 3") && error.contains("no replica here"), "{error}");
    let error = measured(&tree, "exec /no/such/program").await.unwrap_err();
    assert!(error.starts_with("it ended: "), "{error}");
    let error = measured(&tree, "echo 'much lag'").await.unwrap_err();
    assert!(error.contains("\"much lag\", which is not name=value"), "{error}");
    // More than a pipe holds: it must not be held up either.
    let error = measured(&tree, "head -c 1000000 /dev/zero | tr '\\0' x").await.unwrap_err();
    assert!(error.contains("too long"), "{error}");
    assert_eq!(tree.living(), []);
}

#[tokio::test]
async fn one_that_hangs_is_killed_with_all_that_it_started() {
    let tree = Tree::new();
    let spec = measuring(&tree, "echo lag=3; sleep 1000 & sleep 1000", Duration::from_millis(300));
    let error = run_measure(&spec, &JobEnv::default(), "leader", &guards()).await.unwrap_err();
    assert!(error.starts_with("it did not end within "), "{error}");
    assert_eq!(tree.living(), []);
}
