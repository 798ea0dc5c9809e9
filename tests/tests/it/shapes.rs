//! The deployment shapes of `docs/shapes.md`: each starts with the configuration of the document, on hosts of its own, and
//! loses its parts as the document's table says.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use e2e::{Cluster, FarServers, Leader, Loss, Outcome, Part, SOON, Shape, program, wait_for};
use tokio::sync::Mutex;
use zk_session::BootTime;
use zk_testkit::Network;

/// A longer time without an act of the job is a pause. A busy machine delays acts by less.
const PAUSE: Duration = Duration::from_secs(2);
/// What the servers need beside `syncLimit` and the session timeout: an election of theirs, and a tick.
const AND_MORE: Duration = Duration::from_secs(4);
/// An election of servers.
const ELECTION: Duration = Duration::from_secs(2);
/// `stop_timeout` and the reserve for killing.
const STOP: Duration = Duration::from_millis(2300);
/// `all`: each row of each table. Otherwise the first row.
const ROWS: &str = "SHAPES";

/// One deployment at a time: each has up to five servers.
static ONE: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn two_sites_and_a_witness() {
    loses_its_parts("Two sites and a witness").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sites_only() {
    loses_its_parts("Two sites only").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: cargo xtask test --full"]
async fn three_sites() {
    loses_its_parts("Three sites").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: cargo xtask test --full"]
async fn observers_in_the_far_site() {
    loses_its_parts("Observers in the far site").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: cargo xtask test --full"]
async fn sites_far_away_from_zookeeper() {
    loses_its_parts("Sites far away from ZooKeeper").await;
}

/// The shapes above are all that the document has, its files are accepted, and the pictures show its hosts.
#[test]
fn the_document_is_complete() {
    let shapes = Shape::all();
    let names: Vec<_> = shapes.iter().map(|shape| shape.name.as_str()).collect();
    let tested = [
        "Two sites and a witness",
        "Three sites",
        "Two sites only",
        "Observers in the far site",
        "Sites far away from ZooKeeper",
    ];
    assert_eq!(names, tested);
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job.toml");
    fs::write(&job, "[job.orders]\ncommand = [\"/bin/true\"]\n").unwrap();
    for shape in &shapes {
        assert!(shape.losses.len() > 2, "{}", shape.name);
        // The rule of the document: otherwise the loss of the server that leads the others ends jobs in other sites.
        let without_writes = shape.sync() + ELECTION + STOP;
        assert!(without_writes < shape.session_timeout() / 2, "{}: {without_writes:?}", shape.name);
        let picture = fs::read_to_string(&shape.picture).unwrap();
        assert!(picture.contains("prefers-color-scheme: dark"), "{}", shape.picture.display());
        let servers = shape.servers.iter().map(|server| server.host.as_str());
        for host in servers.chain(shape.workers.iter().map(|(id, _)| *id)) {
            assert!(picture.contains(&format!(">{host}<")), "{} lacks {host}", shape.picture.display());
        }
        for (common, own) in shape.files() {
            let files = [dir.path().join("common.toml"), dir.path().join("site.toml")];
            fs::write(&files[0], common).unwrap();
            fs::write(&files[1], own).unwrap();
            let mut check = Command::new(program("dr-worker"));
            for file in files.iter().chain([&job]) {
                check.arg("--config").arg(file);
            }
            let output = check.args(["config", "check"]).output().unwrap();
            assert!(output.status.success(), "{}: {output:?}\n{common}\n{own}", shape.name);
        }
    }
}

/// A deployment that runs.
struct Deployment {
    shape: Shape,
    cluster: Cluster,
    _far: Option<FarServers>,
}

async fn loses_its_parts(name: &str) {
    if !Network::available_or_skip() {
        return;
    }
    let _one = ONE.lock().await;
    let shape = Shape::all().into_iter().find(|shape| shape.name == name).unwrap();
    let rows = if std::env::var(ROWS).is_ok_and(|rows| rows == "all") { shape.losses.len() } else { 1 };
    let losses = shape.losses[..rows].to_vec();
    let columns = shape.columns();
    let mut deployment = Deployment::start(shape).await;
    let mut table = vec![format!("{columns} measured | led the servers |")];
    for loss in losses {
        table.push(deployment.plays(&loss).await);
        println!("{}", table.last().unwrap());
    }
    println!("\n{name}\n\n{}", table.join("\n"));
    deployment.cluster.end().await;
}

impl Deployment {
    async fn start(shape: Shape) -> Self {
        let ensemble = shape.ensemble().await;
        let servers = ensemble.addresses();
        let mut far = None;
        if let Some(delay) = shape.round_trip {
            let own = ensemble.network().unwrap().own_address();
            far = Some(FarServers::start(own, &servers, delay).await);
        }
        let reached = far.as_ref().map_or(&servers[..], FarServers::addresses);
        let setup = shape.setup(&servers, reached).not_started();
        let mut cluster = Cluster::on(ensemble, setup).await;
        // The worst case for the first row: the server that leads the others is lost too.
        let last = shape.servers.iter().rposition(|server| !server.observes).unwrap();
        cluster.let_server_lead(last, true).await;
        cluster.workers().iter_mut().for_each(e2e::Worker::start);
        Self { shape, cluster, _far: far }
    }

    /// Loses a part, checks what follows, and lets the part return. Returns the row with what was measured.
    async fn plays(&mut self, loss: &Loss) -> String {
        let old = self.led_from_the_first_site().await;
        self.cluster.acts(old.token).await;
        let led =
            self.cluster.ensemble().leader().await.map(|server| self.shape.servers[server].host.clone());
        let lost = BootTime::now();
        self.lose(&loss.part);
        let measured = match &loss.outcome {
            Outcome::ServesOn(site) => {
                assert_eq!(old.site, *site, "{}", loss.row);
                self.nothing_moves(&old, lost).await;
                let pause = self.longest_pause(&old, lost);
                assert!(pause < PAUSE, "{}: a pause of {pause:?}", loss.row);
                self.heal().await;
                let now = self.cluster.settled().await;
                assert_eq!(now.token, old.token, "{}: the return has moved leadership", loss.row);
                "no pause".to_owned()
            }
            Outcome::TakesOver(site, within) => {
                let new = self.cluster.successor_of(&old, *within + SOON).await;
                assert_eq!(new.site, *site, "{}", loss.row);
                let after = self.cluster.acts(new.token).await.from.duration_since(lost);
                assert!(after <= *within, "{}: after {after:?}", loss.row);
                self.heal().await;
                format!("{:.1} s", after.as_secs_f32())
            }
            Outcome::Nothing(within) => {
                self.nothing_moves(&old, lost).await;
                let (now, last) = (BootTime::now(), self.last_act());
                assert!(now.duration_since(last) > PAUSE, "{}: a job still acts", loss.row);
                let ended = last.duration_since(lost).as_secs_f32();
                let back = BootTime::now();
                self.heal().await;
                let again = wait_for("an act after the return", *within + SOON, async || {
                    let stamps = self.cluster.journal().stamps();
                    let after = stamps.iter().map(|stamp| stamp.at).filter(|at| *at > back).min();
                    after.ok_or_else(|| format!("{} stamps", stamps.len()))
                })
                .await;
                let after = again.duration_since(back);
                assert!(after <= *within, "{}: after {after:?}", loss.row);
                format!("ended after {ended:.1} s, then {:.1} s", after.as_secs_f32())
            }
        };
        self.cluster.settled().await;
        if matches!(loss.outcome, Outcome::ServesOn(_)) {
            let newest = self.cluster.journal().actings().pop().unwrap();
            assert_eq!(newest.token, old.token, "{}: another one has acted: {newest:?}", loss.row);
        } else {
            self.cluster.journal().assert_one_at_a_time();
        }
        format!("{} {measured} | {} |", loss.row, led.as_deref().unwrap_or("none"))
    }

    /// Moves leadership there as an operator does, if it is elsewhere.
    async fn led_from_the_first_site(&mut self) -> Leader {
        let first = self.shape.workers[0].1;
        let leader = self.cluster.settled().await;
        if leader.site == first {
            return leader;
        }
        let operator = self.cluster.operator();
        operator.done(&["ack"]).await;
        operator.done(&["switchover", "--to-site", first, "--wait"]).await;
        let moved = self.cluster.settled().await;
        assert_eq!(moved.site, first);
        moved
    }

    fn lose(&mut self, part: &Part) {
        match part {
            Part::Sites(sites) => {
                let lost = |site: &str| sites.iter().any(|one| one == site);
                for (index, server) in self.shape.servers.iter().enumerate() {
                    if lost(server.site()) {
                        self.cluster.ensemble().faults().unplug(index).unwrap();
                    }
                }
                self.cluster
                    .workers()
                    .iter_mut()
                    .filter(|one| lost(one.site()))
                    .for_each(e2e::Worker::cut_off);
            }
            Part::Workers(sites) => {
                let lost = |site: &str| sites.iter().any(|one| one == site);
                self.cluster
                    .workers()
                    .iter_mut()
                    .filter(|one| lost(one.site()))
                    .for_each(e2e::Worker::cut_off);
            }
            Part::Server(host) => {
                let index = self.shape.servers.iter().position(|server| server.host == *host).unwrap();
                self.cluster.ensemble().faults().unplug(index).unwrap();
            }
            Part::Link(one, other) => {
                let there = self.addresses(other);
                for (index, server) in self.shape.servers.iter().enumerate() {
                    if server.site() == one {
                        let host = self.cluster.ensemble().server(index).host().unwrap();
                        host.cut_from(&there).unwrap();
                    }
                }
                self.cluster.site(one).for_each(|worker| worker.host().cut_from(&there).unwrap());
            }
        }
    }

    /// The addresses of all hosts of a site.
    fn addresses(&mut self, site: &str) -> Vec<Ipv4Addr> {
        let servers = self.shape.servers.iter().enumerate().filter(|(_, server)| server.site() == site);
        let ensemble = self.cluster.ensemble();
        let mut all: Vec<_> = servers.map(|(index, _)| ensemble.server(index).host().unwrap().ip()).collect();
        all.extend(self.cluster.site(site).map(|worker| worker.host().ip()));
        all
    }

    /// Every part returns, and every server serves.
    async fn heal(&mut self) {
        let ensemble = self.cluster.ensemble();
        for index in 0..self.shape.servers.len() {
            ensemble.faults().rejoin(index).unwrap();
        }
        self.cluster.workers().iter_mut().for_each(e2e::Worker::plug_in);
        self.cluster.ensemble().wait_serving(SOON).await.unwrap();
    }

    /// No other member leads, until every session of a lost member has ended and more than that.
    async fn nothing_moves(&mut self, old: &Leader, lost: BootTime) {
        let whole = self.shape.sync() + self.shape.session_timeout() + AND_MORE;
        wait_for("the time in which leadership could move", whole + SOON, async || {
            if let Ok(leader) = self.cluster.leader().await {
                assert_eq!(leader.token, old.token, "leadership has moved to {}", leader.member);
            }
            let passed = BootTime::now().duration_since(lost);
            if passed > whole { Ok(()) } else { Err(format!("{passed:?}")) }
        })
        .await;
    }

    /// The longest time in which a leadership did not act, from then on.
    fn longest_pause(&self, leader: &Leader, since: BootTime) -> Duration {
        let stamps = self.cluster.journal().stamps();
        let mut acts: Vec<_> =
            stamps.iter().filter(|one| one.token == leader.token).map(|one| one.at).collect();
        acts.retain(|at| *at > since);
        acts.extend([since, BootTime::now()]);
        acts.sort();
        acts.windows(2).map(|pair| pair[1].duration_since(pair[0])).max().unwrap()
    }

    fn last_act(&self) -> BootTime {
        self.cluster.journal().stamps().iter().map(|stamp| stamp.at).max().unwrap()
    }
}
