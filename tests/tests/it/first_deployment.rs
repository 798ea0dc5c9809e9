//! docs/first-deployment.md and docs/tutorial.md, typed line by line: from the Debian package to a job that fails over, and to a
//! passed drill, on two nodes with a real system manager each.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use e2e::{SOON, Step, Terminal, can_run, debian_package, kill_pid, own_ensemble, steps, wait_for};
use zk_testkit::{Ensemble, Host, Network};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/first-deployment.md");

/// What follows on the same nodes.
const TUTORIAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tutorial.md");

/// The most commands that the document may need.
const TEN: usize = 10;

/// Commands that change nothing: a reader repeats them until they show what the document shows.
const QUESTIONS: [&str; 3] = ["dr-worker list", "dr-worker history", "dr-worker logs"];

/// Boots a node with a root of its own: this machine's files below a layer in memory. Arguments: a directory for the layer,
/// files for the root, the name of a cgroup. It runs in new namespaces, as their first process.
///
/// The system manager starts the journal and what is asked for, and none of this machine's other services. Without
/// lists and without an index of manual pages, the installation of a file takes a third of the time.
const BOOT: &str = r#"
set -e
layer=$1 files=$2 cgroup=$3
mount --make-rprivate /
mount -t tmpfs tmpfs "$layer"
mkdir "$layer/upper" "$layer/work" "$layer/root"
mount -t overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" overlay "$layer/root"
cp -r "$files/." "$layer/root"
cd "$layer/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mkdir "sys/fs/cgroup/$cgroup"
echo 0 > "sys/fs/cgroup/$cgroup/cgroup.procs"
umount sys/fs/cgroup
for dir in dev run tmp; do mount -t tmpfs tmpfs $dir; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
rm -rf usr/lib/systemd/system/*.target.wants etc/systemd/system/*.wants var/lib/apt/lists/* var/lib/man-db/auto-update
mkdir former
pivot_root . former
umount -l former
exec unshare --cgroup sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup
    exec env -i container=test PATH="$PATH" /usr/lib/systemd/systemd --unit=node.target --show-status=no'
"#;

const NODE_TARGET: &str = "[Unit]\nDescription=A node of a test\n\
    Wants=systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket\n";

/// A node, and a shell of root there.
struct Node {
    name: &'static str,
    boot: Child,
    cgroup: String,
    terminal: Terminal,
}

impl Node {
    async fn boot(
        name: &'static str,
        host: &Host,
        dir: &Path,
        files: &[(&str, String)],
        package: &Path,
    ) -> Self {
        let (layer, root) = (dir.join("layer"), dir.join("files"));
        fs::create_dir_all(&layer).unwrap();
        let names =
            [("etc/hostname", format!("{name}\n")), ("etc/systemd/system/node.target", NODE_TARGET.into())];
        for (path, text) in files.iter().chain(&names) {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir_all(root.join("root")).unwrap();
        fs::copy(package, root.join("root").join(package.file_name().unwrap())).unwrap();

        let cgroup = format!("dr-worker-test-{name}-{}", std::process::id());
        let mut boot = host.command("unshare");
        boot.args([
            "--mount",
            "--uts",
            "--ipc",
            "--pid",
            "--fork",
            "--kill-child=SIGKILL",
            "sh",
            "-c",
            BOOT,
            "boot",
        ]);
        boot.args([&layer, &root]).arg(&cgroup).stdin(Stdio::null());
        let mut boot = boot.spawn().unwrap();
        let enter = wait_for(&format!("the system manager of {name}"), SOON, async || {
            if let Some(status) = boot.try_wait().unwrap() {
                panic!("{name} can't boot: {status}");
            }
            let enter = || inside(&boot).ok_or("no process");
            let state = enter()?.args(["systemctl", "is-system-running"]).output().unwrap();
            let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
            if state == "running" { Ok(enter()?) } else { Err(state) }
        })
        .await;
        let mut shell = enter;
        // As wide as the terminal that the document shows.
        shell.args(["env", "-i", "HOME=/root", "LANG=C.UTF-8", "COLUMNS=100", "sh"]);
        Self { name, boot, cgroup, terminal: Terminal::of(shell, dir) }
    }
}

/// The first process of the node.
fn first_process(boot: &Child) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", boot.id())).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// A command in the namespaces of the node, in root's directory.
fn inside(boot: &Child) -> Option<Command> {
    let mut command = Command::new("nsenter");
    command.args(["--target", &first_process(boot)?.to_string(), "--all", "--wdns=/root"]);
    Some(command)
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = inside(&self.boot)
                .map(|mut log| log.args(["journalctl", "--no-pager", "--lines=60"]).output());
            if let Some(Ok(log)) = log {
                println!("---- the log of {}\n{}", self.name, String::from_utf8_lossy(&log.stdout));
            }
        }
        // Its end is the end of all processes of the node, and `unshare` waits for it.
        match first_process(&self.boot) {
            Some(first) => kill_pid(first),
            None => drop(self.boot.kill()),
        }
        self.boot.wait().ok();
        let remove = "mount --make-rprivate / && mount -t cgroup2 cgroup2 /mnt && \
                      find \"/mnt/$CGROUP\" -depth -type d -exec rmdir {} +";
        let mut removal = Command::new("unshare");
        removal.args(["--mount", "sh", "-c", remove]).env("CGROUP", &self.cgroup).stderr(Stdio::null());
        // An empty cgroup costs nothing.
        removal.status().ok();
    }
}

fn document(path: &str) -> Vec<Step> {
    steps(&fs::read_to_string(path).unwrap())
}

/// The names of the servers and of the nodes, as the document has them.
fn hosts(ensemble: &Ensemble, nodes: &[(&'static str, Host)]) -> String {
    let servers = ensemble.addresses().into_iter().enumerate();
    let mut text = "127.0.0.1 localhost\n".to_owned();
    for (index, address) in servers {
        text += &format!("{} zk{}\n", address.ip(), index + 1);
    }
    for (name, host) in nodes {
        text += &format!("{} {name}\n", host.ip());
    }
    text
}

async fn take(step: &Step, nodes: &mut [Node]) {
    let Step { host, line, .. } = step;
    let node = nodes.iter_mut().find(|node| node.name == host).unwrap_or_else(|| panic!("no host {host}"));
    let is_question = QUESTIONS.iter().any(|question| line.starts_with(question));
    let expected = step.shows.join("\n");
    let said = wait_for(&format!("what {line:?} shows:\n{expected}"), SOON, async || {
        let said = node.terminal.done(line).await;
        if step.is_shown_by(&said) {
            return Ok(said);
        }
        assert!(is_question, "{line}\n{said}\nthe document shows:\n{expected}");
        Err(said)
    })
    .await;
    println!("root@{host}:~# {line}\n{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_deployment_fails_over_after_ten_commands_and_a_drill_passes() {
    let tools = ["apt-get", "dpkg", "dpkg-deb", "dpkg-shlibdeps", "gzip", "systemctl", "systemd-sysusers"];
    if !can_run(&tools, true) || !Network::available_or_skip() {
        return;
    }
    let steps = document(DOCUMENT);
    assert_eq!(steps.len(), TEN, "the document promises ten commands");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_owned();
    let package = tokio::task::spawn_blocking(move || debian_package(&out, "1"));
    // The default of `zookeeper.tick_time`.
    let ensemble =
        own_ensemble(|servers| servers.in_namespaces(true).tick_time(Duration::from_secs(2))).await;
    let package = package.await.unwrap();
    let network = ensemble.network().unwrap();
    let known = ["east-1", "west-1"].map(|name| (name, network.host().unwrap()));
    let files = [("etc/hosts", hosts(&ensemble, &known))];
    let mut nodes = Vec::new();
    for (name, host) in &known {
        nodes.push(Node::boot(name, host, &dir.path().join(name), &files, &package).await);
    }
    for step in steps.iter().chain(&document(TUTORIAL)) {
        take(step, &mut nodes).await;
    }
    for node in &mut nodes {
        node.terminal.done("systemctl stop dr-worker").await;
    }
}
