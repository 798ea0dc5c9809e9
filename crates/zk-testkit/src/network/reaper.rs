//! Removes a network, however the test ends.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Stdio};

use super::run::refusal;
use crate::Error;
use crate::reaper::watching_shell;

/// Takes the name first, so that it is always released. Waits for its standard input to end, and then removes
/// everything of that name. If this process was killed, one of its commands may still be making a host: the
/// second round removes that one.
const SCRIPT: &str = r#"
ip netns add "$NETWORK" 2>&1 || exit 1
echo made
exec >/dev/null 2>&1
read -r told
for round in 1 2; do
    for namespace in $(ip netns list | cut -d ' ' -f 1 | grep -Ex "$NETWORK(-[0-9]+)?"); do
        for pid in $(ip netns pids "$namespace"); do
            kill -9 "$pid"
        done
        ip netns del "$namespace"
    done
    ip link del "$NETWORK"
    [ "$told" = dropped ] && break
    sleep 1
done
"#;

/// A shell, and the pipe on which it waits for this process to end.
#[derive(Debug)]
pub(super) struct NetworkReaper {
    shell: Child,
    told: Option<ChildStdin>,
}

impl NetworkReaper {
    /// Makes the first namespace, of that name; `None` if there is one already.
    pub(super) fn of(network: &str) -> Result<Option<Self>, Error> {
        let what = || format!("`ip netns add {network}`");
        let mut shell = watching_shell("zk-testkit-reaper", SCRIPT)
            .env("NETWORK", network)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| refusal(&what(), &error.to_string()))?;
        let mut said = String::new();
        if let Some(mut stdout) = shell.stdout.take() {
            // It ends soon in any case: with the script, or with its output.
            let _ = stdout.read_to_string(&mut said);
        }
        let told = shell.stdin.take();
        let reaper = Self { shell, told };
        match said.trim() {
            "made" => Ok(Some(reaper)),
            said if said.contains("File exists") => Ok(None),
            said => Err(refusal(&what(), said)),
        }
    }
}

impl Drop for NetworkReaper {
    fn drop(&mut self) {
        if let Some(mut told) = self.told.take() {
            // It may have ended; then there is nothing to remove.
            let _ = told.write_all(b"dropped\n");
        }
        let _ = self.shell.wait();
    }
}
