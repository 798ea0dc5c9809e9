//! docs/lost-quorum.md, typed section by section: five servers in two sites, of which the site with the majority is lost,
//! with a worker in each and a store that refuses old tokens.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::{Step, TICK, Terminal, is_there, kill_pid, own_ensemble, program, steps, wait_for};
use serde_json::Value;
use zk_session::{CreateMode, Session};
use zk_testkit::{Ensemble, Host, Installation, Network};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/lost-quorum.md");

const SERVERS: [&str; 5] = ["zk1", "zk2", "zk3", "zk4", "zk5"];
/// Servers of the site west.
const LOST: usize = 3;
const WORKERS: [(&str, &str); 2] = [("east-1", "east"), ("west-1", "west")];

/// Commands that change nothing: a reader repeats them until they show what the document shows.
const QUESTIONS: [&str; 4] = ["echo srvr", "dr-worker list", "ledger status", "cat "];

/// For an answer to a question, while servers start on a busy machine.
const ANSWERED: Duration = Duration::from_secs(120);

/// What the document needs of a system manager: it starts and stops the two programs, and starts a worker again that has not
/// reached ZooKeeper, as the unit does. `HERE` is the directory of the host.
const SYSTEMCTL: &str = r#"#!/bin/sh
verb=$1
for unit; do :; done
runs() { [ -n "$(2>/dev/null tr -d '\0' </proc/$1/cmdline)" ]; }
stop() {
    pid=$(cat HERE/pid 2>/dev/null) || return 0
    kill -TERM $pid 2>/dev/null
    while runs $pid; do sleep 0.05; done
    rm -f HERE/pid
}
start() {
    : >HERE/pid
    case $unit in
    zookeeper) command="cd HERE && exec JAVA HERE/zoo.cfg" log=HERE/server.log ;;
    dr-worker) command="exec dr-worker run" log=HERE/worker.log ;;
    esac
    setsid sh -c "while [ -e HERE/pid ]; do
        ($command) & echo \$! >HERE/pid
        wait \$!
        [ \$? = 69 ] || break
        sleep 1
    done" </dev/null >>$log 2>&1 &
    until [ -s HERE/pid ]; do sleep 0.05; done
}
case "$verb $2" in
"stop $unit" | "disable --now") stop ;;
"start $unit" | "enable --now") start ;;
"restart $unit") stop && start ;;
"enable $unit") ;;
*) echo "unknown: $*" >&2 && exit 1 ;;
esac
"#;

/// A client of four-letter words, where the machine has no netcat. A server that is just starting, and has no database yet, can
/// fail to close the connection of a command. It logs "Error closing a command socket".
const NC: &str = "#!/bin/bash\nexec 3<>/dev/tcp/$1/$2 || exit 1\ncat >&3\ntimeout 5 cat <&3\n";

/// A host of the document, and a shell of root there.
struct Place {
    name: &'static str,
    /// The files of its program, one of which is `pid`.
    dir: PathBuf,
    terminal: Terminal,
}

impl Place {
    async fn new(name: &'static str, host: &Host, dir: &Path, common: &Common) -> Self {
        let files = dir.join("own");
        let mut terminal = Terminal::at(host, &files).await;
        let systemctl = SYSTEMCTL.replace("HERE", &dir.display().to_string()).replace("JAVA", &common.java);
        for (tool, text) in [("systemctl", systemctl.as_str()), ("nc", NC)] {
            zk_testkit::write_program(files.join(tool), text);
        }
        for tool in ["dr-worker", "ledger"] {
            symlink(program(tool), files.join(tool)).unwrap();
        }
        fs::write(files.join("hosts"), &common.hosts).unwrap();
        terminal.done("cp -a systemctl nc dr-worker ledger /usr/local/bin && cp hosts /etc/hosts").await;
        terminal.done(&format!("mount --bind {} /srv", common.store.display())).await;
        Self { name, dir: dir.to_owned(), terminal }
    }

    fn pid(&self) -> Option<u32> {
        fs::read_to_string(self.dir.join("pid")).ok()?.trim().parse().ok()
    }

    /// Loses its power: its program ends at once.
    fn lose_power(&self) {
        if let Some(pid) = self.pid() {
            kill_pid(pid);
            fs::remove_file(self.dir.join("pid")).unwrap();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in ["worker.log", "server.log"] {
                let text = fs::read_to_string(self.dir.join(log)).unwrap_or_default();
                let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("\tat ")).collect();
                let last = lines[lines.len().saturating_sub(30)..].join("\n");
                println!("---- {} {log}\n{last}", self.name);
            }
        }
        self.lose_power();
    }
}

/// What all hosts have in common.
struct Common {
    hosts: String,
    java: String,
    /// The directory of the store, which survives the site.
    store: PathBuf,
}

impl Common {
    fn new(ensemble: &Ensemble, workers: &[Host], store: PathBuf) -> Self {
        let mut hosts = "127.0.0.1 localhost\n".to_owned();
        let servers = ensemble.servers().iter().map(|server| server.host().unwrap());
        let names = SERVERS.into_iter().chain(WORKERS.map(|(name, _)| name));
        for (name, host) in names.zip(servers.chain(workers)) {
            hosts += &format!("{} {name}\n", host.ip());
        }
        let installation = Installation::find().unwrap();
        let java = format!(
            "{} -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dzookeeper.admin.enableServer=false \
             -Dzookeeper.4lw.commands.whitelist='*' -Dzookeeper.forceSync=no -Dzookeeper.preAllocSize=4096 \
             -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dlogback.configurationFile={} -cp '{}' \
             org.apache.zookeeper.server.quorum.QuorumPeerMain",
            installation.java().display(),
            ensemble.dir().join("logback.xml").display(),
            installation.class_path().to_str().unwrap(),
        );
        Self { hosts, java, store }
    }
}

fn configuration(id: &str, site: &str) -> String {
    let servers = SERVERS.map(|name| format!("{name}:2181")).join(",");
    format!(
        "[node]\nid = \"{id}\"\nsite = \"{site}\"\naddress = \"{id}\"\n\
         [zookeeper]\nconnect = \"{servers}\"\nsession_timeout = \"6s\"\ntick_time = \"{}ms\"\nconnect_timeout = \"10s\"\n\
         [policy]\nsites = [\"west\", \"east\"]\nmax_takeovers = {{ count = 50, within = \"10m\" }}\n\
         [job.orders]\ncommand = [\"/usr/local/bin/ledger\", \"run\", \"--orders\", \"/srv/orders.csv\", \"--store\", \
         \"sqlite:/srv/ledger.db\", \"--pace\", \"50ms\"]\nfenced = true\nstop_timeout = \"1s\"\nready.after = \"0s\"\n",
        TICK.as_millis()
    )
}

/// The sections of the document, each with its number and its commands.
fn sections() -> Vec<(char, Vec<Step>)> {
    let document = fs::read_to_string(DOCUMENT).unwrap();
    let sections = document.split("\n## ").skip(1);
    sections.map(|section| (section.chars().next().unwrap(), steps(section))).collect()
}

/// A reader of the document, who remembers the newest token that a command has printed.
struct Reader {
    places: Vec<Place>,
    token: String,
}

impl Reader {
    fn place(&mut self, name: &str) -> &mut Place {
        let place = self.places.iter_mut().find(|place| place.name == name);
        place.unwrap_or_else(|| panic!("no host {name}"))
    }

    async fn take(&mut self, step: &Step) {
        let line = with_token(&step.line, &self.token);
        let is_question = QUESTIONS.iter().any(|question| line.starts_with(question));
        let expected = step.shows.join("\n");
        let place = self.place(&step.host);
        let said = wait_for(&format!("what {line:?} shows:\n{expected}"), ANSWERED, async || {
            let (code, said) = place.terminal.types(&line).await;
            // Numbers may differ, but for exit codes.
            let is_right = !expected.contains("exit code") || said.trim_end() == expected;
            if (code == 0 || is_question) && is_right && step.is_shown_by(&said) {
                return Ok(said);
            }
            assert!(is_question, "{line}: code {code}\n{said}\nthe document shows:\n{expected}");
            Err(said)
        })
        .await;
        println!("root@{}:~# {line}\n{said}", step.host);
        if let Some((_, rest)) = said.rsplit_once("\"token\":") {
            self.token = rest.chars().take_while(char::is_ascii_digit).collect();
        }
    }

    async fn read(&mut self, number: char, sections: &[(char, Vec<Step>)]) {
        let (_, steps) = sections.iter().find(|(known, _)| *known == number).expect("a section");
        for step in steps {
            self.take(step).await;
        }
    }

    async fn ledger(&mut self, verb: &str) -> Value {
        let line = format!("ledger {verb} --store sqlite:/srv/ledger.db 2>/dev/null");
        let (_, said) = self.place("east-1").terminal.types(&line).await;
        serde_json::from_str(said.trim()).unwrap_or_default()
    }
}

/// The line with this token after `--above`.
fn with_token(line: &str, token: &str) -> String {
    match line.split_once("--above ") {
        None => line.to_owned(),
        Some((before, rest)) => {
            format!("{before}--above {token}{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
    }
}

/// The hosts of all servers, with their files where the document has them.
async fn of_servers(ensemble: &Ensemble, common: &Common) -> Vec<Place> {
    let mut places = Vec::new();
    for (name, server) in SERVERS.into_iter().zip(ensemble.servers()) {
        let mut place = Place::new(name, server.host().unwrap(), server.dir(), common).await;
        for (from, to) in [("", "/etc/zookeeper/conf"), ("/data", "/var/lib/zookeeper")] {
            let from = server.dir().display().to_string() + from;
            place.terminal.done(&format!("mkdir -p {to} && mount --bind {from} {to}")).await;
        }
        places.push(place);
    }
    places
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dynamic_configuration_is_changed_by_hand() {
    const LEFT: usize = 2;
    if !Network::available_or_skip() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let ensemble =
        own_ensemble(|servers| servers.in_namespaces(true).setting("reconfigEnabled", "true")).await;
    let address = ensemble.server(LEFT).address().to_string();
    let connect = || Session::builder(&address).tick_time(TICK).connect_timeout(ANSWERED).connect();
    let before = connect().await.unwrap();
    before.create("/kept", b"data".to_vec(), CreateMode::Persistent).await.unwrap();
    before.close(TICK).await;
    let common = Common::new(&ensemble, &[], dir.path().to_owned());
    let mut reader = Reader { places: of_servers(&ensemble, &common).await, token: String::new() };
    reader.places[..LEFT].iter().for_each(Place::lose_power);
    reader.read('9', &sections()).await;
    let after = connect().await.unwrap();
    let kept = after.get("/kept").await.unwrap();
    assert_eq!(kept.map(|node| node.data.to_vec()), Some(b"data".to_vec()));
    after.close(TICK).await;
    reader.place("zk3").terminal.done("systemctl stop zookeeper").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_majority_is_lost_and_the_job_returns_step_by_step() {
    if !Network::available_or_skip() {
        return;
    }
    let sections = sections();
    let numbers: String = sections.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, "123456789", "the sections of the document");
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    fs::create_dir(&store).unwrap();
    let mut orders = Command::new(program("ledger"));
    orders.args(["generate", "--seed", "1", "--orders", "10000", "--out"]).arg(store.join("orders.csv"));
    assert!(orders.status().unwrap().success());

    let ensemble = own_ensemble(|servers| servers.servers(SERVERS.len()).in_namespaces(true)).await;
    let network = ensemble.network().unwrap();
    let hosts: Vec<_> = WORKERS.iter().map(|_| network.host().unwrap()).collect();
    let common = Common::new(&ensemble, &hosts, store);
    let mut places = of_servers(&ensemble, &common).await;
    for ((name, site), host) in WORKERS.into_iter().zip(&hosts) {
        let own = dir.path().join(name);
        let mut place = Place::new(name, host, &own, &common).await;
        fs::write(own.join("worker.toml"), configuration(name, site)).unwrap();
        let config = format!("mkdir -p /etc/dr-worker && cp {}/worker.toml /etc/dr-worker/", own.display());
        place.terminal.done(&config).await;
        places.push(place);
    }
    let mut reader = Reader { places, token: String::new() };
    // West leads, as it is preferred; east watches.
    reader.place("west-1").terminal.done("systemctl start dr-worker").await;
    wait_for("west-1, which books", ANSWERED, async || {
        let progress = reader.ledger("status").await;
        let books = progress["member"] == "west-1" && progress["booked"].as_u64() > Some(0);
        if books { Ok(()) } else { Err(progress.to_string()) }
    })
    .await;
    reader.place("east-1").terminal.done("systemctl start dr-worker").await;
    reader.read('1', &sections).await;

    let west: Vec<&Host> =
        ensemble.servers()[..LOST].iter().map(|server| server.host().unwrap()).chain([&hosts[1]]).collect();
    west.iter().for_each(|host| host.unplug().unwrap());
    for place in reader.places.iter().filter(|place| ["zk1", "zk2", "zk3", "west-1"].contains(&place.name)) {
        place.lose_power();
    }
    reader.read('2', &sections).await;
    let (_, emergency) = &sections[2];
    for step in emergency {
        reader.take(step).await;
        if step.line.starts_with("ledger status") {
            let before = reader.ledger("status").await["booked"].as_u64();
            wait_for("a job that books without ZooKeeper", ANSWERED, async || {
                let progress = reader.ledger("status").await;
                if progress["booked"].as_u64() > before { Ok(()) } else { Err(progress.to_string()) }
            })
            .await;
        }
    }
    reader.read('4', &sections).await;
    reader.read('5', &sections).await;
    // The power returns before the network: the old servers are a majority among themselves, and have a leader with an old
    // token.
    let east = ensemble.servers()[LOST..].iter().map(|server| server.host().unwrap()).chain([&hosts[0]]);
    let east: Vec<_> = east.map(Host::ip).collect();
    for host in &west {
        host.heal().unwrap();
        host.cut_from(&east).unwrap();
    }
    for server in &SERVERS[..LOST] {
        reader.place(server).terminal.done("systemctl start zookeeper").await;
    }
    reader.place("west-1").terminal.done("systemctl start dr-worker").await;
    wait_for("a store that refuses west-1", ANSWERED, async || {
        let progress = reader.ledger("status").await;
        if progress["refused"]["claims"].as_u64() > Some(0) { Ok(()) } else { Err(progress.to_string()) }
    })
    .await;
    // The site is connected once nothing of it starts by itself.
    let (_, returning) = &sections[5];
    for step in returning {
        if step.line == "systemctl start dr-worker" {
            west.iter().for_each(|host| host.heal().unwrap());
        }
        reader.take(step).await;
    }
    reader.read('7', &sections).await;
    reader.read('8', &sections).await;

    for (worker, _) in WORKERS {
        reader.place(worker).terminal.done("systemctl stop dr-worker").await;
    }
    // No leader has booked after a newer one, nor what another one has booked.
    let checked = reader.ledger("check --output json --orders /srv/orders.csv").await;
    assert_eq!((&checked["twice"], &checked["late_accepted"]), (&0.into(), &0.into()), "{checked:#}");
    let leaderships = checked["leaderships"].as_array().unwrap();
    let members: Vec<_> = leaderships.iter().map(|led| led["member"].as_str().unwrap()).collect();
    // Without ZooKeeper, with the servers that were left, and with the copy. A restart of two servers can outlast a lease, so
    // later ones may be of either.
    assert_eq!(members[..4], ["west-1", "east-1", "east-1", "east-1"], "{members:?}");
    for server in SERVERS {
        reader.place(server).terminal.done("systemctl stop zookeeper").await;
    }
    assert!(reader.places.iter().all(|place| place.pid().is_none_or(|pid| !is_there(pid))));
}
