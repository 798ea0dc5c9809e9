//! Credentials are in no log, at no level, and in no `Debug` output.

use std::os::unix::fs::PermissionsExt as _;

use crate::common::{Bed, Captured, PATIENCE};
use zk_session::{Acl, CreateMode, DriverKind, OpError, Secret};

const PASSWORD: &str = "hunter2";

#[tokio::test]
async fn credentials_are_neither_logged_nor_shown() {
    let log = Captured::of_process();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    std::fs::write(&file, format!("operator:{PASSWORD}\n")).unwrap();

    let mut shown = String::new();
    for driver in DriverKind::ALL {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let before = log.text().len();
        let secret = Secret::from_file(&file).unwrap();
        assert!(!log.text()[before..].contains("chmod"), "a warning without need");
        shown += &format!("{secret:?}");

        let bed = Bed::start(driver).await;
        let builder = bed.builder().auth("digest", secret).acl(Acl::CreatorAll);
        shown += &format!("{builder:?} {builder:#?}");
        #[cfg(feature = "sasl")]
        {
            shown += &format!("{:?}", builder.clone().sasl_digest("operator", PASSWORD));
        }
        let session = builder.connect().await.unwrap();
        let incarnation = session.active().await.unwrap();
        incarnation.create("/logged", "", CreateMode::Ephemeral).await.unwrap();
        // Read over another connection, for which the credentials are sent again.
        bed.proxy.cut().await;
        assert!(session.get("/logged").await.unwrap().is_some());
        shown += &format!("{session:?} {incarnation:?}");
        // Where something is refused.
        let stranger =
            bed.builder().auth("digest", Secret::from("operator:tenretni")).connect().await.unwrap();
        let refused = stranger.get("/logged").await.unwrap_err();
        assert!(matches!(refused, OpError::NoAuth { .. }), "{refused}");
        let refused =
            bed.builder().auth("no-such-scheme", Secret::from(PASSWORD)).connect().await.unwrap_err();
        shown += &format!("{refused} {refused:?}");
        stranger.close(PATIENCE).await;
        session.close(PATIENCE).await;
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    Secret::from_file(&file).unwrap();

    let text = log.text();
    assert!(text.contains("chmod o-r"), "no warning of a file that everybody may read");
    assert!(text.contains("session is active"), "nothing was captured, so this test proves nothing");
    for secret in [PASSWORD, "tenretni"] {
        log.assert_without(secret);
        assert!(!shown.contains(secret), "{shown}");
    }
}
