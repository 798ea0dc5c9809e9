//! What is never used of the client crates, and where they are named at all: by the sources themselves. And what the
//! public types promise to the compiler.

use std::path::{Path, PathBuf};

use zk_session::{
    ChildrenWatch, ConnectError, DataWatch, HeldEphemeral, Incarnation, LeaseKeeper, OpError, Session,
    SessionBuilder, SessionPin,
};

/// Each file of the crate's sources.
pub(crate) fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 30);
    files
}

fn below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Each line of code, comments left out.
fn lines() -> Vec<(PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lines = sources().into_iter().flat_map(|file| {
        let text = std::fs::read_to_string(&file).unwrap();
        let file = file.strip_prefix(&src).unwrap().to_owned();
        let lines: Vec<_> = text.lines().map(|line| (file.clone(), line.trim().to_owned())).collect();
        lines
    });
    lines.filter(|(_, line)| !line.starts_with("//")).collect()
}

#[test]
fn only_a_driver_names_its_client() {
    for (file, line) in lines() {
        for (client, place) in
            [("zookeeper_client", "nowhere"), ("zookeeper_async::", "driver/zookeeper_async")]
        {
            let inside = file.starts_with(place) || file == Path::new("driver/mod.rs");
            assert!(inside || !line.contains(client), "{}: {line}", file.display());
        }
    }
}

/// The recipes of `zookeeper-async` (two leaders after an expiry, a lock that panics), its containers (which are none),
/// its watcher closures, and listeners but for the one that only sends.
#[test]
fn what_does_not_work_in_a_client_is_not_used() {
    for (file, line) in lines() {
        for word in [
            "recipes",
            "LeaderLatch",
            "shared_lock",
            "LockClient",
            "get_data_w",
            "exists_w",
            "get_children_w",
        ] {
            assert!(!line.contains(word), "{}: {line}", file.display());
        }
    }
}

/// The tables beside these tests name what is tested by what.
#[test]
fn the_tests_that_are_named_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tables = std::fs::read_to_string(root.join("tests/README.md")).unwrap();
    let names: Vec<(&str, &str)> = tables.split('`').filter_map(|word| word.split_once("::")).collect();
    assert!(names.len() > 50, "{}", names.len());
    for (file, test) in names {
        if file == "file" {
            continue;
        }
        let paths = match file.starts_with("src/") {
            true => vec![file.to_owned()],
            false => ["it", "logs", "alone"].map(|program| format!("tests/{program}/{file}.rs")).to_vec(),
        };
        let text = paths.iter().find_map(|path| std::fs::read_to_string(root.join(path)).ok());
        let text = text.unwrap_or_else(|| panic!("there is no {file}"));
        assert!(text.contains(&format!("fn {test}(")), "{file} has no test {test}");
    }
}

/// The handles go wherever their users go.
#[test]
fn the_public_types_are_send_and_sync() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Session>();
    check::<SessionBuilder>();
    check::<Incarnation>();
    check::<SessionPin>();
    check::<LeaseKeeper>();
    check::<DataWatch>();
    check::<ChildrenWatch>();
    check::<HeldEphemeral>();
    check::<OpError>();
    check::<ConnectError>();
    #[cfg(feature = "tls")]
    check::<zk_session::TlsOptions>();
}
