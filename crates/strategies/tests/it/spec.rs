//! Policies as they are written down: what is refused, with which words, and what comes out.

use election_core::strategy::Cause;
use serde_json::{Map, Value};
use strategies::{
    AutoMoves, BelowSiteMinimum, OnLeaderFailure, PolicySpec, SlotSpread,
    spec::{Inputs, Needs},
    stages::Minimum,
};

fn read(text: &str) -> PolicySpec {
    toml::from_str(text).unwrap()
}

/// Everything that is wrong, a line each.
fn wrong(text: &str) -> Vec<String> {
    let entries: Map<String, Value> = toml::from_str(text).unwrap();
    let error = PolicySpec::read(&entries, Inputs::default()).expect_err(text);
    error.to_string().lines().map(str::to_owned).collect()
}

fn stages(spec: &PolicySpec, cause: Cause) -> String {
    let pipeline = spec.pipeline();
    let stages: Vec<_> = pipeline.for_cause(cause).stages().collect();
    stages.join(" ")
}

#[test]
fn text_and_code_make_the_same_policy() {
    let sites = |names: &[&str]| strategies::testing::sites(names.iter().copied());
    for (text, policy) in [
        ("", PolicySpec::default()),
        ("sites = ['east', 'west']", PolicySpec::for_sites(sites(&["east", "west"]))),
        (
            "sites = ['east']\nforbidden_sites = ['lab']\nsite_minimum = 2\non_leader_failure = 'same-site-first'\n\
             auto_moves = 'in-site'\nspread = 'sites'",
            PolicySpec::for_sites(sites(&["east"])).with(|policy| {
                policy.forbidden_sites = sites(&["lab"]);
                policy.site_minimum = Minimum::All(2);
                policy.on_leader_failure = OnLeaderFailure::SameSiteFirst;
                policy.auto_moves = AutoMoves::InSite;
                policy.spread = SlotSpread::Sites;
            }),
        ),
        (
            "site_minimum = { east = 2, west = 3 }\nbelow_site_minimum = 'never'",
            PolicySpec::default().with(|policy| {
                let each = sites(&["east", "west"]).into_iter().zip(2..);
                policy.site_minimum = Minimum::Each(each.collect());
                policy.below_site_minimum = BelowSiteMinimum::Never;
            }),
        ),
    ] {
        assert_eq!(read(text), policy);
        // What the settings show reads as the same policy again.
        let shown = policy.settings();
        assert_eq!(PolicySpec::read(&shown, Inputs::default()).unwrap(), policy);
    }
}

#[test]
fn a_pipeline_takes_the_place_of_the_usual_order_and_no_more() {
    let fit = "healthy priority not-excluded site-healthy site-open";
    let spec = read("pipeline = ['priority', 'oldest-ballot']\nspread = 'sites'");
    assert_eq!(
        stages(&spec, Cause::Startup),
        format!("{fit} spread same-site priority oldest-ballot member-id")
    );
    assert_eq!(
        stages(&spec, Cause::LeaderLost),
        format!(
            "{fit} failed-last spread other-site failed-last fewer-failures priority oldest-ballot member-id"
        )
    );
    assert_eq!(
        stages(&spec, Cause::BetterCandidate),
        format!("{fit} incumbent spread priority oldest-ballot member-id")
    );
    let spec = read("pipeline = ['priority']\nauto_moves = 'all'\non_leader_failure = 'same-site-first'");
    assert_eq!(stages(&spec, Cause::BetterCandidate), format!("{fit} priority member-id"));
    assert_eq!(
        stages(&spec, Cause::LeaderLost),
        format!("{fit} failed-last same-site fewer-failures priority member-id")
    );
}

#[test]
fn a_rule_takes_the_place_of_everything_for_its_causes_and_the_first_one_decides() {
    let spec = read(
        "[pipelines]\nnear = ['same-site', 'priority']\n\
         [[rules]]\nwhen = 'work-failed'\npipeline = 'near'\n\
         [[rules]]\nwhen = ['failure', 'startup']\npipeline = ['site-order']",
    );
    let fit = "healthy priority not-excluded site-healthy site-open";
    assert_eq!(stages(&spec, Cause::WorkFailed), format!("{fit} failed-last same-site priority member-id"));
    for cause in [Cause::LeaderLost, Cause::Unhealthy, Cause::Failover, Cause::Startup] {
        assert_eq!(stages(&spec, cause), format!("{fit} failed-last site-order member-id"), "{cause}");
    }
    assert_eq!(
        stages(&spec, Cause::Switchover),
        format!("{fit} site-order priority oldest-ballot member-id")
    );
}

#[test]
fn a_stage_with_settings_is_the_filter_that_it_is_too() {
    let spec = read(
        "pipeline = [\n\
         { stage = 'class', attribute = 'role' },\n\
         { stage = 'software', first = 'oldest', at_least = '1.4', attribute = 'schema' },\n\
         { stage = 'score', margin = 50, tolerance = 10, attributes = { cores = { worst = 0, best = 16.5, weight = 2, \
         missing = 'refused' }, lag = { worst = 10, best = 0 } } }]",
    );
    assert_eq!(
        stages(&spec, Cause::Startup),
        "healthy priority not-excluded site-healthy site-open class software score same-site class software score member-id"
    );
    let plain =
        read("pipeline = ['software', { stage = 'score', attributes = { a = { worst = 0, best = 1 } } }]");
    assert_eq!(
        stages(&plain, Cause::Startup),
        "healthy priority not-excluded site-healthy site-open same-site software score member-id"
    );
}

#[test]
fn what_is_wrong_is_said_with_its_key_and_what_would_be_valid() {
    let all: Vec<_> = strategies::spec::stages().map(|name| format!("{name:?}")).collect();
    assert_eq!(all.first().map(String::as_str), Some("\"site-order\""));
    let stage = format!("valid: {}", all.join(", "));
    let not_known = format!("pipeline[1]: \"latncy\" is not known; {stage}");
    let named = format!("pipeline[0].stage: \"scor\" is not known; {stage}");
    let cases: &[(&str, &[&str])] = &[
        (
            "colour = 1",
            &[
                "colour: unknown key; valid here: sites, forbidden_sites, site_minimum, below_site_minimum, on_leader_failure, auto_moves, spread, pipelines, pipeline, rules, strategy",
            ],
        ),
        ("auto_moves = 'soon'", &[r#"auto_moves: "soon" is not known; valid: "none", "in-site", "all""#]),
        (
            "on_leader_failure = 3",
            &[
                "on_leader_failure: the integer 3 is not known; valid: \"other-site\", \"prefer-order\", \"same-site-first\"",
            ],
        ),
        ("sites = 'east'", &["sites: expected an array, such as [\"east\", \"west\"], found \"east\""]),
        (
            "sites = ['east', 'west', 'east', 4]",
            &[
                "sites[2]: \"east\" is listed twice; list it once",
                "sites[3]: expected a string in quotes, found the integer 4",
            ],
        ),
        ("pipeline = ['priority', 'latncy']", &[&not_known]),
        ("pipeline = []", &["pipeline: it is empty; name at least one stage"]),
        (
            "pipeline = 3",
            &["pipeline: expected an array of stages, such as [\"site-order\"], found the integer 3"],
        ),
        (
            "pipeline = [true]",
            &["pipeline[0]: expected the name of a stage, or a table with it as \"stage\", found true"],
        ),
        (
            "pipeline = ['healthy']",
            &["pipeline[0]: \"healthy\" is part of every pipeline already; leave it out"],
        ),
        (
            "pipeline = ['priority', 'priority']",
            &["pipeline[1]: \"priority\" is listed twice; use each stage once"],
        ),
        ("pipeline = ['round-robin', 'priority']", &["pipeline[1]: \"round-robin\" must be the last stage"]),
        (
            "pipeline = 'careful'",
            &[
                "pipeline: no pipeline is named \"careful\": pipelines is empty; an array of stages is valid as well",
            ],
        ),
        (
            "pipeline = 'carful'\n[pipelines]\ncareful = ['priority']",
            &["pipeline: no pipeline is named \"carful\"; valid: \"careful\", or an array of stages"],
        ),
        ("pipelines = ['priority']", &["pipelines: expected a table, found an array"]),
        ("pipeline = [{ margin = 3 }]", &["pipeline[0].stage: it is missing: the name of the stage"]),
        ("pipeline = [{ stage = 'scor', margin = 3 }]", &[&named]),
        (
            "pipeline = [{ stage = 'class', atribute = 'a' }]",
            &["pipeline[0].atribute: unknown key; did you mean \"attribute\"?; valid here: stage, attribute"],
        ),
        (
            "pipeline = [{ stage = 'software', at_least = 'new' }]",
            &[
                "pipeline[0].at_least: expected a version such as \"1.4.0\": one to three numbers separated by dots, found \"new\"",
            ],
        ),
        (
            "pipeline = ['score']",
            &[
                "pipeline[0].attributes: it is missing; valid is a table such as { attributes = { cores = { worst = 0, best = 16 } } }",
            ],
        ),
        (
            "pipeline = [{ stage = 'score', margin = 1001, attributes = {} }]",
            &[
                "pipeline[0].margin: the integer 1001 is out of range; 0 to 1000 is valid",
                "pipeline[0].attributes: no attribute counts: at least one must have a weight above 0",
            ],
        ),
        (
            "pipeline = [{ stage = 'score', attributes = { cores = { worst = 1, best = 1 } } }]",
            &["pipeline[0].attributes: cores: worst and best must be two different numbers"],
        ),
        (
            "pipeline = [{ stage = 'score', attributes = { cores = { best = 'many', missing = 'bad' } } }]",
            &[
                "pipeline[0].attributes.cores.best: expected a number, found \"many\"",
                "pipeline[0].attributes.cores.missing: \"bad\" is not known; valid: \"worst\", \"middle\", \"ignored\", \"refused\"",
                "pipeline[0].attributes.cores.worst: it is missing; valid is a table such as { worst = 0, best = 16 }, with the values with no points and with all points",
            ],
        ),
        ("rules = 3", &["rules: expected an array, found the integer 3"]),
        (
            "[[rules]]\nwen = 'startup'",
            &[
                "rules[0].when: it is missing; valid is a table such as { when = \"leader-lost\", pipeline = [\"site-order\"] }",
                "rules[0].wen: unknown key; did you mean \"when\"?; valid here: when, pipeline",
                "rules[0].pipeline: it is missing; valid is a table such as { when = \"leader-lost\", pipeline = [\"site-order\"] }",
            ],
        ),
        (
            "[[rules]]\nwhen = ['startup', 'leaderlost']\npipeline = ['priority']",
            &[
                "rules[0].when[1]: \"leaderlost\" is not known; valid: \"startup\", \"member-joined\", \"leader-lost\", \"unhealthy\", \"site-failed\", \"suspected\", \"takeover-failed\", \"work-failed\", \"resigned\", \"leader-shutdown\", \"switchover\", \"failover\", \"better-candidate\", \"tokens-raised\", \"slots-changed\", \"failure\"",
            ],
        ),
        ("[[rules]]\nwhen = []\npipeline = ['priority']", &["rules[0].when: it is empty; name at least one"]),
        (
            "[[rules]]\nwhen = 'failure'\npipeline = ['priority']\n[[rules]]\nwhen = ['leader-lost', 'work-failed']\npipeline = ['priority']",
            &["rules[1].when: this rule is never used: rules before it name all of its causes"],
        ),
        (
            "[[rules]]\nwhen = 'better-candidate'\npipeline = ['priority']",
            &[
                "rules[0].when: \"better-candidate\" moves nothing while auto_moves is \"none\"; set it to \"in-site\" or \"all\"",
            ],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(wrong(text), *expected, "{text}");
    }
    let fine = "auto_moves = 'all'\n[[rules]]\nwhen = 'better-candidate'\npipeline = ['priority']";
    assert!(stages(&read(fine), Cause::BetterCandidate).contains("failed-last priority"));
    let in_site = fine
        .replace("'all'", "'in-site'")
        .replace("when = 'better-candidate'", "when = ['startup', 'better-candidate']");
    let spec = read(&in_site);
    assert!(
        stages(&spec, Cause::BetterCandidate).contains("failed-last same-site priority"),
        "as auto_moves says"
    );
    assert!(stages(&spec, Cause::Startup).contains("failed-last priority"));
    let spec = read(&format!("site_minimum = 2\n{in_site}"));
    assert!(stages(&spec, Cause::BetterCandidate).contains("failed-last same-site site-minimum priority"));
}

/// For members that publish all that there is.
fn read_with_all(text: &str) -> PolicySpec {
    let entries: Map<String, Value> = toml::from_str(text).unwrap();
    PolicySpec::read(&entries, Inputs::ALL).unwrap()
}

/// The same, with everything that is wrong.
fn wrong_with_all(text: &str) -> Vec<String> {
    let entries: Map<String, Value> = toml::from_str(text).unwrap();
    let error = PolicySpec::read(&entries, Inputs::ALL).expect_err(text);
    error.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn what_is_measured_can_be_named_where_it_is_published() {
    let text = "auto_moves = 'all'\npipeline = [{ stage = 'limit', attribute = 'lag', at_most = 10, missing = 'passes' }, \
                { stage = 'latency', by = 'targets', targets = { db = 2 }, margin = '2ms', tolerance = '500us' }]";
    let entries: Map<String, Value> = toml::from_str(text).unwrap();
    let spec = PolicySpec::read(&entries, Inputs::ALL).unwrap();
    assert_eq!(
        stages(&spec, Cause::Startup),
        "healthy priority not-excluded site-healthy site-open limit same-site latency member-id"
    );
    let cases: &[(&str, &[&str])] = &[
        (
            "{ stage = 'latency', by = 'best' }",
            &[
                "pipeline[0].by: \"best\" is not known; valid: \"majority\", \"mean\", \"worst\", \"zookeeper\", \"targets\"",
            ],
        ),
        (
            "{ stage = 'latency', margin = 2 }",
            &["pipeline[0].margin: expected a duration such as \"500us\" or \"2ms\", found the integer 2"],
        ),
        (
            "{ stage = 'latency', margin = '-2ms' }",
            &["pipeline[0].margin: expected a duration such as \"500us\" or \"2ms\", found \"-2ms\""],
        ),
        (
            "{ stage = 'latency', count = 3 }",
            &["pipeline[0].count: unknown key; valid here: stage, by, tolerance, margin, targets"],
        ),
        (
            "{ stage = 'latency', by = 'targets', targets = { db = 0 } }",
            &["pipeline[0].targets.db: expected an integer of 1 or more, found the integer 0"],
        ),
        (
            "{ stage = 'latency', by = 'targets', targets = {} }",
            &[
                "pipeline[0].targets: by = \"targets\" needs targets, such as { db = 2, shop = 1 }; no other value \
                 of by does",
            ],
        ),
        (
            "{ stage = 'limit' }",
            &[
                "pipeline[0].attribute: it is missing; valid is a table such as { attribute = \"lag\", at_most = 10 }, with the highest value of a new leader",
                "pipeline[0].at_most: it is missing; valid is a table such as { attribute = \"lag\", at_most = 10 }, with the highest value of a new leader",
            ],
        ),
    ];
    for (stage, expected) in cases {
        assert_eq!(wrong_with_all(&format!("pipeline = [{stage}]")), *expected, "{stage}");
    }
}

#[test]
fn what_must_be_measured_is_what_the_policy_goes_by() {
    let needs = |text: &str| {
        let entries: Map<String, Value> = toml::from_str(text).unwrap();
        PolicySpec::read(&entries, Inputs::ALL).unwrap().needs()
    };
    let peers = Needs::default().with(|needs| needs.peers = true);
    assert!(needs("").is_none());
    assert!(needs("pipeline = ['incumbent']").is_none());
    assert_eq!(needs("pipeline = [{ stage = 'latency', by = 'worst' }]"), peers);
    let by_two = needs(
        "pipeline = [{ stage = 'latency', by = 'targets', targets = { db = 2, shop = 1 } }]\n\
         [[rules]]\nwhen = 'failure'\npipeline = [{ stage = 'latency', by = 'zookeeper' }]",
    );
    let targets = ["db".to_owned(), "shop".to_owned()].into();
    assert_eq!(by_two, Needs::default().with(|needs| (needs.zookeeper, needs.targets) = (true, targets)));
    let by_lag = needs("pipeline = [{ stage = 'limit', attribute = 'lag', at_most = 10 }]");
    assert_eq!(by_lag, Needs::default().with(|needs| needs.limited = ["lag".to_owned()].into()));
}

#[test]
fn what_is_said_of_sites_holds_in_each_pipeline() {
    let keys = "forbidden_sites = ['lab']\nsite_minimum = 2\n";
    let fit = "healthy priority not-excluded site-healthy site-open site-allowed";
    for pipeline in ["", "pipeline = ['round-robin']", "pipeline = ['incumbent', 'site-order']"] {
        let spec = read_with_all(&format!("{keys}{pipeline}"));
        for cause in Cause::ALL {
            let stages = stages(&spec, cause);
            assert!(
                stages.starts_with(fit) && stages.contains(" site-minimum "),
                "{pipeline:?} {cause}: {stages}"
            );
        }
    }
    let rule = "[[rules]]\nwhen = 'failure'\npipeline = ['priority']";
    let spec = read_with_all(&format!("{keys}pipeline = ['class']\n{rule}"));
    assert_eq!(
        stages(&spec, Cause::LeaderLost),
        format!("{fit} class failed-last site-minimum priority member-id"),
        "whom the policy's pipeline refuses may not lead by the rule either"
    );
    assert_eq!(stages(&spec, Cause::Startup), format!("{fit} class site-minimum same-site class member-id"));
    for none in ["site_minimum = 1", "site_minimum = { east = 1 }\nbelow_site_minimum = 'never'"] {
        assert!(!stages(&read(none), Cause::Startup).contains("site-minimum"), "{none}");
    }
    // The condition is a filter of every pipeline, of a rule's too.
    let keys = "site_minimum = { east = 2 }\nbelow_site_minimum = 'never'\n";
    let spec = read_with_all(&format!("{keys}pipeline = ['class']\n{rule}"));
    for cause in Cause::ALL {
        let stages = stages(&spec, cause);
        let fit = "healthy priority not-excluded site-healthy site-open site-minimum ";
        assert!(stages.starts_with(fit) && stages.matches(" site-minimum").count() == 2, "{cause}: {stages}");
    }

    let cases: &[(&str, &[&str])] = &[
        (
            "sites = ['east', 'west']\nforbidden_sites = ['west', 'north']",
            &["forbidden_sites: \"west\" is in sites as well; take it out of one of the two"],
        ),
        ("forbidden_sites = ['a', 'a']", &["forbidden_sites[1]: \"a\" is listed twice; list it once"]),
        ("site_minimum = 0", &["site_minimum: the integer 0 is out of range; 1 to 1000 is valid"]),
        (
            "sites = ['east']\nforbidden_sites = ['lab']\nsite_minimum = { lab = 2, west = 2 }",
            &["site_minimum: it names the site \"west\", which is not in sites"],
        ),
        (
            "site_minimum = { east = 0, 'w t' = 2 }",
            &[
                "site_minimum.east: the integer 0 is out of range; 1 to 1000 is valid",
                "site_minimum.w t: the site \"w t\" is not usable: it contains white space or a control character",
            ],
        ),
        (
            "site_minimum = '2'",
            &["site_minimum: expected an integer, or a table such as { east = 2 }, found \"2\""],
        ),
        (
            "site_minimum = 2\nbelow_site_minimum = 'leave'",
            &["below_site_minimum: \"leave\" is not known; valid: \"last\", \"never\""],
        ),
        (
            "pipeline = ['site-minimum', 'site-allowed']",
            &[
                "pipeline[0]: \"site-minimum\" is part of every pipeline where site_minimum is set; set that instead",
                "pipeline[1]: \"site-allowed\" is part of every pipeline where forbidden_sites is set; set that instead",
            ],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(wrong(text), *expected, "{text}");
    }
}

#[test]
fn other_jobs_load_and_hours_are_read() {
    let text = "sites = ['east', 'west']\npipeline = [{ stage = 'with-job', job = 'db', place = 'site' }, \
                { stage = 'with-job', job = 'mq', strength = 'apart' }, 'capacity', \
                { stage = 'hours', sites = { east = '06:00-18:00', west = ['18:00-24:00', '00:00-06:00'] } }]";
    let spec = read_with_all(text);
    assert!(
        stages(&spec, Cause::Startup).ends_with(" with-job with-job capacity hours member-id"),
        "{spec:?}"
    );
    let jobs = ["db", "mq"].map(str::to_owned).into();
    assert_eq!(spec.needs(), Needs::default().with(|needs| (needs.jobs, needs.load) = (jobs, true)));
    assert!(spec.required_jobs().is_empty());
    let required = "{ stage = 'with-job', job = 'db', strength = 'require' }";
    let rule = format!("pipeline = [{required}]\nrules = [{{ when = 'failure', pipeline = ['capacity'] }}]");
    assert_eq!(read_with_all(&rule).required_jobs(), ["db".to_owned()].into());
    // What the job itself loads is part of the policy.
    assert_ne!(spec, spec.clone().with_load(2));
    assert_eq!(spec, spec.clone().with_load(1));

    let cases: &[(&str, &[&str])] = &[
        (
            "{ stage = 'with-job' }",
            &["pipeline[0].job: it is missing; valid is a table such as { job = \"db\", place = \"site\" }"],
        ),
        (
            "{ stage = 'with-job', job = ' ', place = 'rack', strength = 'never' }",
            &[
                "pipeline[0].job: it is empty; leave it out instead",
                "pipeline[0].place: \"rack\" is not known; valid: \"member\", \"site\"",
                "pipeline[0].strength: \"never\" is not known; valid: \"require\", \"prefer\", \"avoid\", \"apart\"",
            ],
        ),
        (
            "{ stage = 'with-job', job = 'db' }, { stage = 'with-job', job = 'db', strength = 'apart' }",
            &["pipeline[1]: \"with-job\" is listed twice; use each stage once"],
        ),
        (
            "'hours'",
            &[
                "pipeline[0].sites: it is missing; valid is a table such as { sites = { east = [\"Mon-Fri 06:00-18:00\"] } }, in UTC",
            ],
        ),
        (
            "{ stage = 'hours', sites = { east = ['06:00'], west = [] } }",
            &[
                "pipeline[0].sites.east: \"06:00\" has no hours; valid are days and hours in UTC, such as \"Sat,Sun 02:00-04:00\", \"Mon-Fri 23:30-01:00\" or \"02:00-04:00\"",
                "pipeline[0].sites.west: it is empty; name at least one",
            ],
        ),
        (
            "{ stage = 'hours', sites = { eats = '06:00-18:00' } }",
            &["pipeline: \"hours\" names the site \"eats\", which is not in sites"],
        ),
    ];
    for (stage, expected) in cases {
        let text = format!("sites = ['east', 'west']\npipeline = [{stage}]");
        assert_eq!(wrong_with_all(&text), *expected, "{stage}");
    }
    let nothing = "cannot be used here: no member publishes which other jobs it leads; leave it out";
    for name in ["with-job", "capacity"] {
        assert_eq!(wrong(&format!("pipeline = ['{name}']")), [format!("pipeline[0]: {name:?} {nothing}")]);
    }
}
