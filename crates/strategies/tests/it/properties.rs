//! What holds for any input.
//!
//! A failure prints the shrunk input and is kept beside this file, so that it is
//! tried first from then on.

use election_core::strategy::{
    Ballot, Cause, Control, Exclusion, Ground, Health, MemberFailure, MemberId, MemberRecord, Ranking,
    Refused, SiteTrouble, Strategy as _, Trouble, Windows,
};
use proptest::{prelude::*, sample::subsequence};
use serde_json::{Map, Value};
use strategies::{
    AutoMoves, BelowSiteMinimum, OnLeaderFailure, Pipeline, PolicySpec, SlotSpread, Steadiness,
    other_jobs::{LedBy, OtherJob},
    spec::Inputs,
    stages::{self, Distance, Latency, Minimum, Strength},
    testing::{NOW_MS, View, ballot, exclusion, previous, sites, with_attributes},
};

const SITES: [&str; 4] = ["east", "west", "north", "south"];
/// Few, so that ballots meet exclusions, incumbents and failed leaders.
const BALLOTS: u32 = 12;

fn any_site() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&SITES[..])
}

fn any_sites() -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(&SITES[..], 0..=SITES.len()).prop_shuffle()
}

prop_compose! {
    fn any_member()(
        id in "[a-f]",
        site in any_site(),
        sequence in 0..BALLOTS,
        priority in prop_oneof![4 => 1..4_i64, 1 => -1..1_i64, 1 => any::<i64>()],
        health in prop_oneof![
            4 => Just(Health::Healthy),
            1 => "[ a-z\n]{0,9}".prop_map(|reason| Health::Unhealthy { reason }),
        ],
        class in prop::sample::select(&["", "prefer", "neutral", "avoid", "never", "nevr, x"][..]),
        cores in prop_oneof![(0..20_u32).prop_map(|n| n.to_string()), Just("many".to_owned())],
        software in prop::sample::select(&["", "dr-worker 1.4.0", "dr-worker 1.10", "by, hand"][..]),
        capacity in prop::sample::select(&["0", "3", "many"][..]),
        load in prop::sample::select(&["0", "1", "3", "x"][..]),
    ) -> MemberRecord {
        let attributes = [
            ("class", class),
            ("cores", &cores),
            ("capacity", capacity),
            ("dr.load", load),
        ];
        let software = software.to_owned();
        with_attributes(&id, site, sequence, attributes).with(|m| (m.priority, m.health, m.software) = (priority, health, software))
    }
}

/// Members as they can be registered: no two of one id, no two of one ballot.
fn distinct(mut members: Vec<MemberRecord>) -> Vec<MemberRecord> {
    for (index, member) in members.iter_mut().enumerate() {
        member.member = MemberId::new(format!("{}-{index}", member.member)).unwrap();
        let sequence = member.ballot.sequence() + i64::from(BALLOTS) * index as i64;
        member.ballot = Ballot::new(format!("guid-{sequence:010}")).unwrap();
    }
    members
}

fn any_exclusion() -> impl Strategy<Value = Exclusion> {
    let until = prop_oneof![NOW_MS - 5..NOW_MS + 5, any::<u64>()];
    (0..BALLOTS, until).prop_map(|(sequence, until)| exclusion(sequence, until))
}

fn any_failure() -> impl Strategy<Value = MemberFailure> {
    ("[a-f]", "[a-z, ]{0,9}")
        .prop_map(|(id, cause)| MemberFailure::new(id.parse().unwrap(), cause, 1, NOW_MS))
}

/// Mostly none: a round in which everybody is out says little.
fn any_site_trouble() -> impl Strategy<Value = Vec<SiteTrouble>> {
    let trouble = |site| SiteTrouble::new(site, "somehow");
    (any_sites(), 0..4).prop_map(move |(all, some)| {
        if some == 0 { sites(all).into_iter().map(trouble).collect() } else { Vec::new() }
    })
}

prop_compose! {
    fn any_control()(drained in any_sites(), preferred in prop::option::of(any_site()), some in 0..4)
        -> Control
    {
        Control::default().with(|control| {

            // Mostly open: a round in which everybody is out says little.
control.drained = if some == 0 { sites(drained) } else { Vec::new() };
control.preferred_site = sites(preferred).pop();
})
    }
}

prop_compose! {
    /// Anything, even members that share an id or a ballot.
    fn any_view()(
        cause in prop::sample::select(&Cause::ALL[..]),
        members in prop::collection::vec(any_member(), 0..9),
        incumbent in prop::option::of(0..BALLOTS),
        failed in prop::option::of(("[a-f]", any_site(), 0..BALLOTS)),
        before in prop::option::of(("[a-f]", any_site(), 0..BALLOTS)),
        others in prop::collection::vec(any_member(), 0..4),
        exclusions in prop::collection::vec(any_exclusion(), 0..4),
        failures in prop::collection::vec(any_failure(), 0..5),
        wrong in (any_site_trouble(), any_site_trouble()),
        control in any_control(),
    ) -> View {
        View {
            cause,
            unix_ms: NOW_MS,
            members,
            incumbent: incumbent.map(ballot),
            ordered: None,
            accepts_loss: false,
            failed: failed.map(|(id, site, sequence)| previous(&id, site, sequence)),
            previous: before.map(|(id, site, sequence)| previous(&id, site, sequence)),
            others: others.iter().map(MemberRecord::named).collect(),
            exclusions,
            trouble: Trouble::default().with(|trouble| {
                (trouble.failures, trouble.failed_sites, trouble.barred_sites) = (failures, wrong.0, wrong.1);
            }),
            control,
        }
    }
}

prop_compose! {
    fn any_policy()(
        sites in any_sites(),
        on_leader_failure in prop::sample::select(&[
            OnLeaderFailure::OtherSite,
            OnLeaderFailure::PreferOrder,
            OnLeaderFailure::SameSiteFirst,
        ][..]),
        auto_moves in prop::sample::select(&[AutoMoves::None, AutoMoves::InSite, AutoMoves::All][..]),
        spread in prop::sample::select(&[SlotSpread::None, SlotSpread::Sites][..]),
    ) -> PolicySpec {
        PolicySpec::for_sites(self::sites(sites)).with(|policy| {
            (policy.on_leader_failure, policy.auto_moves, policy.spread) = (on_leader_failure, auto_moves, spread);
        })
    }
}

/// Any stages in any order.
fn any_pipeline() -> impl Strategy<Value = Pipeline> {
    // Those of the match below.
    let stages: Vec<usize> = (0..26).collect();
    let all = stages.len();
    (subsequence(stages, 0..=all).prop_shuffle(), any_sites(), any_steadiness()).prop_map(
        |(chosen, order, steadiness)| {
            chosen.into_iter().fold(Pipeline::bare(), |pipeline, stage| match stage {
                0 => pipeline.filter(stages::Healthy),
                1 => pipeline.filter(stages::Priority),
                2 => pipeline.filter(stages::NotExcluded),
                3 => pipeline.filter(stages::SiteOpen),
                4 => pipeline.compare(stages::SiteOrder::new(sites(order.iter().copied()))),
                5 => pipeline.compare(stages::OtherSite),
                6 => pipeline.compare(stages::SameSite),
                7 => pipeline.compare(stages::FailedLast),
                8 => pipeline.compare(stages::Incumbent),
                9 => pipeline.compare(stages::Priority),
                10 => pipeline.compare(stages::Spread::new(sites(order.iter().copied()))),
                11 => pipeline.compare(stages::RoundRobin),
                12 => pipeline.filter(stages::Class::default()),
                13 => pipeline.compare(stages::Class::default()),
                14 => pipeline.filter(stages::Software::default().at_least(version("1.5"))),
                15 => pipeline.compare(stages::Software::first(stages::FirstVersion::Oldest)),
                16 => pipeline.compare(score(steadiness)),
                18 => pipeline.compare(stages::FewerFailures),
                17 => pipeline.filter(stages::Limit::new("cores", 12.0)),
                19 => pipeline.filter(stages::SiteAllowed::except(sites(order.iter().copied()))),
                20 => pipeline.filter(with_job(Strength::Require)).compare(with_job(Strength::Prefer)),
                21 => pipeline.filter(with_job(Strength::Apart)).compare(with_job(Strength::Avoid)),
                22 => pipeline.compare(stages::Capacity::of(2)),
                23 => pipeline.compare(hours(order.iter().copied())),
                24 => pipeline.compare(stages::YoungestBallot),
                _ => pipeline.compare(stages::OldestBallot),
            })
        },
    )
}

fn any_steadiness() -> impl Strategy<Value = Steadiness> {
    (0..400_u64, 0..400_u64).prop_map(|(tolerance, margin)| Steadiness { tolerance, margin })
}

fn version(text: &str) -> stages::Version {
    stages::Version::parse(text).unwrap()
}

fn score(steadiness: Steadiness) -> stages::Score {
    let (attribute, missing) = ("cores".to_owned(), stages::Missing::Middle);
    let term = stages::Term { attribute, weight: 2, worst: 0.0, best: 16.0, missing };
    stages::Score::new([term], steadiness).unwrap()
}

fn with_job(strength: Strength) -> stages::WithJob {
    let by = |id, site| LedBy::new(&with_attributes(id, site, 1, []).named());
    let db = OtherJob::Led(vec![by("a", "east"), by("b", "west")]);
    stages::WithJob::new("db", stages::Within::Site, strength).seeing(&[("db".to_owned(), db)].into())
}

/// The first of these sites is within its hours, the second is not, the third is always.
fn hours<'a>(order: impl Iterator<Item = &'a str>) -> stages::Hours {
    let texts = ["Thu 14:00-15:00", "Fri 14:00-15:00", "00:00-24:00"];
    let read = |(site, text)| (sites([site]).remove(0), Windows::read(&[text]).unwrap());
    stages::Hours::of(order.zip(texts).map(read))
}

/// A policy as it is written down.
fn any_spec() -> impl Strategy<Value = PolicySpec> {
    let names = [
        "site-order",
        "other-site",
        "same-site",
        "spread",
        "incumbent",
        "class",
        "software",
        "priority",
        "oldest-ballot",
        "youngest-ballot",
        "fewer-failures",
        "fair-share",
        "capacity",
    ];
    let score = r#"{ stage = "score", margin = 50, attributes = { cores = { worst = 0, best = 16 } } }"#;
    let more = [
        score,
        r#"{ stage = "with-job", job = "db", place = "site", strength = "require" }"#,
        r#"{ stage = "with-job", job = "web", strength = "apart" }"#,
    ];
    let stages = names.map(|name| format!("{name:?}")).into_iter().chain(more.map(str::to_owned));
    let stages: Vec<_> = stages.collect();
    let pipeline = move || {
        (subsequence(stages.clone(), 1..=4).prop_shuffle(), any::<bool>()).prop_map(
            |(mut stages, is_last)| {
                stages.extend(is_last.then(|| "\"round-robin\"".to_owned()));
                format!("pipeline = [{}]\n", stages.join(", "))
            },
        )
    };
    let causes = subsequence(&["failure", "startup", "switchover", "member-joined"][..], 0..3);
    let rules = causes.prop_flat_map({
        let pipeline = pipeline.clone();
        move |causes| {
            let rule = |cause| pipeline().prop_map(move |p| format!("[[rules]]\nwhen = {cause:?}\n{p}"));
            causes.into_iter().map(rule).collect::<Vec<_>>()
        }
    });
    let on_failure = prop::sample::select(&["other-site", "prefer-order", "same-site-first"][..]);
    (any_sites(), on_failure, prop_oneof![1 => Just(String::new()), 5 => pipeline()], rules).prop_map(
        |(sites, on_failure, order, rules)| {
            let text =
                format!("sites = {sites:?}\non_leader_failure = {on_failure:?}\n{order}{}", rules.concat());
            let entries: Map<String, Value> = toml::from_str(&text).unwrap();
            PolicySpec::read(&entries, Inputs::ALL).unwrap_or_else(|error| panic!("{error}\n{text}"))
        },
    )
}

/// The pipeline of a policy from code or from text, or any other.
fn any_strategy() -> impl Strategy<Value = Pipeline> {
    prop_oneof![
        any_policy().prop_map(|policy| policy.pipeline()),
        any_spec().prop_map(|policy| policy.pipeline()),
        any_pipeline(),
    ]
}

/// The ballots of those in the order, best first.
fn order(ranking: &Ranking) -> Vec<&Ballot> {
    ranking.order.iter().map(|r| &r.named.ballot).collect()
}

fn first(ranking: &Ranking) -> Option<Ballot> {
    ranking.first().map(|r| r.named.ballot.clone())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn everybody_is_ranked_or_refused_once_and_with_a_reason(
        strategy in any_strategy(),
        view in any_view(),
    ) {
        let ranking = strategy.rank(&view.round());
        let ranked = ranking.order.iter().map(|r| &r.named);
        let refused = ranking.refused.iter().map(|r| &r.named);
        let key = |named: &election_core::strategy::Named| {
            (named.member.clone(), named.ballot.clone(), named.site.clone())
        };
        let mut answered: Vec<_> = ranked.chain(refused).map(key).collect();
        let mut asked: Vec<_> = view.members.iter().map(|m| key(&m.named())).collect();
        answered.sort();
        asked.sort();
        prop_assert_eq!(answered, asked);

        for ranked in &ranking.order {
            prop_assert!(!ranked.reasons.is_empty(), "{:?}", ranked);
            for reason in &ranked.reasons {
                prop_assert!(!reason.trim().is_empty(), "{:?}", ranked);
                prop_assert!(!reason.contains(", ") && !reason.contains('\n'), "{:?}", ranked);
            }
        }
        for refused in &ranking.refused {
            prop_assert!(!refused.stage.is_empty(), "{:?}", refused);
            prop_assert!(!refused.reason.trim().is_empty(), "{:?}", refused);
            prop_assert!(!refused.reason.contains('\n'), "{:?}", refused);
        }
    }

    /// Of any two that are ranked, one comparison put the first before the other, and has
    /// said so of both.
    #[test]
    fn what_separates_two_candidates_is_said_with_both_values(
        strategy in any_strategy(),
        view in any_view(),
    ) {
        let view = View { members: distinct(view.members.clone()), ..view };
        let ranking = strategy.rank(&view.round());
        for (place, first) in ranking.order.iter().enumerate() {
            for other in &ranking.order[place + 1..] {
                let decider = first.ahead_of(other);
                prop_assert!(decider.is_some(), "{:?} before {:?}", first, other);
                let decider = decider.unwrap();
                prop_assert!(first.reasons.iter().any(|r| r == decider.first));
                prop_assert!(other.reasons.iter().any(|r| r == decider.other));
                prop_assert!(other.ahead_of(first).is_none_or(|d| d.stage != decider.stage));
            }
        }
    }

    #[test]
    fn same_input_same_output_in_whatever_order_it_comes(
        strategy in any_strategy(),
        (view, shuffled) in any_view().prop_flat_map(|view| {
            let shuffled = (
                Just(view.members.clone()).prop_shuffle(),
                Just(view.exclusions.clone()).prop_shuffle(),
                Just(view.control.drained.clone()).prop_shuffle(),
            );
            (Just(view), shuffled)
        }),
    ) {
        let (members, exclusions, drained) = shuffled;
        let mut other = View { members, exclusions, ..view.clone() };
        other.control.drained = drained;
        prop_assert_eq!(strategy.rank(&view.round()), strategy.rank(&view.round()));
        prop_assert_eq!(strategy.rank(&view.round()), strategy.rank(&other.round()));
    }

    /// The order of the whole is that of each pair, beside the incumbent, whose site can count. So it is total, and
    /// it can't be circular.
    #[test]
    fn the_order_is_total(strategy in any_strategy(), view in any_view()) {
        let view = View { members: distinct(view.members.clone()), ..view };
        let ranking = strategy.rank(&view.round());
        let order = order(&ranking);
        for (index, better) in order.iter().enumerate() {
            for worse in &order[index + 1..] {
                let is_of_pair = |ballot: &&Ballot| [*better, *worse].contains(ballot);
                let few = view.members.iter().filter(|m| {
                    is_of_pair(&&m.ballot) || view.incumbent.as_ref() == Some(&m.ballot)
                });
                let few = View { members: few.cloned().collect(), ..view.clone() };
                let ranking = strategy.rank(&few.round());
                let pair: Vec<_> = self::order(&ranking).into_iter().filter(is_of_pair).collect();
                prop_assert_eq!(pair, [*better, *worse]);
            }
        }
    }

    /// So a member that joins and ranks last changes nothing above it, and one that
    /// is refused changes nothing at all.
    #[test]
    fn one_more_or_less_changes_nothing_among_the_others(
        strategy in any_strategy(),
        view in any_view(),
        without in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!view.members.is_empty());
        let view = View { members: distinct(view.members.clone()), ..view };
        let mut fewer = view.clone();
        let gone = fewer.members.remove(without.index(fewer.members.len())).ballot;
        // Without the incumbent the question is another one: its site counts, and no better candidate is looked for.
        prop_assume!(view.incumbent.as_ref() != Some(&gone));

        let (before, after) = (strategy.rank(&view.round()), strategy.rank(&fewer.round()));
        let mut expected = order(&before);
        expected.retain(|ballot| **ballot != gone);
        prop_assert_eq!(expected, order(&after));
        let others = before.refused.iter().filter(|r| r.named.ballot != gone);
        prop_assert!(others.eq(&after.refused));
        if before.refusal(&gone).is_some() {
            prop_assert!(before.order == after.order, "a refused member changed the reasons");
        }
    }

    /// Whatever the stages: where nothing changes, leadership moves once at most.
    #[test]
    fn nobody_is_better_than_who_was_better(strategy in any_strategy(), view in any_view()) {
        let members = distinct(view.members.clone());
        let mut view = View { cause: Cause::BetterCandidate, members, ..view };
        view.incumbent = view.members.first().map(|m| m.ballot.clone());
        let better = first(&strategy.rank(&view.round()));
        view.incumbent = better.clone();
        prop_assert_eq!(first(&strategy.rank(&view.round())), better);
    }

    /// What somebody's word moves, it moves once: whoever follows is refused by none, and
    /// whoever made room may still not lead, so it is not better either.
    #[test]
    fn who_makes_room_for_an_order_is_not_named_again(strategy in any_strategy(), view in any_view()) {
        let members = distinct(view.members.clone());
        let mut view = View { members, cause: Cause::BetterCandidate, ..view };
        let ranking = strategy.rank(&view.round());
        let leads_against = |r: &&Refused| r.ground == Ground::Order && view.incumbent.as_ref() == Some(&r.named.ballot);
        if let (Some(refused), Some(next)) = (ranking.refused.iter().find(leads_against), first(&ranking)) {
            let before = refused.named.ballot.clone();
            view.incumbent = Some(next.clone());
            let then = strategy.rank(&view.round());
            prop_assert!(then.refusal(&next).is_none_or(|r| r.ground != Ground::Order), "{:?}", then);
            prop_assert!(then.refusal(&before).is_some(), "{:?}", then);
        }
    }

    #[test]
    fn without_moves_by_itself_whoever_leads_is_the_best(spec in any_spec(), view in any_view()) {
        let strategy = spec.strategy();
        let mut view = View { members: distinct(view.members.clone()), ..view };
        let winner = first(&strategy.rank(&view.round()));
        view.cause = Cause::BetterCandidate;
        view.incumbent = winner.clone();
        let ranking = strategy.rank(&view.round());
        // A rule may have let somebody lead who otherwise could not.
        let Some(winner) = winner.filter(|winner| ranking.refusal(winner).is_none()) else { return Ok(()) };
        prop_assert_eq!(first(&ranking), Some(winner));
    }

    #[test]
    fn it_settles_at_once(policy in any_policy(), view in any_view()) {
        let strategy = policy.strategy();
        let mut view = View { members: distinct(view.members.clone()), ..view };
        let winner = first(&strategy.rank(&view.round()));

        // Whoever won, for whatever cause, is in office when the next question is asked.
        view.cause = Cause::BetterCandidate;
        view.incumbent = winner.clone();
        let better = first(&strategy.rank(&view.round()));
        let site = |ballot: &Option<Ballot>| {
            let member = view.members.iter().find(|m| Some(&m.ballot) == ballot.as_ref());
            member.map(|m| m.site.clone())
        };
        match policy.site_policy.auto_moves {
            AutoMoves::None => prop_assert_eq!(&better, &winner, "nothing moves by itself, and yet it moved"),
            AutoMoves::InSite => prop_assert_eq!(site(&better), site(&winner), "it left its site"),
            AutoMoves::All => {}
            other => prop_assert!(false, "{other} has no rule here"),
        }
        view.incumbent = better.clone();
        prop_assert_eq!(first(&strategy.rank(&view.round())), better, "it moves on and on");
    }

    #[test]
    fn after_a_failure_the_other_site_and_never_the_failed_one_if_anybody_else_can(
        policy in any_policy(),
        view in any_view(),
        failed in any::<prop::sample::Index>(),
    ) {
        prop_assume!(view.cause.is_failure() && !view.members.is_empty());
        let members = distinct(view.members.clone());
        let leader = members[failed.index(members.len())].named();
        let view = View { members, failed: Some(leader.as_previous()), ..view };

        let ranking = policy.strategy().rank(&view.round());
        let Some(first) = ranking.first() else { return Ok(()) };
        let any = |is: &dyn Fn(&election_core::strategy::Named) -> bool| {
            ranking.order.iter().any(|r| is(&r.named))
        };
        if any(&|named| named.ballot != leader.ballot) {
            prop_assert_ne!(&first.named.ballot, &leader.ballot);
        }
        // Where other slots are led from goes before where it failed.
        if policy.site_policy.spread == SlotSpread::Sites && !view.others.is_empty() {
            return Ok(());
        }
        let elsewhere = any(&|named| named.site != leader.site);
        let beside = any(&|n| n.site == leader.site && n.ballot != leader.ballot);
        match policy.site_policy.on_leader_failure {
            OnLeaderFailure::OtherSite if elsewhere => {
                prop_assert_ne!(&first.named.site, &leader.site);
            }
            OnLeaderFailure::SameSiteFirst if beside => {
                prop_assert_eq!(&first.named.site, &leader.site);
            }
            _ => {}
        }
    }

    #[test]
    fn waiting_is_for_the_first_decision_and_a_site_that_nobody_can_lead_from(
        strategy in any_strategy(),
        view in any_view(),
    ) {
        let ranking = strategy.rank(&view.round());
        if let Some(why) = &ranking.worth_waiting {
            prop_assert_eq!(view.cause, Cause::Startup);
            prop_assert!(!ranking.order.is_empty());
            let named = |site: &&&str| why.contains(&format!("site {site} "));
            let site = SITES.iter().find(named).unwrap();
            prop_assert!(ranking.order.iter().all(|r| r.named.site.as_str() != *site));
            prop_assert!(view.others.iter().all(|other| other.site.as_str() != *site));
            prop_assert!(view.control.drained.iter().all(|s| s.as_str() != *site));
        }
    }
}

/// Members with round trips among them, some of which are not measured.
fn any_mesh() -> impl Strategy<Value = View> {
    (2..7_usize).prop_flat_map(|count| {
        let trip = prop_oneof![3 => (0..8_u32).prop_map(|n| Some(n * 1000)), 1 => Just(None)];
        let trips = prop::collection::vec(trip, count * count);
        (trips, prop::option::of(0..count)).prop_map(move |(trips, incumbent)| {
            let id = |n: usize| format!("n-{n}");
            let members = (0..count).map(|n| {
                let mut member = with_attributes(&id(n), "east", u32::try_from(n).unwrap(), []);
                let row = trips[n * count..(n + 1) * count].iter().enumerate().filter(|(to, _)| *to != n);
                let known = row.filter_map(|(to, trip)| Some((id(to).parse().unwrap(), (*trip)?)));
                member.round_trips.peers = known.collect();
                member
            });
            let incumbent = incumbent.map(|n| ballot(u32::try_from(n).unwrap()));
            View { cause: Cause::BetterCandidate, incumbent, ..View::of(members) }
        })
    })
}

fn any_distance() -> impl Strategy<Value = Distance> {
    prop_oneof![Just(Distance::Majority), Just(Distance::Mean), Just(Distance::Worst),]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn by_latency_whoever_is_not_measured_changes_nothing_and_it_settles(
        of in any_distance(),
        steadiness in (0..3000_u64, 0..3000_u64).prop_map(|(tolerance, margin)| Steadiness { tolerance, margin }),
        (view, shuffled) in any_mesh().prop_flat_map(|view| {
            let members = Just(view.members.clone()).prop_shuffle();
            (Just(view), members)
        }),
    ) {
        let latency = Pipeline::new().compare(Latency::new(of, steadiness));
        let ranking = latency.rank(&view.round());
        prop_assert_eq!(&ranking, &latency.rank(&View { members: shuffled, ..view.clone() }.round()));

        let mut more = view.clone();
        more.members.push(with_attributes("new", "west", 99, []));
        let with_more = latency.rank(&more.round());
        let mut order = order(&with_more);
        order.retain(|one| **one != ballot(99));
        prop_assert_eq!(order, self::order(&ranking));

        let better = first(&ranking);
        let next = View { incumbent: better.clone(), ..view };
        prop_assert_eq!(first(&latency.rank(&next.round())), better);
    }
}

/// A comparison that looks at other candidates, too, and one that does not behind it.
fn any_that_looks_around() -> impl Strategy<Value = Pipeline> {
    (1..5_u32, any_sites()).prop_map(|(least, order)| {
        let order = stages::SiteOrder::new(sites(order));
        let fit =
            Pipeline::bare().filter(stages::Healthy).filter(stages::Priority).filter(stages::NotExcluded);
        fit.compare(stages::SiteMinimum::new(stages::Minimum::All(least), order.clone())).compare(order)
    })
}

/// How many of a site are fit.
fn fit_members(view: &View, ranking: &Ranking, site: &str) -> usize {
    let ranked = ranking.order.iter().filter(|r| r.named.site.as_str() == site).count();
    ranked + view.others.iter().filter(|other| other.site.as_str() == site).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// What a stage makes of the other candidates depends neither on their order nor on who leads, so
    /// leadership moves once at most.
    #[test]
    fn what_looks_at_others_is_pure_and_settles(
        pipeline in any_that_looks_around(),
        (view, shuffled) in any_view().prop_flat_map(|view| {
            let view = View { members: distinct(view.members.clone()), ..view };
            let members = Just(view.members.clone()).prop_shuffle();
            (Just(view), members)
        }),
    ) {
        let ranking = pipeline.rank(&view.round());
        prop_assert_eq!(&ranking, &pipeline.rank(&View { members: shuffled, ..view.clone() }.round()));
        prop_assert_eq!(ranking.order.len() + ranking.refused.len(), view.members.len());
        let mut next = View { cause: Cause::BetterCandidate, failed: None, ..view };
        let better = first(&pipeline.rank(&next.round()));
        next.incumbent = better.clone();
        prop_assert_eq!(first(&pipeline.rank(&next.round())), better);
    }

    /// A site with too few is led from only where no site with a candidate has enough.
    #[test]
    fn a_site_with_too_few_goes_behind_those_with_enough(
        least in 2..5_u32,
        policy in any_policy(),
        view in any_view(),
    ) {
        let mut view = View { members: distinct(view.members.clone()), ..view };
        // What failed, or hands over, is counted in a way of its own: see the stage's tests.
        (view.incumbent, view.failed, view.previous) = (None, None, None);
        let policy = policy.with(|policy| policy.site_minimum = Minimum::All(least));
        let ranking = policy.strategy().rank(&view.round());
        let Some(first) = ranking.first() else { return Ok(()) };
        // Where a whole site is closed none of its members is a candidate.
        let enough = |site: &str| fit_members(&view, &ranking, site) >= least as usize;
        let site = first.named.site.as_str();
        prop_assert!(enough(site) || ranking.order.iter().all(|r| !enough(r.named.site.as_str())), "{:?}", ranking);
    }

    /// Where it is required, the leader is the only one that may be in a site with too few.
    #[test]
    fn no_member_of_a_site_below_its_required_minimum_is_chosen(
        least in prop::collection::vec(1..5_u32, SITES.len()),
        policy in any_policy(),
        view in any_view(),
    ) {
        let view = View { members: distinct(view.members.clone()), ..view };
        let each = sites(SITES).into_iter().zip(least.iter().copied());
        let policy = policy.with(|policy| policy.site_minimum = Minimum::Each(each.collect()));
        let preferred = policy.strategy().rank(&view.round());
        let required = policy.with(|policy| policy.below_site_minimum = BelowSiteMinimum::Never);
        let required = required.strategy().rank(&view.round());
        // It only takes away, each with its reason, and never the incumbent.
        let kept: Vec<_> = order(&preferred).into_iter().filter(|one| required.refusal(one).is_none()).collect();
        prop_assert_eq!(order(&required), kept);
        for refused in required.refused.iter().filter(|refused| refused.stage == "site-minimum") {
            prop_assert_eq!(refused.ground, Ground::State);
            prop_assert!(view.incumbent.as_ref() != Some(&refused.named.ballot), "{:?}", refused);
            prop_assert!(refused.reason.contains(&format!("site {} has", refused.named.site)), "{:?}", refused);
        }
        // If a member can lead its whole site can, so far as the site is concerned.
        let not_here = |site: &str| required.refused.iter().any(|r| r.stage == "site-minimum" && r.named.site.as_str() == site);
        let chosen = required.order.iter().filter(|r| view.incumbent.as_ref() != Some(&r.named.ballot));
        for ranked in chosen {
            prop_assert!(!not_here(ranked.named.site.as_str()), "{:?}", required);
        }
    }

    #[test]
    fn no_member_of_a_forbidden_site_leads(
        policy in any_policy(),
        view in any_view(),
        forbidden in any_sites(),
    ) {
        let forbidden_sites = sites(forbidden);
        let policy = policy.with(|policy| policy.forbidden_sites.clone_from(&forbidden_sites));
        let ranking = policy.strategy().rank(&view.round());
        prop_assert!(ranking.order.iter().all(|r| !forbidden_sites.contains(&r.named.site)));
        for refused in &ranking.refused {
            let site = &refused.named.site;
            prop_assert!(refused.stage != "site-allowed" || forbidden_sites.contains(site), "{:?}", refused);
        }
    }
}
