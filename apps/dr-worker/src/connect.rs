//! Opens a session as configured.

use std::{fs, io, path::Path, time::Duration};

use serde::{Deserialize, Serialize};
use zk_session::{Acl, Session, SessionBuilder, Ticket};

use crate::{
    checked,
    config::{
        Auth, CREDENTIALS, Config, Problems, Scheme, ZooKeeperAccess, ZooKeeperConfig, ZooKeeperTls,
        unreadable,
    },
    error::Error,
};

/// How another process of this program reaches the servers as this one: by the same files, never by their contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Servers {
    connect: String,
    auth: Option<Auth>,
    tls: Option<ZooKeeperTls>,
}

impl Servers {
    pub(crate) fn of(config: &ZooKeeperConfig) -> Servers {
        let ZooKeeperConfig { connect, auth, tls, .. } = config.clone();
        Servers { connect, auth, tls }
    }

    #[cfg(test)]
    pub(crate) fn example(auth: Option<Auth>, tls: Option<ZooKeeperTls>) -> Servers {
        Servers { connect: "zk1:2181,zk2:2181".to_owned(), auth, tls }
    }

    /// A session with these servers, with the credentials that the files contain now.
    ///
    /// # Errors
    /// If the credentials can't be read.
    pub(crate) fn builder(&self) -> Result<SessionBuilder, Error> {
        let mut builder = Session::builder(&self.connect).read_files_by(from_disk_or_checked);
        if let Some(auth) = &self.auth {
            let (user, password) = auth.read().map_err(|fault| Error::on_host(CREDENTIALS, fault))?;
            builder = match auth.scheme {
                Scheme::Digest => builder.auth(auth.scheme.as_str(), format!("{user}:{password}").as_str()),
                // Read again for each connection.
                Scheme::Sasl => builder.sasl_digest_file(&auth.credentials_file),
            };
        }
        if let Some(tls) = &self.tls {
            unreadable(tls).map_or(Ok(()), |(key, fault)| Err(Error::on_host(key, fault)))?;
            builder = with_tls(builder, tls);
        }
        Ok(builder)
    }
}

/// Checks what a new program connects with: it has no connection before, whose files it could go on with. It blocks.
///
/// # Errors
/// Why it can't connect with this configuration.
pub(crate) fn can_connect(config: &Config) -> Result<(), Problems> {
    let checked = Servers::of(&config.zookeeper).builder().and_then(|builder| Ok(builder.check()?));
    checked.map_err(|error| match error.located(|key, fault| config.problem(key, fault)) {
        Error::Config(problems) => problems,
        other => config.problem("zookeeper", other.to_string()),
    })
}

/// With these files.
#[cfg(feature = "tls")]
pub(crate) fn with_tls(builder: SessionBuilder, tls: &ZooKeeperTls) -> SessionBuilder {
    let options = zk_session::TlsOptions::new(&tls.ca_file);
    builder.tls(match (&tls.cert_file, &tls.key_file) {
        (Some(cert), Some(key)) => options.identity(cert, key),
        _ => options,
    })
}

/// The configuration refuses it.
#[cfg(not(feature = "tls"))]
pub(crate) fn with_tls(builder: SessionBuilder, _: &ZooKeeperTls) -> SessionBuilder {
    builder
}

/// The first connection after an upgrade in place uses what was checked.
fn from_disk_or_checked(path: &Path) -> io::Result<Vec<u8>> {
    checked::read(path, || fs::read(path))
}

/// Connects, within the configured time. With `suspect_after` the session leaves a silent server within that time.
///
/// `resumed` is the session of the program before this one in this process.
///
/// # Errors
/// If no server made a session in time, or the resumed one is over, or a configured value can't be used.
pub(crate) async fn connect(
    config: &ZooKeeperConfig,
    suspect_after: Option<Duration>,
    resumed: Option<Ticket>,
) -> Result<Session, Error> {
    let mut builder = Servers::of(config)
        .builder()?
        .session_timeout(config.session_timeout)
        .connect_timeout(config.connect_timeout)
        .tick_time(config.tick_time)
        .driver(config.driver)
        .prefer(&config.prefer)
        .acl(match config.acl {
            ZooKeeperAccess::Creator => Acl::CreatorAll,
            ZooKeeperAccess::Open => Acl::Open,
        });
    if let Some(after) = suspect_after {
        builder = builder.suspect_after(after);
    }
    if let Some(ticket) = resumed {
        builder = builder.resume(ticket);
    }
    Ok(builder.connect().await?)
}
