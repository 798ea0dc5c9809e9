//! The manifests of examples/kubernetes: a worker runs with their configuration and answers their probes, and Kubernetes' schemas
//! accept them.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{Outcome, Running, at, dr_worker, set, stage::Stage, stage::leads, until};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Of kinds that Kubernetes itself has.
const FILES: [&str; 4] = ["services.yaml", "statefulset.yaml", "disruption.yaml", "network.yaml"];

const LABEL: &str = "app.kubernetes.io/name";

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

/// What follows the first line that is this one, but for its indentation.
fn after<'a>(text: &'a str, line: &str) -> &'a str {
    text.split_once(&format!("{line}\n")).unwrap_or_else(|| panic!("{line} is not there")).1
}

/// The program with the configuration and the variables of a pod of this name and address.
fn configured(name: &str, address: &str) -> Command {
    let mut command = dr_worker();
    let of_pods = text("statefulset.yaml");
    let all = values(&of_pods, "name");
    for name_of in all.iter().filter(|name| name.starts_with("DR_WORKER__")) {
        let value = values(after(&of_pods, name_of), "value").remove(0);
        command.env(name_of, value.replace("$(POD_NAME)", name).replace("$(POD_IP)", address));
    }
    command.arg("--config").arg(manifest("worker.toml"));
    command
}

/// The same with what a test needs to be different. Its volume is of the mode of an emptyDir.
fn pod(stage: &Stage, name: &str, address: &str) -> Command {
    let mut command = configured(name, address);
    let volume = stage.dir.path().join(format!("{name}-{address}"));
    fs::create_dir(&volume).expect("a directory");
    fs::set_permissions(&volume, Permissions::from_mode(0o777)).expect("its mode");
    let mount = values(after(&text("statefulset.yaml"), "- name: state"), "mountPath").remove(0);
    let config = text("worker.toml");
    let state =
        config.split("state_dir = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("a path");
    let state = volume.join(Path::new(state).strip_prefix(mount).expect("it is on the volume"));
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
    let mut first = Running::start(&mut pod(&stage, "orders-0", "127.0.0.1"));
    until("it leads", || leads(&first));
    let second = Running::start(&mut pod(&stage, "orders-1", "127.0.0.1"));
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
    let state = stage.dir.path().join("orders-0-127.0.0.1/state");
    assert_eq!(fs::metadata(state).expect("it is there").permissions().mode() & 0o777, 0o700);

    // The pod of the leader is deleted, and comes back with an empty volume at another address.
    first.signal(Signal::SIGTERM);
    assert!(first.ended().success());
    until("the other one leads", || leads(&second));
    let again = Running::start(&mut pod(&stage, "orders-0", "127.0.0.2"));
    until("it is standby", || again.code("/standby") == 200);
    let members = stage.json(&["list"])["members"].as_array().expect("members").clone();
    let mut members: Vec<_> =
        members.iter().map(|m| [&m["member"], &m["address"]].map(Value::as_str)).collect();
    members.sort();
    assert_eq!(members, [["orders-0", "127.0.0.2"], ["orders-1", "127.0.0.1"]].map(|each| each.map(Some)));
}

#[test]
fn the_configuration_is_accepted_with_its_own_times() {
    let with_a_job = |command: &mut Command| {
        set(command, &["job.orders.command=[\"sleep\", \"1000\"]", "node.state_dir=/tmp"]);
        Outcome::of(command)
    };
    with_a_job(configured("orders-0", "127.0.0.1").args(["config", "check"])).assert(0, &[]);
    let shown = with_a_job(configured("orders-0", "127.0.0.1").args(["config", "show"]));
    assert!(
        shown.stdout.contains("connect_timeout = \"10m\""),
        "minutes, as docs/kubernetes.md says: {}",
        shown.stdout
    );
}

#[test]
fn the_manifests_belong_together() {
    let all = text("kustomization.yaml");
    // Each selector is the label of the pods, and the pods have it.
    for (file, labels) in FILES.into_iter().zip([2, 5, 1, 3]).chain([("monitor.yaml", 1)]) {
        assert!(all.contains(&format!("- {file}\n")), "{file}");
        assert_eq!(values(&text(file), LABEL), vec!["orders"; labels], "{file}");
    }
    assert!(all.contains("- worker.toml\n"));
    let (of_pods, service) = (text("statefulset.yaml"), text("services.yaml"));
    assert!(of_pods.contains("readOnlyRootFilesystem: true") && of_pods.contains("runAsNonRoot: true"));
    let one = |text: &str, line: &str, key: &str| values(after(text, line), key).remove(0);
    assert_eq!(one(&of_pods, "spec:", "serviceName"), one(&service, "metadata:", "name"));
    assert_eq!(one(&of_pods, "configMap:", "name"), one(&all, "configMapGenerator:", "name"));
    assert_eq!(one(&of_pods, "containers:", "image"), one(&all, "images:", "name"));
    // Each port by its name, and that of the other members by its number.
    let port = one(&of_pods, "ports:", "name");
    assert_eq!(one(&service, "ports:", "name"), port);
    assert_eq!(values(&service, "targetPort"), [port.as_str()]);
    assert_eq!(values(&text("monitor.yaml"), "port"), [port.as_str()]);
    assert_eq!(values(&of_pods, "port"), [port.as_str(); 3]);
    let network = text("network.yaml");
    assert_eq!(one(&network, "ingress:", "port"), port);
    let number = values(&of_pods, "containerPort");
    assert_eq!(
        (values(&service, "port"), one(&network, "egress:", "port")),
        (number.clone(), number[0].clone())
    );
    assert!(text("worker.toml").contains(&format!("listen = \"0.0.0.0:{}\"", number[0])));
    // Each mount has its volume. That of the state ends with its pod.
    let volumes = after(&of_pods, "      volumes:");
    for name in values(
        of_pods.split("volumeMounts:").nth(1).expect("mounts").split("volumes:").next().expect("mounts"),
        "name",
    ) {
        assert!(values(volumes, "name").contains(&name), "{name}");
    }
    assert!(after(volumes, "- name: state").trim_start().starts_with("emptyDir:"));
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
