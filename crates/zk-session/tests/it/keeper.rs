//! Servers that speak the protocol and keep another promise: ClickHouse Keeper ends a session with its connection, and
//! answers a client that comes back with a new session.

use std::time::Duration;

use crate::common::server::keeper;
use crate::common::{PATIENCE, builder, soon, wait_for, wait_state};
use zk_session::{BootTime, DriverKind, Epoch, InactiveReason, SessionState, sleep_until};

const GRANTED: Duration = Duration::from_secs(2);

async fn no_lease_is_given(driver: DriverKind) {
    let (address, _close) = keeper(GRANTED).await;
    let session = builder(driver, address).connect().await.unwrap();
    let refused = session.active().await.unwrap().leases().unwrap_err();
    assert!(refused.to_string().contains("ClickHouse Keeper"), "{refused}");
    let lease = session.keep_lease();
    sleep_until(BootTime::now() + GRANTED).await;
    assert_eq!(lease.lease(), None, "its heartbeats are acknowledged, and prove nothing");
    assert!(session.state().is_active());
    session.close(PATIENCE).await;
}

async fn a_swapped_session_has_expired(driver: DriverKind) {
    let (address, close) = keeper(GRANTED).await;
    let session = builder(driver, address).connect().await.unwrap();
    let mut states = session.subscribe();
    close.send_replace(1);
    // The next ping or probe finds the connection closed, and the next connection is another session's.
    let expired = |state: &SessionState| *state == SessionState::Inactive { reason: InactiveReason::Expired };
    wait_for(&mut states, "expired", expired).await;
    close.send_replace(0);
    wait_state(&session, "active again", SessionState::is_active).await;
    assert_eq!(soon("the next session", session.active()).await.unwrap().epoch(), Epoch(2));
    session.close(PATIENCE).await;
}

macro_rules! over_both_drivers {
    ($($name:ident),*) => {
        mod native {
            $(#[tokio::test] async fn $name() { super::$name(super::DriverKind::Native).await; })*
        }
        mod zookeeper_async {
            $(#[tokio::test]
            #[ignore = "double: the other driver; cargo xtask test --full"]
            async fn $name() { super::$name(super::DriverKind::ZookeeperAsync).await; })*
        }
    };
}

over_both_drivers!(no_lease_is_given, a_swapped_session_has_expired);
