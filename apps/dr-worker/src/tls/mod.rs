//! TLS of the HTTP endpoints: the files of `[http.tls]`, what is made of them, and whether others accept it.
//!
//! Without the feature `tls` nothing is made of them, and the configuration refuses them.

#[cfg(feature = "tls")]
mod certificate;
#[cfg(feature = "tls")]
mod contents;
#[cfg(not(feature = "tls"))]
mod without;

use std::{borrow::Cow, fmt, path::PathBuf};

use crate::{host_fault::HostFault, wall::moment};

#[cfg(feature = "tls")]
pub(crate) use certificate::Certificate;
#[cfg(feature = "tls")]
pub(crate) use contents::{ClientTls, Contents, Tls, of_authorities, of_zookeeper};
#[cfg(not(feature = "tls"))]
pub(crate) use without::{
    NoClientTls as ClientTls, NoContents as Contents, NoTls as Tls, of_authorities, of_zookeeper,
};

/// The files of `[http.tls]`, all PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// This worker's certificate; without it the port has no TLS.
    pub pair: Option<PairFiles>,
    /// The authorities whose certificates clients may present.
    pub client_ca_file: Option<PathBuf>,
    /// The authorities of the other workers' certificates.
    pub ca_file: Option<PathBuf>,
}

/// A certificate, followed by those of intermediate authorities, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairFiles {
    /// The certificates.
    pub cert_file: PathBuf,
    /// The key, not encrypted.
    pub key_file: PathBuf,
}

/// A file that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// Its key.
    pub(crate) key: &'static str,
    /// Why.
    pub(crate) fault: HostFault,
}

#[cfg(feature = "tls")]
impl Unusable {
    /// The file of this key has to be mended.
    fn new(key: &'static str, why: String) -> Self {
        Self { key, fault: why.into() }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.fault)
    }
}

/// Why a configuration with TLS is refused without the feature.
pub(crate) const WITHOUT_TLS: &str =
    "this dr-worker was built without TLS; build it with the feature tls, which is on by default";

/// How long before its end a certificate is reported.
const SOON: u64 = 14 * 24 * 3600;

const CERT: &str = "http.tls.cert_file";
const ZOOKEEPER_CERT: &str = "zookeeper.tls.cert_file";
const ZOOKEEPER_CA: &str = "zookeeper.tls.ca_file";

/// The end of a certificate that is near or over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) is_over: bool,
    pub(crate) sentence: String,
}

/// A certificate of the configuration that ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// The key of its file.
    pub(crate) key: Cow<'static, str>,
    /// The last second in which it is valid, since the Unix epoch.
    pub(crate) not_after: u64,
}

impl Expiry {
    /// Whether the end is near. `now` is in seconds since the Unix epoch.
    pub(crate) fn ending(&self, now: u64) -> Option<Ending> {
        let Self { key, not_after } = self;
        let at = moment(not_after.saturating_mul(1000));
        let is_over = *not_after < now;
        let effect = match &**key {
            ZOOKEEPER_CERT => "the ZooKeeper servers refuse it",
            ZOOKEEPER_CA => "this worker refuses the ZooKeeper servers",
            CERT => "clients refuse it",
            _ => "this worker refuses the receiver",
        };
        let sentence = match not_after.saturating_sub(now) {
            _ if is_over => format!("the certificate of {key} has expired at {at}: {effect}; renew it"),
            left if left < SOON => {
                format!("the certificate of {key} expires at {at}: then {effect}; renew it")
            }
            _ => return None,
        };
        Some(Ending { is_over, sentence })
    }
}

/// The name of the scheme of URLs.
pub(crate) const fn scheme(with_tls: bool) -> &'static str {
    if with_tls { "https" } else { "http" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_reported_two_weeks_before() {
        let end = 1_700_000_000;
        let expiry = |key| move |now| Expiry { key: Cow::Borrowed(key), not_after: end }.ending(now);
        assert_eq!(expiry(CERT)(end - SOON), None);
        let soon = expiry(CERT)(end - SOON + 1).unwrap();
        assert!(!soon.is_over && soon.sentence.contains("expires at 2023-11-14T22:13:20Z"), "{soon:?}");
        assert!(!expiry(CERT)(end).unwrap().is_over);
        for (key, effect) in [
            (CERT, "clients"),
            (ZOOKEEPER_CERT, "the ZooKeeper servers"),
            (ZOOKEEPER_CA, "this worker"),
            ("notify.webhook.ops.ca_file", "this worker"),
        ] {
            let over = expiry(key)(end + 1).unwrap();
            let expected = format!("the certificate of {key} has expired at 2023-11-14T22:13:20Z: {effect} ");
            assert!(over.is_over && over.sentence.starts_with(&expected), "{over:?}");
        }
    }
}
