//! The numbers of `KeeperException.Code`.

/// What a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const OK: Self = Self(0);
    pub(crate) const RUNTIME_INCONSISTENCY: Self = Self(-2);
    pub(crate) const MARSHALLING_ERROR: Self = Self(-5);
    pub(crate) const UNIMPLEMENTED: Self = Self(-6);
    pub(crate) const BAD_ARGUMENTS: Self = Self(-8);
    pub(crate) const UNKNOWN_SESSION: Self = Self(-12);
    pub(crate) const NO_NODE: Self = Self(-101);
    pub(crate) const NO_AUTH: Self = Self(-102);
    pub(crate) const BAD_VERSION: Self = Self(-103);
    pub(crate) const NO_CHILDREN_FOR_EPHEMERALS: Self = Self(-108);
    pub(crate) const NODE_EXISTS: Self = Self(-110);
    pub(crate) const NOT_EMPTY: Self = Self(-111);
    pub(crate) const SESSION_EXPIRED: Self = Self(-112);
    pub(crate) const INVALID_ACL: Self = Self(-114);
    pub(crate) const AUTH_FAILED: Self = Self(-115);
    pub(crate) const SESSION_MOVED: Self = Self(-118);
    pub(crate) const NO_WATCHER: Self = Self(-121);
    pub(crate) const RECONFIG_DISABLED: Self = Self(-123);
}
