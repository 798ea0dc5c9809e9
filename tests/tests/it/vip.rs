//! `examples/vip`: the virtual address is at one host at most, and at the leader's.
//!
//! Each worker has a host of its own (a network namespace). The kernel's reports of addresses on both hosts, and ARP as a
//! third host hears it, show where the address is.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use e2e::{
    Cluster, Driver, Leader, SOON, Setup, children, freeze_pid, kill_pid, own_ensemble, thaw_pid, wait_for,
};
use zk_testkit::{Host, Network};

/// A program on a host whose output is read while it runs.
struct Recorder {
    child: Child,
    path: PathBuf,
}

impl Recorder {
    fn start(host: &Host, path: PathBuf, command: &[&str]) -> Self {
        let output = File::create(&path).unwrap();
        let mut program = host.command(command[0]);
        let child = program.args(&command[1..]).stdin(Stdio::null()).stdout(output).spawn().unwrap();
        Self { child, path }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two workers, each on its host, with the example's job.
struct Stage {
    cluster: Cluster,
    address: Ipv4Addr,
    peer: Host,
    watch: Recorder,
    /// What the kernel reports of addresses: on east-1, on west-1.
    kernels: [Recorder; 2],
    /// Their link-layer addresses.
    links: [String; 2],
}

/// Whether this machine has what the example needs.
fn available_or_skip() -> bool {
    let has_tun = Path::new("/dev/net/tun").exists();
    if !has_tun {
        zk_testkit::skip("there is no /dev/net/tun: modprobe tun, or give the device to the container");
    }
    has_tun && Network::available_or_skip()
}

fn example(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(path);
    path.canonicalize().unwrap().display().to_string()
}

impl Stage {
    /// east-1 leads, and has the address.
    async fn start() -> (Self, Leader) {
        let ensemble = own_ensemble(|servers| servers.in_namespaces(true).servers(1)).await;
        let network = ensemble.network().unwrap();
        let [a, b, c, _] = network.own_address().octets();
        let address = Ipv4Addr::new(a, b, c, 200);
        let (observer, peer) = (network.host().unwrap(), network.host().unwrap());
        let setup = Setup::new(Driver::Native)
            .workers(&[("east-1", "east"), ("west-1", "west")])
            .on_hosts()
            .not_started()
            // The example's own, by another kind.
            .unset("job.orders.ready");
        let mut cluster = Cluster::on(ensemble, setup).await;
        let dir = cluster.dir().to_owned();
        let (vip, server) = (example("vip/vip.py"), example("haproxy/server.py"));
        for worker in cluster.workers() {
            let job = format!(
                "[job.orders]\ncommand = ['python3', '{vip}', 'hold', '{address}', 'eth0', '{}', \
                 'python3', '{server}', '{address}:8080']\n\
                 ready.address = '{address}:8080'\nliveness.address = '{address}:8080'\n",
                worker.http()
            );
            let config = dir.join(format!("{}-job.toml", worker.id()));
            fs::write(&config, job).unwrap();
            worker.add_config(Path::new(&example("vip/worker.toml")));
            worker.add_config(&config);
        }
        let mut kernels = Vec::new();
        let mut links = Vec::new();
        for worker in cluster.workers() {
            let monitor = ["ip", "-ts", "-o", "-4", "monitor", "address"];
            kernels.push(Recorder::start(worker.host(), dir.join(format!("{}.ip", worker.id())), &monitor));
            links.push(link(worker.host()));
        }
        let watch = ["python3", &vip, "watch", &address.to_string(), "eth0"];
        let watch = Recorder::start(&observer, dir.join("watch"), &watch);
        wait_for("an observer", SOON, async || {
            if watch.text().contains("no host") { Ok(()) } else { Err(watch.text()) }
        })
        .await;
        cluster.worker("east-1").start();
        let first = cluster.first_leader().await;
        cluster.worker("west-1").start();
        cluster.standing_by(1).await;
        let stage = Self {
            cluster,
            address,
            peer,
            watch,
            kernels: kernels.try_into().ok().unwrap(),
            links: links.try_into().unwrap(),
        };
        stage.answers("east-1").await;
        assert!(stage.neighbour().contains(&stage.links[0]), "{}", stage.neighbour());
        (stage, first)
    }

    /// Waits until a client of a third host is answered by this member, at the address.
    async fn answers(&self, member: &str) {
        wait_for(&format!("an answer of {member}"), SOON, async || {
            let to = SocketAddr::from((self.address, 8080));
            let ask = move || -> std::io::Result<String> {
                let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(1))?;
                stream.set_read_timeout(Some(Duration::from_secs(1)))?;
                stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer)?;
                Ok(answer)
            };
            match self.peer.spawn(ask).unwrap().join().unwrap() {
                Ok(answer) if answer.contains(member) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// What the third host has in its ARP cache.
    fn neighbour(&self) -> String {
        output(&self.peer, &["ip", "neigh", "show", &self.address.to_string()])
    }

    /// Waits until west-1 leads and its address is known to a host that sends nothing meanwhile.
    async fn moved(&mut self, first: &Leader) {
        self.cluster.successor_of(first, SOON).await;
        wait_for("a new entry in the ARP cache", SOON, async || {
            let entry = self.neighbour();
            if entry.contains(&self.links[1]) { Ok(()) } else { Err(entry) }
        })
        .await;
        self.answers("west-1").await;
        self.was_at_one_host_at_a_time();
    }

    /// By the kernels: it was gone at one host before it came to the other. By ARP: no answer of the first after one of
    /// the second.
    fn was_at_one_host_at_a_time(&self) {
        let mut held: Vec<(String, String)> = Vec::new();
        for kernel in &self.kernels {
            held.extend(times(&kernel.text(), &format!(" {}/32 ", self.address)));
        }
        held.sort();
        assert!(held.len() >= 2, "{held:?}");
        for pair in held.windows(2) {
            assert!(pair[0].1 < pair[1].0, "at two hosts: {held:?}");
        }
        let text = self.watch.text();
        let mut heard: Vec<&str> = text.lines().filter_map(|line| line.split(' ').nth(1)).collect();
        heard.retain(|link| *link != "no");
        heard.dedup();
        assert_eq!(heard, [&self.links[0], &self.links[1]], "{text}");
    }

    /// The old leader is back, and nothing else has happened.
    async fn ends(mut self) {
        self.cluster.standing_by(1).await;
        self.answers("west-1").await;
        self.was_at_one_host_at_a_time();
        self.cluster.end().await;
    }
}

/// From when until when a host had the address: times as `ip` prints them.
fn times(text: &str, address: &str) -> Vec<(String, String)> {
    const STILL: &str = "~";
    let mut held: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|line| line.contains(address)) {
        let time = line.split(' ').next().unwrap().to_owned();
        let last = held.last_mut().filter(|last| last.1 == STILL);
        match (line.contains("] Deleted "), last) {
            (true, Some(last)) => last.1 = time,
            (true, None) => panic!("deleted twice: {text}"),
            (false, Some(_)) => {} // renewed
            (false, None) => held.push((time, STILL.to_owned())),
        }
    }
    held
}

fn output(host: &Host, command: &[&str]) -> String {
    let output = host.command(command[0]).args(&command[1..]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn link(host: &Host) -> String {
    let text = output(host, &["ip", "-o", "link", "show", "eth0"]);
    text.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_switchover_moves_the_address_and_the_entries_of_its_peers() {
    if !available_or_skip() {
        return;
    }
    let (mut stage, first) = Stage::start().await;
    stage.cluster.operator().done(&["switchover", "--to", "west-1", "--wait"]).await;
    stage.moved(&first).await;
    stage.ends().await;
}

/// This happens to east-1's holder, and east-1 keeps leadership.
async fn comes_back_after(fault: impl FnOnce(u32)) {
    if !available_or_skip() {
        return;
    }
    let (mut stage, first) = Stage::start().await;
    fault(first.pid.unwrap());
    let again = |leader: &Leader| leader.restarts == 1 && leader.term == first.term;
    stage.cluster.leader_is("the same, restarted", SOON, again).await;
    stage.answers("east-1").await;
    let of_east = times(&stage.kernels[0].text(), &format!(" {}/32 ", stage.address));
    assert_eq!(of_east.len(), 2, "{of_east:?}");
    stage.cluster.end().await;
}

#[tokio::test]
async fn a_killed_holder_takes_the_address_with_it_and_the_next_run_brings_it_back() {
    comes_back_after(kill_pid).await;
}

/// By the liveness check of the job.
#[tokio::test]
async fn a_frozen_holder_loses_the_address_and_the_next_run_brings_it_back() {
    comes_back_after(freeze_pid).await;
}

#[tokio::test]
async fn a_killed_worker_loses_the_address_before_another_one_has_it() {
    if !available_or_skip() {
        return;
    }
    let (mut stage, first) = Stage::start().await;
    stage.cluster.worker("east-1").kill();
    stage.moved(&first).await;
    stage.cluster.worker("east-1").start();
    stage.ends().await;
}

/// East-1's worker and these of its other processes are frozen until west-1 has the address.
async fn moves_while_frozen(others: impl FnOnce(Vec<u32>, Vec<u32>) -> Vec<u32>) {
    if !available_or_skip() {
        return;
    }
    let (mut stage, first) = Stage::start().await;
    let holder = first.pid.unwrap();
    let job = [vec![holder], children(holder)].concat();
    let others = others(stage.cluster.worker("east-1").guards(), job);
    stage.cluster.worker("east-1").freeze();
    others.iter().copied().for_each(freeze_pid);
    stage.moved(&first).await;
    // The job first, which continues with what it was about to do.
    others.into_iter().rev().for_each(thaw_pid);
    stage.cluster.worker("east-1").thaw();
    stage.ends().await;
}

#[tokio::test]
async fn a_frozen_worker_loses_the_address_before_another_one_has_it() {
    moves_while_frozen(|_, _| Vec::new()).await;
}

/// The job runs on, without the address.
#[tokio::test]
async fn a_worker_and_a_guard_frozen_together_lose_the_address_before_another_one_has_it() {
    moves_while_frozen(|guards, _| guards).await;
}

/// No process is left that could remove it: the kernel does.
#[tokio::test]
async fn worker_guard_and_job_frozen_together_lose_the_address_before_another_one_has_it() {
    moves_while_frozen(|guards, job| [guards, job].concat()).await;
}

/// There is no lease then, and no worker that could be asked.
#[tokio::test]
async fn a_node_that_leads_without_zookeeper_has_the_address_until_its_job_ends() {
    if !available_or_skip() {
        return;
    }
    let (mut stage, _) = Stage::start().await;
    for member in ["west-1", "east-1"] {
        let worker = stage.cluster.worker(member);
        worker.ask_to_end();
        assert!(worker.ended_by(Instant::now() + SOON).unwrap().success());
    }
    stage.cluster.worker("east-1").lead_alone("I have fenced: site west");
    stage.answers("east-1").await;
    let east = stage.cluster.worker("east-1");
    east.ask_to_end();
    assert!(east.ended_by(Instant::now() + SOON).unwrap().success());
    let of_east = times(&stage.kernels[0].text(), &format!(" {}/32 ", stage.address));
    assert_eq!(of_east.len(), 2, "{of_east:?}");
    stage.cluster.end().await;
}

#[tokio::test]
async fn a_host_that_is_cut_off_loses_the_address_before_another_one_has_it() {
    if !available_or_skip() {
        return;
    }
    let (mut stage, first) = Stage::start().await;
    stage.cluster.worker("east-1").cut_off();
    stage.moved(&first).await;
    stage.cluster.worker("east-1").plug_in();
    stage.ends().await;
}
