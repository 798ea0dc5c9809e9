//! Each check over facts with its fault, and none over those of a healthy deployment.
//!
//! Most faults are also made on real servers and workers, in tests/tests/it/doctor.rs. These are made here only, because they take
//! a full or slow disk, a machine with another clock or another limit, a second release of ZooKeeper, a server that is no Apache
//! ZooKeeper, workers in other sites, or an hour: server-versions, disk-growth, disk-space, slow-fsync, outstanding-requests,
//! large-ensemble, server-clock, slow-quorum, no-lease, member-mistaken, hold, stopped, ghost, low-token, certificate,
//! open-files, limits, locked-memory, processes, fast-alone.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path, time::Duration};

use super::{
    checks,
    facts::{
        CandidateFacts, Clock, Disk, ElectionFacts, Facts, JobFacts, Loss, MemberFacts, NodeFacts, Server,
        ServerAnswer, SessionConfig, SessionFacts, StandingOrder,
    },
    finding::Severity,
    judge,
};
use crate::view::ProblemRow;

const NOW: u64 = 1_795_665_493_000;
const HOUR: u64 = 3_600_000;

fn answer(pairs: &[(&str, &str)]) -> ServerAnswer {
    let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ServerAnswer { values: pairs.collect(), missing: None }
}

fn server(id: &str, site: &str, role: &str) -> Server {
    Server {
        name: format!("zk{id}:2181"),
        site: Some(site.to_owned()),
        addresses: [format!("10.0.0.{id}").parse().unwrap()].into(),
        stats: answer(&[("Zookeeper version", "3.8.0-x, built on then"), ("Mode", role)]),
        settings: answer(&[
            ("serverId", id),
            ("tickTime", "2000"),
            ("initLimit", "10"),
            ("syncLimit", "4"),
            ("minSessionTimeout", "4000"),
            ("maxSessionTimeout", "40000"),
            ("dataDir", "/d"),
            ("dataLogDir", "/d"),
            ("dataDirSize", "1000000"),
            ("dataLogSize", "1000000"),
            ("server.1", "zk1:2888:3888:participant"),
            ("server.2", "zk2:2888:3888:participant"),
            ("server.3", "zk3:2888:3888:participant"),
        ]),
        metrics: answer(&[
            ("zk_znode_count", "50"),
            ("zk_watch_count", "60"),
            ("zk_approximate_data_size", "5000"),
            ("zk_outstanding_requests", "0"),
            ("zk_avg_fsynctime", "1.5"),
        ]),
        properties: answer(&[("zookeeper.admin.enableServer", "true")]),
        clock: Some(Clock { ahead_ms: -400, within_ms: 600 }),
        disk: Some(Disk { free: 50 << 30, size: 100 << 30 }),
        ..Server::default()
    }
}

fn member(id: &str, site: &str, host: u8) -> MemberFacts {
    let address = format!("10.0.1.{host}");
    MemberFacts {
        member: id.to_owned(),
        site: site.to_owned(),
        addresses: [address.parse().unwrap()].into(),
        places: [(address.clone(), format!("http://{address}:7080"))].into(),
        software: ["dr-worker 0.1.0".to_owned()].into(),
        overlays: [("orders".to_owned(), 3)].into(),
        answers_as: Some(id.to_owned()),
        clock: Some(Clock { ahead_ms: 300, within_ms: 600 }),
        ..MemberFacts::default()
    }
}

/// Four workers in two sites, and three servers in three.
fn healthy() -> Facts {
    let members =
        [("east-1", "east", 1), ("east-2", "east", 2), ("west-1", "west", 3), ("west-2", "west", 4)];
    let candidates = members.map(|(member, site, _)| CandidateFacts {
        member: member.to_owned(),
        site: site.to_owned(),
        barred: None,
    });
    let losses =
        ["east", "west"].map(|site| Loss { site: site.to_owned(), survives: true, sentence: String::new() });
    Facts {
        now_ms: NOW,
        asked: SessionConfig {
            session_timeout: Duration::from_secs(10),
            tick_time: Duration::from_secs(2),
            has_sites: true,
            is_open: false,
        },
        session: Some(SessionFacts {
            granted: Duration::from_secs(10),
            round_trip: Some(Duration::from_millis(3)),
            leases: true,
            ignores_access_lists: Some(false),
        }),
        servers: vec![
            server("1", "east", "follower"),
            server("2", "west", "leader"),
            server("3", "third", "follower"),
        ],
        jobs: vec![JobFacts {
            name: "orders".to_owned(),
            fenced: true,
            fast_failover: true,
            stop_budget: Some(Duration::from_millis(2300)),
            ..JobFacts::default()
        }],
        elections: vec![ElectionFacts {
            name: "orders".to_owned(),
            has_elector: true,
            sites: vec!["east".to_owned(), "west".to_owned()],
            leaders: vec![Some("east-1".to_owned())],
            candidates: candidates.to_vec(),
            losses: losses.to_vec(),
            ..ElectionFacts::default()
        }],
        members: members.map(|(id, site, host)| member(id, site, host)).to_vec(),
        node: Some(NodeFacts {
            id: "east-1".to_owned(),
            address: "10.0.1.1".to_owned(),
            state_dir: "/var/lib/dr-worker".to_owned(),
            open_files: Some((524_288, 90)),
            processes: Some(15_000),
            ..NodeFacts::default()
        }),
        ..Facts::default()
    }
}

fn put(answer: &mut ServerAnswer, key: &str, value: &str) {
    answer.values.insert(key.to_owned(), value.to_owned());
}

fn problem(kind: &'static str) -> ProblemRow {
    ProblemRow { kind, sentence: format!("a {kind}"), command: None }
}

fn order(hours: u64) -> StandingOrder {
    StandingOrder { sentence: "an order".to_owned(), at_ms: NOW - hours * HOUR }
}

fn node(facts: &mut Facts) -> &mut NodeFacts {
    facts.node.as_mut().unwrap()
}

fn session(facts: &mut Facts) -> &mut SessionFacts {
    facts.session.as_mut().unwrap()
}

fn election(facts: &mut Facts) -> &mut ElectionFacts {
    &mut facts.elections[0]
}

type Fault = (&'static str, Severity, &'static str, fn(&mut Facts));

/// A fault, and what has to be found: the check, the severity and a part of the sentence.
const FAULTS: &[Fault] = {
    use Severity::{Error, Note, Unknown, Warning};
    &[
        ("zookeeper-session", Error, "no session with ZooKeeper: late", |f| {
            (f.session, f.no_session) = (None, "late".to_owned());
        }),
        ("server-unreachable", Warning, "zk3:2181 can't be reached: refused", |f| {
            f.servers[2].unreachable = Some("refused".to_owned());
        }),
        ("server-not-serving", Warning, "zk1:2181 does not serve", |f| f.servers[0].stats.values.clear()),
        ("server-not-serving", Warning, "zk1:2181 serves reads only", |f| {
            put(&mut f.servers[0].stats, "Mode", "read-only");
        }),
        ("server-disagrees", Error, "zk2:2181 shows a znode", |f| {
            f.disagreements.push("orders: the server zk2:2181 shows a znode".to_owned());
        }),
        ("server-silent", Unknown, "list of servers (conf: not in 4lw.commands.whitelist)", |f| {
            f.servers[0].settings = ServerAnswer::none("not in 4lw.commands.whitelist");
        }),
        ("server-properties", Unknown, "the clock of zk1:2181, zk2:2181 are not known: closed", |f| {
            (f.servers[0].properties, f.servers[1].properties) =
                (ServerAnswer::none("closed"), ServerAnswer::none("closed"));
        }),
        ("server-alone", Error, "zk1:2181 is the only server with a vote", |f| {
            f.servers = vec![Server { settings: answer(&[]), ..server("1", "east", "standalone") }];
        }),
        ("servers-even", Warning, "4 servers have a vote", |f| {
            f.servers.push(server("4", "fourth", "follower"));
            f.servers.iter_mut().for_each(|s| put(&mut s.settings, "server.4", "zk4:2888:3888:participant"));
        }),
        ("servers-even", Warning, "2 servers have a vote, one observer not counted: they need 2", |f| {
            put(&mut f.servers[2].stats, "Mode", "observer");
            f.servers.iter_mut().for_each(|s| put(&mut s.settings, "server.3", "zk3:2888:3888:observer"));
        }),
        (
            "site-quorum",
            Error,
            "the loss of site east loses the quorum: 1 of 3 voting servers would be left",
            |f| f.servers[2].site = Some("east".to_owned()),
        ),
        (
            "site-quorum",
            Error,
            "the loss of site west loses the quorum while zk1:2181 is down: 1 of 3",
            |f| f.servers[0].unreachable = Some("refused".to_owned()),
        ),
        ("server-sites", Unknown, "the sites of zk2:2181, zk3:2181 are not known", |f| {
            (f.servers[1].site, f.servers[2].site) = (None, None);
        }),
        ("server-unlisted", Warning, "3 voting servers, and 1 of them are not in", |f| drop(f.servers.pop())),
        ("server-versions", Warning, "zk1:2181 has 3.9.3", |f| {
            put(&mut f.servers[0].stats, "Zookeeper version", "3.9.3-y, built on then");
        }),
        ("force-sync", Error, "zk2:2181 runs with forceSync=no", |f| {
            put(&mut f.servers[1].properties, "zookeeper.forceSync", "no");
        }),
        ("skip-acl", Error, "zk2:2181 runs with skipACL=yes", |f| {
            put(&mut f.servers[1].properties, "zookeeper.skipACL", "yes");
        }),
        ("skip-acl", Error, "a client without credentials has read", |f| {
            session(f).ignores_access_lists = Some(true);
        }),
        ("no-access-lists", Note, "zookeeper.acl is \"open\"", |f| f.asked.is_open = true),
        ("eager-acl", Note, "zk2:2181 runs with enableEagerACLCheck=true", |f| {
            put(&mut f.servers[1].properties, "zookeeper.enableEagerACLCheck", "true");
        }),
        ("snap-count", Warning, "zk2:2181 runs with snapCount=100", |f| {
            put(&mut f.servers[1].properties, "zookeeper.snapCount", "100");
        }),
        ("disk-growth", Warning, "the files of zk1:2181 have 18.6 GiB", |f| {
            put(&mut f.servers[0].settings, "dataDirSize", "20000000000");
        }),
        ("disk-space", Warning, "the disk of zk1:2181 has 1000 MiB left", |f| {
            f.servers[0].disk = Some(Disk { free: 1000 << 20, size: 100 << 30 });
        }),
        ("slow-fsync", Warning, "zk1:2181 takes 250 ms on average", |f| {
            put(&mut f.servers[0].metrics, "zk_avg_fsynctime", "250.2");
        }),
        ("outstanding-requests", Warning, "1001 requests wait at zk1:2181", |f| {
            put(&mut f.servers[0].metrics, "zk_outstanding_requests", "1001");
        }),
        ("large-ensemble", Warning, "zk1:2181 has 2000000 znodes", |f| {
            put(&mut f.servers[0].metrics, "zk_znode_count", "2000000");
        }),
        ("large-ensemble", Warning, "zk1:2181 has 300000 watches", |f| {
            put(&mut f.servers[0].metrics, "zk_watch_count", "300000");
        }),
        ("server-clock", Warning, "the clock of zk1:2181 is 5s behind", |f| {
            f.servers[0].clock = Some(Clock { ahead_ms: -5000, within_ms: 600 });
        }),
        ("tick-time", Error, "is 2s, and tickTime of zk1:2181 is 3s: leases are computed too long", |f| {
            put(&mut f.servers[0].settings, "tickTime", "3000");
            put(&mut f.servers[0].settings, "syncLimit", "2");
        }),
        ("tick-time", Note, "leases are shorter than they could be", |f| {
            f.servers.iter_mut().for_each(|server| put(&mut server.settings, "tickTime", "1000"));
        }),
        (
            "session-timeout",
            Warning,
            "asks for 10s, but the servers grant 15s; the servers allow 4s to 40s",
            |f| session(f).granted = Duration::from_secs(15),
        ),
        ("stop-budget", Error, "the stop of orders may need 5s, but its lease may have only ", |f| {
            f.jobs[0].stop_budget = Some(Duration::from_secs(5));
        }),
        ("stop-budget", Error, "round trip 1.5s", |f| {
            session(f).round_trip = Some(Duration::from_millis(1500));
        }),
        ("slow-quorum", Warning, "a quorum round trip takes 150ms, but leases assume 100ms", |f| {
            session(f).round_trip = Some(Duration::from_millis(150));
        }),
        ("slow-quorum", Unknown, "no quorum round trip could be measured", |f| session(f).round_trip = None),
        (
            "late-expiry",
            Warning,
            "multiples of the tick of 2s: a lost host is replaced after 6s to 8s",
            |f| {
                f.asked.session_timeout = Duration::from_secs(6);
                session(f).granted = Duration::from_secs(6);
            },
        ),
        ("sync-limit", Warning, "zk1:2181 notices the loss of its leader after 10s", |f| {
            put(&mut f.servers[0].settings, "syncLimit", "5");
        }),
        ("init-limit", Warning, "zk1:2181 must have all data within 4s", |f| {
            put(&mut f.servers[0].settings, "initLimit", "2");
        }),
        ("no-lease", Error, "end a session with its connection", |f| session(f).leases = false),
        ("access-refused", Error, "NoAuth", |f| f.refused.push("NoAuth".to_owned())),
        ("open-access", Warning, "a access", |f| election(f).problems.push(problem("access"))),
        ("member-unreachable", Warning, "the HTTP endpoints of west-2 of site west", |f| {
            f.members[3].unreachable = Some("refused".to_owned());
        }),
        ("member-mistaken", Error, "at the URL of west-2 answers west-1", |f| {
            f.members[3].answers_as = Some("west-1".to_owned());
        }),
        ("member-state-dir", Error, "west-2: the disk of /var/lib/dr-worker hangs", |f| {
            f.members[3].problem = Some("the disk of /var/lib/dr-worker hangs".to_owned());
        }),
        (
            "few-standbys",
            Warning,
            "the only ready standby of orders is that of west-1 (west-2: restarting)",
            |f| {
                f.members[2].standbys.insert("orders".to_owned(), "running".to_owned());
                f.members[3].standbys.insert("orders".to_owned(), "restarting".to_owned());
            },
        ),
        ("few-standbys", Warning, "no standby of orders is ready (west-2: starting)", |f| {
            f.members[3].standbys.insert("orders".to_owned(), "starting".to_owned());
        }),
        ("member-clock", Warning, "the clock of west-2 is 30s ahead of", |f| {
            f.members[3].clock = Some(Clock { ahead_ms: 30_000, within_ms: 600 });
        }),
        ("member-versions", Warning, "west-2 has dr-worker 0.2.0", |f| {
            f.members[3].software = ["dr-worker 0.2.0".to_owned()].into();
        }),
        ("member-config", Warning, "west-2 applies 2", |f| {
            f.members[3].overlays.insert("orders".to_owned(), 2);
        }),
        ("member-config", Warning, "a refused-config", |f| {
            election(f).problems.push(problem("refused-config"));
        }),
        ("member-policy", Warning, "a other-policy", |f| election(f).problems.push(problem("other-policy"))),
        ("duplicate-id", Error, "have the id west-2", |f| {
            f.members[3].places.insert(("10.0.1.9".to_owned(), "http://10.0.1.9:7080".to_owned()));
        }),
        ("duplicate-id", Error, "a worker at 10.0.1.1 has that id", |f| {
            node(f).address = "10.0.1.8".to_owned();
        }),
        ("no-election", Note, "no worker has joined the election of bills yet", |f| {
            f.jobs.push(JobFacts { name: "bills".to_owned(), fenced: true, ..JobFacts::default() });
        }),
        ("no-leader", Error, "no member leads orders", |f| election(f).leaders[0] = None),
        ("no-candidate", Error, "no member may lead (east-1: unfit; east-2: unfit", |f| {
            election(f).candidates.iter_mut().for_each(|c| c.barred = Some("unfit".to_owned()));
        }),
        ("no-other-site", Error, "orders: without site east: no member would lead", |f| {
            election(f).losses[0].survives = false;
            election(f).losses[0].sentence = "no member would lead".to_owned();
        }),
        ("empty-site", Warning, "no member of site west may lead (west-1: unfit; west-2: unfit)", |f| {
            let west = election(f).candidates.iter_mut().filter(|candidate| candidate.site == "west");
            west.for_each(|candidate| candidate.barred = Some("unfit".to_owned()));
        }),
        ("empty-site", Warning, "no member of site north may lead (it has no member)", |f| {
            election(f).sites.push("north".to_owned());
        }),
        ("member-absent", Warning, "orders: west-3 is absent: not connected", |f| {
            election(f).absent.push((false, "west-3 is absent: not connected".to_owned()));
        }),
        ("member-absent", Note, "orders: west-3 is absent: stopped", |f| {
            election(f).absent.push((true, "west-3 is absent: stopped".to_owned()));
        }),
        ("single-candidate", Warning, "west-2 is the only candidate of site west", |f| {
            election(f).candidates.remove(2);
        }),
        ("hold", Error, "orders: held", |f| election(f).hold = Some("held".to_owned())),
        ("paused", Warning, "an order, since 2026-11-26T01:58:13Z", |f| {
            election(f).orders.mode = Some(order(2))
        }),
        ("paused", Note, "an order, since 2026-11-26T03:58:13Z", |f| {
            election(f).orders.mode = Some(order(0))
        }),
        ("stopped", Warning, "an order, since 2026-11-26T01:58:13Z", |f| {
            election(f).orders.stopped = vec![order(2)]
        }),
        ("maintenance", Warning, "an order, since 2026-11-26T01:58:13Z", |f| {
            election(f).orders.maintenance.push(order(2))
        }),
        ("closed-site", Warning, "an order, since 2026-11-26T01:58:13Z", |f| {
            election(f).orders.closed.push(order(2))
        }),
        ("breadcrumb", Warning, "a not-fenced", |f| election(f).problems.push(problem("not-fenced"))),
        ("ghost", Warning, "a ghost", |f| election(f).problems.push(problem("ghost"))),
        ("low-token", Error, "a low-token", |f| election(f).problems.push(problem("low-token"))),
        ("unreadable-znode", Warning, "a unreadable", |f| election(f).problems.push(problem("unreadable"))),
        ("keep-unfenced", Error, "orders has on_pause = \"keep\" and is not fenced", |f| {
            f.jobs[0] = JobFacts { name: "orders".to_owned(), keeps: true, ..JobFacts::default() };
        }),
        ("fast-unfenced", Warning, "orders has fast_failover and is not fenced", |f| {
            f.jobs[0].fenced = false
        }),
        ("fast-alone", Warning, "orders: if east-1 leads, fast_failover has no effect", |f| {
            election(f).candidates.remove(1);
        }),
        ("fast-alone", Warning, "orders: if east-2 leads, fast_failover has no effect", |f| {
            election(f).candidates.truncate(2);
        }),
        ("beside-zookeeper-leader", Warning, "east-1 leads orders on the host of zk2:2181", |f| {
            f.members[0].addresses = f.servers[1].addresses.clone();
        }),
        ("no-worker", Unknown, "not that of a worker: no job", |f| {
            (f.node, f.no_node, f.is_operator) = (None, "no job".to_owned(), true);
        }),
        ("no-worker", Error, "refuses its configuration: no site", |f| {
            (f.node, f.no_node) = (None, "no site".to_owned());
        }),
        ("not-runnable", Error, "job.orders.command: gone", |f| {
            node(f).unusable.push(("job.orders.command".to_owned(), "gone".to_owned()));
        }),
        ("unusable-file", Error, "http.token_file: mode 644", |f| {
            node(f).unusable.push(("http.token_file".to_owned(), "mode 644".to_owned()));
        }),
        ("certificate", Warning, "it ends", |f| node(f).certificate = Some((false, "it ends".to_owned()))),
        ("certificate", Error, "it has ended", |f| {
            node(f).certificate = Some((true, "it has ended".to_owned()));
        }),
        ("readable-secret", Error, "other users can read /c", |f| {
            node(f).readable_secret = Some("/c".to_owned());
        }),
        ("plain-password", Warning, "is sent in plain text", |f| {
            node(f).plain_password = Some("the password is sent in plain text");
        }),
        ("state-dir", Error, "/var/lib/dr-worker can't be written: /var: denied", |f| {
            node(f).not_writable = Some("/var: denied".to_owned());
        }),
        ("state-in-memory", Warning, "/var/lib/dr-worker is in memory", |f| node(f).in_memory = true),
        ("open-files", Warning, "may open 512 files, of which its jobs need 90", |f| {
            node(f).open_files = Some((512, 90));
        }),
        ("open-files", Error, "may open 64 files, and needs 90", |f| node(f).open_files = Some((64, 90))),
        ("limits", Warning, "job.orders.limits.memory: the controller memory is missing", |f| {
            let why = "the controller memory is missing".to_owned();
            node(f).unmet_limits = vec![("orders".to_owned(), "limits.memory", why)];
        }),
        ("locked-memory", Warning, "may lock 8 MiB of memory, and needs 80", |f| {
            node(f).locked_memory = Some(8 << 20);
        }),
        ("processes", Warning, "may have 100 processes", |f| node(f).processes = Some(100)),
        ("open-http", Warning, "from other hosts: everyone", |f| node(f).exposed = vec!["everyone"]),
        ("watchdog", Error, "the watchdog can't be used: none", |f| {
            node(f).watchdog = Some((true, "none".to_owned()));
        }),
        ("watchdog", Warning, "the watchdog can't be used: none", |f| {
            node(f).watchdog = Some((false, "none".to_owned()));
        }),
    ]
};

#[test]
fn a_healthy_deployment_has_no_findings() {
    let report = judge(&healthy());
    assert_eq!(report.findings, [], "{}", report.text());
    assert_eq!(report.text(), format!("no findings ({} checks)", checks::all().count()));
}

#[test]
fn each_fault_is_named() {
    for (id, severity, part, make) in FAULTS {
        let mut facts = healthy();
        make(&mut facts);
        let report = judge(&facts);
        let is_it =
            report.findings.iter().any(|f| f.id == *id && f.severity == *severity && f.what.contains(part));
        assert!(is_it, "{id} {severity:?} {part:?} is not in:\n{}", report.text());
    }
}

#[test]
fn each_check_has_a_fault_here_and_a_name_of_its_own() {
    let ids: BTreeSet<_> = checks::all().map(|check| check.id).collect();
    assert_eq!(ids.len(), checks::all().count(), "a name is there twice");
    let made: BTreeSet<_> = FAULTS.iter().map(|(id, ..)| *id).collect();
    assert_eq!(made, ids);
}

/// A fault that is made alone must not be reported as several.
#[test]
fn what_is_reported_is_sorted_and_counted() {
    let mut facts = healthy();
    facts.members[3].clock = Some(Clock { ahead_ms: 30_000, within_ms: 600 });
    facts.members[2].clock = Some(Clock { ahead_ms: 20_000, within_ms: 600 });
    facts.elections[0].hold = Some("held".to_owned());
    facts.elections[0].orders.mode = Some(order(0));
    let text = judge(&facts).text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "\u{1b}[1m\u{1b}[31merror\u{1b}[39m\u{1b}[0m \u{1b}[1mhold\u{1b}[0m");
    assert!(
        lines[1] == "  orders: held"
            && lines[2].starts_with("    why: ")
            && lines[3].starts_with("    do:  ")
    );
    // Those of one check have one explanation.
    assert_eq!(text.matches("    why: ").count(), 3, "{text}");
    assert!(
        text.ends_with(&format!("1 error, 2 warnings, 1 note ({} checks)", checks::all().count())),
        "{text}"
    );
}

/// The table of docs/doctor.md. `UPDATE_DOCTOR=1 cargo test -p dr-worker --lib doctor` writes it.
#[test]
fn the_document_has_the_table() {
    const BEGIN: &str = "<!-- checks -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let text = fs::read_to_string(&path).unwrap();
    let sample = format!("1 error ({} checks)\n", checks::all().count());
    assert!(text.contains(&sample), "the sample report ends with another line than {sample:?}");
    let (before, rest) = text.split_once(BEGIN).expect("the mark before the table");
    let (_, after) = rest.split_once(BEGIN).expect("the mark after the table");
    let mut table =
        "| check | severity | finds | why it matters | what to do |\n|---|---|---|---|---|\n".to_owned();
    for check in checks::all() {
        let (finds, why, action) = (check.finds, check.why, check.action);
        writeln!(table, "| `{}` | {} | {finds} | {why} | {action} |", check.id, check.severity.as_str())
            .unwrap();
    }
    let expected = format!("{before}{BEGIN}{table}{BEGIN}{after}");
    if std::env::var_os("UPDATE_DOCTOR").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    assert!(
        text == expected || std::env::var_os("UPDATE_DOCTOR").is_some(),
        "docs/doctor.md is out of date; run with UPDATE_DOCTOR=1"
    );
}
