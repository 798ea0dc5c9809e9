//! SASL DIGEST-MD5 (RFC 2831) as ZooKeeper's servers support it: no integrity layer, and one authentication.
//!
//! The mechanism is obsolete (RFC 6331), and no maintained crate implements it; it is ZooKeeper's only mechanism with a
//! password.

use std::collections::HashMap;
use std::fmt::Write as _;

use md5::{Digest as _, Md5};

/// The service name of every ZooKeeper server.
const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";

/// One authentication.
pub struct DigestMd5 {
    user: String,
    password: String,
    /// Unpredictable, and made by the caller for each authentication: there is no randomness here.
    cnonce: String,
    state: State,
}

enum State {
    Challenged,
    /// The response has been sent; the server is to prove with this that it knows the password as well.
    Answered {
        proof: String,
    },
    Complete,
}

impl DigestMd5 {
    /// `cnonce` must be unpredictable and never used before.
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>, cnonce: u128) -> Self {
        let cnonce = format!("{cnonce:032x}");
        Self { user: user.into(), password: password.into(), cnonce, state: State::Challenged }
    }

    pub(super) fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }

    /// The answer to the server's next token, if it takes one.
    pub(super) fn step(&mut self, token: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let text =
            std::str::from_utf8(token).map_err(|_| "the server's SASL token is not text".to_owned())?;
        let fields = parse(text)?;
        match &self.state {
            State::Challenged => {
                let (response, proof) = self.respond(&fields)?;
                self.state = State::Answered { proof };
                Ok(Some(response.into_bytes()))
            }
            State::Answered { proof } => {
                if fields.get("rspauth") != Some(proof) {
                    return Err("the server could not prove by SASL that it knows the password".to_owned());
                }
                self.state = State::Complete;
                Ok(None)
            }
            State::Complete => Err("the server continues SASL after its end".to_owned()),
        }
    }

    fn respond(&self, challenge: &HashMap<String, String>) -> Result<(String, String), String> {
        let nonce = challenge.get("nonce").ok_or("the server's SASL challenge has no nonce")?;
        let realm = challenge.get("realm").map_or("", String::as_str);
        if challenge.get("qop").is_some_and(|qop| !qop.split(',').any(|qop| qop.trim() == "auth")) {
            return Err(
                "the server requires SASL to protect the connection, which is not supported: use TLS"
                    .to_owned(),
            );
        }
        let (user, cnonce) = (&self.user, &self.cnonce);
        let secret = Md5::digest(format!("{user}:{realm}:{}", self.password));
        let mut a1 = secret.to_vec();
        a1.extend(format!(":{nonce}:{cnonce}").into_bytes());
        let a1 = hex(&Md5::digest(a1));
        let proof_of = |a2: String| {
            let a2 = hex(&Md5::digest(a2));
            hex(&Md5::digest(format!("{a1}:{nonce}:00000001:{cnonce}:auth:{a2}")))
        };
        let response = proof_of(format!("AUTHENTICATE:{DIGEST_URI}"));
        let text = format!(
            "charset=utf-8,username=\"{}\",realm=\"{}\",nonce=\"{}\",nc=00000001,cnonce=\"{cnonce}\",\
             digest-uri=\"{DIGEST_URI}\",maxbuf=65536,response={response},qop=auth",
            quoted(user),
            quoted(realm),
            quoted(nonce),
        );
        Ok((text, proof_of(format!(":{DIGEST_URI}"))))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// `name=value` or `name="value"`, separated by commas. The first of a name counts.
fn parse(text: &str) -> Result<HashMap<String, String>, String> {
    let garbled = || "the server's SASL token is malformed".to_owned();
    let mut fields = HashMap::new();
    let mut rest = text.trim_matches(|c: char| c == ',' || c.is_whitespace());
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or_else(garbled)?;
        let mut value = String::new();
        let end = if let Some(inside) = after.strip_prefix('"') {
            let mut characters = inside.char_indices();
            loop {
                match characters.next().ok_or_else(garbled)? {
                    (at, '"') => break at + 2,
                    (_, '\\') => value.push(characters.next().ok_or_else(garbled)?.1),
                    (_, character) => value.push(character),
                }
            }
        } else {
            let end = after.find(',').unwrap_or(after.len());
            value.push_str(after[..end].trim());
            end
        };
        fields.entry(name.trim().to_ascii_lowercase()).or_insert(value);
        rest = after[end..].trim_start_matches(|c: char| c == ',' || c.is_whitespace());
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_parsed_quoted_or_not() {
        let fields = parse(r#"realm="a \"b\", c",nonce="x=y" , charset=utf-8,algorithm=md5-sess"#).unwrap();
        assert_eq!(fields.get("realm").unwrap(), "a \"b\", c");
        assert_eq!(fields.get("nonce").unwrap(), "x=y");
        assert_eq!(fields.get("algorithm").unwrap(), "md5-sess");
        for garbled in ["nonce", "a=\"", "a=\"\\", "=,=\""] {
            assert!(parse(garbled).is_err(), "{garbled}");
        }
    }

    /// The expected digests were computed with Python's hashlib by the formulas of RFC 2831.
    #[test]
    fn a_server_that_knows_the_password_is_believed_and_another_is_not() {
        let challenge =
            br#"realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh",qop="auth",charset=utf-8,algorithm=md5-sess"#;
        let login = || DigestMd5::new("chris", "secret", 0x0123_4567_89ab_cdef);
        let mut sasl = login();
        let response = String::from_utf8(sasl.step(challenge).unwrap().unwrap()).unwrap();
        let fields = parse(&response).unwrap();
        assert_eq!(fields.get("username").unwrap(), "chris");
        assert_eq!(fields.get("response").unwrap(), "2c102df692e97b730e068d9f6600876a");
        assert!(!response.contains("secret"));
        assert!(!sasl.is_complete());
        assert_eq!(sasl.step(b"rspauth=7a72921790a39230ddd0265fc3ba33c9"), Ok(None));
        assert!(sasl.is_complete());
        assert!(sasl.step(b"rspauth=7a72921790a39230ddd0265fc3ba33c9").is_err());
        let mut sasl = login();
        sasl.step(challenge).unwrap();
        assert!(sasl.step(b"rspauth=00").is_err());
        assert!(login().step(b"realm=x").is_err(), "no nonce");
        assert!(login().step(br#"nonce="x",qop="auth-conf""#).is_err());
    }
}
