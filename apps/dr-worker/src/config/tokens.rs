//! The tokens that allow control over HTTP.

use std::{
    fs::OpenOptions,
    io::Read as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use subtle::{Choice, ConstantTimeEq as _};

/// The permissions that the file must not have: the group may only read it, and others nothing.
const FORBIDDEN: u32 = 0o037;

/// The longest file.
const MOST: u64 = 64 * 1024;

/// The tokens of a file, one per line. Empty lines and lines that begin with `#` are ignored.
pub struct Tokens(Vec<String>);

impl Tokens {
    /// The shortest token.
    pub const SHORTEST: usize = 16;

    /// Reads the file as it is now.
    ///
    /// # Errors
    /// Why it can't be used and what to do, without its contents.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let unreadable = |error: std::io::Error| format!("{name} can't be read: {error}");
        // A pipe would block.
        let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(format!("{name} is not a regular file"));
        }
        if metadata.mode() & FORBIDDEN != 0 {
            let mode = metadata.mode() & 0o777;
            return Err(format!(
                "{name} has the permissions {mode:o}; others can use it. Run chmod 600 {name}"
            ));
        }
        let own = nix::unistd::Uid::effective().as_raw();
        if ![0, own].contains(&metadata.uid()) {
            let owner = metadata.uid();
            return Err(format!("{name} belongs to user {owner}; it must belong to root or to user {own}"));
        }
        let mut text = String::new();
        file.take(MOST + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > MOST {
            return Err(format!("{name} is longer than {MOST} bytes"));
        }
        Self::parse(&text).map_err(|why| format!("{name}{why}"))
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
    use std::{fs, os::unix::fs::PermissionsExt as _};

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

    #[test]
    fn a_file_that_others_can_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        fs::write(&path, ONE).unwrap();
        for (mode, is_private) in
            [(0o600, true), (0o400, true), (0o640, true), (0o644, false), (0o660, false)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = Tokens::read(&path);
            assert_eq!(read.is_ok(), is_private, "{mode:o}: {:?}", read.err());
        }
        assert!(Tokens::read(&path).err().unwrap().contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "x".repeat(70_000)).unwrap();
        assert!(Tokens::read(&path).err().unwrap().contains("longer than"));
        assert!(Tokens::read(dir.path()).err().unwrap().contains("not a regular file"));
        assert!(Tokens::read(&dir.path().join("none")).err().unwrap().contains("can't be read"));
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(Tokens::read(&pipe).err().unwrap().contains("not a regular file"));
    }
}
