//! The guides of docs/ for those who come from elsewhere: their commands are typed on two nodes, their files are installed there,
//! their configuration is checked, and the defects of a home-made lock are seen on a real ensemble.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::{SOON, Step, Terminal, ensemble, own_ensemble, program, steps, wait_for};
use zk_testkit::{Ensemble, Host, Network};

const GUIDES: [&str; 5] =
    ["from-keepalived", "from-pacemaker", "from-patroni", "from-cron", "from-a-zookeeper-lock"];

/// The host of the commands that need no node.
const CLIENT: &str = "client";

const NODES: [(&str, &str); 2] = [("east-1", "east"), ("west-1", "west")];

/// Commands that change nothing: a reader repeats them until they show what the guide shows.
const QUESTIONS: [&str; 4] = ["dr-worker list", "dr-worker history", "dr-worker logs", "curl"];

/// The nodes have no system manager. The units are tested with the first deployment.
const SYSTEMCTL: &str = r#"#!/bin/sh
case "$*" in
    "enable --now dr-worker")
        dr-worker run > /var/lib/worker.log 2>&1 &
        echo $! > /var/lib/worker.pid
        until curl --silent --fail --output /dev/null http://127.0.0.1:7080/readiness; do
            kill -0 $! || { cat /var/lib/worker.log; exit 1; }
            sleep 0.1
        done ;;
    "stop dr-worker")
        kill "$(cat /var/lib/worker.pid)"
        while kill -0 "$(cat /var/lib/worker.pid)" 2> /dev/null; do sleep 0.1; done ;;
    "disable --now keepalived") ;;
    *) echo "not here: $*"; exit 1 ;;
esac
"#;

/// Answers as Patroni does: 200 on the node with the primary.
const PATRONI: &str = r#"
import http.server, socket, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if socket.gethostname() == "west-1" else 503)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", 8008), Handler).serve_forever()
"#;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn guide(name: &str) -> String {
    fs::read_to_string(workspace().join("docs").join(name).with_extension("md")).unwrap()
}

/// What a guide has to be installed, by path; and configuration without a path, which goes over that.
fn files(document: &str) -> (Vec<(&str, &str)>, Vec<&str>) {
    let (mut files, mut fragments) = (Vec::new(), Vec::new());
    for language in ["toml", "sh"] {
        for block in document.split(&format!("```{language}\n")).skip(1) {
            let (block, _) = block.split_once("```").unwrap();
            let first = block.strip_prefix("#!/bin/sh\n").unwrap_or(block).lines().next().unwrap();
            match first.strip_prefix("# /") {
                Some(path) => files.push((path.split([':', ' ']).next().unwrap(), block)),
                None if language == "toml" => fragments.push(block),
                // Commands for the reader's own machine.
                None => {}
            }
        }
    }
    (files, fragments)
}

/// A Python that has kazoo. Without one the test is skipped, which `CI` does not let pass.
fn python() -> Option<&'static str> {
    let has_kazoo = |python: &&str| {
        let tried = Command::new(python).args(["-c", "import kazoo"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has_kazoo);
    if found.is_none() {
        zk_testkit::skip("no Python on this machine has kazoo; on Debian: apt-get install python3-kazoo");
    }
    found
}

#[test]
fn each_test_and_each_file_that_a_guide_names_exists() {
    let docs = workspace().join("docs");
    for name in GUIDES {
        let text = guide(name);
        for link in text.split("](").skip(1) {
            let target = link.split(')').next().unwrap();
            let path = target.split('#').next().unwrap();
            if path.starts_with("http") || path.is_empty() {
                continue;
            }
            let path = docs.join(path);
            assert!(path.exists(), "{name}: {target}");
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            // A test: its name is the text of the link.
            let source = fs::read_to_string(&path).unwrap();
            for (at, _) in text.match_indices(&format!("`]({target})")) {
                let test = text[..at].rsplit('`').next().unwrap();
                assert!(source.contains(&format!("fn {test}(")), "{name}: {target} has no {test}");
            }
        }
    }
}

/// A loop that can't keep the time of its last success would run the command all the time.
#[test]
fn the_loop_of_the_guide_ends_if_its_file_can_not_be_written() {
    let document = guide("from-cron");
    let (scripts, _) = files(&document);
    let (_, every) = scripts.iter().find(|(path, _)| path.ends_with("/every")).unwrap();
    for last in ["/proc/none/last", "/proc/last"] {
        let mut run = Command::new("timeout");
        let ended = run.args(["10", "sh", "-c", every, "every", "300", last, "true"]).status().unwrap();
        assert!(!matches!(ended.code(), Some(0 | 124)), "{last}: {ended}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_defect_of_a_home_made_lock_is_seen_on_a_real_ensemble() {
    let Some(python) = python() else { return };
    let servers = ensemble().await.connect_string();
    let steps = steps(&guide("from-a-zookeeper-lock"));
    let typed: Vec<_> = steps.into_iter().filter(|step| step.host == CLIENT).collect();
    assert_eq!(typed.len(), 8, "the guide has eight defects");
    let runs = typed.into_iter().map(|step| {
        let line = step.line.replace("zk1:2181,zk2:2181,zk3:2181", &servers).replace("python3", python);
        tokio::task::spawn_blocking(move || {
            let output = Command::new("sh").args(["-c", &line]).current_dir(workspace()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("{said}");
            assert!(output.status.success(), "{line}: {}\n{said}{complaint}", output.status);
            assert!(step.is_shown_by(&said), "{line}\n{said}\nthe guide shows:\n{}", step.shows.join("\n"));
        })
    });
    // All begin at once.
    let runs: Vec<_> = runs.collect();
    for run in runs {
        run.await.unwrap();
    }
}

/// Both nodes, and the address that the guides call 10.0.0.100.
struct Stage {
    terminals: Vec<Terminal>,
    dirs: Vec<PathBuf>,
    address: String,
    // They end with it.
    _all: (std::sync::Arc<Ensemble>, Vec<Host>, tempfile::TempDir),
}

impl Stage {
    async fn start() -> Self {
        // The default of `zookeeper.tick_time`.
        let ensemble =
            own_ensemble(|servers| servers.in_namespaces(true).tick_time(Duration::from_secs(2))).await;
        let network = ensemble.network().unwrap();
        let hosts: Vec<_> = NODES.iter().map(|_| network.host().unwrap()).collect();
        let mut names = "127.0.0.1 localhost\n".to_owned();
        for (index, address) in ensemble.addresses().into_iter().enumerate() {
            names += &format!("{} zk{}\n", address.ip(), index + 1);
        }
        for ((name, _), host) in NODES.iter().zip(&hosts) {
            names += &format!("{} {name}\n", host.ip());
        }
        let dir = tempfile::tempdir().unwrap();
        let (mut terminals, mut dirs) = (Vec::new(), Vec::new());
        for ((name, _), host) in NODES.iter().zip(&hosts) {
            let own = dir.path().join(name);
            let mut terminal = Terminal::at(host, &own).await;
            fs::write(own.join("hosts"), &names).unwrap();
            fs::write(own.join("systemctl"), SYSTEMCTL).unwrap();
            fs::write(own.join("patroni.py"), PATRONI).unwrap();
            symlink(program("dr-worker"), own.join("dr-worker")).unwrap();
            symlink(workspace().join("examples"), own.join("examples")).unwrap();
            terminal.done(&format!("hostname {name} && cp hosts /etc/hosts")).await;
            terminal.done("install systemctl dr-worker /usr/local/bin/").await;
            terminals.push(terminal);
            dirs.push(own);
        }
        let [a, b, c, _] = network.own_address().octets();
        let address = format!("{a}.{b}.{c}.200");
        Self { terminals, dirs, address, _all: (ensemble, hosts, dir) }
    }

    /// As the guide has it, at this network's addresses.
    fn here(&self, text: &str) -> String {
        text.replace("10.0.0.100", &self.address)
    }

    async fn install(&mut self, name: &str, document: &str) {
        let (files, fragments) = files(document);
        for (node, (_, site)) in NODES.iter().enumerate() {
            for (index, (path, text)) in files.iter().enumerate() {
                let text = self.here(text).replace("site = \"east\" ", &format!("site = \"{site}\" "));
                let source = self.dirs[node].join(format!("{name}-{index}"));
                fs::write(&source, &text).unwrap();
                let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
                fs::set_permissions(&source, fs::Permissions::from_mode(mode)).unwrap();
                self.terminals[node].done(&format!("install -D -m {mode:o} {name}-{index} /{path}")).await;
            }
        }
        for (index, text) in fragments.iter().enumerate() {
            let fragment = format!("{name}-fragment-{index}.toml");
            fs::write(self.dirs[0].join(&fragment), self.here(text)).unwrap();
            let check = format!("dr-worker --config /etc/dr-worker --config {fragment} config check");
            self.terminals[0].done(&check).await;
        }
    }

    async fn take(&mut self, step: &Step) {
        let Step { host, shows, .. } = step;
        let node =
            NODES.iter().position(|(name, _)| name == host).unwrap_or_else(|| panic!("no host {host}"));
        let line = self.here(&step.line);
        let is_question = QUESTIONS.iter().any(|question| line.starts_with(question));
        let expected = shows.join("\n");
        let terminal = &mut self.terminals[node];
        let said = wait_for(&format!("what {line:?} shows:\n{expected}"), SOON, async || {
            let (code, said) = terminal.types(&line).await;
            if code == 0 && step.is_shown_by(&said) {
                return Ok(said);
            }
            assert!(is_question, "{host}: {line}: {code}\n{said}\nthe guide shows:\n{expected}");
            Err(said)
        })
        .await;
        println!("root@{host}:~# {line}\n{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_each_guide_do_on_two_nodes_what_it_shows() {
    if !Network::available_or_skip() {
        return;
    }
    let mut stage = Stage::start().await;
    for name in GUIDES {
        println!("---- {name}");
        let document = guide(name);
        for terminal in &mut stage.terminals {
            // As if the ensemble were empty.
            terminal.done(&format!("export DR_WORKER__ZOOKEEPER__ROOT=/{name}")).await;
        }
        stage.install(name, &document).await;
        if name == "from-patroni" {
            for terminal in &mut stage.terminals {
                terminal.done("python3 patroni.py > patroni.log 2>&1 &").await;
            }
        }
        let steps = steps(&document);
        for step in steps.iter().filter(|step| step.host != CLIENT) {
            stage.take(step).await;
        }
        for terminal in &mut stage.terminals {
            terminal.done("systemctl stop dr-worker && rm -rf /etc/dr-worker /var/lib/dr-worker").await;
        }
    }
    for terminal in &mut stage.terminals {
        // What was started here.
        terminal.done("kill %1 2> /dev/null || kill $!").await;
    }
}
