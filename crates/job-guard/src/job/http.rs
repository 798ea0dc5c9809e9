//! An HTTP probe: a GET, of whose answer only the status line is read.
//!
//! Each try has a connection of its own, so that none passes over one to a predecessor. There is no proxy and no redirect: the
//! named host has to answer.

use std::io;
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// A longer status line is none.
const LONGEST_LINE: usize = 4096;

/// What a URL `http://[USER[:PASSWORD]@]HOST[:PORT][/PATH]` names.
#[derive(Debug, PartialEq, Eq)]
struct Target<'a> {
    credentials: Option<&'a str>,
    /// For the header of that name.
    host: &'a str,
    address: String,
    path: String,
}

impl Target<'_> {
    fn parse(url: &str) -> Option<Target<'_>> {
        let rest = url.strip_prefix("http://")?;
        let is_plain = |text: &str| !text.contains(|c: char| c.is_whitespace() || c.is_control());
        let rest = rest.split('#').next().filter(|rest| is_plain(rest))?;
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (credentials, host) = match authority.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, authority),
        };
        let port = host.rsplit_once(':').filter(|(name, _)| !name.contains(':') || name.ends_with(']'));
        let address = match port {
            Some((name, "")) => format!("{name}:80"),
            Some(_) => host.to_owned(),
            None => format!("{host}:80"),
        };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        (!host.is_empty()).then_some(Target { credentials, host, address, path })
    }

    fn request(&self) -> String {
        let credentials = self.credentials.map(|credentials| {
            let pair =
                if credentials.contains(':') { credentials.to_owned() } else { format!("{credentials}:") };
            format!("Authorization: Basic {}\r\n", STANDARD.encode(pair))
        });
        format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\nConnection: close\r\n{}\r\n",
            self.path,
            self.host,
            credentials.unwrap_or_default()
        )
    }
}

/// Passes if a GET of the URL is answered with a 2xx status within the timeout. The error is the reason, as a sentence.
pub(super) async fn get(url: &str, timeout: Duration) -> Result<(), String> {
    let shown = shown(url);
    let target = Target::parse(url).ok_or_else(|| format!("{shown}: it is not an http:// address"))?;
    let status = match tokio::time::timeout(timeout, ask(&target)).await {
        Ok(answered) => answered.map_err(|error| format!("{shown}: {error}"))?,
        Err(_) => return Err(format!("{shown}: no answer within {timeout:?}")),
    };
    if status.starts_with('2') { Ok(()) } else { Err(format!("{shown}: {status}")) }
}

/// The URL without its user information: a reason is published, and a password is not.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + "://".len()));
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let is_port = |port: &str| port.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit());
    let end = match authority.rfind('@') {
        // A password may contain delimiters. Then what comes before them is no host and port.
        None if authority.rsplit_once(':').is_some_and(|(_, port)| !is_port(port)) => rest.rfind('@'),
        end => end,
    };
    format!("{scheme}{}", &rest[end.map_or(0, |at| at + 1)..])
}

/// The status and its reason, such as `503 Service Unavailable`.
async fn ask(target: &Target<'_>) -> io::Result<String> {
    let mut stream = TcpStream::connect(&target.address).await?;
    stream.write_all(target.request().as_bytes()).await?;
    let mut line = Vec::new();
    while !line.contains(&b'\n') && line.len() < LONGEST_LINE {
        if stream.read_buf(&mut line).await? == 0 {
            return Err(io::Error::other("the connection was closed before an answer"));
        }
    }
    let end = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len());
    let line = String::from_utf8_lossy(&line[..end]);
    let status =
        line.strip_prefix("HTTP/1.").and_then(|rest| rest.split_once(' ')).map(|(_, status)| status.trim());
    let is_status =
        |status: &&str| status.len() >= 3 && status.as_bytes()[..3].iter().all(u8::is_ascii_digit);
    status.filter(is_status).map(str::to_owned).ok_or_else(|| io::Error::other("the answer is not HTTP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_an_address_and_a_path() {
        for (url, address, path, host) in [
            ("http://localhost:8080/health?full=1#top", "localhost:8080", "/health?full=1", "localhost:8080"),
            ("http://h", "h:80", "/", "h"),
            ("http://h?x", "h:80", "/?x", "h"),
            ("http://[::1]/x", "[::1]:80", "/x", "[::1]"),
            ("http://[::1]:9/x", "[::1]:9", "/x", "[::1]:9"),
            ("http://u:p@h:1/@", "h:1", "/@", "h:1"),
        ] {
            let target = Target::parse(url).expect("a URL");
            assert_eq!((target.address.as_str(), target.path.as_str(), target.host), (address, path, host));
        }
        for wrong in ["https://h/", "http://", "http:///x", "http://h/a b", "http://h/\r\nX: y"] {
            assert_eq!(Target::parse(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_reason_names_the_url_without_its_user_information() {
        for (url, expected) in [
            ("http://u:p@h:1/a@b?c=d@e", "http://h:1/a@b?c=d@e"),
            ("http://u@[::1]/x", "http://[::1]/x"),
            ("http://[::1]/a@b", "http://[::1]/a@b"),
            ("http://h:80/a@b", "http://h:80/a@b"),
            ("http://u:p/w@h/", "http://h/"),
            ("https://u:p@h/", "https://h/"),
            ("u:p@h", "h"),
        ] {
            assert_eq!(shown(url), expected, "{url}");
        }
        for url in ["https://u:hunter4@h/", "http://u:hunter4@localhost:1/"] {
            let reason = get(url, Duration::from_secs(10)).await.expect_err("nothing answers there");
            assert!(!reason.contains("hunter4"), "{reason}");
        }
    }

    #[test]
    fn credentials_are_sent_as_a_header() {
        let request = Target::parse("http://u:p@h/x").expect("a URL").request();
        let expected = "GET /x HTTP/1.1\r\nHost: h\r\nAccept: */*\r\nConnection: close\r\nAuthorization: Basic dTpw\r\n\r\n";
        assert_eq!(request, expected);
        assert!(Target::parse("http://u@h/").expect("a URL").request().contains("Basic dTo=\r\n"));
    }
}
