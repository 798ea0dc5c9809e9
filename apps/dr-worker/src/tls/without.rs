//! What there is without the feature `tls`: nothing.

use std::{borrow::Cow, path::Path};

use super::{Expiry, TlsFiles, Unusable};

/// See the feature `tls`.
#[derive(Debug)]
pub(crate) struct NoContents;

impl NoContents {
    pub(crate) fn read(_: &TlsFiles) -> Result<Self, Unusable> {
        Ok(Self)
    }

    pub(crate) fn digest(&self) -> u64 {
        0
    }

    pub(crate) fn load(self, _: bool) -> Result<NoTls, Unusable> {
        Ok(NoTls { client: NoClientTls })
    }
}

/// See the feature `tls`.
#[derive(Debug)]
pub(crate) struct NoTls {
    pub(crate) client: NoClientTls,
}

impl NoTls {
    pub(crate) fn expires(&self) -> Option<Expiry> {
        None
    }

    pub(crate) fn refused_by_workers(&self, _: &str) -> Option<String> {
        None
    }
}

/// See the feature `tls`.
#[derive(Clone, Debug)]
pub(crate) struct NoClientTls;

impl NoClientTls {
    pub(crate) fn of_operator(_: &TlsFiles) -> Option<Self> {
        Some(Self)
    }
}

/// See the feature `tls`.
pub(crate) fn of_authorities(_: impl Into<Cow<'static, str>>, _: &Path) -> Option<Expiry> {
    None
}

/// See the feature `tls`.
pub(crate) fn of_zookeeper(_: &Path, _: Option<&Path>) -> Vec<Expiry> {
    Vec::new()
}
