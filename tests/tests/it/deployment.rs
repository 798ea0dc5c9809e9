//! The deployment of docs/install.md without a package, run line by line on two fresh nodes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::{SOON, Terminal, own_ensemble, program, wait_for};
use serde_json::Value;
use zk_testkit::{Host, Network};

const NODES: [(&str, &str); 2] = [("east-1", "east"), ("west-1", "west")];

/// The lines of the page's block below a heading.
fn block_below(heading: &str) -> Vec<String> {
    let page = fs::read_to_string(workspace().join("docs/install.md")).unwrap();
    let (_, rest) = page.split_once(heading).unwrap_or_else(|| panic!("the page has no {heading:?}"));
    let (_, rest) = rest.split_once("```sh no-run\n").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    block.lines().map(str::to_owned).collect()
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The source of the installation: a build's output, and the files of the workspace.
fn checkout(dir: &Path) {
    let built = dir.join("target/release");
    fs::create_dir_all(&built).unwrap();
    for name in ["dr-worker", "ledger"] {
        symlink(program(name), built.join(name)).unwrap();
    }
    for name in ["config", "examples"] {
        symlink(workspace().join(name), dir.join(name)).unwrap();
    }
}

/// Sets the keys that the page names; fails if one is missing.
fn editor(dir: &Path, connect: &str, host: &Host) {
    let ip = host.ip();
    let edits = [
        ("^connect = .*", format!("connect = \"{connect}\"")),
        ("^# address = \"10.0.0.1\"", format!("address = \"{ip}\"")),
        ("^listen = .*", format!("listen = \"{ip}:7080\"")),
    ];
    let mut script = "#!/bin/sh\nset -e\n".to_owned();
    for (from, to) in edits {
        script += &format!("grep -q '{from}' \"$1\"\nsed -i 's|{from}|{to}|' \"$1\"\n");
    }
    zk_testkit::write_program(dir.join("editor"), &script);
}

/// The output of `list` once it contains this.
async fn listed(terminal: &mut Terminal, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    wait_for(what, SOON, async || {
        let (code, said) = terminal.types("dr-worker --output json list").await;
        let list: Value = serde_json::from_str(said.trim()).map_err(|_| said.clone())?;
        if code == 0 && is_so(&list) { Ok(list) } else { Err(said) }
    })
    .await
}

async fn led_by(terminal: &mut Terminal, member: &str) -> Value {
    let leads = |list: &Value| {
        list["slots"][0]["leader"]["member"] == member && list["slots"][0]["leader"]["status"] == "READY"
    };
    listed(terminal, &format!("{member}, which leads"), leads).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deployment_without_a_package_works_line_by_line() {
    if !Network::available_or_skip() {
        return;
    }
    let lines = block_below("## From a checkout, without a package\n");
    // The tests' build replaces it.
    let (build, lines) = lines.split_first().unwrap();
    assert!(build.starts_with("cargo build --release "), "{build}");
    let (on_all, on_one) = lines.split_at(lines.iter().position(|line| line == "# on any of them:").unwrap());
    let (run, on_all) = on_all.split_last().unwrap();
    assert_eq!(run, "dr-worker run");

    // The value in base.toml.
    let ensemble =
        own_ensemble(|servers| servers.in_namespaces(true).tick_time(Duration::from_secs(2))).await;
    let dir = tempfile::tempdir().unwrap();
    let mut terminals = Vec::new();
    for (id, site) in NODES {
        let dir = dir.path().join(id);
        let host = ensemble.network().unwrap().host().unwrap();
        let mut terminal = Terminal::at(&host, &dir).await;
        terminal.done(&format!("export EDITOR={}", dir.join("editor").display())).await;
        checkout(&dir);
        editor(&dir, &ensemble.connect_string(), &host);
        for line in on_all {
            let line = line.replace("east", site);
            let said = terminal.done(&line).await;
            println!("{id}$ {line}\n{said}");
        }
        terminal.done(&format!("{run} > run.log 2>&1 & worker=$!")).await;
        // The preferred site is first.
        led_by(&mut terminal, "east-1").await;
        terminals.push(terminal);
    }
    let west = &mut terminals[1];
    let both = |list: &Value| list["members"].as_array().is_some_and(|all| all.len() == NODES.len());
    listed(west, "both members", both).await;
    for line in on_one {
        let said = west.done(line).await;
        println!("west-1$ {line}\n{said}");
    }
    let list = led_by(west, "west-1").await;
    assert_eq!(list["problems"], Value::Array(Vec::new()), "{list:#}");
    // It books there: by that page each site has its own store, which is not complete yet.
    let books = "sqlite:/var/lib/dr-worker/ledger.db --orders /var/lib/dr-worker/orders.csv";
    let (_, checked) = west.types(&format!("ledger check --store {books}")).await;
    assert!(
        checked.contains("Booked twice: 0") && checked.contains("west-1 of site west claimed it"),
        "{checked}"
    );

    for terminal in &mut terminals {
        // No process was started twice, and there was no error.
        let log = terminal.done("cat run.log").await;
        for bad in ["restarting it", "ERROR", "\"level\":\"error\""] {
            assert!(!log.contains(bad), "{bad}: {log}");
        }
        terminal.done("kill -TERM $worker && wait $worker").await;
    }
}
