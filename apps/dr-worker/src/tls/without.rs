//! What there is without the feature `tls`: nothing.

use std::{borrow::Cow, path::Path};

use zk_session::TlsOptions;

use super::{Expiry, TlsFiles, Unusable};

/// See the feature `tls`.
#[derive(Debug)]
pub(crate) struct Contents;

impl Contents {
    pub(crate) fn read(_: &TlsFiles) -> Result<Self, Unusable> {
        Ok(Self)
    }

    pub(crate) fn digest(&self) -> u64 {
        0
    }

    pub(crate) fn load(self, _: bool) -> Result<Tls, Unusable> {
        Ok(Tls { client: ClientTls })
    }
}

/// See the feature `tls`.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) client: ClientTls,
}

impl Tls {
    pub(crate) fn expires(&self) -> Option<Expiry> {
        None
    }

    pub(crate) fn refused_by_workers(&self, _: &str) -> Option<String> {
        None
    }
}

/// See the feature `tls`.
#[derive(Clone, Debug)]
pub(crate) struct ClientTls;

impl ClientTls {
    pub(crate) fn of_operator(_: &TlsFiles) -> Option<Self> {
        Some(Self)
    }
}

/// See the feature `tls`.
pub(crate) fn of_authorities(_: impl Into<Cow<'static, str>>, _: &Path) -> Option<Expiry> {
    None
}

/// See the feature `tls`.
pub(crate) fn of_zookeeper(_: Option<&TlsOptions>) -> Vec<Expiry> {
    Vec::new()
}
