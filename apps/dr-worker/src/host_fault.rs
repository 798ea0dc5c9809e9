//! Why something that the configuration names can't be used on this host.

use std::{fmt, io, path::Path};

/// The fault, and whether time heals it.
///
/// What is absent may come with a later mount, a user from a directory service, an address from a network that is not up
/// yet: after a power cut of a site that is the normal order. A worker waits for such things. The owner of the configuration
/// corrects what is there and wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFault {
    /// What is wrong, and what to do.
    pub why: String,
    /// Whether it may be healed without another configuration.
    pub may_pass: bool,
}

impl HostFault {
    /// Something is absent.
    pub(crate) const fn absent(why: String) -> Self {
        Self { why, may_pass: true }
    }

    /// A call of the system failed with an error of this kind.
    pub(crate) const fn of_kind(why: String, kind: io::ErrorKind) -> Self {
        Self { why, may_pass: may_pass(kind) }
    }

    /// A call of the system failed; the sentence is about this path, and ends with the error.
    pub(crate) fn io(path: &Path, what: &str, error: &io::Error) -> Self {
        Self::of_kind(format!("{}{what}: {error}", path.display()), error.kind())
    }

    /// This process, which runs as some user, can't use its file.
    pub(crate) fn of_user(path: &Path, error: &io::Error) -> Self {
        let user = nix::unistd::Uid::effective();
        Self::io(path, &format!(" can't be used by user {user}"), error)
    }
}

/// Whether an error of a file or an address may pass by itself.
const fn may_pass(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, IsADirectory, NotADirectory, PermissionDenied};
    !matches!(kind, InvalidFilename | InvalidInput | IsADirectory | NotADirectory | PermissionDenied)
}

impl From<String> for HostFault {
    fn from(why: String) -> Self {
        Self { why, may_pass: false }
    }
}

impl fmt::Display for HostFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}
