//! Opens a session as configured.

use std::{fs, os::unix::fs::PermissionsExt as _};

use zk_session::{Acl, Session};

use crate::{
    config::{Access, Auth, Scheme, ZooKeeperConfig},
    error::Error,
};

/// Connects, within the configured time.
///
/// # Errors
/// If no server made a session in time, or a configured value can't be used.
pub(crate) async fn connect(config: &ZooKeeperConfig) -> Result<Session, Error> {
    let mut builder = Session::builder(&config.connect)
        .session_timeout(config.session_timeout)
        .connect_timeout(config.connect_timeout)
        .tick_time(config.tick_time)
        .driver(config.driver)
        .acl(match config.acl {
            Access::Creator => Acl::CreatorAll,
            Access::Open => Acl::Open,
        });
    if let Some(auth) = &config.auth {
        let (user, password) = credentials(auth)?;
        builder = match auth.scheme {
            Scheme::Digest => builder.auth(auth.scheme.as_str(), format!("{user}:{password}").as_str()),
            Scheme::Sasl => builder.sasl_digest(user, password.as_str()),
        };
    }
    if let Some(tls) = &config.tls {
        builder = builder.tls(tls.clone());
    }
    Ok(builder.connect().await?)
}

/// User and password.
fn credentials(auth: &Auth) -> Result<(String, String), Error> {
    const KEY: &str = "zookeeper.auth.credentials_file";
    let path = auth.credentials_file.display();
    let wrong = |message: String| Error::Setting { key: KEY, message };
    let metadata =
        fs::metadata(&auth.credentials_file).map_err(|e| wrong(format!("{path} can't be read: {e}")))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        tracing::warn!("{KEY}: {path} is readable by other users; run chmod 600 on it");
    }
    let text = fs::read_to_string(&auth.credentials_file)
        .map_err(|e| wrong(format!("{path} can't be read: {e}")))?;
    let text = text.trim_end_matches(['\r', '\n']);
    // The content of the file must not be shown.
    match text.split_once(':') {
        Some((user, password)) if !user.is_empty() && !password.is_empty() => {
            Ok((user.to_owned(), password.to_owned()))
        }
        _ => Err(wrong(format!("{path} must contain user:password"))),
    }
}
