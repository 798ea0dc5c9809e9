//! Who should lead, as the configuration says it.

use election_core::record::Cause;

use super::*;

/// The stages after those that stand in every pipeline, for this cause.
fn stages(policy: &PolicyConfig, cause: Cause) -> String {
    let rules = policy.spec.rules();
    let stages = rules.pipeline(cause).stages().skip_while(|stage| *stage != "site-open").skip(1);
    stages.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_job_goes_its_own_way_with_what_it_does_not_say_from_the_policy() {
    let text = format!(
        "{SMALL}[policy]\nsites = [\"east\", \"west\"]\npreset = \"round-robin\"\n\
         [job.orders.policy]\npipeline = [\"class\", \"site-order\"]\n\
         [[job.orders.policy.rules]]\nwhen = \"resigned\"\npipeline = [\"same-site\"]\n\
         [job.bills]\ncommand = [\"x\"]\n[job.mails]\ncommand = [\"x\"]\npolicy.preset = \"sticky\"\n\
         [job.stock]\ncommand = [\"x\"]\npolicy.on_leader_failure = \"prefer-order\"\n"
    );
    let config = Given::file(&text).load().unwrap();
    let of =
        |name: &str, cause| stages(&config.jobs.iter().find(|job| job.name() == name).unwrap().policy, cause);
    assert_eq!(of("orders", Cause::Startup), "class class site-order member-id");
    assert_eq!(of("orders", Cause::Resigned), "failed-last same-site member-id");
    assert_eq!(of("bills", Cause::LeaderLost), "other-site failed-last round-robin member-id");
    assert_eq!(of("stock", Cause::LeaderLost), "failed-last round-robin member-id");
    assert!(of("mails", Cause::LeaderLost).starts_with("failed-last same-site "));
}

#[test]
fn a_pipeline_from_the_command_line_and_a_preset_from_the_environment() {
    let set = "policy.pipeline=[\"priority\", { stage = \"software\", first = \"oldest\" }]";
    let config = Given::file(SMALL).set(set).load().unwrap();
    assert_eq!(stages(&config.jobs[0].policy, Cause::Startup), "priority software member-id");
    let shown = config.shown().iter().find(|s| s.key == "policy.pipeline").unwrap();
    assert_eq!(shown.value, "[\"priority\", { first = \"oldest\", stage = \"software\" }]");
    let config = Given::file(SMALL).variable("DR_WORKER__POLICY__PRESET", "round-robin").load().unwrap();
    assert_eq!(stages(&config.jobs[0].policy, Cause::Startup), "round-robin member-id");
}

#[test]
fn a_policy_that_makes_no_sense_is_refused_at_its_place() {
    let with = |policy: &str| Given::file(&format!("{SMALL}[policy]\n{policy}\n"));
    with("pipeline = [\"priority\",\n  \"latncy\"]").refused(
        "worker.toml:12:3: policy.pipeline[1]: \"latncy\" is not known; valid: ",
        &["\"site-order\"", "\"round-robin\""],
    );
    with("[[policy.rules]]\nwhen = \"leader-lost\"\npipeline = [{ stage = \"software\", fist = 1 }]")
        .refused(
            "worker.toml:13:42: policy.rules[0].pipeline[0].fist: unknown key",
            &["valid here: stage, first, attribute, at_least"],
        );
    with("preset = \"lowest-latency\"").refused("worker.toml:11:10: policy.preset: ", &["not supported"]);
    with("preset = \"sticky\"").set("policy.failback=auto").refused(
        "--set policy.failback=auto: policy.failback: \"auto\" has nothing to return to",
        &["valid with it: \"manual\""],
    );
    // What is taken over can be what doesn't fit.
    let given = with("failback = \"auto\"\n[job.orders.policy]\npreset = \"sticky\"");
    given.refused("worker.toml:12:13: job.orders.policy.failback: \"auto\" has nothing", &["\"sticky\""]);
    // Once, and not again for each job; and what is wrong with a key by itself only as such.
    with("sites = [\"east\", \"east\"]")
        .refused("worker.toml:11:9: policy.sites: \"east\" is listed twice", &[]);
    with("failback = \"soon\"").refused("worker.toml:11:12: policy.failback: \"soon\" is not known", &[]);
}
