//! Stages and strategies of another crate: how they are read, and what goes before them.

use election_core::strategy::{Cause, Ground, MemberRecord, Ranked, Ranking, Round, SiteId, Strategy};
use serde::Deserialize;
use serde_json::{Map, Value};
use strategies::{
    Comparison, Filter, OwnStage, OwnStrategy, PolicySpec, Registry, Standing,
    spec::{Inputs, Needs},
    testing::{View, member, order, refused, sites, unhealthy, with_attributes, with_priority},
};

/// Goes by whether a member has an attribute, and can put out those that don't.
#[derive(Clone, Debug)]
struct Has(String);

impl Comparison for Has {
    fn grade(&self, candidate: &MemberRecord, _: &Round<'_>) -> i64 {
        i64::from(!candidate.attributes.contains_key(&self.0))
    }

    fn reason(&self, _: &MemberRecord, standing: Standing, _: &Round<'_>) -> String {
        format!("{} {}", if standing.is_best() { "has" } else { "has no" }, self.0)
    }
}

impl Filter for Has {
    fn refuse(&self, candidate: &MemberRecord, _: &Round<'_>) -> Option<String> {
        (!candidate.attributes.contains_key(&self.0)).then(|| format!("it has no {}", self.0))
    }

    fn ground(&self, _: &MemberRecord) -> Ground {
        Ground::Loss
    }
}

/// The highest id first, whatever else there is.
#[derive(Debug)]
struct HighestId;

impl Strategy for HighestId {
    fn rank(&self, round: &Round<'_>) -> Ranking {
        let mut order: Vec<_> = round.candidates.iter().map(MemberRecord::named).collect();
        order.sort_by(|a, b| b.member.cmp(&a.member));
        let ranked = |named| Ranked::new(named, vec!["highest id".to_owned()]);
        Ranking::new(order.into_iter().map(ranked).collect(), Vec::new())
    }
}

#[derive(Deserialize)]
struct HasSettings {
    attribute: String,
    #[serde(default)]
    refuse: bool,
}

#[derive(Deserialize)]
struct HighestSettings {
    #[serde(default, rename = "from")]
    _from: From,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum From {
    #[default]
    Top,
}

fn registry() -> Registry {
    let has = |settings: HasSettings, _: &[SiteId]| {
        let stage = Has(settings.attribute);
        Ok(if settings.refuse { OwnStage::both(stage) } else { OwnStage::comparison(stage) })
    };
    Registry::default()
        .stage("has", has)
        .and_then(|all| all.stage("gate", |(), _| Ok(OwnStage::filter(Gate))))
        .and_then(|all| all.stage("silent", |(), _| Err("nothing can be made of it".to_owned())))
        .and_then(|all| {
            all.stage("far", |(), _| {
                let needs = Needs::default()
                    .with(|needs| (needs.peers, needs.limited) = (true, ["lag".to_owned()].into()));
                Ok(OwnStage::filter(Passes).needing(needs))
            })
        })
        .and_then(|all| {
            all.strategy("highest-id", |_: HighestSettings, _| {
                Ok(OwnStrategy::new(HighestId).needing(Needs::default().with(|needs| needs.load = true)))
            })
        })
        .unwrap()
}

/// Puts out whom a configuration calls closed.
#[derive(Clone, Debug)]
struct Gate;

impl Filter for Gate {
    fn refuse(&self, candidate: &MemberRecord, _: &Round<'_>) -> Option<String> {
        candidate.attributes.contains_key("closed").then(|| "it is closed".to_owned())
    }
}

/// A filter that passes everybody.
#[derive(Clone, Debug)]
struct Passes;

impl Filter for Passes {
    fn refuse(&self, _: &MemberRecord, _: &Round<'_>) -> Option<String> {
        None
    }
}

fn entries(text: &str) -> Map<String, Value> {
    toml::from_str(text).unwrap()
}

fn read(text: &str) -> PolicySpec {
    registry().read(&entries(text), Inputs::ALL).unwrap_or_else(|error| panic!("{error}"))
}

/// Everything that is wrong, a line each.
fn wrong(text: &str, inputs: Inputs) -> Vec<String> {
    let error = registry().read(&entries(text), inputs).expect_err(text);
    error.to_string().lines().map(str::to_owned).collect()
}

fn stages(spec: &PolicySpec, cause: Cause) -> String {
    let pipeline = spec.pipeline();
    pipeline.for_cause(cause).stages().collect::<Vec<_>>().join(" ")
}

const FIT: &str = "healthy priority not-excluded site-healthy site-open";

#[test]
fn a_stage_of_another_crate_is_one_like_the_others() {
    let spec = read(
        "on_leader_failure = 'prefer-order'\n\
         pipeline = [{ stage = 'has', attribute = 'ssd', refuse = true }, 'gate', 'priority']\n\
         [[rules]]\nwhen = 'startup'\npipeline = [{ stage = 'has', attribute = 'ssd' }]",
    );
    assert_eq!(
        stages(&spec, Cause::LeaderLost),
        format!("{FIT} has gate failed-last fewer-failures has priority member-id")
    );
    assert_eq!(stages(&spec, Cause::Startup), format!("{FIT} has gate failed-last has member-id"));
    let ssd = |id, number| with_attributes(id, "east", number, [("ssd", "yes")]);
    let closed = with_attributes("d", "east", 4, [("ssd", "yes"), ("closed", "yes")]);
    let members = [member("a", "east", 1), ssd("b", 2).with(|m| m.priority = 2), ssd("c", 3), closed];
    let mut view = View::of(members).because(Cause::Switchover);
    let strategy = spec.strategy();
    assert_eq!(order(&*strategy, &view), ["b: highest priority (2)", "c: priority 1"]);
    assert_eq!(refused(&*strategy, &view), ["a (has): it has no ssd", "d (gate): it is closed"]);
    // It says itself that it is about a loss, which an operator may accept.
    view.accepts_loss = true;
    assert_eq!(order(&*strategy, &view)[2], "a: the loss is accepted: it has no ssd");
    let view = View::of([member("a", "east", 1), ssd("b", 2)]);
    assert_eq!(
        order(&*strategy, &view),
        ["b: the only candidate"],
        "whom the pipeline refuses leads by no rule"
    );
}

#[test]
fn what_is_wrong_with_its_settings_is_said_as_of_any_other() {
    let all = |text: &str| wrong(text, Inputs::ALL);
    assert_eq!(
        all("pipeline = ['has', { stage = 'has', atribute = 1, refuse = 'no' }]"),
        [
            "pipeline[0].attribute: it is missing",
            "pipeline[1].refuse: expected true or false, found \"no\"",
            "pipeline[1].attribute: it is missing",
            "pipeline[1].atribute: unknown key; did you mean \"attribute\"?; valid here: stage, attribute, refuse",
        ]
    );
    assert_eq!(
        all("pipeline = [{ stage = 'has', attribute = 'ssd', refuse = 'no' }]"),
        ["pipeline[0].refuse: expected true or false, found \"no\""]
    );
    assert_eq!(
        all("pipeline = ['silent', { stage = 'gate', attribute = 1 }]"),
        ["pipeline[0]: nothing can be made of it", "pipeline[1].attribute: unknown key; valid here: stage",]
    );
    assert_eq!(
        all("pipeline = ['gate', { stage = 'gate' }]"),
        ["pipeline[1]: \"gate\" is listed twice; use each stage once"]
    );
    for unknown in ["pipeline = ['hsa']", "pipeline = [{ stage = 'hsa' }]", "pipeline = [{ stage = 1 }]"] {
        let said = all(unknown).concat();
        assert!(said.contains("is not known; valid: \"site-order\", "), "{said}");
        assert!(said.ends_with("\"fair-share\", \"far\", \"gate\", \"has\", \"silent\""), "{said}");
    }
    assert_eq!(
        wrong("pipeline = ['far']", Inputs::default()),
        ["pipeline[0]: \"far\" cannot be used here: no member publishes its round trips; leave it out"]
    );
}

#[test]
fn what_it_goes_by_is_measured_where_a_policy_names_it() {
    assert!(read("pipeline = ['gate']").needs().is_none());
    let limited = ["lag".to_owned()].into();
    let expected = Needs::default().with(|needs| (needs.peers, needs.limited) = (true, limited));
    assert_eq!(read("pipeline = ['gate', 'far']").needs(), expected);
    assert_eq!(read("strategy = 'highest-id'").needs(), Needs::default().with(|needs| needs.load = true));
}

#[test]
fn policies_are_alike_where_names_and_settings_are() {
    let ssd = "pipeline = [{ stage = 'has', attribute = 'ssd' }]";
    assert_eq!(read(ssd), read(ssd));
    assert_eq!(format!("{:?}", read(ssd)), format!("{:?}", read(ssd)));
    for other in ["pipeline = ['gate']", "pipeline = [{ stage = 'has', attribute = 'hdd' }]"] {
        assert_ne!(read(ssd), read(other));
        assert_ne!(format!("{:?}", read(ssd)), format!("{:?}", read(other)));
    }
}

#[test]
fn a_stage_has_settings_of_any_type_and_knows_the_sites() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct All {
        one: String,
        number: f64,
        whole: u8,
        free: Vec<bool>,
        more: Option<Free>,
    }

    /// Refuses one number.
    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(try_from = "i64")]
    struct Free(i64);

    impl TryFrom<i64> for Free {
        type Error = &'static str;

        fn try_from(number: i64) -> Result<Self, Self::Error> {
            if number == 3 { Err("not this one") } else { Ok(Self(number)) }
        }
    }

    let make = |settings: All, known: &[SiteId]| {
        assert_eq!(known, sites(["east", "west"]));
        let expected =
            All { one: "a".to_owned(), number: 0.5, whole: 3, free: vec![true], more: Some(Free(4)) };
        assert_eq!(settings, expected);
        Ok(OwnStage::filter(Passes))
    };
    let registry = Registry::default().stage("all", make).unwrap();
    let with = |settings: &str| {
        let policy =
            entries(&format!("sites = ['east', 'west']\npipeline = [{{ stage = 'all', {settings} }}]"));
        registry.read(&policy, Inputs::default()).map(drop).map_err(|error| error.to_string())
    };
    with("one = 'a', whole = 3, number = 0.5, free = [true], more = 4").unwrap();
    let all = "pipeline[0].one: it is empty; leave it out instead\n\
               pipeline[0].whole: expected an integer, found true\n\
               pipeline[0].free[1]: expected true or false, found the integer 1\n\
               pipeline[0].more: not this one\n\
               pipeline[0].mor: unknown key; did you mean \"more\"?; valid here: stage, one, number, whole, free, more\n\
               pipeline[0].number: it is missing";
    let error = with("one = '', whole = true, free = [true, 1], more = 3, mor = 4").unwrap_err();
    assert_eq!(error, all);
}

#[test]
fn before_a_whole_strategy_goes_what_no_policy_may_leave_out() {
    let text = "sites = ['east', 'west']\nforbidden_sites = ['lab']\nsite_minimum = 2\nstrategy = 'highest-id'\n\
                pipeline = [{ stage = 'limit', attribute = 'lag', at_most = 10, missing = 'passes' }, 'gate']";
    for (auto_moves, better) in [("none", "incumbent "), ("in-site", "same-site "), ("all", "")] {
        let spec = read(&format!("auto_moves = '{auto_moves}'\n{text}"));
        for cause in Cause::ALL {
            let ahead = match cause {
                Cause::BetterCandidate => better,
                cause if cause.is_failure() => "failed-last ",
                _ => "",
            };
            let expected = format!("{FIT} site-allowed limit gate {ahead}site-minimum highest-id");
            assert_eq!(stages(&spec, cause), expected, "{cause} {auto_moves}");
        }
    }
    let spec = read(text);
    let mut view = View::of([
        member("a", "east", 1),
        member("b", "east", 2),
        with_priority("c", "east", 3, 0),
        unhealthy("d", "east", 4, "no disk"),
        with_attributes("e", "east", 5, [("lag", "11")]),
        member("f", "lab", 6),
        member("g", "west", 7),
        member("h", "south", 8),
    ])
    .because(Cause::Failover);
    view.control.drained = sites(["west"]);
    let strategy = spec.strategy();
    assert_eq!(
        order(&*strategy, &view),
        [
            "b: site east has 3 fit members of at least 2; highest id; lag is not known",
            "a: site east has 3 fit members of at least 2; highest id; lag is not known",
            "h: site south has 1 fit member of at least 2; highest id; lag is not known",
        ]
    );
    let out: Vec<_> =
        refused(&*strategy, &view).iter().map(|line| line.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(out, ["c (priority)", "d (healthy)", "e (limit)", "f (site-allowed)", "g (site-open)"]);
    view.accepts_loss = true;
    let last = order(&*strategy, &view).pop().unwrap();
    assert!(last.starts_with("e: ") && last.contains("the loss is accepted: lag is 11"), "{last}");
}

#[test]
fn a_whole_strategy_moves_no_leader_that_is_to_stay_and_gives_none_back_that_failed() {
    let members = || [member("a", "east", 1), member("b", "east", 2), member("c", "west", 3)];
    let first = |auto_moves: &str, view: &View| {
        let spec = read(&format!("strategy = 'highest-id'\nauto_moves = '{auto_moves}'"));
        spec.strategy().rank(&view.round()).first().unwrap().named.member.to_string()
    };
    let led = View::of(members()).led_by("a").because(Cause::BetterCandidate);
    assert_eq!(first("none", &led), "a");
    assert_eq!(first("in-site", &led), "b");
    assert_eq!(first("all", &led), "c");
    // Forced away from a leader that is alive.
    let mut forced = View::of(members()).led_by("c").because(Cause::Failover);
    forced.failed = forced.previous.clone();
    assert_eq!(first("none", &forced), "b");
}

#[test]
fn beside_a_whole_strategy_nothing_else_orders_the_candidates() {
    let decides =
        |key: &str| format!("{key}: the strategy \"highest-id\" decides that; leave one of the two out");
    assert_eq!(
        wrong(
            "strategy = 'highest-id'\nspread = 'sites'\non_leader_failure = 'other-site'\npipeline = ['gate', 'has']\n\
             [[rules]]\nwhen = 'startup'\npipeline = ['gate']",
            Inputs::ALL
        ),
        [
            "pipeline[1].attribute: it is missing".to_owned(),
            decides("on_leader_failure"),
            decides("spread"),
            decides("rules"),
        ]
    );
    assert_eq!(
        wrong(
            "strategy = { name = 'highest-id', from = 'top' }\npipeline = ['gate', 'site-order']",
            Inputs::ALL
        ),
        [
            "pipeline[1]: the strategy \"highest-id\" orders the candidates: a pipeline next to it can only have \
          stages that refuse candidates, such as \"limit\""
        ]
    );
    for (text, message) in [
        ("strategy = 'lowest-id'", "strategy: \"lowest-id\" is not known; valid: \"highest-id\""),
        ("strategy = {}", "strategy.name: it is missing: the name of the strategy"),
        (
            "strategy = 1",
            "strategy: expected the name of a strategy, or a table with it as \"name\", found the integer 1",
        ),
        (
            "strategy = { name = 'highest-id', to = 'top' }",
            "strategy.to: unknown key; valid here: name, from",
        ),
        (
            "strategy = { name = 'highest-id', from = 'below' }",
            "strategy.from: \"below\" is not known; valid: \"top\"",
        ),
    ] {
        assert_eq!(wrong(text, Inputs::ALL), [message]);
    }
    let none =
        PolicySpec::read(&entries("strategy = 'highest-id'"), Inputs::default()).unwrap_err().to_string();
    assert_eq!(none, "strategy: this program has no strategies of its own; leave it out");
}

#[test]
fn what_a_job_says_goes_over_what_all_jobs_have() {
    let over = |under: &str, news: &str| {
        let mut all = entries(under);
        drop(registry().read_over(&mut all, entries(news), Inputs::ALL));
        all
    };
    let usual = "sites = ['east']\nspread = 'sites'\npipelines = { near = ['priority'] }\n\
                 pipeline = ['site-order', { stage = 'limit', attribute = 'lag', at_most = 1 }]\n\
                 [[rules]]\nwhen = 'startup'\npipeline = 'near'";
    // The order goes, the limit stays.
    assert_eq!(
        over(usual, "strategy = 'highest-id'"),
        entries(
            "sites = ['east']\nstrategy = 'highest-id'\n\
             pipeline = [{ stage = 'limit', attribute = 'lag', at_most = 1 }]"
        )
    );
    let named =
        "pipelines = { near = [{ stage = 'limit', attribute = 'lag', at_most = 2 }] }\npipeline = 'near'";
    assert_eq!(
        over(named, "strategy = 'highest-id'"),
        entries("strategy = 'highest-id'\npipeline = [{ stage = 'limit', attribute = 'lag', at_most = 2 }]")
    );
    assert_eq!(
        over(usual, "strategy = 'highest-id'\npipeline = ['gate']"),
        entries("sites = ['east']\nstrategy = 'highest-id'\npipeline = ['gate']")
    );
    let own = "sites = ['east']\nstrategy = 'highest-id'";
    assert_eq!(over(own, "pipeline = ['priority']"), entries("sites = ['east']\npipeline = ['priority']"));
    assert_eq!(over(own, "sites = ['west']"), entries("sites = ['west']\nstrategy = 'highest-id'"));
    // A site that is forbidden leaves the order that it is not named in.
    assert_eq!(
        over("sites = ['east', 'west']", "forbidden_sites = ['west']"),
        entries("sites = ['east']\nforbidden_sites = ['west']")
    );
    let both = "sites = ['west', 'east']\nforbidden_sites = ['west']";
    assert_eq!(over("sites = ['east', 'west']", both), entries(both));
}

#[test]
fn a_rule_does_not_forget_what_may_be_lost() {
    let spec = read(
        "pipeline = [{ stage = 'limit', attribute = 'lag', at_most = 10 }, 'gate', 'site-order']\n\
         [[rules]]\nwhen = 'failure'\npipeline = ['priority']\n\
         [[rules]]\nwhen = 'startup'\npipeline = [{ stage = 'limit', attribute = 'lag', at_most = 99 }, 'priority']",
    );
    assert_eq!(stages(&spec, Cause::LeaderLost), format!("{FIT} limit gate failed-last priority member-id"));
    assert_eq!(stages(&spec, Cause::Startup), format!("{FIT} gate limit failed-last priority member-id"));
    let lags = |id, number, lag| with_attributes(id, "east", number, [("lag", lag)]);
    let mut view = View::of([lags("a", 1, "9"), lags("b", 2, "50"), lags("c", 3, "100")]);
    assert_eq!(refused(&*spec.strategy(), &view), ["c (limit): lag is 100 and the limit is 99"]);
    view.cause = Cause::LeaderLost;
    assert_eq!(refused(&*spec.strategy(), &view).len(), 2);
}
