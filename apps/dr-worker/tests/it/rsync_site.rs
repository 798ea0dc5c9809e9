//! `examples/rsync-site`: files that a real rsync copies to the other site, counted after planned and forced moves.
//!
//! Without Debian's package `rsync` the tests are skipped; with `CI` set they fail.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use crate::support::{
    Example, Running, at, is_there, send, set,
    stage::{Stage, leads},
    until,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use zk_testkit::PortReservation;

/// More than are under way between two copies.
const MORE: usize = 10;

/// A process that is killed with the test.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it can be started"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The files of a job, each as its one line.
type Files = BTreeSet<String>;

/// A site with one worker, and what copies its files.
struct Site {
    name: &'static str,
    dir: PathBuf,
    conf: PathBuf,
    config: PathBuf,
    rsync_port: u16,
    rsync: Option<Process>,
    follow: Option<Process>,
    worker: Option<Running>,
}

impl Site {
    fn script(&self, verb: &str) -> Command {
        let mut command = Command::new(at("examples/rsync-site/site.sh"));
        command.arg(verb).env("SITE_CONF", &self.conf);
        command
    }

    fn run(&self, verb: &str) -> Output {
        self.script(verb).output().expect("the script")
    }

    fn start_rsync(&mut self) {
        let mut rsync = Command::new("rsync");
        rsync
            .args(["--daemon", "--no-detach", "--address=127.0.0.1"])
            .arg(format!("--port={}", self.rsync_port));
        self.rsync = Some(Process::start(rsync.arg("--config").arg(self.config.with_extension("rsyncd"))));
        let port = self.rsync_port;
        until("rsync listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    fn start_follow(&mut self) {
        self.follow = Some(Process::start(&mut self.script("follow")));
    }

    fn worker(&self) -> &Running {
        self.worker.as_ref().expect("it was started")
    }

    fn leads(&self) -> bool {
        leads(self.worker())
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.dir.join(path)).unwrap_or_default()
    }

    /// How its last takeover has ended.
    fn last_takeover(&self) -> String {
        self.text("takeovers").lines().last().unwrap_or_default().to_owned()
    }

    fn files(&self) -> Files {
        files_in(&self.dir.join("current/files"))
    }

    /// Its host loses power: nothing of it runs any more, and nothing was stopped in order.
    fn is_lost(&mut self) {
        self.follow = None;
        self.rsync = None;
        let mut worker = self.worker.take().expect("it was started");
        let status: Value = serde_json::from_str(&worker.http("GET", "/status").1).expect("JSON");
        let job = status["jobs"]["files"]["process"]["pid"].as_i64().expect("the job runs");
        let job = Pid::from_raw(i32::try_from(job).expect("a pid"));
        send(job, Signal::SIGSTOP).expect("it lives");
        worker.kill_with_guards();
        // The kernel may have ended it with its guard.
        let _ = kill(job, Signal::SIGKILL);
    }
}

fn files_in(dir: &Path) -> Files {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let orders = entries.filter(|path| path.extension().is_some_and(|extension| extension == "order"));
    orders.map(|path| fs::read_to_string(path).expect("a file").trim().to_owned()).collect()
}

struct Pair {
    east: Site,
    west: Site,
    stage: Stage,
    _ports: PortReservation,
}

impl Pair {
    /// east-1 leads, and the west has a copy.
    fn start(root: &'static str, at_most: u32) -> Self {
        let stage = Stage::new(root);
        let ports = PortReservation::take(2).expect("free ports");
        let example = at("examples/rsync-site");
        let dir = stage.dir.path().to_owned();
        let site = |name: &'static str, own: usize, other: usize| {
            let (home, conf, config) =
                (dir.join(name), dir.join(format!("{name}.conf")), dir.join(format!("{name}.toml")));
            fs::create_dir(&home).expect("a directory");
            let connect = Stage::connect_string();
            let text = format!(
                "SITE={name}\nSITE_DIR={}\nPEER=rsync://127.0.0.1:{}/site\nEVERY=0.3\nSILENT=15\n\
                 HISTORY='{} --set zookeeper.connect={connect} --set zookeeper.root={root} \
                 --output json history --job files'\n",
                home.display(),
                ports.ports()[other],
                env!("CARGO_BIN_EXE_dr-worker"),
            );
            fs::write(&conf, text).expect("a file");
            let replaced = |file: &str, from: &[(&str, String)]| {
                let text = fs::read_to_string(example.join(file)).expect("a file of the example");
                from.iter().fold(text, |text, (from, to)| {
                    assert!(text.contains(from), "{from} is not in {file}");
                    text.replace(from, to)
                })
            };
            let scripts = ("/usr/local/lib/dr-worker", example.display().to_string());
            let limit = ("at_most = 30", format!("at_most = {at_most}"));
            fs::write(&config, replaced("worker.toml", &[scripts, limit])).expect("a file");
            let own_user = ("uid = dr-worker", format!("uid = {}", nix::unistd::getuid()));
            let served = ("/srv/site", home.display().to_string());
            fs::write(config.with_extension("rsyncd"), replaced("rsyncd.conf", &[served, own_user]))
                .expect("a file");
            Site {
                name,
                dir: home,
                conf,
                config,
                rsync_port: ports.ports()[own],
                rsync: None,
                follow: None,
                worker: None,
            }
        };
        let (east, west) = (site("east", 0, 1), site("west", 1, 0));
        let mut pair = Self { east, west, stage, _ports: ports };
        assert!(pair.east.run("init").status.success());
        pair.east.start_rsync();
        pair.west.start_rsync();
        pair.east.start_follow();
        pair.west.start_follow();
        pair.east.worker = Some(pair.worker(&pair.east));
        until("east-1 leads", || pair.east.leads());
        pair.west.worker = Some(pair.worker(&pair.west));
        until("west-1 is on standby", || pair.west.worker().code("/standby") == 200);
        pair.writes(MORE);
        pair
    }

    fn worker(&self, site: &Site) -> Running {
        let mut command = self.stage.command(&[]);
        command.arg("--config").arg(&site.config);
        let env = format!(
            "job.files.env={{ SITE_CONF = \"{}\", WRITTEN = \"{}\" }}",
            site.conf.display(),
            self.written_to().display()
        );
        let name = site.name;
        let state =
            format!("node.state_dir={}", self.stage.dir.path().join(format!("{name}-state")).display());
        set(&mut command, &[&format!("node.id={name}-1"), &format!("node.site={name}"), &state, &env]);
        Running::start(&mut command)
    }

    fn written_to(&self) -> PathBuf {
        self.stage.dir.path().join("written")
    }

    /// What the jobs report that they have written.
    fn written(&self) -> Files {
        let text = fs::read_to_string(self.written_to()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until so many more files were written.
    fn writes(&self, more: usize) {
        let before = self.written().len();
        until("the job writes", || self.written().len() >= before + more);
    }

    /// The age of a member's copy in seconds, as it has reported it.
    fn lag(&self, member: &str) -> Option<u32> {
        let list = self.stage.json(&["list"]);
        let mut members = list["members"].as_array()?.iter();
        members.find(|known| known["member"] == member)?["attributes"]["lag"].as_str()?.parse().ok()
    }

    fn switchover(&self, to: &str) {
        // It may be on standby before it has reported its lag, and is refused until then.
        until("its lag is known", || self.lag(to).is_some());
        self.stage.operator(&["switchover", "--to", to, "--wait"]).assert(0, &[]);
    }
}

/// Those of `all` that the site does not have.
fn missing(all: &Files, site: &Site) -> Files {
    all.difference(&site.files()).cloned().collect()
}

#[test]
fn planned_moves_lose_nothing_and_a_forced_one_reports_and_keeps_what_it_loses() {
    if !is_there("rsync", "rsync") {
        return;
    }
    let mut pair = Pair::start("/rsync-moves", 30);

    // Planned.
    pair.switchover("west-1");
    let of_east: Files = pair.written().into_iter().filter(|line| line.contains("east-1")).collect();
    assert!(of_east.len() >= MORE, "{of_east:?}");
    assert_eq!(missing(&of_east, &pair.west), Files::new());
    let report = pair.west.last_takeover();
    assert!(
        report.contains("switchover: complete: copied from east") && report.ends_with("state final"),
        "{report}"
    );
    // The direction has turned around.
    pair.writes(MORE);
    until("the east has a copy of the west", || pair.east.text("current/marker").contains("origin west"));

    // Forced: the west is lost with files that were not copied.
    pair.west.rsync = None;
    let copied = pair.east.files();
    pair.writes(MORE);
    pair.west.is_lost();
    until("east-1 leads", || pair.east.leads());
    let all = pair.written();
    let lost: Files = all.iter().filter(|line| line.contains("west-1")).cloned().collect();
    let lost = missing(&lost, &pair.east);
    println!("{} files were written, {} of them are missing", all.len(), lost.len());
    assert!(lost.len() >= MORE, "{lost:?}");
    assert!(copied.is_subset(&pair.east.files()), "a file that was copied is gone");
    let report = pair.east.last_takeover();
    assert!(report.contains("leader-lost: PERHAPS INCOMPLETE: these are the files of token"), "{report}");
    assert!(report.contains(" s old when the leader was lost"), "{report}");
    let token = report.split(' ').skip_while(|word| *word != "token").nth(1).expect("a token");
    assert!(pair.east.text("current/marker").contains(token.trim_end_matches(',')), "{report}");

    // The west is back: its own files are not taken for the newer ones, and those that were missing are kept.
    pair.west.start_rsync();
    pair.west.start_follow();
    pair.west.worker = Some(pair.worker(&pair.west));
    until("the west has a copy of the east", || pair.west.text("current/marker").contains("origin east"));
    let kept =
        fs::read_dir(pair.west.dir.join("diverged")).expect("files are kept").next().expect("a directory");
    let kept = files_in(&kept.expect("an entry").path().join("files"));
    assert!(lost.is_subset(&kept), "{lost:?}, {kept:?}");
    // One may have been written and not reported.
    assert!(kept.len() <= lost.len() + 1, "{lost:?}, {kept:?}");
    assert!(pair.east.leads());

    // Failback. The east does not copy any more, and is older than the west at once.
    until("west-1 is on standby", || pair.west.worker().code("/standby") == 200);
    pair.writes(MORE);
    pair.east.follow = None;
    pair.switchover("west-1");
    let newest: Files = pair.written().into_iter().filter(|line| line.contains("east-1")).collect();
    assert_eq!(missing(&newest, &pair.west), Files::new());
    let before = pair.west.files();
    let refused = pair.west.run("pull");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("refused: the files of east are of token"), "{said}");
    assert!(before.is_subset(&pair.west.files()));

    // A planned move without a way to copy is declined.
    pair.west.rsync = None;
    let outcome = pair.stage.operator(&["switchover", "--to", "east-1", "--wait"]);
    assert_ne!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    until("west-1 leads again", || pair.west.leads());
    pair.writes(MORE);
    let of_west: Files =
        pair.written().difference(&all).filter(|line| line.contains("west-1")).cloned().collect();
    assert_eq!(missing(&of_west, &pair.west), Files::new());
    assert!(pair.west.last_takeover().contains(": complete: "), "{}", pair.west.last_takeover());

    // An operator who leads without ZooKeeper accepts the loss.
    let takeover = |cause: &str| {
        let mut takeover = pair.east.script("takeover");
        let env = [("DR_CAUSE", cause), ("DR_FENCING_TOKEN", "4503605622337800"), ("DR_JOB", "files")];
        takeover.envs(env).output().expect("the script").status.code()
    };
    assert_eq!(takeover("switchover"), Some(75));
    assert_eq!(takeover("emergency"), Some(0));
    let report = pair.east.last_takeover();
    assert!(report.contains("emergency: PERHAPS INCOMPLETE"), "{report}");
}

#[test]
fn a_site_whose_copy_is_too_old_leads_only_if_an_operator_accepts_the_loss() {
    if !is_there("rsync", "rsync") {
        return;
    }
    let mut pair = Pair::start("/rsync-gate", 10);
    until("the west has a copy", || pair.west.text("current/marker").contains("state open"));
    pair.west.follow = None;
    until("the west lags behind", || pair.lag("west-1").is_some_and(|lag| lag > 10));
    pair.east.is_lost();
    until("no member may lead", || {
        let list = pair.stage.json(&["list"]);
        list["members"].as_array().is_some_and(|members| members.len() == 1)
            && list["skipped"].to_string().contains("the limit is 10")
    });
    // The age does not grow while there is no leader that writes.
    let age = pair.lag("west-1");
    let measured = |pair: &Pair| {
        let (_, text) = pair.west.worker().http("GET", "/metrics");
        let runs = text.lines().filter(|line| line.starts_with("dr_measurements_total{"));
        runs.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum::<u64>()
    };
    // Longer than a step of the lag.
    let before = measured(&pair);
    until("the west has measured again", || measured(&pair) >= before + 4);
    assert_eq!(pair.lag("west-1"), age);
    pair.stage.operator(&["failover", "--to", "west-1", "--accept-loss", "--wait"]).assert(0, &[]);
    let report = pair.west.last_takeover();
    assert!(report.contains("failover: PERHAPS INCOMPLETE"), "{report}");
}

#[test]
fn the_example_starts_what_it_says_and_leaves_nothing() {
    if !is_there("rsync", "rsync") {
        return;
    }
    let reserved = PortReservation::take(5).expect("free ports");
    let ports: Vec<_> = reserved.ports().iter().map(u16::to_string).collect();
    let example = Example::start("examples/rsync-site/run.sh", &ports.join(" "));
    let leads = |port| {
        crate::support::http(port, "GET", "/leader")
            .is_ok_and(|(head, _)| crate::support::code_of(&head) == 200)
    };
    until("east-1 leads", || leads(reserved.ports()[0]));
    example.interrupt();
    for port in reserved.ports() {
        assert!(
            std::net::TcpStream::connect(("127.0.0.1", *port)).is_err(),
            "the port {port} is still in use"
        );
    }
}
