//! SASL DIGEST-MD5: the user of a connection.

use std::path::Path;
use std::sync::Arc;

use crate::settings::renewed::renewed;
use crate::settings::secret::Secret;
use crate::settings::{ReadFile, SaslDigest, SaslUser, Settings};

/// For one connection: reads the file, if the user is in one. `None` without SASL.
pub(super) async fn user(settings: &Arc<Settings>) -> Result<Option<SaslUser>, String> {
    let path = match &settings.sasl {
        None => return Ok(None),
        Some(SaslDigest::User(user)) => return Ok(Some(user.clone())),
        Some(SaslDigest::File(path)) => path.clone(),
    };
    let by = settings.read_file.clone();
    renewed("credentials", &settings.sasl_in_use, move || read(&path, &by)).await.map(Some)
}

/// Without its contents in an error.
pub(crate) fn read(path: &Path, by: &ReadFile) -> Result<SaslUser, String> {
    let secret = Secret::read(path, &*by.0).map_err(|error| error.to_string())?;
    let parts = str::from_utf8(secret.expose()).ok().and_then(|text| text.split_once(':'));
    match parts.filter(|(user, password)| !user.is_empty() && !password.is_empty()) {
        Some((user, password)) => Ok(SaslUser { user: user.to_owned(), password: password.into() }),
        None => Err(format!("credentials file {}: it must contain user:password", path.display())),
    }
}
