//! The programs that make namespaces.

use std::io::{self, Write as _};
use std::process::{Command, Output, Stdio};

use nix::unistd::Uid;

use crate::Error;

/// Runs a command and returns its output.
pub(super) fn run(words: &[&str]) -> Result<String, Error> {
    feed(words, "")
}

/// Runs `ip` in a namespace, and returns its output.
pub(super) fn on_host(namespace: &str, words: &[&str]) -> Result<String, Error> {
    run(&[&["ip", "-n", namespace], words].concat())
}

/// Runs a command that reads `input`, and returns its output.
pub(super) fn feed(words: &[&str], input: &str) -> Result<String, Error> {
    let refused = |said: &str| refusal(&format!("`{}`", words.join(" ")), said);
    let output = output(words, input).map_err(|error| refused(&error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    Err(match String::from_utf8_lossy(&said).trim() {
        "" => refused(&output.status.to_string()),
        said => refused(said),
    })
}

fn output(words: &[&str], input: &str) -> io::Result<Output> {
    let (program, args) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that has ended already reads nothing; its status has the reason.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

/// The output of a failed command, and what to do.
pub(super) fn refusal(what: &str, said: &str) -> Error {
    let said = said.trim();
    Error::NoNamespaces { reason: format!("{what}: {said}; {}", advice(said, Uid::effective().is_root())) }
}

fn advice(said: &str, root: bool) -> &'static str {
    if ["not found", "No such file or directory"].iter().any(|missing| said.contains(missing)) {
        "if the program is not installed, on Debian: apt-get install iproute2 iptables"
    } else if !root {
        "this needs root: run the tests as root, for example by `sudo -E env PATH=\"$PATH\" cargo test`"
    } else {
        "in a container this needs the capabilities NET_ADMIN and SYS_ADMIN: \
         docker run --cap-add NET_ADMIN --cap-add SYS_ADMIN ..."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let refused = "mount --make-shared /run/netns failed: Operation not permitted";
        for (said, root, helps) in [
            ("exec of \"iptables-restore\" failed: No such file or directory", true, "apt-get"),
            ("sh: 1: ip: not found", false, "apt-get"),
            (refused, false, "sudo"),
            (refused, true, "--cap-add"),
        ] {
            assert!(advice(said, root).contains(helps), "{said}");
        }
    }

    #[test]
    fn what_failed_is_named() {
        let said = run(&["ip", "no-such-object"]).unwrap_err().to_string();
        assert!(said.contains("`ip no-such-object`"), "{said}");
        let said = run(&["no-such-program"]).unwrap_err().to_string();
        assert!(said.contains("`no-such-program`") && said.contains("apt-get"), "{said}");
    }
}
