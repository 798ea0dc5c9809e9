//! What is read of a certificate: its name and its end. rustls checks it, and shows neither.

use election_core::internals::text::stripped;
use std::time::UNIX_EPOCH;

/// The longest name that is shown.
const LONGEST_NAME: usize = 64;

/// The object identifier of a common name: 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// The last second in which it is valid, since the Unix epoch.
    pub(crate) not_after: u64,
    /// The common name of its subject; empty without one.
    pub(crate) name: String,
}

impl Certificate {
    /// Reads it (RFC 5280, section 4.1). `None` if it is none.
    pub(crate) fn read(mut der: &[u8]) -> Option<Self> {
        let mut certificate = expect(&mut der, SEQUENCE)?;
        let mut fields = expect(&mut certificate, SEQUENCE)?;
        if fields.first() == Some(&VERSION) {
            next(&mut fields)?;
        }
        let [_serial, _algorithm, _issuer] = [next(&mut fields)?, next(&mut fields)?, next(&mut fields)?];
        let mut validity = expect(&mut fields, SEQUENCE)?;
        next(&mut validity)?;
        let (kind, text) = next(&mut validity)?;
        let name = common_name(expect(&mut fields, SEQUENCE)?).unwrap_or_default();
        Some(Self { not_after: seconds(kind, text)?, name })
    }
}

/// The first element, with its tag.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let (of_length, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if of_length.len() > 4 {
            return None;
        }
        length = of_length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some((tag, content))
}

fn expect<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    next(bytes).filter(|(found, _)| *found == tag).map(|(_, content)| content)
}

fn common_name(mut subject: &[u8]) -> Option<String> {
    while let Some((_, mut set)) = next(&mut subject) {
        let mut attribute = expect(&mut set, SEQUENCE)?;
        let (_, kind) = next(&mut attribute)?;
        if kind == COMMON_NAME {
            let (_, text) = next(&mut attribute)?;
            // It gets into logs and records.
            return Some(stripped(&String::from_utf8_lossy(text)).chars().take(LONGEST_NAME).collect());
        }
    }
    None
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn seconds(kind: u8, text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.is_ascii())?;
    let text = match kind {
        UTC_TIME if text.get(..2)? < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let part = |from: usize, to: usize| text.get(from..to);
    let written = format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0, 4)?,
        part(4, 6)?,
        part(6, 8)?,
        part(8, 10)?,
        part(10, 12)?,
        part(12, 14)?
    );
    // Before the epoch: it has expired, whenever that was.
    if part(0, 4)? < "1970" {
        return Some(0);
    }
    let at = humantime::parse_rfc3339(&written).ok()?;
    at.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustls::pki_types::{CertificateDer, pem::PemObject as _};

    use super::*;

    /// A certificate of the tool `openssl`.
    fn made(arguments: &[&str]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
        command.args(["-keyout", "key", "-out", "cert"]).args(arguments).current_dir(dir.path());
        assert!(command.output().expect("openssl is needed to make certificates").status.success());
        CertificateDer::from_pem_file(dir.path().join("cert")).unwrap().to_vec()
    }

    #[test]
    fn the_name_and_the_end_are_those_that_openssl_wrote() {
        let now = UNIX_EPOCH.elapsed().unwrap().as_secs();
        for (days, subject, name) in [
            (3, "/C=CH/O=Example/CN=east-1", "east-1"),
            (1, "/O=Example", ""),
            // After 2049 the time is written in the other form.
            (20_000, "/CN=a name", "a name"),
        ] {
            let der = made(&["-days", &days.to_string(), "-subj", subject]);
            let read = Certificate::read(&der).expect("a certificate");
            let left = read.not_after - now;
            assert_eq!(read.name, name);
            assert!(left.abs_diff(days * 86_400) < 120, "{days} days: {left} s");
            // Whatever is cut off or changed: no panic.
            for end in 0..der.len() {
                let _ = Certificate::read(&der[..end]);
                let mut other = der.clone();
                other[end] ^= 0xff;
                let _ = Certificate::read(&other);
            }
        }
        assert_eq!(Certificate::read(b""), None);
    }

    #[test]
    fn both_forms_of_a_time_are_read() {
        assert_eq!(seconds(UTC_TIME, b"700101000001Z"), Some(1));
        assert_eq!(seconds(UTC_TIME, b"491231235959Z"), seconds(GENERALIZED_TIME, b"20491231235959Z"));
        assert_eq!(seconds(GENERALIZED_TIME, b"99991231235959Z"), Some(253_402_300_799));
        assert_eq!(seconds(UTC_TIME, b"500101000000Z"), Some(0));
        assert_eq!(seconds(UTC_TIME, b"7001Z"), None);
        assert_eq!(seconds(4, b"20491231235959Z"), None);
    }
}
