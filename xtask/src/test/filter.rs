//! The choice of tests: those of `cargo xtask test FILTER...`, or those on Apache ZooKeeper.

use std::collections::BTreeSet;
use std::path::Path;

use crate::cargo::{self, Target};

/// Part of the names of tests that run on the embedded server.
const EMBEDDED: &str = "_embedded::";
/// Part of the names of tests with that driver. Differences between servers reach it through the code of the other driver.
const OTHER_DRIVER: &str = "zookeeper_async";

/// The chosen tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Those that match a filter; all without a filter.
    Filters(Vec<Wanted>),
    /// The tests of these programs that run on Apache ZooKeeper, without tests of these names.
    OnServers { programs: Vec<Program>, without: &'static [&'static str] },
    /// All tests of these programs.
    Programs(Vec<Program>),
}

/// A test program, of a package's `tests` directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Program {
    pub(crate) package: String,
    pub(crate) name: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Package(String),
    Program(Program),
    /// A file of a package's sources: its module's own tests.
    Module {
        package: String,
        path: String,
    },
    Name(String),
}

impl Choice {
    pub(crate) fn of(filters: &[String], targets: &[Target]) -> Self {
        Self::Filters(filters.iter().map(|filter| Wanted::of(filter, targets)).collect())
    }

    /// On Apache ZooKeeper, with both drivers or with the default one.
    pub(crate) fn on_servers(programs: Vec<Program>, both_drivers: bool) -> Self {
        let without: &[&str] = if both_drivers { &[EMBEDDED] } else { &[EMBEDDED, OTHER_DRIVER] };
        Self::OnServers { programs, without }
    }

    pub(crate) fn is_everything(&self) -> bool {
        matches!(self, Self::Filters(filters) if filters.is_empty())
    }

    /// The packages of all chosen tests, if they are known. No others need to be built then.
    pub(crate) fn packages(&self) -> Option<BTreeSet<&str>> {
        match self {
            Self::Filters(filters) if !filters.is_empty() => filters.iter().map(Wanted::package).collect(),
            // All packages at once: a subset would be built again with other features.
            _ => None,
        }
    }

    /// The argument of `cargo nextest run --filterset`.
    pub(crate) fn nextest_expression(&self) -> Option<String> {
        match self {
            Self::Filters(filters) if filters.is_empty() => None,
            Self::Filters(filters) => Some(any(filters.iter().map(Wanted::nextest_term))),
            Self::Programs(programs) => Some(any(programs.iter().map(Program::nextest_term))),
            Self::OnServers { programs, without } => {
                let without: String = without.iter().map(|name| format!(" - test({name})")).collect();
                Some(format!("({}){without}", any(programs.iter().map(Program::nextest_term))))
            }
        }
    }

    /// Arguments of `cargo test`, once for each.
    pub(crate) fn cargo_test_arguments(&self) -> Vec<Vec<String>> {
        match self {
            Self::Filters(filters) if filters.is_empty() => vec![vec!["--workspace".to_owned()]],
            Self::Filters(filters) => filters.iter().map(Wanted::cargo_test_arguments).collect(),
            Self::Programs(programs) => {
                let chosen = programs.iter().flat_map(|program| ["--test", &program.name]);
                vec![["--workspace"].into_iter().chain(chosen).map(str::to_owned).collect()]
            }
            Self::OnServers { programs, without } => {
                // By name alone: a program of that name in another package runs as well.
                let names: BTreeSet<&str> = programs.iter().map(|program| program.name.as_str()).collect();
                let chosen = names.iter().flat_map(|name| ["--test", name]);
                let skipped = without.iter().flat_map(|name| ["--skip", name]);
                let args = ["--workspace"].into_iter().chain(chosen).chain(["--"]).chain(skipped);
                vec![args.map(str::to_owned).collect()]
            }
        }
    }
}

fn any(terms: impl Iterator<Item = String>) -> String {
    terms.collect::<Vec<_>>().join(" | ")
}

impl Program {
    fn nextest_term(&self) -> String {
        format!("(package(={}) & binary(={}))", self.package, self.name)
    }
}

impl Wanted {
    fn of(filter: &str, targets: &[Target]) -> Self {
        let file = Path::new(filter);
        if file.extension().is_some_and(|extension| extension == "rs")
            && let Some(wanted) = Self::of_file(file, targets)
        {
            return wanted;
        }
        if targets.iter().any(|target| target.package == filter) {
            return Self::Package(filter.to_owned());
        }
        match targets.iter().find(|t| t.is_test() && t.name == filter) {
            Some(target) => Self::of_target(target),
            None => Self::Name(filter.to_owned()),
        }
    }

    fn of_target(target: &Target) -> Self {
        let package = target.package.clone();
        if target.is_test() {
            let name = target.name.clone();
            return Self::Program(Program { package, name });
        }
        Self::Package(package)
    }

    fn of_file(file: &Path, targets: &[Target]) -> Option<Self> {
        let named_only = file.components().count() == 1;
        let file = cargo::root().join(file);
        let target = targets.iter().find(|target| {
            target.source == file
                || named_only && target.is_test() && target.source.file_name() == file.file_name()
        });
        if let Some(target) = target {
            return Some(Self::of_target(target));
        }
        // A module belongs to the target whose directory contains it.
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
        Some(Self::Module { package: target.package.clone(), path: steps.join("::") })
    }

    fn package(&self) -> Option<&str> {
        match self {
            Self::Package(package)
            | Self::Program(Program { package, .. })
            | Self::Module { package, .. } => Some(package),
            Self::Name(_) => None,
        }
    }

    fn nextest_term(&self) -> String {
        match self {
            Self::Package(package) => format!("package(={package})"),
            Self::Program(program) => program.nextest_term(),
            Self::Module { package, path } => format!("(package(={package}) & test(~{path}::))"),
            Self::Name(name) => format!("test(~{name})"),
        }
    }

    fn cargo_test_arguments(&self) -> Vec<String> {
        let args: Vec<&str> = match self {
            Self::Package(package) => vec!["--package", package],
            Self::Program(Program { package, name }) => vec!["--package", package, "--test", name],
            Self::Module { package, path } => vec!["--package", package, path],
            Self::Name(name) => vec!["--workspace", name],
        };
        args.into_iter().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> Vec<Target> {
        let target = |package: &str, kind: &str, name: &str, source: &str| Target {
            package: package.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            source: cargo::root().join(source),
        };
        vec![
            target("kit", "lib", "kit", "crates/kit/src/lib.rs"),
            target("kit", "test", "proxy", "crates/kit/tests/proxy.rs"),
            target("e2e", "test", "failover", "tests/tests/failover.rs"),
        ]
    }

    fn expression(filters: &[&str]) -> String {
        let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
        Choice::of(&filters, &targets()).nextest_expression().unwrap_or_default()
    }

    #[test]
    fn nothing_chooses_everything() {
        let choice = Choice::of(&[], &targets());
        assert!(choice.is_everything());
        assert_eq!(choice.nextest_expression(), None);
        assert_eq!(choice.cargo_test_arguments(), [["--workspace"]]);
    }

    #[test]
    fn a_test_file_by_path_by_name_and_by_stem() {
        let expected = "(package(=kit) & binary(=proxy))";
        assert_eq!(expression(&["crates/kit/tests/proxy.rs"]), expected);
        assert_eq!(expression(&["proxy.rs"]), expected);
        assert_eq!(expression(&["proxy"]), expected);
    }

    #[test]
    fn a_source_file_chooses_its_modules_tests() {
        assert_eq!(expression(&["crates/kit/src/net/frame.rs"]), "(package(=kit) & test(~net::frame::))");
        assert_eq!(expression(&["crates/kit/src/net/mod.rs"]), "(package(=kit) & test(~net::))");
    }

    #[test]
    fn only_names_may_be_anywhere() {
        let packages = |filters: &[&str]| {
            let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
            let choice = Choice::of(&filters, &targets());
            choice.packages().map(|packages| packages.len())
        };
        assert_eq!(packages(&["proxy", "kit", "failover.rs"]), Some(2));
        assert_eq!(packages(&["proxy", "loses_nothing"]), None);
        assert_eq!(packages(&[]), None);
    }

    #[test]
    fn what_runs_on_servers_is_built_with_everything_else() {
        let program =
            |package: &str, name: &str| Program { package: package.to_owned(), name: name.to_owned() };
        let choice = Choice::on_servers(vec![program("kit", "proxy"), program("e2e", "failover")], true);
        assert_eq!(choice.packages(), None);
        assert_eq!(
            choice.nextest_expression().unwrap_or_default(),
            "((package(=kit) & binary(=proxy)) | (package(=e2e) & binary(=failover))) - test(_embedded::)"
        );
        let args = ["--workspace", "--test", "failover", "--test", "proxy", "--", "--skip", "_embedded::"];
        assert_eq!(choice.cargo_test_arguments(), [args]);
        let choice = Choice::on_servers(vec![program("kit", "proxy")], false);
        assert_eq!(
            choice.nextest_expression().unwrap_or_default(),
            "((package(=kit) & binary(=proxy))) - test(_embedded::) - test(zookeeper_async)"
        );
    }

    #[test]
    fn packages_and_names_together() {
        assert_eq!(expression(&["kit", "loses_nothing"]), "package(=kit) | test(~loses_nothing)");
    }
}
