//! The user that a job runs as, and its limits, with real workers.

use std::{
    fs,
    io::{BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    os::unix::process::CommandExt as _,
    process::Command,
};

use crate::support::{
    Outcome, Running,
    cgroup_root::CgroupRoot,
    set,
    stage::{Stage, leads, successors},
    until,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid},
};
use serde_json::{Value, json};

fn job(script: &str) -> String {
    format!("job.orders.command={}", json!(["/bin/sh", "-c", script]))
}

/// What the job has printed.
fn printed(stage: &Stage) -> String {
    let mut command = stage.worker_command("east-1", "east", &[]);
    let outcome = Outcome::of(command.args(["--output", "json", "logs", "--job", "orders"]));
    outcome.assert(0, &[]);
    let lines = outcome.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let lines: Vec<_> = lines.filter(|line| line["stream"] != "worker").collect();
    lines.iter().filter_map(|line| line["line"].as_str()).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn prints(stage: &Stage, parts: &[&str]) {
    until("it has printed all", || printed(stage).contains("the end"));
    let all = printed(stage);
    for part in parts {
        assert!(all.contains(part), "{part:?} is not in:\n{all}");
    }
}

/// Only root may start a job as another user. With CI these tests must run.
fn may_change_user(test: &str) -> bool {
    let is_root = Uid::effective().is_root();
    if !is_root {
        zk_testkit::skip(format_args!("{test} needs root"));
    }
    is_root
}

fn pid(worker: &Running) -> Option<Pid> {
    let status: Value = serde_json::from_str(&worker.http("GET", "/status").1).expect("JSON");
    let pid = status["jobs"]["orders"]["process"]["pid"].as_i64()?;
    Some(Pid::from_raw(i32::try_from(pid).expect("a pid")))
}

#[test]
fn limits_are_set_and_hold() {
    let stage = Stage::new("/limits");
    let take = "python3 -c 'bytearray(300 << 20)' 2>&1 | tail -1";
    let script = format!("tr -s ' ' < /proc/self/limits; {take}; echo the end; exec sleep 600");
    let limits = "job.orders.limits={ open_files = 77, processes = 4321, memory = \"256MiB\" }";
    let worker = stage.worker("east-1", "east", &[&job(&script), limits]);
    prints(
        &stage,
        &[
            "Max open files 77 77 files",
            "Max processes 4321 4321 processes",
            "Max address space 268435456 268435456 bytes",
            "MemoryError",
        ],
    );
    until("it leads", || leads(&worker));
    // Hooks and the worker itself have their own.
    let own = fs::read_to_string(format!("/proc/{}/limits", worker.pid())).expect("it lives");
    assert!(!own.contains("268435456"), "{own}");
}

/// As systemd starts it with DelegateSubgroup=worker.
#[test]
fn jobs_get_cgroups_beside_that_of_the_worker_and_limits_without_controllers_are_named() {
    let Some(root) = CgroupRoot::new("unit.service") else {
        return zk_testkit::skip("there is no cgroup v2 in which this user may make one");
    };
    let own = root.0.join("worker");
    fs::create_dir(&own).expect("a cgroup");
    let has_controllers = fs::read_to_string(root.0.join("cgroup.controllers")).expect("its controllers");
    let stage = Stage::new("/leaf");
    let script = "cat /proc/self/cgroup; echo the end; exec sleep 600";
    let limits = "job.orders.limits={ processes = 4321, memory = \"1GiB\" }";
    let worker = stage.worker_command("east-1", "east", &[&job(script), limits]);
    let mut command = Command::new("sh");
    command.args(["-c", "echo 0 > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&own);
    command.arg(worker.get_program()).args(worker.get_args());
    command.envs(worker.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (log, stderr) = std::io::pipe().expect("a pipe");
    let mut log = BufReader::new(log);
    let worker = Running::start_logging_to(command.stderr(stderr), &mut log);
    prints(&stage, &[".service/job-orders"]);
    until("it leads", || leads(&worker));
    let guard = fs::read_to_string(format!("/proc/{}/cgroup", worker.children()[0])).expect("it lives");
    assert!(guard.trim().ends_with(".service/worker"), "{guard}");
    drop(worker);
    let mut text = String::new();
    log.read_to_string(&mut text).expect("its log");
    for (controller, limit) in [("memory", "limits.memory is"), ("pids", "limits.processes ")] {
        let is_missing = !has_controllers.split_whitespace().any(|has| has == controller);
        let warning = text.lines().find(|line| line.contains(limit));
        assert_eq!(warning.is_some(), is_missing, "{controller}: {text}");
        assert!(warning.is_none_or(|line| line.contains(&format!("the controller {controller} is missing"))));
    }
}

#[test]
fn the_smallest_limits_start_a_program() {
    let stage = Stage::new("/smallest-limits");
    let limits = "job.orders.limits={ open_files = 16, memory = \"16MiB\" }";
    // An environment that does not fit into what the launcher has left over.
    let long = "x".repeat(100_000);
    let env: Vec<_> = ('A'..='H').map(|name| format!("job.orders.env.{name}={long}")).collect();
    let script = job("echo ${#A} ${#H}; echo the end; exec sleep 600");
    let mut settings = vec![script.as_str(), limits];
    settings.extend(env.iter().map(String::as_str));
    let _worker = stage.worker("east-1", "east", &settings);
    prints(&stage, &["100000 100000"]);
}

#[test]
fn a_job_runs_as_its_user_with_nothing_of_the_workers() {
    if !may_change_user("a_job_runs_as_its_user_with_nothing_of_the_workers") {
        return;
    }
    let stage = Stage::new("/user");
    let script = "grep -E '^(Uid|Gid|Groups|CapEff|CapAmb|NoNewPrivs)' /proc/self/status | tr '\\t' ' '; echo \"$USER $LOGNAME $HOME\"; \
                  touch /root/x 2>&1; ls /proc/self/fd | tr '\\n' ' '; echo; echo the end; trap 'echo bye; exit' TERM; \
                  while :; do sleep 0.1; done";
    let settings =
        [&job(script), "job.orders.user=nobody", "job.orders.group=daemon", "job.orders.working_dir=/"];
    let worker = stage.worker("east-1", "east", &settings);
    let id = |what: &str| {
        let found = Command::new("id").args([what, "nobody"]).output().expect("id").stdout;
        String::from_utf8(found).expect("text").trim().to_owned()
    };
    let user = id("-u");
    let daemon = nix::unistd::Group::from_name("daemon").expect("groups").expect("it exists").gid;
    prints(
        &stage,
        &[
            &format!("Uid: {user} {user} {user} {user}"),
            &format!("Gid: {daemon} {daemon} {daemon} {daemon}"),
            &format!("Groups: {daemon}"),
            "CapEff: 0000000000000000",
            "CapAmb: 0000000000000000",
            // Nor can it become root by a setuid program.
            "NoNewPrivs: 1",
            "nobody nobody /nonexistent",
            "Permission denied",
            "0 1 2 3 \n",
        ],
    );
    until("it leads", || leads(&worker));
    let moved = stage.worker("west-1", "west", &[]);
    until("west-1 is standby", || moved.code("/standby") == 200);
    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    assert!(printed(&stage).contains("bye"), "{}", printed(&stage));
    drop(moved);
}

#[test]
fn what_runs_beside_a_job_runs_as_its_user_unless_the_node_says_otherwise() {
    if !may_change_user("what_runs_beside_a_job_runs_as_its_user_unless_the_node_says_otherwise") {
        return;
    }
    let stage = Stage::new("/user-hooks");
    let dir = tempfile::tempdir_in("/tmp").expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("its own");
    let ran = |name: &str| dir.path().join(name);
    let records = |name: &str| {
        let script = format!("echo \"$(id -u) $USER\" > {0}.new; mv {0}.new {0}", ran(name).display());
        json!(["/bin/sh", "-c", script])
    };
    let helpers = ["prepare", "before_takeover", "after_ready", "before_stop", "after_stop"];
    let as_jobs = ["before_takeover", "before_stop", "fitness", "measure", "liveness"];
    let mut settings = vec![
        job("exec sleep 600"),
        "job.orders.user=nobody".to_owned(),
        "job.orders.working_dir=/".to_owned(),
        "job.orders.env.USER=of the job".to_owned(),
        "job.orders.as_worker=[\"prepare\", \"after_ready\", \"after_stop\", \"ready\"]".to_owned(),
        format!("job.orders.measure.command={}", records("measure")),
        format!("job.orders.ready={{ kind = \"exec\", command = {} }}", records("ready")),
    ];
    settings.extend(helpers.map(|name| format!("job.orders.hooks.{name}.command={}", records(name))));
    settings.extend(
        ["liveness", "fitness"]
            .map(|name| format!("job.orders.{name}={{ kind = \"exec\", command = {} }}", records(name))),
    );
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let mut worker = stage.worker("east-1", "east", &settings);
    until("it leads", || leads(&worker));
    for name in ["after_ready", "liveness", "measure"] {
        until("it has run", || ran(name).exists());
    }
    kill(worker.pid(), Signal::SIGTERM).expect("it lives");
    assert!(worker.ended().success());
    let user = nix::unistd::User::from_name("nobody").expect("users").expect("it exists").uid.as_raw();
    for name in helpers.iter().chain(&["ready", "liveness", "fitness", "measure"]) {
        let user = if as_jobs.contains(name) { user } else { 0 };
        assert_eq!(fs::read_to_string(ran(name)).expect("it ran"), format!("{user} of the job\n"), "{name}");
    }
}

/// What runs because of other members: the probe of a drill, the hook for another leader, and a fence command.
#[test]
fn what_runs_because_of_other_members_runs_as_the_jobs_user() {
    if !may_change_user("what_runs_because_of_other_members_runs_as_the_jobs_user") {
        return;
    }
    let stage = Stage::new("/user-others");
    let dir = tempfile::tempdir_in("/tmp").expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("its own");
    let ran = |name: &str| dir.path().join(name);
    let records = |name: &str| json!(["/bin/sh", "-c", format!("id -u >> {}", ran(name).display())]);
    let settings = [
        job("exec sleep 600"),
        "job.orders.user=nobody".to_owned(),
        "job.orders.working_dir=/".to_owned(),
        "job.orders.fenced=true".to_owned(),
        "policy.min_tenure=0s".to_owned(),
        format!("job.orders.hooks.on_leader_changed.command={}", records("on_leader_changed")),
        format!("job.orders.drill.probe={{ kind = \"exec\", command = {} }}", records("probe")),
        format!("job.orders.fence.commands=[{{ name = \"off\", command = {} }}]", records("fence")),
    ];
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let east = stage.worker("east-1", "east", &settings);
    until("it leads", || leads(&east));
    let mut west = stage.worker("west-1", "west", &settings);
    until("west-1 is in line", || successors(&stage.json(&["list"])) == json!(["west-1"]));
    stage.operator(&["--set=policy.min_tenure=0s", "drill", "--mode", "switchover", "--yes"]).assert(0, &[]);
    until("west-1 leads", || leads(&west));
    west.kill_with_guards();
    until("east-1 leads again", || leads(&east));
    let user = nix::unistd::User::from_name("nobody").expect("users").expect("it exists").uid;
    for name in ["on_leader_changed", "probe", "fence"] {
        until("it has run", || ran(name).exists());
        let users = fs::read_to_string(ran(name)).expect("it ran");
        assert!(users.lines().all(|line| line == user.to_string()), "{name}: {users}");
    }
}

/// What runs before the job's program does not heed the job's environment: it is root.
#[test]
fn a_library_that_the_job_preloads_is_loaded_by_the_jobs_user_alone() {
    if !may_change_user("a_library_that_the_job_preloads_is_loaded_by_the_jobs_user_alone") {
        return;
    }
    let stage = Stage::new("/preload");
    let dir = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o777))
        .tempdir_in("/tmp")
        .expect("a directory");
    let file = |name: &str| dir.path().join(name);
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        __attribute__((constructor)) static void record(void) {
            FILE *file = fopen(getenv("RECORD"), "a");
            if (file) { fprintf(file, "%d\n", (int)getuid()); fclose(file); }
        }"#;
    fs::write(file("record.c"), source).expect("written");
    fs::write(file("uids"), "").expect("written");
    fs::set_permissions(file("uids"), fs::Permissions::from_mode(0o666)).expect("its own");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).args([file("record.so"), file("record.c")]);
    assert!(cc.status().expect("a compiler, which Rust needs as well").success());
    let settings = [
        job("echo the end; exec sleep 600"),
        "job.orders.user=nobody".to_owned(),
        "job.orders.working_dir=/".to_owned(),
        format!("job.orders.env.LD_PRELOAD={}", file("record.so").display()),
        format!("job.orders.env.RECORD={}", file("uids").display()),
    ];
    let _worker = stage.worker("east-1", "east", &settings.each_ref().map(String::as_str));
    prints(&stage, &[]);
    let nobody = nix::unistd::User::from_name("nobody").expect("users").expect("it exists").uid;
    let uids = fs::read_to_string(file("uids")).expect("uids");
    assert!(!uids.is_empty() && uids.lines().all(|uid| uid == nobody.to_string()), "{uids}");
}

#[test]
fn a_job_of_another_user_dies_with_its_guard() {
    if !may_change_user("a_job_of_another_user_dies_with_its_guard") {
        return;
    }
    let stage = Stage::new("/user-guard");
    let settings = [
        &job("trap '' TERM; while :; do sleep 0.1; done"),
        "job.orders.user=nobody",
        "job.orders.working_dir=/",
    ];
    let worker = stage.worker("east-1", "east", &settings);
    until("it leads", || leads(&worker));
    let job = pid(&worker).expect("it runs");
    let guard = worker.children();
    assert_eq!(guard.len(), 1, "{guard:?}");
    kill(guard[0], Signal::SIGKILL).expect("it lives");
    until("the job is gone, and runs again", || pid(&worker).is_some_and(|pid| pid != job));
    assert!(kill(job, None).is_err(), "no process of the first run is left");
}

#[test]
fn what_can_not_be_set_is_refused() {
    let stage = Stage::new("/limits-refused");
    let check = |settings: &[&str]| {
        let mut command = stage.worker_command("east-1", "east", settings);
        Outcome::of(command.args(["config", "check"]))
    };
    for (setting, part) in [
        ("group=daemon", "job.orders.group: it needs `user` as well"),
        ("as_worker=[\"fence\"]", "job.orders.as_worker: it needs `user` as well"),
        ("limits={ memory = \"1MiB\" }", "job.orders.limits.memory: 1MiB is too small; 16MiB or more"),
        ("limits={ memory = \"lots\" }", "expected a size"),
        ("limits={ open_files = 3 }", "3 is too low; 16 or more"),
        ("limits={ open_files = 4000000000 }", "above the hard limit of this process"),
        ("limits={ processes = 0 }", "0 would allow no process"),
        ("limits={ cpu = 1 }", "unknown key"),
    ] {
        check(&[&format!("job.orders.{setting}")]).assert(78, &[part]);
    }
    check(&["job.orders.limits={ open_files = 16, processes = 5 }"]).assert(0, &[]);
}

#[test]
fn a_worker_that_may_not_change_the_user_refuses_to() {
    if !may_change_user("a_worker_that_may_not_change_the_user_refuses_to") {
        return;
    }
    // This test becomes another user to show it.
    let dir = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir_in("/tmp")
        .expect("a directory");
    let exe = dir.path().join("dr-worker");
    zk_testkit::copy_program(env!("CARGO_BIN_EXE_dr-worker"), &exe);
    let check = |user: &str| {
        let mut command = Command::new(&exe);
        let job = [
            "node.id=a",
            "node.site=east",
            "zookeeper.connect=localhost:2181",
            "job.orders.command=[\"/bin/true\"]",
            "node.state_dir=/tmp/dr-worker",
        ];
        set(&mut command, &job);
        set(&mut command, &[&format!("job.orders.user={user}")]);
        Outcome::of(command.uid(65534).gid(65534).current_dir("/").args(["config", "check"]))
    };
    check("root").assert(78, &["job.orders.user: this process may not run a job as \"root\"", "CAP_SETUID"]);
    check("nobody").assert(0, &[]);
}

/// Who owns a directory can replace what is in it.
#[test]
fn a_state_directory_of_another_user_and_links_in_it_are_refused() {
    if !may_change_user("a_state_directory_of_another_user_and_links_in_it_are_refused") {
        return;
    }
    let stage = Stage::new("/owner");
    let nobody = nix::unistd::User::from_name("nobody").expect("users").expect("it exists").uid.as_raw();
    let state = stage.dir.path().join("of another");
    fs::create_dir(&state).expect("a directory");
    std::os::unix::fs::chown(&state, Some(nobody), None).expect("this is root");
    let setting = format!("node.state_dir={}", state.display());
    let command = || stage.worker_command("east-1", "east", &[&setting]);
    let why = format!("belongs to user {nobody}");
    Outcome::of(command().arg("run")).assert(78, &["node.state_dir", &why]);
    assert_eq!(fs::read_dir(&state).expect("a directory").count(), 0, "nothing was written");
    // It is checked as that user: root reads each file.
    let dir = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir_in("/tmp")
        .expect("a directory");
    let exe = dir.path().join("dr-worker");
    zk_testkit::copy_program(env!("CARGO_BIN_EXE_dr-worker"), &exe);
    fs::set_permissions(stage.dir.path(), fs::Permissions::from_mode(0o755)).expect("its own");
    let check = |settings: &[&str], more: &[&str]| {
        let mut given = command();
        set(&mut given, settings);
        Outcome::of(Command::new(&exe).args(given.get_args()).args(["config", "check"]).args(more))
    };
    check(&[], &[]).assert(0, &["checked as user nobody"]);
    let (_, tokens) = stage.tokens("");
    check(&[&tokens], &[]).assert(78, &["checked as user nobody", "http.token_file", "Permission denied"]);
    check(&[], &["--as", "root"]).assert(0, &[&why]);
    // Before there is a state directory it is the user of the unit.
    let programs = dir.path().join("programs");
    fs::create_dir(&programs).expect("a directory");
    zk_testkit::write_program(programs.join("systemctl"), "#!/bin/sh\necho nobody\n");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("a path"));
    let new = format!("node.state_dir={}", state.join("new").display());
    let mut given = command();
    set(&mut given, &[&new]);
    let before =
        Command::new(&exe).args(given.get_args()).args(["config", "check"]).env("PATH", path).output();
    let said = String::from_utf8_lossy(&before.expect("it runs").stderr).into_owned();
    assert!(said.contains("checked as user nobody"), "{said}");

    std::os::unix::fs::chown(&state, Some(0), None).expect("this is root");
    let other = stage.dir.path().join("other");
    fs::write(&other, "of another").expect("a file");
    std::os::unix::fs::symlink(&other, state.join("east-1.lock")).expect("a link");
    Outcome::of(command().arg("run")).assert(78, &["node.state_dir", "is a symbolic link"]);
    assert_eq!(fs::read_to_string(&other).expect("a file"), "of another");
}
