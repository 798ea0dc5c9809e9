//! The example `fenced_lock` does what it says.

#[allow(dead_code, unreachable_pub, reason = "its main is not called here")]
#[path = "../../examples/fenced_lock.rs"]
mod fenced_lock;

use std::sync::{Arc, Mutex};

use crate::common::{Bed, PATIENCE, eventually, soon};
use zk_session::DriverKind;

#[tokio::test]
async fn one_at_a_time_and_each_with_a_higher_token() {
    let bed = Bed::start(DriverKind::default()).await;
    let steps: Arc<Mutex<Vec<i64>>> = Arc::default();
    let worker = || {
        let (connect, steps) = (bed.ensemble.connect_string(), Arc::clone(&steps));
        tokio::spawn(async move {
            let mut left = 3;
            let step = move |token| {
                steps.lock().unwrap().push(token);
                left -= 1;
                left > 0
            };
            fenced_lock::work(&connect, "/lock", step).await
        })
    };
    let workers = [worker(), worker(), worker()];
    for worker in workers {
        soon("its work", worker).await.unwrap().unwrap();
    }
    let steps = steps.lock().unwrap().clone();
    assert_eq!(steps.len(), 9);
    assert!(steps.is_sorted(), "they took turns: {steps:?}");
    assert!(steps[0] < steps[3] && steps[3] < steps[6], "{steps:?}");
}

#[tokio::test]
async fn who_loses_its_session_stops() {
    let bed = Bed::start(DriverKind::default()).await;
    let steps: Arc<Mutex<Vec<i64>>> = Arc::default();
    let (connect, seen) = (bed.proxy.addr().to_string(), Arc::clone(&steps));
    let worker = tokio::spawn(async move {
        let step = move |token| {
            seen.lock().unwrap().push(token);
            true
        };
        fenced_lock::work(&connect, "/lock", step).await
    });
    eventually("the first step", || async { !steps.lock().unwrap().is_empty() }).await;
    bed.proxy.refuse(true).await.unwrap();
    bed.proxy.cut().await;
    let error = soon("its end", worker).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("the lock is lost"), "{error}");
    bed.proxy.wait_connections(0, PATIENCE).await.unwrap();
}
