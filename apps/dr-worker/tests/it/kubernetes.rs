//! The manifests of examples/kubernetes: a worker runs with their configuration and answers their probes, and Kubernetes' schemas
//! accept them.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use crate::support::{Outcome, Running, at, dr_worker, set, stage::Stage, stage::leads, until};

const FILES: [&str; 4] = ["services.yaml", "statefulset.yaml", "disruption.yaml", "network.yaml"];

fn manifest(file: &str) -> PathBuf {
    at("examples/kubernetes").join(file)
}

fn text(file: &str) -> String {
    fs::read_to_string(manifest(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// The values of the lines of this key, in order.
fn values(text: &str, key: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.trim().trim_start_matches("- "));
    let values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    values.map(|value| value.trim_matches('"').to_owned()).collect()
}

/// A worker as in a pod of this name, with what a test needs to be different.
fn pod(stage: &Stage, name: &str) -> Command {
    let mut command = dr_worker();
    let of_pods = text("statefulset.yaml");
    let all = values(&of_pods, "name");
    for name_of in all.iter().filter(|name| name.starts_with("DR_WORKER__")) {
        let after = of_pods.split(name_of.as_str()).nth(1).expect("it is there");
        let value = values(after, "value").remove(0);
        command.env(name_of, value.replace("$(POD_NAME)", name).replace("$(POD_IP)", "127.0.0.1"));
    }
    command.arg("--config").arg(manifest("worker.toml"));
    let state = stage.dir.path().join(name);
    set(
        &mut command,
        &[
            &format!("zookeeper.connect={}", Stage::connect_string()),
            &format!("zookeeper.root={}", stage.root),
            "zookeeper.tick_time=500ms",
            &format!("node.state_dir={}", state.display()),
            "job.orders.command=[\"sleep\", \"1000\"]",
        ],
    );
    command
}

#[test]
fn each_probe_is_answered_by_leader_and_standby() {
    let stage = Stage::new("/kubernetes");
    let first = Running::start(&mut pod(&stage, "orders-0"));
    until("it leads", || leads(&first));
    let second = Running::start(&mut pod(&stage, "orders-1"));
    until("it is standby", || second.code("/standby") == 200);
    let probes: BTreeSet<_> = values(&text("statefulset.yaml"), "path").into_iter().collect();
    assert_eq!(probes, ["/liveness", "/readiness"].map(str::to_owned).into());
    for (worker, probe) in
        [&first, &second].iter().flat_map(|worker| probes.iter().map(move |probe| (worker, probe)))
    {
        assert_eq!(worker.code(probe), 200, "{probe}");
    }
    let metrics = values(&text("monitor.yaml"), "path").remove(0);
    assert_eq!(first.code(&metrics), 200);
    let checked = Outcome::of(pod(&stage, "orders-2").args(["config", "check"]));
    checked.assert(0, &[]);
    let ids = stage.json(&["list"])["members"].as_array().expect("members").clone();
    let ids: BTreeSet<_> =
        ids.iter().map(|member| member["member"].as_str().expect("an id").to_owned()).collect();
    assert_eq!(ids, ["orders-0", "orders-1"].map(str::to_owned).into());
}

#[test]
fn the_manifests_belong_together() {
    let all = text("kustomization.yaml");
    for file in FILES.iter().chain(&["monitor.yaml", "worker.toml"]) {
        assert!(all.contains(file), "{file}");
    }
    // What selects the pods is what they have.
    for file in FILES.iter().chain(&["monitor.yaml"]) {
        assert!(values(&text(file), "app.kubernetes.io/name").iter().all(|name| name == "orders"), "{file}");
    }
    let of_pods = text("statefulset.yaml");
    assert!(of_pods.contains("readOnlyRootFilesystem: true") && of_pods.contains("runAsNonRoot: true"));
    assert_eq!(values(&text("services.yaml"), "port"), values(&of_pods, "containerPort"));
}

#[test]
fn the_schemas_of_kubernetes_accept_them() {
    if Command::new("kubernetes-validate").arg("--version").output().is_err() {
        zk_testkit::skip(format_args!("there is no kubernetes-validate: pip install kubernetes-validate"));
        return;
    }
    // The oldest and the newest version that it knows of those that are maintained.
    for version in ["1.31", "1.34"] {
        for file in FILES {
            let checked = Command::new("kubernetes-validate")
                .args(["--strict", "--kubernetes-version", version])
                .arg(manifest(file))
                .output()
                .expect("it runs");
            let said = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
            assert!(checked.status.success(), "{file}: {said}");
        }
    }
}
