//! The policy in the configuration.

use election_core::{config::SiteId, internals::record::Cause};
use serde::Deserialize;
use strategies::{OwnStage, OwnStrategy, Pipeline, spec::Inputs, stages::Limit};

use super::*;

/// The stages for this cause, without those of every pipeline.
fn stages(policy: &PolicyConfig, cause: Cause) -> String {
    let pipeline = policy.pipeline();
    let stages = pipeline.for_cause(cause).stages().skip_while(|stage| *stage != "site-open").skip(1);
    stages.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_job_goes_its_own_way_with_what_it_does_not_say_from_the_policy() {
    let text = format!(
        "{SMALL}[policy]\nsites = [\"east\", \"west\"]\npipeline = [\"round-robin\"]\n\
         [job.orders.policy]\npipeline = [\"class\", \"site-order\"]\n\
         [[job.orders.policy.rules]]\nwhen = \"work-failed\"\npipeline = [\"same-site\"]\n\
         [job.bills]\ncommand = [\"x\"]\n[job.mails]\ncommand = [\"x\"]\npolicy.on_leader_failure = \"same-site-first\"\n\
         [job.stock]\ncommand = [\"x\"]\npolicy.on_leader_failure = \"prefer-order\"\n"
    );
    let config = Given::file(&text).load().unwrap();
    let of =
        |name: &str, cause| stages(&config.jobs.iter().find(|job| job.name() == name).unwrap().policy, cause);
    assert_eq!(of("orders", Cause::MemberJoined), "class class site-order member-id");
    assert_eq!(of("orders", Cause::WorkFailed), "class failed-last same-site member-id");
    assert_eq!(of("bills", Cause::LeaderLost), "other-site failed-last fewer-failures round-robin member-id");
    assert_eq!(of("stock", Cause::LeaderLost), "failed-last fewer-failures round-robin member-id");
    assert!(of("mails", Cause::LeaderLost).starts_with("failed-last same-site "));
}

#[test]
fn a_pipeline_from_the_command_line_and_one_from_the_environment() {
    let set = "policy.pipeline=[\"priority\", { stage = \"software\", first = \"oldest\" }]";
    let config = Given::file(SMALL).set(set).load().unwrap();
    assert_eq!(stages(&config.jobs[0].policy, Cause::MemberJoined), "priority software member-id");
    let shown = config.shown().iter().find(|s| s.key == "policy.pipeline").unwrap();
    assert_eq!(shown.value, "[\"priority\", { first = \"oldest\", stage = \"software\" }]");
    let config =
        Given::file(SMALL).variable("DR_WORKER__POLICY__PIPELINE", "[\"round-robin\"]").load().unwrap();
    assert_eq!(stages(&config.jobs[0].policy, Cause::MemberJoined), "round-robin member-id");
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
    with("confirm = \"cross-site\"").refused(
        "worker.toml:11:11: policy.confirm: leadership moves automatically to another site only with auto_moves = \"all\"",
        &["\"none\""],
    );
    // Once, and not again for each job; and what is wrong with a key by itself only as such.
    with("sites = [\"east\", \"east\"]")
        .refused("worker.toml:11:18: policy.sites[1]: \"east\" is listed twice", &[]);
    with("pipeline = [\"lga\"]\n[job.orders.policy]\nspread = \"sites\"")
        .refused("worker.toml:11:13: policy.pipeline[0]: \"lga\" is not known", &[]);
    with("auto_moves = \"soon\"").refused("worker.toml:11:14: policy.auto_moves: \"soon\" is not known", &[]);
}

#[test]
fn a_policy_goes_by_targets_that_are_measured() {
    let by_db = "[policy]\npipeline = [{ stage = \"latency\", by = \"targets\", targets = { db = 1 } }]\n";
    let with = |targets: &str| Given::file(&format!("{SMALL}{by_db}{targets}"));
    let config =
        with("[probes.targets]\ndb.address = \"db:5432\"\nshop.url = \"http://shop/\"").load().unwrap();
    let db = ProbeTarget::Tcp(HostPort { host: "db".to_owned(), port: 5432 });
    assert_eq!(config.probes.targets["db"], db);
    assert_eq!(config.probes.targets["shop"], ProbeTarget::Http("http://shop/".to_owned()));
    assert_eq!(config.jobs[0].policy.needs().targets, ["db".to_owned()].into());

    let place = "worker.toml:8:6: job.orders.policy: it depends on the round trip to \"db\", ";
    with("").refused(place, &["not in [probes.targets]; none is"]);
    with("[probes.targets]\nbd.address = \"db:5432\"").refused(place, &["; [\"bd\"] are"]);
    let queue = Given::file(&format!("{SMALL}recipe = \"queue\"\n{by_db}")).load();
    assert!(queue.is_ok(), "{queue:?}");

    let target = |text: &str| Given::file(&format!("{SMALL}[probes.targets.db]\n{text}"));
    target("").refused(
        "worker.toml:10:17: probes.targets.db: the address of the target is missing",
        &["url = ", "address = "],
    );
    target("url = \"http://a/\"\naddress = \"a:1\"")
        .refused("worker.toml:10:17: probes.targets.db: it has both", &[]);
    target("url = \"https://a/\"")
        .refused("worker.toml:11:7: probes.targets.db.url: https is not supported", &["address = "]);
    target("url = \"a\"").refused("worker.toml:11:7: probes.targets.db.url: \"a\" is not a URL", &[]);
    target("address = \"a:0\"").refused("worker.toml:11:11: probes.targets.db.address: port 0", &[]);
    target("addres = \"a:1\"\naddress = \"a:1\"").refused(
        "worker.toml:11:1: probes.targets.db.addres: unknown key; did you mean \"address\"?",
        &["valid in [probes.targets.db]: url, address"],
    );
}

#[test]
fn measuring_has_limits() {
    let with = |text: &str| Given::file(&format!("{SMALL}[probes]\n{text}"));
    let probes = with("publish.every = \"2s\"\npublish.change = \"1ms\"").load().unwrap().probes;
    assert_eq!((probes.publishing.every, probes.publishing.micros), (Duration::from_secs(2), 1000));
    assert_eq!(Given::file(SMALL).load().unwrap().probes, ProbesConfig::default());
    with("interval = \"1ms\"")
        .refused("worker.toml:11:12: probes.interval: 1ms is out of range; 10ms to 1h", &[]);
    with("publish.percent = -1").refused("worker.toml:11:19: probes.publish.percent: ", &[]);
}

#[test]
fn balancing_is_refused_where_it_can_do_nothing() {
    let given = || Given::file(SMALL).set("job.orders.policy.balance=true");
    let config = given().load().unwrap();
    assert!(config.jobs[0].policy.balance);
    assert_eq!((config.balance.interval, config.balance.at_most), (Duration::from_secs(30), 2));
    given().set("balance.at_most=0").refused("--set balance.at_most=...: balance.at_most: ", &["1 or more"]);
    given()
        .set("job.orders.policy.slots=2")
        .refused("--set job.orders.policy.balance=...: job.orders.policy.balance: ", &["spread"]);
    for weight in ["much", "-1", "1.5", "1001"] {
        let set = format!("node.attributes={{ weight = \"{weight}\" }}");
        given().set(&set).refused("", &["node.attributes.weight", "0 to 1000", weight]);
    }
    given().set("node.attributes={ weight = \"0\" }").load().unwrap();
    let named = SMALL.replace("[job.orders]", "[job.balancing]");
    Given::file(&named).load().unwrap();
    Given::file(&named).set("policy.balance=true").refused("", &["\"balancing\"", "another name"]);
}

#[test]
fn each_job_draws_its_own_lots() {
    let text = format!("{SMALL}[policy]\npipeline = [\"fair-share\"]\n[job.bills]\ncommand = [\"x\"]\n");
    let config = Given::file(&text).load().unwrap();
    let [bills, orders] = &config.jobs[..] else { panic!("two jobs") };
    assert_ne!(bills.policy.who, orders.policy.who);
    // A command that speaks of a job asks as its electors do, configured or not.
    let given = Given::file(&text);
    let operator = OperatorConfig::load(&given.sources).unwrap();
    for job in [bills, orders] {
        assert_eq!(operator.policy_of(job.name()).who, job.policy.who);
    }
    assert_eq!(operator.policy_of("mails").who, operator.policy.who.clone().for_election("mails"));
}

#[test]
fn what_is_limited_is_measured() {
    let by_lag = "policy.pipeline = [{ stage = \"limit\", attribute = \"lag\", at_most = 10 }]\n";
    let with = |more: &str| Given::file(&format!("{SMALL}{by_lag}{more}"));
    with("").refused(
        "worker.toml:10:1: job.orders.policy: it limits \"lag\", which no member publishes",
        &["[job.orders.measure]", "node.attributes"],
    );
    assert!(with("").set("node.attributes.lag=3").load().is_ok());
    let config = with("measure.command = [\"lag\"]\nmeasure.interval = \"2s\"").load().unwrap();
    let second = Duration::from_secs(1);
    let (interval, timeout, keep) = (second * 2, second * 5, second * 60);
    let measure = crate::config::Measure { command: vec!["lag".to_owned()], interval, timeout, keep };
    assert_eq!(config.jobs[0].spec.measure, Some(measure));

    let with = |more: &str| Given::file(&format!("{SMALL}{more}"));
    with("measure = {}").refused("worker.toml:10:1: job.orders.measure.command: it is missing", &["JSON"]);
    with("recipe = \"queue\"\nmeasure.command = [\"lag\"]")
        .refused("worker.toml:11:1: job.orders.measure: the recipe \"queue\" does not use it", &[]);
    with("measure = { command = [\"lag\"], interval = \"1ms\" }")
        .refused("worker.toml:10:43: job.orders.measure.interval: 1ms is out of range; 100ms to 1h", &[]);
}

#[test]
fn a_job_leaves_out_the_sites_that_it_forbids() {
    let with = |policy: &str, job: &str| {
        let sites = "[policy]\nsites = [\"east\", \"west\"]\n";
        Given::file(&format!("{SMALL}{sites}{policy}\n[job.orders.policy]\n{job}\n"))
    };
    let config = with("", "forbidden_sites = [\"west\"]").load().unwrap();
    let policy = &config.jobs[0].policy;
    assert_eq!(policy.who.site_policy.sites, ["east".parse().unwrap()]);
    assert!(policy.pipeline().for_cause(Cause::Failover).stages().any(|stage| stage == "site-allowed"));
    // A node of a forbidden site takes part, and never leads.
    assert!(with("", "forbidden_sites = [\"east\"]").load().is_ok());
    with("", "forbidden_sites = [\"east\", \"west\"]").refused(
        "worker.toml:14:19: job.orders.policy.forbidden_sites: it forbids all of policy.sites",
        &["at least one"],
    );
    let twice = "\"west\" is in sites as well; take it out of one of the two";
    with("forbidden_sites = [\"west\"]", "")
        .refused(&format!("worker.toml:12:19: policy.forbidden_sites: {twice}"), &[]);
    with("", "sites = [\"west\", \"east\"]\nforbidden_sites = [\"west\"]")
        .refused(&format!("worker.toml:15:19: job.orders.policy.forbidden_sites: {twice}"), &[]);
    let each = with("site_minimum = { east = 2 }", "below_site_minimum = \"never\"").load().unwrap();
    let stages = each.jobs[0].policy.pipeline();
    let stages = stages.for_cause(Cause::Failover).stages().filter(|stage| *stage == "site-minimum").count();
    assert_eq!(stages, 2, "a filter and a comparison");
    with("site_minimum = { esat = 2 }", "")
        .refused("worker.toml:12:16: policy.site_minimum: it names the site \"esat\"", &["not in sites"]);
    with("below_site_minimum = \"never\"", "").refused(
        "worker.toml:12:22: policy.below_site_minimum: it has no effect while site_minimum is 1",
        &["such as 2"],
    );
    let exempt = with("site_minimum = 2\nbelow_site_minimum = \"never\"", "site_minimum = 1").load().unwrap();
    assert!(exempt.jobs[0].policy.who.site_policy.site_minimum.is_none());
    with("site_minimum = 0", "").refused("worker.toml:12:16: policy.site_minimum: the integer 0", &["1 to"]);
    let queue = format!("{SMALL}recipe = \"queue\"\n[job.orders.policy]\nsite_minimum = 2\n");
    Given::file(&queue)
        .refused("", &["job.orders.policy.site_minimum: the recipe \"queue\" does not use it"]);
}

#[test]
fn policies_name_other_jobs_that_there_are() {
    let by = |job: &str, other: &str| {
        format!(
            "[job.{job}]\ncommand = [\"x\"]\n[job.{job}.policy]\n\
             pipeline = [{{ stage = \"with-job\", job = \"{other}\" }}]\n"
        )
    };
    let with = |jobs: &[String]| Given::file(&format!("{SMALL}{}", jobs.concat()));
    let config = with(&[by("bills", "orders")]).load().unwrap();
    assert_eq!(config.jobs[0].policy.needs().jobs, ["orders".to_owned()].into());
    with(&[by("bills", "ordrs")]).refused(
        "worker.toml:12:1: job.bills.policy: it depends on the leader of \"ordrs\", which is not configured",
        &["valid: [\"orders\"]"],
    );
    with(&[by("bills", "bills")]).refused(
        "worker.toml:12:1: job.bills.policy: it depends on the leader of \"bills\"",
        &["job itself"],
    );
    let beside = by("bills", "orders").replace(" }]", ", strength = \"require\" }]");
    let given = with(&[beside, by("shop", "orders")]);
    let after = OperatorConfig::load(&given.sources).unwrap().moves_after();
    assert_eq!(after["bills"], ["orders".to_owned()].into());
    assert!(after["shop"].is_empty() && after["orders"].is_empty(), "{after:?}");
    // The jobs could follow each other for ever.
    let all = [by("a", "c"), by("b", "a"), by("c", "b")];
    with(&all).refused("", &["job.a.policy: ", ": a on c on b on a; "]);
}

#[test]
fn jobs_that_wait_for_others_name_other_jobs_and_go_in_no_circle() {
    let after = |job: &str, more: &str| format!("[job.{job}]\ncommand = [\"x\"]\n{more}\n");
    let with = |jobs: &[String]| Given::file(&format!("{SMALL}{}", jobs.concat()));
    let shop = after("shop", "after = [\"orders\"]\nrestart_with = true");
    let config = with(std::slice::from_ref(&shop)).load().unwrap();
    let spec = &config.jobs.iter().find(|job| job.name() == "shop").unwrap().spec;
    assert_eq!((&*spec.after, spec.restart_with), (&["orders".to_owned()][..], true));
    for (wrong, message) in [
        ("after = [\"ordrs\"]", "it names \"ordrs\", which is not configured; valid: [\"orders\"]"),
        ("after = [\"shop\"]", "it names \"shop\", which is the job itself"),
        ("after = [\"orders\", \"orders\"]", "\"orders\" is listed twice"),
        ("after = [\"orders\"]\nrecipe = \"queue\"", "both jobs, but \"shop\" differs"),
    ] {
        with(&[after("shop", wrong)]).refused("worker.toml:12:9: job.shop.after: ", &[message]);
    }
    with(&[after("shop", "restart_with = true")]).refused("", &["restart_with: it needs `after`"]);
    let two = "after = [\"orders\"]\n[job.orders.policy]\nslots = 2";
    with(&[after("shop", two)]).refused("", &["job.shop.after: ", "\"orders\" differs"]);

    let web = |other: &str| after("web", &format!("after = [\"{other}\"]"));
    with(&[shop, web("shop")]).load().unwrap();
    let apart =
        "[job.orders.policy]\npipeline = [{ stage = \"with-job\", job = \"web\", strength = \"apart\" }]\n";
    with(&[after("shop", "after = [\"orders\"]"), web("shop"), apart.to_owned()])
        .refused("", &["job.orders.policy: ", ": orders on web on shop on orders; "]);
    with(&[after("shop", "after = [\"web\"]"), web("shop")])
        .refused("worker.toml:12:9: job.shop.after: ", &["shop on web on shop"]);
}

#[test]
fn a_jobs_load_and_a_nodes_capacity_are_numbers() {
    let given = || Given::file(SMALL).set("policy.pipeline=[\"capacity\"]");
    assert_eq!(given().load().unwrap().jobs[0].load, 1);
    assert_eq!(given().set("job.orders.load=3").load().unwrap().jobs[0].load, 3);
    given().set("job.orders.load=1000001").refused("", &["job.orders.load: 1000001 is out of range; 0 to"]);
    let much = "node.attributes={ capacity = \"much\" }";
    given().set(much).refused("", &["job.orders.policy", "node.attributes.capacity is \"much\""]);
    assert!(Given::file(SMALL).set(much).load().is_ok(), "nothing goes by it");
    given().set("node.attributes={ \"dr.load\" = \"3\" }").refused("", &["\"dr.load\" is reserved"]);
}

/// What other members must have alike is in the word that they compare.
#[test]
fn the_fingerprint_is_of_all_that_is_said_of_sites_jobs_and_hours() {
    let of = |sets: &[&str]| {
        let given = Given::file(&format!("{SMALL}[job.db]\ncommand = [\"x\"]\n"));
        let config = sets.iter().fold(given, |given, set| given.set(set)).load().unwrap();
        let job = config.jobs.iter().find(|job| job.name() == "orders").unwrap();
        job.policy.fingerprint(job.fenced)
    };
    let hours =
        |hours: &str| format!("policy.pipeline=[{{ stage = \"hours\", sites = {{ east = \"{hours}\" }} }}]");
    let (day, night) = (hours("06:00-18:00"), hours("18:00-06:00"));
    let all = [
        &[][..],
        &["policy.site_minimum=2"],
        &["policy.forbidden_sites=[\"lab\"]"],
        &["policy.pipeline=[\"capacity\"]"],
        &["policy.pipeline=[\"capacity\"]", "job.orders.load=2"],
        &["job.orders.policy.pipeline=[{ stage = \"with-job\", job = \"db\" }]"],
        &["job.orders.policy.pipeline=[{ stage = \"with-job\", job = \"db\", strength = \"apart\" }]"],
        &["job.orders.policy.pipeline=[{ stage = \"with-job\", job = \"db\", place = \"site\" }]"],
        &[day.as_str()],
        &[night.as_str()],
    ];
    let words: std::collections::BTreeSet<_> = all.iter().map(|sets| of(sets)).collect();
    assert_eq!(words.len(), all.len());
}

#[test]
fn no_limit_is_above_what_an_election_remembers() {
    let refused = |sets: &[&str]| {
        let given = sets.iter().fold(Given::file(SMALL), |given, set| given.set(set));
        given.load().err().map(|problems| problems.to_string())
    };
    let takeovers = |count| format!("policy.max_takeovers={{ count = {count}, within = \"5m\" }}");
    assert_eq!(refused(&[&takeovers(50)]), None);
    let text = refused(&[&takeovers(51)]).unwrap();
    assert!(
        text.contains("policy.max_takeovers: 51 are more takeovers") && text.contains("1 to 50"),
        "{text}"
    );
    let text = refused(&["policy.slots=16", &takeovers(20)]).unwrap();
    assert!(text.contains("valid with 16 slots: 1 to 10"), "{text}");
    let text = refused(&[&takeovers(20), "job.orders.policy.slots=16"]).unwrap();
    assert!(text.contains("job.orders.policy.max_takeovers: 20 are more takeovers"), "{text}");
    assert_eq!(refused(&["policy.max_site_failures.count=8"]), None);
    let text = refused(&["policy.max_site_failures.count=9"]).unwrap();
    assert!(text.contains("policy.max_site_failures.count: an election remembers 8 failures"), "{text}");
}

/// A fixed policy has this one in every version that means the same by it: members of two versions compare theirs.
#[test]
fn the_fingerprint_of_a_fixed_policy_is_fixed() {
    let given = Given::file(SMALL)
        .set("policy.sites=[\"east\", \"west\"]")
        .set("policy.site_minimum={ east = 2 }")
        .set("policy.failback_windows=[\"Sat,Sun 02:00-04:00\"]")
        .set("policy.pipeline=[\"site-order\", { stage = \"latency\", tolerance = \"2ms\" }]")
        .set("policy.max_takeovers={ count = 3, within = \"5m\" }")
        .set("job.orders.load=2");
    let policy = &given.load().unwrap().jobs[0].policy;
    assert_eq!(
        (policy.fingerprint(false).as_str(), policy.fingerprint(true).as_str()),
        ("c77a075d93f73b03", "fbf4ec774cdaaa2a")
    );
}

/// The keys that `strategies` reads, by the error of one that it does not know.
fn keys_of_a_policy() -> Vec<String> {
    let wrong = serde_json::Map::from_iter([("no-key".to_owned(), 1.into())]);
    let error = strategies::PolicySpec::read(&wrong, Inputs::ALL).unwrap_err().to_string();
    let (_, valid) = error.split_once("valid here: ").unwrap();
    valid.split(", ").map(str::to_owned).collect()
}

/// `strategies` reads the values of these keys; what else there is to say of them is declared here.
#[test]
fn each_key_that_ranks_members_is_declared() {
    let declared: Vec<_> = PolicyConfig::default().keys().into_iter().map(|key| key.name).collect();
    let missing: Vec<_> = keys_of_a_policy().into_iter().filter(|key| !declared.contains(&&**key)).collect();
    assert!(missing.is_empty(), "add {missing:?} to `Ranking` in config/policy.rs");
}

#[test]
fn the_fingerprint_is_of_every_key() {
    let config = Given::file(SMALL).load().unwrap();
    let values = config.jobs[0].policy.values();
    let keys: Vec<_> = config.shown().iter().filter_map(|shown| shown.key.strip_prefix("policy.")).collect();
    let missing: Vec<_> = keys.iter().filter(|key| !values.contains_key(**key)).collect();
    assert!(keys.len() > 20 && missing.is_empty(), "{missing:?} of {keys:?} are not in {values:?}");
}

/// A stage `lag`, with a setting, and a strategy `by-id`.
fn own() -> Registry {
    #[derive(Debug)]
    struct Lag(Limit);

    impl strategies::Filter for Lag {
        fn refuse(
            &self,
            candidate: &election_core::internals::record::MemberRecord,
            round: &election_core::strategy::Round<'_>,
        ) -> Option<String> {
            self.0.refuse(candidate, round)
        }
    }

    #[derive(Deserialize)]
    struct Settings {
        most: Option<f64>,
    }

    let lag = |Settings { most }: Settings, _: &[SiteId]| {
        Ok(OwnStage::filter(Lag(Limit::new("lag", most.unwrap_or(10.0)))))
    };
    let by_id = |(): (), _: &[SiteId]| Ok(OwnStrategy::new(Pipeline::bare()));
    Registry::default().stage("lag", lag).and_then(|all| all.strategy("by-id", by_id)).unwrap()
}

#[test]
fn a_policy_may_name_what_is_registered_for_every_verb() {
    let given = Given::file(&format!(
        "{SMALL}[policy]\npipeline = [{{ stage = \"lag\", most = 3 }}, \"priority\"]\n\
         [job.bills]\ncommand = [\"x\"]\npolicy.strategy = \"by-id\"\n"
    ))
    .registry(own());
    let config = given.load().unwrap();
    let [bills, orders] = &config.jobs[..] else { panic!("{config:?}") };
    assert_eq!(stages(&orders.policy, Cause::MemberJoined), "lag priority member-id");
    assert_eq!(stages(&bills.policy, Cause::MemberJoined), "by-id");
    // An operator's verbs, `simulate` among them.
    let operator = OperatorConfig::load(&given.sources).unwrap();
    assert_eq!(operator.fingerprint_of("orders"), orders.policy.fingerprint(orders.fenced));
    assert_eq!(stages(&operator.policy_of("bills"), Cause::MemberJoined), "by-id");
    let then = config.what_if(&["job.orders.policy.strategy=by-id".to_owned()]).unwrap();
    assert_eq!(stages(&then.policy_of("orders"), Cause::Startup), "by-id");
}

#[test]
fn what_is_registered_and_not_named_changes_no_fingerprint() {
    let of = |given: Given| given.load().unwrap().jobs[0].policy.fingerprint(false);
    let usual = of(Given::file(SMALL));
    assert_eq!(of(Given::file(SMALL).registry(own())), usual);
    let with = |most: u32| {
        let set = format!("policy.pipeline=[{{ stage = \"lag\", most = {most} }}]");
        of(Given::file(SMALL).registry(own()).set(&set))
    };
    assert_ne!(with(3), usual);
    assert_eq!(with(3), with(3));
    assert_ne!(with(3), with(4));
}

#[test]
fn a_stage_that_is_not_registered_is_refused_with_those_that_are() {
    let with = |policy: &str| Given::file(&format!("{SMALL}[policy]\n{policy}\n"));
    let unknown = "worker.toml:11:13: policy.pipeline[0]: \"lga\" is not known; valid: ";
    with("pipeline = [\"lga\"]").registry(own()).refused(unknown, &["\"site-order\"", "\"lag\""]);
    with("pipeline = [{ stage = \"lag\", most = \"3\" }]")
        .registry(own())
        .refused("worker.toml:11:37: policy.pipeline[0].most: expected a number", &["found \"3\""]);
    with("strategy = \"by-id\"").refused(
        "worker.toml:11:12: policy.strategy: this program has no strategies of its own; leave it out",
        &[],
    );
    with("strategy = \"by-id\"\nspread = \"sites\"").registry(own()).refused(
        "worker.toml:12:10: policy.spread: the strategy \"by-id\" decides that; leave one of the two out",
        &[],
    );
}
