//! The choice of tests: those of `cargo xtask test FILTER...`, or those on Apache ZooKeeper.

use std::collections::BTreeSet;
use std::path::Path;

use crate::cargo::{self, CargoTarget};

/// Part of the names of tests that run on the embedded server.
const EMBEDDED: &str = "_embedded::";
/// Part of the names of tests with that driver. Differences between servers reach it through the code of the other driver.
const OTHER_DRIVER: &str = "zookeeper_async";

/// The tests whose outcome can depend on the release of ZooKeeper: what it is about, the package, the modules of its tests.
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

/// The package whose tests run on the embedded server, and on Apache ZooKeeper by `TEST_SERVERS=apache`.
const ON_EITHER: &str = "election-tests";

/// The chosen tests: those of any of `wanted`, without tests of these names; all if nothing is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    wanted: Vec<Wanted>,
    without: &'static [&'static str],
    left_out: Vec<LeftOut>,
    /// Whether only the packages of the chosen tests are built.
    builds_less: bool,
}

/// Tests of a package that are left out: those whose names contain the text, all if it is empty.
pub(crate) type LeftOut = (&'static str, &'static str);

#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Package(String),
    Module(TestModule),
    Name(String),
}

/// A file of tests: of a test program, or a module of the package's sources with its own tests.
#[derive(Debug, PartialEq, Eq)]
struct TestModule {
    package: String,
    /// The test program.
    program: Option<String>,
    /// Its path in the program; empty: all of it.
    path: String,
}

impl Choice {
    pub(crate) fn of(filters: &[String], targets: &[CargoTarget]) -> Self {
        let wanted = filters.iter().flat_map(|filter| Wanted::of(filter, targets)).collect();
        Self { wanted, without: &[], left_out: Vec::new(), builds_less: true }
    }

    /// The same tests as far as they run on Apache ZooKeeper.
    pub(crate) fn on_servers(self) -> Self {
        Self { without: &[EMBEDDED], ..self }
    }

    /// Those whose outcome can depend on the release of ZooKeeper, with the default driver.
    pub(crate) fn by_release(targets: &[CargoTarget]) -> Self {
        let modules = BY_RELEASE.iter().flat_map(|(_, package, names)| {
            names.split_whitespace().flat_map(|name| TestModule::named(name, Some(package), targets))
        });
        let without = &[EMBEDDED, OTHER_DRIVER];
        let wanted = modules.map(Wanted::Module).collect();
        Self { wanted, without, left_out: Vec::new(), builds_less: false }
    }

    pub(crate) fn on_either_server() -> Self {
        let wanted = vec![Wanted::Package(ON_EITHER.to_owned())];
        Self { wanted, without: &[], left_out: Vec::new(), builds_less: false }
    }

    pub(crate) fn leave_out(&mut self, tests: impl IntoIterator<Item = LeftOut>) {
        self.left_out.extend(tests);
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Whether tests of this package are chosen whose names begin so. One that is chosen by more of its name counts as not.
    pub(crate) fn may_choose(&self, (package, names): LeftOut) -> bool {
        let chooses = |wanted: &Wanted| match wanted {
            Wanted::Package(name) => name == package,
            Wanted::Module(TestModule { package: of, program, path }) => {
                of == package && program.is_some() && names.starts_with(path.as_str())
            }
            Wanted::Name(name) => names.contains(name.as_str()),
        };
        self.is_everything() || self.wanted.iter().any(chooses)
    }

    /// The packages of all chosen tests, if they are known. No others need to be built then.
    pub(crate) fn packages(&self) -> Option<BTreeSet<&str>> {
        // A subset would be built again with other features.
        let is_known = self.builds_less && !self.is_everything();
        if is_known { self.wanted.iter().map(Wanted::package).collect() } else { None }
    }

    /// The arguments of a test program that choose its tests; none if no test of it is chosen.
    pub(crate) fn arguments(&self, program: &CargoTarget) -> Option<Vec<String>> {
        let names: BTreeSet<String> =
            self.wanted.iter().filter_map(|wanted| wanted.names_in(program)).collect();
        let left_out = self.left_out.iter().filter(|(package, _)| *package == program.package);
        let skipped: Vec<&str> =
            self.without.iter().copied().chain(left_out.map(|(_, name)| *name)).collect();
        if skipped.contains(&"") || (names.is_empty() && !self.is_everything()) {
            return None;
        }
        let names = if names.contains("") { BTreeSet::new() } else { names };
        let skipped = skipped.iter().flat_map(|name| ["--skip", name]).map(str::to_owned);
        Some(names.into_iter().chain(skipped).collect())
    }
}

impl TestModule {
    fn of(target: &CargoTarget, path: String) -> Self {
        let program = target.is_test().then(|| target.name.clone());
        Self { package: target.package.clone(), program, path }
    }

    /// The files of tests of that name.
    fn named(name: &str, package: Option<&str>, targets: &[CargoTarget]) -> Vec<Self> {
        let find = |program: &CargoTarget| {
            if program.source.file_stem().is_some_and(|stem| stem != "main" && stem == name) {
                return Some(Self::of(program, String::new()));
            }
            let dir = program.source.parent()?;
            let files = [dir.join(name).with_extension("rs"), dir.join(name).join("mod.rs")];
            let is_module = program.source.ends_with("main.rs") && files.iter().any(|file| file.is_file());
            is_module.then(|| Self::of(program, name.to_owned()))
        };
        let programs = targets.iter().filter(|t| t.is_test() && package.is_none_or(|p| t.package == p));
        programs.filter_map(find).collect()
    }

    /// The module of a file of sources or tests, which belongs to the target whose directory contains it.
    fn of_file(file: &Path, targets: &[CargoTarget]) -> Option<Self> {
        if let Some(target) = targets.iter().find(|target| target.source == file) {
            return Some(Self::of(target, String::new()));
        }
        let owner = targets
            .iter()
            .filter_map(|target| Some((target, target.source.parent()?)))
            .filter(|(_, dir)| file.starts_with(dir))
            .max_by_key(|(_, dir)| dir.components().count())?;
        let (target, dir) = owner;
        let inside = file.strip_prefix(dir).ok()?.with_extension("");
        let mut steps: Vec<_> = inside.iter().map(|step| step.to_string_lossy()).collect();
        if steps.last().is_some_and(|last| last == "mod") {
            steps.pop();
        }
        Some(Self::of(target, steps.join("::")))
    }

    fn names_in(&self, program: &CargoTarget) -> Option<String> {
        let is_of_sources = self.program.is_none() && !program.is_test();
        let is_it = is_of_sources || self.program.as_ref() == Some(&program.name);
        let path = if self.path.is_empty() { String::new() } else { format!("{}::", self.path) };
        (self.package == program.package && is_it).then_some(path)
    }
}

impl Wanted {
    fn of(filter: &str, targets: &[CargoTarget]) -> Vec<Self> {
        if targets.iter().any(|target| target.package == filter) {
            return vec![Self::Package(filter.to_owned())];
        }
        let stem = filter.strip_suffix(".rs");
        let is_path = stem.is_some() && filter.contains('/');
        let modules = if is_path {
            TestModule::of_file(&cargo::root().join(filter), targets).into_iter().collect()
        } else {
            TestModule::named(stem.unwrap_or(filter), None, targets)
        };
        if modules.is_empty() {
            return vec![Self::Name(stem.unwrap_or(filter).to_owned())];
        }
        modules.into_iter().map(Self::Module).collect()
    }

    fn package(&self) -> Option<&str> {
        match self {
            Self::Package(package) | Self::Module(TestModule { package, .. }) => Some(package),
            Self::Name(_) => None,
        }
    }

    /// What the names of the wanted tests of a program contain: nothing in particular if all are wanted.
    fn names_in(&self, program: &CargoTarget) -> Option<String> {
        match self {
            Self::Package(package) => (*package == program.package).then(String::new),
            Self::Module(module) => module.names_in(program),
            Self::Name(name) => Some(name.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> Vec<CargoTarget> {
        cargo::targets().expect("cargo metadata")
    }

    fn choice(filters: &[&str]) -> Choice {
        let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
        Choice::of(&filters, &targets())
    }

    /// Which programs run, each with its arguments.
    fn programs(choice: &Choice) -> Vec<String> {
        let arguments =
            |target: &CargoTarget| Some([vec![target.name.clone()], choice.arguments(target)?].concat());
        targets().iter().filter_map(arguments).map(|words| words.join(" ")).collect()
    }

    #[test]
    fn nothing_chooses_everything() {
        let choice = Choice::of(&[], &[]);
        assert!(choice.is_everything());
        assert!(targets().iter().all(|target| choice.arguments(target) == Some(Vec::new())));
    }

    #[test]
    fn on_servers_is_without_the_embedded_one() {
        let words = "--skip _embedded::";
        assert_eq!(
            programs(&choice(&["zk-proto"]).on_servers()),
            [format!("zk_proto {words}"), format!("it {words}")]
        );
    }

    #[test]
    fn what_is_left_out_is_skipped_in_its_package() {
        let mut choice = choice(&["boot-time", "strategies"]);
        choice.leave_out([("strategies", "flapping::"), ("boot-time", "")]);
        let programs = programs(&choice);
        assert!(programs.iter().all(|words| words.ends_with(" --skip flapping::")), "{programs:?}");
        assert!(programs.contains(&"it --skip flapping::".to_owned()), "{programs:?}");
    }

    #[test]
    fn a_file_of_tests_by_path_by_name_and_by_stem() {
        for filter in ["crates/zk-testkit/tests/it/proxy.rs", "proxy.rs", "proxy"] {
            assert_eq!(programs(&choice(&[filter])), ["it proxy::"]);
        }
        assert_eq!(programs(&choice(&["tests/tests/it/postgres/mod.rs"])), ["it postgres::"]);
        // Those of e2e and of ledger.
        assert_eq!(programs(&choice(&["postgres"])), ["it postgres::", "it postgres::"]);
    }

    #[test]
    fn a_source_file_chooses_its_modules_tests() {
        let chosen = programs(&choice(&["crates/zk-session/src/lease.rs"]));
        assert!(chosen.contains(&"zk_session lease::".to_owned()), "{chosen:?}");
        assert!(!chosen.iter().any(|words| words.starts_with("it ")), "{chosen:?}");
    }

    #[test]
    fn tests_are_chosen_by_their_package_file_or_name() {
        let tests = ("e2e", "two_versions::");
        for filter in ["e2e", "two_versions", "tests/tests/it/two_versions.rs", "two_ver"] {
            assert!(choice(&[filter]).may_choose(tests), "{filter}");
        }
        assert!(choice(&[]).may_choose(tests));
        assert!(!choice(&["zk-session", "upgrade", "two_leaders"]).may_choose(tests));
    }

    #[test]
    fn only_names_may_be_anywhere() {
        let packages = |filters: &[&str]| choice(filters).packages().map(|packages| packages.len());
        assert_eq!(packages(&["proxy", "zk-proto", "failover.rs"]), Some(3));
        assert_eq!(packages(&["proxy", "loses_nothing"]), None);
        assert_eq!(packages(&[]), None);
        let everywhere = programs(&choice(&["zk-proto", "loses_nothing"]));
        assert_eq!(everywhere.len(), targets().len());
        assert!(everywhere.contains(&"zk_proto".to_owned()), "{everywhere:?}");
    }

    #[test]
    fn the_table_names_files_of_tests() {
        for (_, package, names) in BY_RELEASE {
            for name in names.split_whitespace() {
                assert_eq!(TestModule::named(name, Some(package), &targets()).len(), 1, "{package}: {name}");
            }
        }
        assert_eq!(Choice::by_release(&targets()).packages(), None);
    }
}
