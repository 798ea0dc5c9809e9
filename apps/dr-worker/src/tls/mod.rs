//! TLS of the HTTP endpoints: the files of `[http.tls]`, what is made of them, and whether others accept it.
//!
//! Without the feature `tls` nothing is made of them, and the configuration refuses them.

#[cfg(feature = "tls")]
mod certificate;
#[cfg(feature = "tls")]
mod contents;
#[cfg(not(feature = "tls"))]
mod without;

use std::{fmt, path::PathBuf};

use crate::wall::moment;

#[cfg(feature = "tls")]
pub(crate) use certificate::Certificate;
#[cfg(feature = "tls")]
pub(crate) use contents::{ClientTls, Contents, Tls};
#[cfg(not(feature = "tls"))]
pub(crate) use without::{ClientTls, Contents, Tls};

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
    /// Why, and what to do.
    pub(crate) why: String,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

/// How long before its end a certificate is reported.
const SOON: u64 = 14 * 24 * 3600;

/// The end of a certificate that is near or over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) is_over: bool,
    pub(crate) sentence: String,
}

/// Whether the end of a certificate is near. Both times are seconds since the Unix epoch.
pub(crate) fn expiry(not_after: u64, now: u64) -> Option<Ending> {
    let at = moment(not_after.saturating_mul(1000));
    let is_over = not_after < now;
    let sentence = match not_after.saturating_sub(now) {
        _ if is_over => {
            format!("the certificate of http.tls.cert_file has expired at {at}: clients refuse it; renew it")
        }
        left if left < SOON => format!("the certificate of http.tls.cert_file expires at {at}; renew it"),
        _ => return None,
    };
    Some(Ending { is_over, sentence })
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
        assert_eq!(expiry(end, end - SOON), None);
        let soon = expiry(end, end - SOON + 1).unwrap();
        assert!(!soon.is_over && soon.sentence.contains("expires at 2023-11-14T22:13:20Z"), "{soon:?}");
        assert!(!expiry(end, end).unwrap().is_over);
        let over = expiry(end, end + 1).unwrap();
        assert!(over.is_over && over.sentence.contains("has expired at 2023-11-14"), "{over:?}");
    }
}
