//! Credentials, read from a file and never printed.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tracing::warn;

/// Credentials that are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// Credentials could not be read from their file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("credentials file {}: {reason}", .path.display())]
pub struct SecretFileError {
    path: PathBuf,
    reason: String,
}

impl SecretFileError {
    /// The file, as given.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Secret {
    /// Reads credentials from a file, all of it but one line break at its end, which editors and `echo` leave there.
    ///
    /// A file that every user of the machine may read is used, with a warning in the log: it may be mounted like that where
    /// no other user has a shell.
    ///
    /// # Errors
    /// [`SecretFileError`] if it can't be read, or if there is nothing in it.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, SecretFileError> {
        Self::read(path.as_ref(), |path| fs::read(path))
    }

    /// The same, with the content by `read`.
    pub(crate) fn read(
        path: &Path,
        read: impl FnOnce(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Self, SecretFileError> {
        let fail = |reason: String| SecretFileError { path: path.to_owned(), reason };
        let mut secret = read(path).map_err(|error| fail(error.to_string()))?;
        let mode = fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
        if mode & 0o004 != 0 {
            warn!(
                path = %path.display(), mode = format_args!("{:04o}", mode & 0o7777),
                "every user of this machine may read these credentials: remove the permission with chmod o-r"
            );
        }
        if secret.ends_with(b"\n") {
            secret.pop();
            if secret.ends_with(b"\r") {
                secret.pop();
            }
        }
        if secret.is_empty() {
            return Err(fail("it is empty".to_owned()));
        }
        Ok(Self(secret))
    }

    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// In the form that the authentication scheme wants.
impl<T: Into<Vec<u8>>> From<T> for Secret {
    fn from(secret: T) -> Self {
        Self(secret.into())
    }
}

/// Credentials, added to the connection before anything else and again after each reconnect.
#[derive(Clone, Debug)]
pub(crate) struct Auth {
    pub(crate) scheme: String,
    pub(crate) secret: Secret,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(content: &[u8]) -> Result<Secret, SecretFileError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        fs::write(&path, content).unwrap();
        Secret::from_file(path)
    }

    #[test]
    fn one_line_break_at_the_end_is_not_part_of_it() {
        for (content, secret) in [
            (&b"user:pass"[..], &b"user:pass"[..]),
            (b"user:pass\n", b"user:pass"),
            (b"user:pass\r\n", b"user:pass"),
            (b"user:pass\n\n", b"user:pass\n"),
            (b" user:pa ss \n", b" user:pa ss "),
            (b"\xff\x00\n", b"\xff\x00"),
        ] {
            assert_eq!(from(content).unwrap().expose(), secret);
        }
    }

    #[test]
    fn a_file_without_credentials_is_named() {
        for content in [&b""[..], b"\n", b"\r\n"] {
            let error = from(content).unwrap_err();
            assert!(error.path().ends_with("credentials"), "{error}");
            assert!(error.to_string().contains("it is empty"), "{error}");
        }
        let error = Secret::from_file("/nowhere/credentials").unwrap_err();
        assert!(error.to_string().contains("/nowhere/credentials"), "{error}");
    }
}
