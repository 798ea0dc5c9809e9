//! The scripts in docs/fencing.md fence the host of exactly the member that they are asked for, and none for a name that means
//! something to a pattern, a filter or a program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The hosts that the programs below know. Compared as a number, the last two are one.
const HOSTS: [&str; 5] = ["east-1", "east-10", "east.1", "10", "1e1"];

/// Names that nobody has, though a pattern, a list, an option or a number of them would mean others.
const STRANGERS: [&str; 11] = [
    "",
    "*",
    "east-*",
    "east?1",
    "east-1,east-10",
    "`id`",
    "$(id)",
    "-oProxyCommand=x",
    "-1",
    "east-1 ",
    "010",
];

/// A directory with the scripts, and stand-ins for what they call.
struct Scripts {
    dir: tempfile::TempDir,
}

impl Scripts {
    fn new() -> Self {
        let scripts = Self { dir: tempfile::tempdir().expect("a directory") };
        let map: String =
            HOSTS.iter().enumerate().map(|(at, host)| format!("{host} 10.0.0.{at}\n")).collect();
        fs::write(scripts.file("bmc.map"), map).expect("written");
        // They record what they are asked to switch off.
        scripts.program(
            "ipmitool",
            "while [ $# -gt 0 ]; do case $1 in -H) host=$2 ;; esac; last=$1; shift; done\n\
             case $last in off) echo \"$host\" >> \"$CALLS\" ;; status) echo 'Chassis Power is off' ;; esac",
        );
        // As the filter of the real one: * and ? are a pattern, and a comma makes two of one.
        let hosts = HOSTS.join(" ");
        scripts.program(
            "aws",
            &format!(
                "set -f; case \"$2\" in\n\
                 describe-instances)\n\
                 shift 3; wanted=${{1#Name=tag:member,Values=}}; IFS=,; for one in $wanted; do\n\
                 IFS=' '; for host in {hosts}; do case $host in $one) echo \"i-$host\" ;; esac; done; done ;;\n\
                 stop-instances) shift 2; for id; do case $id in i-*) echo \"$id\" >> \"$CALLS\" ;; esac; done ;;\n\
                 esac"
            ),
        );
        scripts
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn program(&self, name: &str, text: &str) {
        let text = if text.starts_with("#!") { text.to_owned() } else { format!("#!/bin/sh\n{text}\n") };
        zk_testkit::write_program(self.file(name), &text);
    }

    /// Whether it has fenced the member, and what was switched off.
    fn run(&self, script: &str, member: &str) -> (bool, Vec<String>) {
        fs::write(self.file("calls"), "").expect("written");
        let path = format!("{}:/usr/bin:/bin", self.dir.path().display());
        let mut command = Command::new(self.file(script));
        command.env("DR_PREVIOUS_LEADER", member).env("PATH", path).env("CALLS", self.file("calls"));
        let done = command.output().expect("it can be started");
        let calls = fs::read_to_string(self.file("calls")).expect("calls");
        (done.status.success(), calls.lines().map(str::to_owned).collect())
    }
}

/// The scripts of the page, by their names.
fn scripts_of(page: &str) -> Vec<(String, String)> {
    let blocks = page.split("\n```sh\n").skip(1).filter_map(|rest| Some(rest.split_once("\n```")?.0));
    let scripts = blocks.filter(|block| block.starts_with("#!"));
    let named = |script: &str| {
        let path = script.lines().nth(1).expect("its path").trim_start_matches("# ").to_owned();
        (Path::new(&path).file_name().expect("a name").to_string_lossy().into_owned(), script.to_owned())
    };
    scripts.map(named).collect()
}

#[test]
fn the_scripts_fence_exactly_the_member_that_they_are_asked_for() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fencing.md");
    let page = fs::read_to_string(page).expect("the page");
    let scripts = Scripts::new();
    let found = scripts_of(&page);
    let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["fence-ipmi", "fence-cloud"]);
    for (name, text) in &found {
        scripts
            .program(name, &text.replace("/etc/dr-worker/", &format!("{}/", scripts.dir.path().display())));
        for (at, member) in HOSTS.iter().enumerate() {
            let target = if name == "fence-ipmi" { format!("10.0.0.{at}") } else { format!("i-{member}") };
            assert_eq!(scripts.run(name, member), (true, vec![target]), "{name} {member}");
        }
        for member in STRANGERS {
            assert_eq!(scripts.run(name, member), (false, Vec::new()), "{name} {member:?}");
        }
    }
}
