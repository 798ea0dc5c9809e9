//! The test programs that start servers of Apache ZooKeeper.
//!
//! zk-testkit records each start in a file. A run of all tests fails if a program has started servers that no table names.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;

use super::filter::{Choice, Program};
use crate::cargo::Target;
use crate::packages::Release;

/// The variable of zk-testkit that names the file.
pub(crate) const VARIABLE: &str = "ZK_TESTKIT_STARTS";

/// The programs whose outcome can depend on the release of ZooKeeper; a run of all tests can be followed by these on each
/// other release. The difference between the releases, the package, the programs.
const BY_RELEASE: [(&str, &str, &str); 8] = [
    (
        "what servers answer, and whom they refuse: groups, stats, access lists",
        "zk-session",
        "administration exactly_once operations security trees_and_groups",
    ),
    (
        "which watches a server keeps, and what it tells of changes",
        "zk-session",
        "durable_watches lasting watches",
    ),
    (
        "when a server has heard of a session, expires it, gives it to another connection",
        "zk-session",
        "lagging lease negotiated partition resume session",
    ),
    ("credentials, SASL and TLS", "zk-session", "refused_credentials sasl tls"),
    ("who may read an access list", "dr-worker", "access_lists"),
    ("start, settings and commands of servers", "zk-testkit", "ensemble isolation settings"),
    ("everything that the embedded server does likewise", "zk-testkit", "differential"),
    ("all parts together", "e2e", "failover"),
];

/// The others: they test the client's side of the protocol, whose server's side those above cover. `namespaces` repeats for
/// minutes what `partition` does once.
const ON_ANY: [(&str, &str); 6] = [
    (
        "e2e",
        "bad_configuration balance dead_workers deployment doctor drill drill_modes duplicates election explain \
         fast_failover fencing first_deployment freeze frozen guides health latency lost_quorum measure operator \
         other_jobs outages own_stage planned postgres processes recipes shapes site_minimum slots spoiled_znodes \
         upgrade vip weeks",
    ),
    ("dr-worker", "dead_workers"),
    ("election-tests", "others runtime"),
    ("session-bench", "small"),
    (
        "zk-session",
        "cancel_safety chroot crowds dead_links example_fenced_lock frozen metrics moving namespaces no_connection \
         observable rebuilds secrets servers silent_hosts storms suspected timeouts za_logs za_resources",
    ),
    ("zk-testkit", "namespaces proxy"),
];

pub(crate) fn by_release() -> Vec<Program> {
    programs(BY_RELEASE.into_iter().map(|(_, package, names)| (package, names)))
}

/// The programs that run on the embedded server, and on Apache ZooKeeper by `TEST_SERVERS=apache`.
const ON_EITHER: [(&str, &str); 1] = [("election-tests", "others runtime")];

pub(crate) fn on_either_server() -> Vec<Program> {
    programs(ON_EITHER.into_iter())
}

pub(crate) fn all() -> Vec<Program> {
    let mut all = by_release();
    all.extend(programs(ON_ANY.into_iter()));
    all
}

fn programs<'a>(table: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Program> {
    let of_package = |(package, names): (&'a str, &'a str)| {
        let program = move |name: &str| Program { package: package.to_owned(), name: name.to_owned() };
        names.split_whitespace().map(program).collect::<Vec<_>>()
    };
    table.flat_map(of_package).collect()
}

/// A start of servers: the program and the version.
#[derive(Debug)]
struct Start {
    by: Program,
    version: String,
}

/// Differences between the file and the tables, or the requested release.
///
/// # Errors
/// The file can't be read.
pub(crate) fn complaints(
    file: &Path,
    targets: &[Target],
    choice: &Choice,
    release: Option<Release>,
) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let starts: Vec<Start> = text.lines().filter_map(Start::of_line).collect();
    let mut complaints = against(&starts, targets, release);
    // Otherwise tests may be skipped for lack of a program.
    if let (Choice::OnServers { programs, .. }, true) = (choice, std::env::var_os("CI").is_some()) {
        complaints.extend(without_start(programs, &starts, targets));
    }
    Ok(complaints)
}

fn against(starts: &[Start], targets: &[Target], release: Option<Release>) -> Vec<String> {
    let all = all();
    let mut complaints = BTreeSet::new();
    for start in starts {
        let Start { by: by @ Program { package, name }, version } = start;
        if release.is_some_and(|release| !release.has(version)) {
            complaints.insert(format!("{package} {name} has started ZooKeeper {version}"));
        }
        if start.is_by_tests(targets) && !all.contains(by) {
            complaints.insert(format!(
                "{package} {name} starts servers: add it to a table in {}, by whether its outcome depends on their release",
                file!()
            ));
        }
    }
    complaints.into_iter().collect()
}

fn without_start<'a>(
    programs: &'a [Program],
    starts: &'a [Start],
    targets: &'a [Target],
) -> impl Iterator<Item = String> + 'a {
    let has_started = move |program: &&Program| {
        let mut of_package = starts.iter().filter(|start| start.by.package == program.package);
        of_package.any(|start| start.by == **program || !start.is_by_tests(targets))
    };
    let others = programs.iter().filter(move |program| !has_started(program));
    others.map(|Program { package, name }| {
        format!("{package} {name} has started no servers; {} names it", file!())
    })
}

impl Start {
    /// Not by a doctest, nor by a child of a test.
    fn is_by_tests(&self, targets: &[Target]) -> bool {
        let Program { package, name } = &self.by;
        targets.iter().any(|target| target.package == *package && target.name.replace('-', "_") == *name)
    }

    /// The package, the program's file without its directory, the version.
    fn of_line(line: &str) -> Option<Self> {
        let mut parts = line.split('\t').map(str::to_owned);
        let (package, file, version) = (parts.next()?, parts.next()?, parts.next()?);
        // Cargo adds a hash to the names of tests.
        let name = file.rsplit_once('-').map_or(file.as_str(), |(name, _)| name).to_owned();
        Some(Self { by: Program { package, name }, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo;

    #[test]
    fn the_tables_name_programs_that_exist_and_each_once() {
        let targets = cargo::targets().expect("cargo metadata");
        let mut all = all();
        for Program { package, name } in &all {
            let exists = targets.iter().any(|t| t.is_test() && t.package == *package && t.name == *name);
            assert!(exists, "there is no program {name} of {package}");
        }
        all.sort();
        let twice: Vec<_> = all.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    fn starts(lines: &[&str]) -> Vec<Start> {
        lines.iter().filter_map(|line| Start::of_line(line)).collect()
    }

    #[test]
    fn a_start_that_no_table_names_is_told_and_one_of_another_release() {
        let targets = cargo::targets().expect("cargo metadata");
        let starts = starts(&[
            "zk-session\tlasting-0123456789abcdef\t3.9.3",
            "zk-session\trust_out\t3.9.3",
            "session-bench\tsession-bench\t3.9.3",
            "zk-proto\tcodec-0123456789abcdef\t3.9.3",
            "zk-proto\tzk_proto-0123456789abcdef\t3.9.3",
            "e2e\tfailover-0123456789abcdef\t3.8.0",
        ]);
        let unnamed = against(&starts, &targets, None);
        assert_eq!(unnamed.len(), 2, "{unnamed:?}");
        assert!(unnamed[0].starts_with("zk-proto codec starts servers"), "{unnamed:?}");
        assert!(unnamed[1].starts_with("zk-proto zk_proto starts servers"), "{unnamed:?}");
        let other = against(&starts, &targets, Some(Release::V3_9));
        assert_eq!(other[0], "e2e failover has started ZooKeeper 3.8.0", "{other:?}");
        assert_eq!(other.len(), 3, "{other:?}");
    }

    #[test]
    fn a_program_that_has_started_nothing_is_told() {
        let targets = cargo::targets().expect("cargo metadata");
        let program =
            |package: &str, name: &str| Program { package: package.to_owned(), name: name.to_owned() };
        let programs = [
            program("zk-session", "lasting"),
            program("zk-session", "watches"),
            program("session-bench", "small"),
        ];
        let starts =
            starts(&["zk-session\tlasting-0123456789abcdef\t3.9.3", "session-bench\tsession-bench\t3.9.3"]);
        let told: Vec<String> = without_start(&programs, &starts, &targets).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("zk-session watches has started no servers"), "{told:?}");
    }
}
