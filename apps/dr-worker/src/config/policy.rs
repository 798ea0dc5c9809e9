use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Duration};

use election_core::{
    config::{Confirm, OnPause, Policy, SiteFailureLimit, TakeoverLimit},
    internals::{calendar::Windows, record::MAX_SLOTS},
    strategy::Strategy,
};
use serde_json::{Map, Value};
use strategies::{
    AutoMoves, BelowSiteMinimum, Pipeline, PolicySpec, SpecError,
    meter::Publishing,
    other_jobs::OtherJobs,
    spec::{Inputs, Needs},
};

use super::{
    key::{self, Effect, Key, Terms},
    parse::{DAY, MILLISECOND, Parse, SECOND, Words},
    reader::Section,
    spec::FROZEN_BUDGET,
    table::{Leaf, Rule, Table, UNDER_WAY, nested, optional, table, value},
};

/// `[policy]`, or `[job.NAME.policy]` over it: where leadership should be, and when it moves.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyConfig {
    /// The keys that rank the members.
    pub who: PolicySpec,
    /// The keys of the engine. What depends on the job is added by [`engine`](Self::engine).
    pub election: Policy,
    /// Whether leadership is moved for even shares of all jobs.
    pub balance: bool,
    /// The keys of `who` that are set, here or in `[policy]`.
    set: Map<String, Value>,
    /// Problems with these that have been reported.
    reported: Option<SpecError>,
    /// What workers publish.
    inputs: Inputs,
    /// What the job puts on the node that leads it.
    load: u32,
    /// How much longer a planned stop of the job may take than another one.
    planned_stop: Duration,
}

/// Changes with what [`PolicyConfig::fingerprint`] is made of.
const FINGERPRINT_VERSION: u32 = 1;

impl Words for OnPause {
    const WORDS: &[(&str, Self)] = &[
        ("stop", Self::Stop),
        ("freeze", Self::Freeze { kill_budget: FROZEN_BUDGET }),
        ("keep", Self::Keep { max_pause: None }),
    ];
}

impl Words for Confirm {
    const WORDS: &[(&str, Self)] = &[("never", Self::Never), ("cross-site", Self::CrossSite)];
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self::measured_to(Publishing::default())
    }
}

table! {
    for Policy {
        /// How long the other member must have been better before such a move; longer for a site that has lost
        /// its leader repeatedly within penalty_window.
        better_after as failback_after: Duration => value().within(ANY_TIME);
        /// Automatic moves that wait for `dr-worker confirm SITE`: "never" (none) or "cross-site".
        confirm: Confirm => value();
        /// When leadership may move to another site automatically, in UTC: "Sat,Sun 02:00-04:00", "Mon-Fri 23:30-01:00" (into
        /// the next day), "02:00-04:00" (all days). Empty: at any time. `dr-worker stay` cancels an announced move.
        failback_windows: Windows => value();
        /// How long a leader leads before an automatic move.
        min_tenure: Duration => value().within(ANY_TIME).any_recipe();
        /// Takeovers of a slot that were not ordered, within a window, before the slot is put on hold.
        /// A hold lasts 10 s, 20 s, 40 s, then 1 min; it ends at once when a worker joins, or with `dr-worker ack`.
        max_takeovers: TakeoverLimit => nested();
        /// How long the first decision waits for a member of the preferred site, or, after a restart of all workers,
        /// of the site that led last.
        startup_wait: Duration => value().within(ANY_TIME);
        /// Without ZooKeeper: "stop" ends the job before its lease does, so at most one leads; "freeze" stops its processes at
        /// once (as SIGSTOP does) until the leadership is confirmed, and kills them before the lease ends; "keep" leads on, so two
        /// may lead: only where the resource checks fencing tokens. See docs/processes.md.
        on_pause: OnPause => value().worker(UNDER_WAY).any_recipe();
        /// Timeout of a takeover, from the creation of the leader znode to ready. Then the member is excluded.
        takeover_timeout: Duration => value().within(SECOND..=DAY).any_recipe();
        /// How long the former leader may take to stop before this is reported. A job's planned_stop_timeout, as far as it
        /// is longer than its stop_timeout, and the timeout of its before_stop are added.
        release_timeout: Duration => value().within(SECOND..=DAY);
        /// How long an elected member may take to begin. Then it is excluded.
        acquire_timeout: Duration => value().within(SECOND..=DAY);
        /// How long a failed member is excluded.
        exclusion: Duration => value().within(ANY_TIME).any_recipe();
        /// How long failures of members are remembered: each doubles the next exclusion, up to max_exclusion, and members with
        /// fewer failures go first. "0s": not at all. `dr-worker ack --failures` clears them.
        penalty_window: Duration => value().within(ANY_TIME).any_recipe();
        /// The longest exclusion.
        max_exclusion: Duration => value().within(ANY_TIME).any_recipe();
        /// Leadership does not go back to a site that failed so often within this window, while a member elsewhere can lead,
        /// until `dr-worker ack --sites`.
        max_site_failures: SiteFailureLimit => nested();
        /// Replace a leader that most other members can't reach before its session ends. Only for fenced jobs: two may act for a
        /// moment. It needs two other members that reach the leader at http.listen: in two sites, unless all members are in one.
        fast_failover: bool => value().worker(UNDER_WAY);
        // With less a busy machine would suspect all members.
        /// How long a member must be unreachable to be suspected. Each member probes each other one four times in it. A worker
        /// whose ZooKeeper server is silent for that long moves its session to another one.
        suspect_after: Duration => value().within(100 * MILLISECOND..=DAY).handover();
        /// How many members lead at once, each in a slot of its own; the others are spares. 1 to 16.
        slots: usize => value().worker(UNDER_WAY).any_recipe();
    }
}

table! {
    for TakeoverLimit {
        /// So many takeovers, 1 to 50; with four slots or more 1 to 160 / slots ...
        count: u32 => value().check(|count: &u32| {
            (*count == 0).then(|| "0 would forbid every takeover; 1 or more is valid".to_owned())
        });
        /// ... within this window.
        within: Duration => value().within(SECOND..=DAY);
    }
}

table! {
    for SiteFailureLimit {
        /// So many failures; 0: no limit. The last eight of all sites together are remembered.
        count: u32 => value().check(|count: &u32| {
            let most = Policy::MOST_SITE_FAILURES;
            (*count > most).then(|| format!("an election remembers {most} failures of sites; valid: 0 to {most}"))
        });
        /// ... within this window.
        within: Duration => value().within(SECOND..=30 * DAY);
    }
}

table! {
    /// The keys that rank the members, as they are: [`PolicySpec`] reads them all at once, and knows which go together.
    struct Ranking {
        /// Sites in order of preference. Empty: no site is preferred.
        sites: Option<Value> = None => ranking().set("[\"east\", \"west\"]");
        /// Sites in which no member may lead.
        forbidden_sites: Option<Value> = None => ranking();
        /// The number of fit members that is enough in a site: one for all sites, or a table: { east = 2 }. A site with fewer
        /// is ranked behind the sites with enough.
        site_minimum: Option<Value> = None => ranking();
        /// Whether the members of a site with fewer can lead: "last" (behind the others) or "never" (none of them is elected; a
        /// leader stays when another member of its site fails).
        below_site_minimum: Option<Value> = None => ranking();
        /// Who follows a failed leader: "other-site" (another site first), "prefer-order" (by the order of sites)
        /// or "same-site-first".
        on_leader_failure: Option<Value> = None => ranking();
        /// Automatic moves to a better member while the leader is fit: "none", "in-site" (within the leader's site) or "all".
        auto_moves: Option<Value> = None => ranking();
        /// Sites of the leaders of several slots: "none" (each where it is best) or "sites" (spread over the sites first).
        spread: Option<Value> = None => ranking().any_recipe();
        /// Comparisons that rank the members, instead of the keys above. See docs/policies.md.
        pipeline: Option<Value> = None => ranking().example(
            "[\"class\", \"site-order\", \"incumbent\", \"priority\", \"oldest-ballot\"]"
        );
        /// Pipelines by name, for rules.
        pipelines: Option<Value> = None => ranking().example("{ near = [\"same-site\", \"oldest-ballot\"] }");
        /// Rules that use pipelines for certain causes.
        rules: Option<Value> = None => ranking().example(
            "[{ when = [\"takeover-failed\", \"work-failed\"], pipeline = \"near\" }]"
        );
        /// A strategy of your own program ranks the members. See docs/policies.md, "Your own stage".
        strategy: Option<Value> = None => ranking();
    }
}

/// A key of [`Ranking`].
fn ranking() -> Rule<Leaf<Value, true>> {
    optional().applied()
}

table! {
    struct Balance {
        /// Move leadership between equally good members for even shares of all jobs; see [balance].
        balance: bool = false => value().handover();
    }
}

/// A longer wait than this is likely to be a wrong unit.
const ANY_TIME: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30 * 24 * 3600);

impl Table for PolicyConfig {
    fn read(&mut self, section: &mut Section<'_>) {
        let before = self.election.slots;
        self.read_who(section);
        let mut balance = Balance { balance: self.balance };
        self.election.read(section);
        balance.read(section);
        self.balance = balance.balance;
        self.check(section, before);
    }

    fn keys(&self) -> Vec<Key> {
        let settings = self.who.settings();
        let ranking = Ranking::default().keys().into_iter().map(|key| {
            let default = settings.get(key.name).map(Parse::show);
            key.with_default(default)
        });
        let applied = Terms { effect: Some(Effect::Applied), ..Terms::default() };
        let election = self.election.keys().into_iter().map(|key| key.under(&applied));
        ranking.chain(election).chain(Balance { balance: self.balance }.keys()).collect()
    }
}

impl PolicyConfig {
    /// The same policy with what is known of other jobs.
    #[must_use]
    pub fn seeing(self, jobs: OtherJobs) -> Self {
        Self { who: self.who.seeing(jobs), ..self }
    }

    /// The strategy of the election.
    pub fn strategy(&self) -> Arc<dyn Strategy> {
        self.who.strategy()
    }

    /// The strategy, with its pipeline for each cause.
    pub fn pipeline(&self) -> Pipeline {
        self.who.pipeline()
    }

    /// What workers must measure for it.
    pub fn needs(&self) -> Needs {
        self.who.needs()
    }

    /// A short text that is the same where this policy is, for a job that is `fenced` or not. Programs of other versions
    /// make the same of the same values, so that members do not warn of each other while they are upgraded in turn.
    pub fn fingerprint(&self, fenced: bool) -> String {
        let mut text = format!("{FINGERPRINT_VERSION} fenced={fenced}");
        for (key, value) in self.values() {
            text.extend(["\n", &key, "=", &value]);
        }
        // FNV-1a: a collision gains nothing.
        let fold = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
    }

    /// The value of each key as a file would have it, also of those that are not set, and of what the policy rests on
    /// elsewhere. A stage that is not set has its defaults.
    pub(super) fn values(&self) -> BTreeMap<String, String> {
        let mut values = BTreeMap::from([("(load)".to_owned(), self.load.show())]);
        key::each_default(&self.keys(), &mut |path, default| {
            values.insert(path.join("."), default.to_owned());
        });
        if let Some(Publishing { percent, micros, every, misses }) = self.inputs.round_trips {
            values
                .insert("(round trips)".to_owned(), format!("{percent} {micros} {} {misses}", every.show()));
        }
        if !self.planned_stop.is_zero() {
            values.insert("(planned stop)".to_owned(), self.planned_stop.show());
        }
        for (key, value) in &self.set {
            values.entry(key.clone()).or_insert_with(|| value.show());
        }
        values
    }

    /// The same policy for the election of one job that puts this load on the node that leads it.
    #[must_use]
    pub fn for_job(mut self, name: &str, load: u32) -> Self {
        self.who = self.who.for_election(name).with_load(load);
        self.load = load;
        self
    }

    /// The same policy for a job whose planned stop may take this much longer than another stop.
    #[must_use]
    pub(super) fn releasing_within(self, longer: Duration) -> Self {
        Self { planned_stop: longer, ..self }
    }

    /// The policy of the engine for a job that needs `stop_budget` to end; `fenced` if its resource checks tokens.
    pub fn engine(&self, stop_budget: Duration, fenced: bool) -> Policy {
        self.election.clone().with(|policy| {
            (policy.stop_budget, policy.fenced) = (Some(stop_budget), fenced);
            policy.release_timeout += self.planned_stop;
        })
    }

    /// Refuses keys of a job's own policy that its recipe does not use.
    pub(super) fn refuse_what_takes_an_elector(section: &mut Section<'_>, recipe: &str) {
        for key in Self::default().keys() {
            if section.has(key.name) && !key.terms.any_recipe {
                let message = format!("the recipe {recipe:?} does not use it; only \"elector\" does");
                section.problem(key.name, message);
            }
        }
    }

    /// The defaults, where round trips are published like this.
    pub(super) fn measured_to(publishing: Publishing) -> Self {
        Self {
            who: PolicySpec::default(),
            election: Policy::default(),
            balance: false,
            set: Map::new(),
            reported: None,
            inputs: Inputs::ALL.with(|inputs| inputs.round_trips = Some(publishing)),
            load: 1,
            planned_stop: Duration::ZERO,
        }
    }

    /// Checks the keys together; `before` is the number of slots of [policy].
    fn check(&self, section: &mut Section<'_>, before: usize) {
        if self.election.confirm == Confirm::CrossSite
            && self.who.site_policy.auto_moves != AutoMoves::All
            && section.has("confirm")
        {
            let message = format!(
                "leadership moves automatically to another site only with auto_moves = \"all\", and it is {:?}",
                self.who.site_policy.auto_moves.to_string()
            );
            section.problem("confirm", message);
        }
        // A job may have no minimum where [policy] makes it a condition.
        if self.who.site_policy.below_site_minimum == BelowSiteMinimum::Never
            && self.who.site_policy.site_minimum.is_none()
            && section.has("below_site_minimum")
        {
            let message = "it has no effect while site_minimum is 1; set that too, such as 2 or { east = 2 }";
            section.problem("below_site_minimum", message);
        }
        // A job's own value only: that of [policy] is reported there.
        let slots = self.election.slots;
        let own = slots != before;
        if own && !(1..=MAX_SLOTS).contains(&slots) {
            section.problem(
                "slots",
                format!("{slots} leaders at once are not possible; valid: 1 to {MAX_SLOTS}"),
            );
        }
        let (count, most) = (self.election.max_takeovers.count, Policy::most_takeovers(slots));
        if count > most && (own || section.has("max_takeovers")) {
            let message = format!(
                "{count} are more takeovers than an election remembers; valid with {slots} slots: 1 to {most}"
            );
            section.problem("max_takeovers", message);
        }
        if self.balance && slots != 1 && (section.has("balance") || own) {
            let message = "the leaders of several slots are not balanced; spread = \"sites\" spreads them over the sites";
            section.problem("balance", message);
        }
    }

    /// Reads the keys that rank the members, all at once: [`PolicySpec`] knows which of them go together.
    fn read_who(&mut self, section: &mut Section<'_>) {
        let keys = Ranking::default().keys();
        let news = keys.iter().filter_map(|key| Some((key.name.to_owned(), section.raw(key.name)?)));
        let news: Map<_, _> = news.collect();
        if !news.is_empty() {
            let had_sites = !self.who.site_policy.sites.is_empty();
            match section.registry().read_over(&mut self.set, news, self.inputs) {
                Ok(who) => self.who = who,
                Err(error) => {
                    // A problem of [policy] is reported there, and not again for each job.
                    let known: Vec<_> = self.reported.iter().flat_map(SpecError::iter).collect();
                    for (path, message) in error.iter().filter(|problem| !known.contains(problem)) {
                        section.problem_within(path, message);
                    }
                    self.reported = Some(error);
                }
            }
            if had_sites && self.who.site_policy.sites.is_empty() && !section.has("sites") {
                let message = "it forbids all of policy.sites; leave out at least one of them";
                section.problem("forbidden_sites", message);
            }
        }
        let settings = self.who.settings();
        for key in keys {
            section.show_raw(key.name, settings.get(key.name));
        }
    }
}
