//! A host that a reader of a document types at.

use std::path::Path;

use zk_testkit::Host;

use crate::terminal::Terminal;

/// Directories that the nodes would otherwise share with the machine and with each other.
const OWN: [&str; 3] = ["etc", "usr/local", "var/lib"];

/// A terminal on a node, in this directory. The node has its own network, name, `/etc`, `/usr/local` and `/var/lib`.
///
/// Its processes end with the network, at the latest.
///
/// # Panics
/// If the directory can't be created, or the shell not be started.
pub async fn terminal_at(host: &Host, dir: &Path) -> Terminal {
    std::fs::create_dir_all(dir).expect("a directory");
    let mut shell = host.command("unshare");
    shell.args(["--mount", "--uts", "--propagation", "private", "sh"]).current_dir(dir);
    shell.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("EDITOR", dir.join("editor"));
    let mut terminal = Terminal::of(shell, dir);
    // The upper directory must not be on an overlay, and the temporary directory may be.
    terminal.done("mkdir upper && mount -t tmpfs tmpfs upper").await;
    for dir in OWN {
        let (upper, work) = (format!("upper/{dir}/upper"), format!("upper/{dir}/work"));
        let over = format!("lowerdir=/{dir},upperdir={upper},workdir={work}");
        terminal.done(&format!("mkdir -p {upper} {work} && mount -t overlay -o {over} overlay /{dir}")).await;
    }
    terminal
}
