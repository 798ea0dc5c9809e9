//! An ensemble that can't be reached: exit code 69, in bounded time.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use e2e::{Desk, Driver};

e2e::with_both_drivers!(
    refused_connections_are_told_in_time,
    servers_that_answer_nothing_are_told_in_time,
    a_name_that_does_not_resolve_is_told_in_time,
);

/// `connect_timeout` is one second; the rest is for a busy machine.
const IN_TIME: Duration = Duration::from_secs(10);

async fn refused_connections_are_told_in_time(driver: Driver) {
    told_in_time(driver, "127.0.0.1:1,127.0.0.1:2", "127.0.0.1:1").await;
}

async fn servers_that_answer_nothing_are_told_in_time(driver: Driver) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    told_in_time(driver, &address, &address).await;
}

async fn a_name_that_does_not_resolve_is_told_in_time(driver: Driver) {
    told_in_time(driver, "no-such-host.invalid:2181", "no-such-host.invalid").await;
}

async fn told_in_time(driver: Driver, connect: &str, named: &str) {
    let content = format!(
        "[node]\nid = \"east-1\"\nsite = \"east\"\n\
         [zookeeper]\nconnect = \"{connect}\"\nconnect_timeout = \"1s\"\ndriver = \"{driver}\"\n\
         [http]\nlisten = \"127.0.0.1:0\"\n\
         [job.orders]\ncommand = [\"touch\", \"begun\"]\n"
    );
    let desk = Desk::with(&[("worker.toml", &content)]);
    let settings = [
        "--set".to_owned(),
        format!("node.state_dir={}", desk.path("state").display()),
        "--set".to_owned(),
        format!("job.orders.working_dir={}", desk.path("").display()),
    ];
    for verb in
        [&["run"][..], &["list"], &["history"], &["failover", "--force", "--yes", "--to-site", "west"]]
    {
        let mut args: Vec<&str> = settings.iter().map(String::as_str).collect();
        args.extend(verb);
        let asked = Instant::now();
        let said = desk.dr_worker().run(&args).await.with_code(69);
        let took = asked.elapsed();
        said.complains_of(&[named, "zookeeper.connect"]);
        assert!(took < IN_TIME, "connect_timeout is 1 s, and it took {took:?}: {said:?}");
    }
    // The worker may create its state directory and its lock; no job was started.
    desk.assert_untouched(&["worker.toml", "state"]);
}
