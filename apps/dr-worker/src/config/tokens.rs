//! The tokens that allow control over HTTP.

use std::path::Path;

use subtle::{Choice, ConstantTimeEq as _};

use crate::{host_fault::HostFault, private_file};

/// The tokens of a file, one per line. Empty lines and lines that begin with `#` are ignored.
pub struct Tokens(Vec<String>);

impl Tokens {
    /// The shortest token.
    pub const SHORTEST: usize = 16;

    /// Reads the file as it is now.
    ///
    /// # Errors
    /// Why it can't be used and what to do, without its contents.
    pub fn read(path: &Path) -> Result<Self, HostFault> {
        let text = private_file::read(path)?;
        Self::parse(&text).map_err(|why| format!("{}{why}", path.display()).into())
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let token = line.trim();
            if token.is_empty() || token.starts_with('#') {
                continue;
            }
            if token.len() < Self::SHORTEST || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!(
                    ":{number}: a token has {} characters or more, without spaces; `openssl rand -hex 32` makes one",
                    Self::SHORTEST
                ));
            }
            tokens.push(token.to_owned());
        }
        if tokens.is_empty() {
            return Err(" has no token; `openssl rand -hex 32` makes one".to_owned());
        }
        Ok(Self(tokens))
    }

    /// The first one.
    pub fn first(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// Whether this is one of the tokens. It takes the same time for any text of the same length.
    pub fn has(&self, text: &str) -> bool {
        let any = Choice::from(0);
        self.0.iter().fold(any, |any, token| any | token.as_bytes().ct_eq(text.as_bytes())).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef";

    #[test]
    fn each_line_is_a_token() {
        let tokens = Tokens::parse(&format!("# old\n{ONE}\r\n\n  # new\n {ONE}x \n")).ok().unwrap();
        for (text, is) in [(ONE, true), ("0123456789abcdefx", true), ("0123456789abcdeg", false), ("", false)]
        {
            assert_eq!(tokens.has(text), is, "{text}");
        }
        assert!(!tokens.has("# old"));
    }

    #[test]
    fn what_is_no_token_is_refused_without_showing_it() {
        for (text, part) in [
            ("", " has no token"),
            ("# none\n", " has no token"),
            ("short-secret", ":1: a token has 16 characters"),
            ("# a\nsecret with spaces in it", ":2: a token has 16"),
            ("s\u{e9}cret-with-an-accent", ":1: a token has 16"),
        ] {
            let why = Tokens::parse(text).err().unwrap();
            assert!(why.starts_with(part) && !why.contains("cret"), "{text:?}: {why}");
        }
    }
}
