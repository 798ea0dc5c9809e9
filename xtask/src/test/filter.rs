//! The choice of tests: those of `cargo xtask test FILTER...`, or those on Apache ZooKeeper.

use std::collections::BTreeSet;
use std::path::Path;

use crate::cargo::{self, Target};

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
    /// Expressions of cargo-nextest for tests that are left out; `cargo test` runs them.
    untouched: Vec<&'static str>,
    /// Whether only the packages of the chosen tests are built.
    builds_less: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Package(String),
    Module(Module),
    Name(String),
}

/// A file of tests: of a test program, or a module of the package's sources with its own tests.
#[derive(Debug, PartialEq, Eq)]
struct Module {
    package: String,
    /// The test program.
    program: Option<String>,
    /// Its path in the program; empty: all of it.
    path: String,
}

impl Choice {
    pub(crate) fn of(filters: &[String], targets: &[Target]) -> Self {
        let wanted = filters.iter().flat_map(|filter| Wanted::of(filter, targets)).collect();
        Self { wanted, without: &[], untouched: Vec::new(), builds_less: true }
    }

    /// The same tests as far as they run on Apache ZooKeeper.
    pub(crate) fn on_servers(self) -> Self {
        Self { without: &[EMBEDDED], ..self }
    }

    /// Those whose outcome can depend on the release of ZooKeeper, with the default driver.
    pub(crate) fn by_release(targets: &[Target]) -> Self {
        let modules = BY_RELEASE.iter().flat_map(|(_, package, names)| {
            names.split_whitespace().flat_map(|name| Module::named(name, Some(package), targets))
        });
        let without = &[EMBEDDED, OTHER_DRIVER];
        let wanted = modules.map(Wanted::Module).collect();
        Self { wanted, without, untouched: Vec::new(), builds_less: false }
    }

    pub(crate) fn on_either_server() -> Self {
        let wanted = vec![Wanted::Package(ON_EITHER.to_owned())];
        Self { wanted, without: &[], untouched: Vec::new(), builds_less: false }
    }

    pub(crate) fn leave_out(&mut self, untouched: impl Iterator<Item = &'static str>) {
        self.untouched.extend(untouched);
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The packages of all chosen tests, if they are known. No others need to be built then.
    pub(crate) fn packages(&self) -> Option<BTreeSet<&str>> {
        // A subset would be built again with other features.
        let is_known = self.builds_less && !self.is_everything();
        if is_known { self.wanted.iter().map(Wanted::package).collect() } else { None }
    }

    /// The argument of `cargo nextest run --filterset`.
    pub(crate) fn nextest_expression(&self) -> Option<String> {
        let terms: Vec<String> = self.wanted.iter().map(Wanted::nextest_term).collect();
        let names = self.without.iter().map(|name| format!(" - test({name})"));
        let without: String = names.chain(self.untouched.iter().map(|term| format!(" - {term}"))).collect();
        match (terms.join(" | "), without) {
            (wanted, without) if wanted.is_empty() && without.is_empty() => None,
            (wanted, without) if wanted.is_empty() => Some(format!("all(){without}")),
            (wanted, without) if without.is_empty() => Some(wanted),
            (wanted, without) => Some(format!("({wanted}){without}")),
        }
    }

    /// Arguments of `cargo test`, once for each.
    pub(crate) fn cargo_test_arguments(&self) -> Vec<Vec<String>> {
        let mut all: Vec<_> = self.wanted.iter().map(Wanted::cargo_test_arguments).collect();
        if all.is_empty() {
            all.push(vec!["--workspace".to_owned()]);
        }
        if !self.without.is_empty() {
            let skipped = self.without.iter().flat_map(|name| ["--skip", name]);
            let skipped: Vec<String> = ["--"].into_iter().chain(skipped).map(str::to_owned).collect();
            all.iter_mut().for_each(|args| args.extend(skipped.iter().cloned()));
        }
        all
    }
}

impl Module {
    fn of(target: &Target, path: String) -> Self {
        let program = target.is_test().then(|| target.name.clone());
        Self { package: target.package.clone(), program, path }
    }

    /// The files of tests of that name.
    fn named(name: &str, package: Option<&str>, targets: &[Target]) -> Vec<Self> {
        let find = |program: &Target| {
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
    fn of_file(file: &Path, targets: &[Target]) -> Option<Self> {
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
}

impl Wanted {
    fn of(filter: &str, targets: &[Target]) -> Vec<Self> {
        if targets.iter().any(|target| target.package == filter) {
            return vec![Self::Package(filter.to_owned())];
        }
        let stem = filter.strip_suffix(".rs");
        let is_path = stem.is_some() && filter.contains('/');
        let modules = if is_path {
            Module::of_file(&cargo::root().join(filter), targets).into_iter().collect()
        } else {
            Module::named(stem.unwrap_or(filter), None, targets)
        };
        if modules.is_empty() {
            return vec![Self::Name(stem.unwrap_or(filter).to_owned())];
        }
        modules.into_iter().map(Self::Module).collect()
    }

    fn package(&self) -> Option<&str> {
        match self {
            Self::Package(package) | Self::Module(Module { package, .. }) => Some(package),
            Self::Name(_) => None,
        }
    }

    fn nextest_term(&self) -> String {
        match self {
            Self::Package(package) => format!("package(={package})"),
            Self::Module(Module { package, program, path }) => {
                let program = program.as_ref().map(|name| format!(" & binary(={name})")).unwrap_or_default();
                let path = if path.is_empty() { String::new() } else { format!(" & test(/^{path}::/)") };
                format!("(package(={package}){program}{path})")
            }
            Self::Name(name) => format!("test(~{name})"),
        }
    }

    fn cargo_test_arguments(&self) -> Vec<String> {
        match self {
            Self::Package(package) => vec!["--package".to_owned(), package.clone()],
            Self::Module(Module { package, program, path }) => {
                let mut args = vec!["--package".to_owned(), package.clone()];
                args.extend(program.iter().flat_map(|name| ["--test".to_owned(), name.clone()]));
                args.extend((!path.is_empty()).then(|| format!("{path}::")));
                args
            }
            Self::Name(name) => vec!["--workspace".to_owned(), name.clone()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(filters: &[&str]) -> String {
        let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
        let targets = cargo::targets().expect("cargo metadata");
        Choice::of(&filters, &targets).nextest_expression().unwrap_or_default()
    }

    #[test]
    fn nothing_chooses_everything() {
        let choice = Choice::of(&[], &[]);
        assert!(choice.is_everything());
        assert_eq!(choice.nextest_expression(), None);
        assert_eq!(choice.cargo_test_arguments(), [["--workspace"]]);
    }

    #[test]
    fn on_servers_is_without_the_embedded_one() {
        let filters = ["zk-proto".to_owned()];
        let choice = Choice::of(&filters, &cargo::targets().expect("cargo metadata")).on_servers();
        let expression = choice.nextest_expression().unwrap_or_default();
        assert_eq!(expression, "(package(=zk-proto)) - test(_embedded::)");
        let args = ["--package", "zk-proto", "--", "--skip", "_embedded::"];
        assert_eq!(choice.cargo_test_arguments(), [args]);
    }

    #[test]
    fn a_file_of_tests_by_path_by_name_and_by_stem() {
        let expected = "(package(=zk-testkit) & binary(=it) & test(/^proxy::/))";
        for filter in ["crates/zk-testkit/tests/it/proxy.rs", "proxy.rs", "proxy"] {
            assert_eq!(expression(&[filter]), expected);
        }
        let expected = "(package(=e2e) & binary(=it) & test(/^postgres::/))";
        assert_eq!(expression(&["tests/tests/it/postgres/mod.rs"]), expected);
        assert!(
            expression(&["postgres"]).contains("(package(=ledger) & binary(=it) & test(/^postgres::/)) | ")
        );
    }

    #[test]
    fn a_source_file_chooses_its_modules_tests() {
        let file = "crates/zk-session/src/lease.rs";
        assert_eq!(expression(&[file]), "(package(=zk-session) & test(/^lease::/))");
    }

    #[test]
    fn only_names_may_be_anywhere() {
        let targets = cargo::targets().expect("cargo metadata");
        let packages = |filters: &[&str]| {
            let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
            let choice = Choice::of(&filters, &targets);
            choice.packages().map(|packages| packages.len())
        };
        assert_eq!(packages(&["proxy", "zk-proto", "failover.rs"]), Some(3));
        assert_eq!(packages(&["proxy", "loses_nothing"]), None);
        assert_eq!(packages(&[]), None);
        assert_eq!(expression(&["zk-proto", "loses_nothing"]), "package(=zk-proto) | test(~loses_nothing)");
    }

    #[test]
    fn the_table_names_files_of_tests() {
        let targets = cargo::targets().expect("cargo metadata");
        for (_, package, names) in BY_RELEASE {
            for name in names.split_whitespace() {
                assert_eq!(Module::named(name, Some(package), &targets).len(), 1, "{package}: {name}");
            }
        }
        assert_eq!(Choice::by_release(&targets).packages(), None);
    }
}
