//! Jobs of several processes.

use std::collections::BTreeMap;

use job_guard::{OnExit, RotatedFile};

use super::*;

const SHOP: &str = r#"[node]
id = "east-1"
site = "east"

[zookeeper]
connect = "127.0.0.1:2181"

[job.shop]
stop_timeout = "4s"
user = "shop"
env = { A = "job", B = "job" }
limits = { open_files = 64, processes = 9 }
exit_codes.not_here = [3]
output = { kind = "file", path = "/var/log/shop.log" }
"#;

/// A job with these processes.
fn shop(processes: &[&str]) -> Given {
    let all: String = processes.iter().map(|keys| format!("\n[[job.shop.process]]\n{keys}\n")).collect();
    Given::file(&format!("{SHOP}{all}"))
}

const DB: &str = "name = \"db\"\ncommand = [\"db\"]";
const APP: &str = "name = \"app\"\ncommand = [\"app\"]";

#[test]
fn a_process_has_what_it_sets_and_the_rest_of_its_job() {
    let own = format!(
        "{APP}\nenv = {{ B = \"own\" }}\nworking_dir = \"/srv\"\nuser = \"web\"\nlimits.open_files = 32\n\
         stop_signal = \"SIGINT\"\nstop_timeout = \"1s\"\non_exit = \"restart-all\"\nexit_codes.stay_down = [0]\n\
         liveness = {{ kind = \"tcp\", address = \"localhost:80\" }}\nready.after = \"2s\""
    );
    let config = shop(&[DB, &own, "name = \"proxy\"\ncommand = [\"proxy\"]"]).load().unwrap();
    let spec = &config.jobs[0].spec;
    let rules: Vec<_> = spec.processes.iter().map(|process| process.on_exit).collect();
    assert_eq!(rules, [OnExit::RestartRest, OnExit::RestartAll, OnExit::RestartRest]);
    let programs = spec.programs();
    let timeouts: Vec<_> = programs.iter().map(|program| program.stop_timeout.as_millis()).collect();
    assert_eq!(timeouts, [1_500, 1_000, 1_500], "the others share what is left");
    let names: Vec<_> = programs.iter().map(|program| program.name.as_str()).collect();
    assert_eq!(names, ["shop/db", "shop/app", "shop/proxy"]);
    let (db, app) = (&programs[0], &programs[1]);
    let env = |values: [(&str, &str); 3]| -> BTreeMap<String, String> {
        values.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    };
    assert_eq!(db.env, env([("A", "job"), ("B", "job"), ("DR_PROCESS", "db")]));
    assert_eq!(app.env, env([("A", "job"), ("B", "own"), ("DR_PROCESS", "app")]));
    let user = |program: &JobSpec| program.run_as.clone().unwrap().user;
    assert_eq!((user(db), user(app)), ("shop".to_owned(), "web".to_owned()));
    assert_eq!((db.limits.open_files, db.limits.processes), (Some(64), Some(9)));
    assert_eq!((app.limits.open_files, app.limits.processes), (Some(32), Some(9)));
    assert_eq!((&db.exit_codes.not_here[..], &app.exit_codes.not_here[..]), (&[3][..], &[][..]));
    assert!(db.liveness.is_none() && app.liveness.is_some());
    let JobOutput::File(RotatedFile { path, .. }) = &app.output else { panic!("{:?}", app.output) };
    assert_eq!(path.to_str(), Some("/var/log/shop.app.log"));
    assert!(config.shown().iter().any(|shown| shown.key == "job.shop.process[1].stop_signal"));
}

#[test]
fn what_does_not_fit_together_is_refused_with_its_key() {
    let of_job = |key: &str| SHOP.replace("stop_timeout = \"4s\"", key);
    let refused = |text: &str, parts: &[&str]| Given::file(text).refused("worker.toml:", parts);
    let two = format!("\n[[job.shop.process]]\n{DB}\n\n[[job.shop.process]]\n{APP}\n");
    refused(
        &format!("{}{two}", of_job("command = [\"all\"]\nstop_timeout = \"4s\"")),
        &["job.shop.command: ", "either"],
    );
    refused(&format!("{}{two}", of_job("ready.after = \"1s\"\n")), &["job.shop.ready: ", "each process"]);
    refused(
        &format!("{}{two}", of_job("liveness = { kind = \"tcp\", address = \"a:1\" }\n")),
        &["job.shop.liveness: "],
    );
    refused(&format!("{}{two}", of_job("standby = { command = [\"all\"] }\n")), &["job.shop.standby: "]);
    refused(SHOP, &["job.shop.command: it is missing"]);
    let of_process = |processes: &[&str], parts: &[&str]| shop(processes).refused("worker.toml:", parts);
    of_process(&[DB, DB], &["job.shop.process: two processes have the name \"db\""]);
    of_process(&["name = \"db\""], &["job.shop.process[0].command: it is missing"]);
    of_process(&["name = \"a/b\"\ncommand = [\"db\"]"], &["job.shop.process[0].name: ", "letters"]);
    of_process(&[DB, &format!("{APP}\ncolour = 1")], &["job.shop.process[1].colour: unknown key"]);
    let long = format!("{DB}\nstop_timeout = \"5s\"");
    of_process(&[&long, APP], &["job.shop.process: ", "5s together", "the job's stop_timeout of 4s"]);
    let whole = format!("{DB}\nstop_timeout = \"4s\"");
    of_process(&[&whole, APP], &["job.shop.process: ", "leaves nothing", "\"app\""]);
    let many: Vec<_> = (0..17).map(|at| format!("name = \"p{at}\"\ncommand = [\"p\"]")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    of_process(&many, &["job.shop.process: 17 processes; 1 to 16"]);
    Given::file(SHOP)
        .set("job.shop.process=true")
        .refused("--set", &["an array of tables: [[job.shop.process]]"]);
}

#[test]
fn a_fault_of_a_process_on_this_node_is_named_with_its_place() {
    let spec = JobSpec {
        command: Vec::new(),
        processes: vec![
            ProcessSpec { name: "db".into(), command: vec!["sh".into()], ..ProcessSpec::default() },
            ProcessSpec {
                name: "app".into(),
                command: vec!["no-such-program".into()],
                env: [("DR_PROCESS".to_owned(), "x".to_owned())].into(),
                working_dir: Some("/".into()),
                ..ProcessSpec::default()
            },
        ],
        ..JobSpec::example()
    };
    let faults: Vec<_> = spec.faults().iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(
        faults[0].starts_with("job.orders.process[1].env.DR_PROCESS: is set by the worker"),
        "{faults:?}"
    );
    assert!(faults[1].starts_with("job.orders.process[1].command: no executable"), "{faults:?}");
}
