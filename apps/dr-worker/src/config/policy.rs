use std::{collections::BTreeMap, sync::Arc, time::Duration};

use election_core::{
    Confirm, OnPause, Policy, SiteFailureLimit, TakeoverLimit, calendar::Windows, record::MAX_SLOTS,
    strategy::Strategy,
};
use strategies::{
    AutoMoves, BelowSiteMinimum, Pipeline, PolicySpec,
    meter::Publishing,
    spec::{self, Inputs, Needs, Value, Wrong},
};

use super::{
    parse::{Parse as _, Words},
    reader::Section,
    spec::FROZEN_BUDGET,
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
    set: BTreeMap<String, Value>,
    /// Problems with these that have been reported.
    reported: Vec<Wrong>,
    /// What workers publish.
    inputs: Inputs,
    /// What the job puts on the node that leads it.
    load: u32,
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

/// The keys that only the recipe `elector` uses.
const DECISIONS: [&str; 21] = [
    "sites",
    "forbidden_sites",
    "site_minimum",
    "below_site_minimum",
    "on_leader_failure",
    "auto_moves",
    "confirm",
    "failback_after",
    "failback_windows",
    "startup_wait",
    "max_takeovers",
    "max_site_failures",
    "release_timeout",
    "acquire_timeout",
    "fast_failover",
    "suspect_after",
    "pipeline",
    "pipelines",
    "rules",
    "strategy",
    "balance",
];

/// A longer wait than this is likely to be a wrong unit.
const DAY: Duration = Duration::from_secs(24 * 3600);
const SECOND: Duration = Duration::from_secs(1);
/// With less a busy machine would suspect all members.
const SHORTEST_SUSPICION: Duration = Duration::from_millis(100);

impl PolicyConfig {
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
            text.extend(["\n", key, "=", &value]);
        }
        // FNV-1a: a collision gains nothing.
        let fold = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
    }

    /// The value of each key as a file would have it, also of those that are not set, and of what the policy rests on
    /// elsewhere. A stage that is not set has its defaults.
    pub(super) fn values(&self) -> BTreeMap<&str, String> {
        let election = &self.election;
        let windows: Vec<String> = election.failback_windows.texts().map(str::to_owned).collect();
        let mut values = BTreeMap::from([
            ("acquire_timeout", election.acquire_timeout.show()),
            ("balance", self.balance.show()),
            ("confirm", election.confirm.show()),
            ("exclusion", election.exclusion.show()),
            ("failback_after", election.better_after.show()),
            ("failback_windows", windows.show()),
            ("fast_failover", election.fast_failover.show()),
            ("max_exclusion", election.max_exclusion.show()),
            ("max_site_failures.count", election.max_site_failures.count.show()),
            ("max_site_failures.within", election.max_site_failures.within.show()),
            ("max_takeovers.count", election.max_takeovers.count.show()),
            ("max_takeovers.within", election.max_takeovers.within.show()),
            ("min_tenure", election.min_tenure.show()),
            ("on_pause", election.on_pause.show()),
            ("penalty_window", election.penalty_window.show()),
            ("release_timeout", election.release_timeout.show()),
            ("slots", election.slots.to_string()),
            ("startup_wait", election.startup_wait.show()),
            ("suspect_after", election.suspect_after.show()),
            ("takeover_timeout", election.takeover_timeout.show()),
            ("(load)", self.load.show()),
        ]);
        if let Some(Publishing { percent, micros, every, misses }) = self.inputs.round_trips {
            values.insert("(round trips)", format!("{percent} {micros} {} {misses}", every.show()));
        }
        values.extend(self.who.settings().map(|(key, value)| (key, value.show())));
        for (key, value) in &self.set {
            values.entry(key).or_insert_with(|| value.show());
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

    /// The policy of the engine for a job that needs `stop_budget` to end; `fenced` if its resource checks tokens.
    pub fn engine(&self, stop_budget: Duration, fenced: bool) -> Policy {
        self.election.clone().with(|policy| (policy.stop_budget, policy.fenced) = (Some(stop_budget), fenced))
    }

    /// Refuses keys of a job's own policy that its recipe does not use.
    pub(super) fn refuse_what_takes_an_elector(section: &mut Section<'_>, recipe: &str) {
        for key in DECISIONS {
            if section.has(key) {
                let message = format!("the recipe {recipe:?} does not use it; only \"elector\" does");
                section.problem(key, message);
            }
        }
    }

    /// The defaults, where round trips are published like this.
    pub(super) fn measured_to(publishing: Publishing) -> Self {
        Self {
            who: PolicySpec::default(),
            election: Policy::default(),
            balance: false,
            set: BTreeMap::new(),
            reported: Vec::new(),
            inputs: Inputs { round_trips: Some(publishing), ..Inputs::ALL },
            load: 1,
        }
    }

    /// Reads a section over the values in `base`.
    pub(super) fn read(section: &mut Section<'_>, base: &Self) -> Self {
        let mut policy = base.clone();
        policy.read_who(section);
        policy.election = read_election(section, &base.election);
        policy.balance = section.or("balance", base.balance);

        if policy.election.confirm == Confirm::CrossSite
            && policy.who.auto_moves() != AutoMoves::All
            && section.has("confirm")
        {
            let message = format!(
                "leadership moves automatically to another site only with auto_moves = \"all\", and it is {:?}",
                policy.who.auto_moves().as_str()
            );
            section.problem("confirm", message);
        }
        // A job may have no minimum where [policy] makes it a condition.
        if policy.who.below_site_minimum() == BelowSiteMinimum::Never
            && policy.who.site_minimum().is_none()
            && section.has("below_site_minimum")
        {
            let message = "it has no effect while site_minimum is 1; set that too, such as 2 or { east = 2 }";
            section.problem("below_site_minimum", message);
        }
        // A job's own value only: that of [policy] is reported there.
        let slots = policy.election.slots;
        let own = slots != base.election.slots;
        if own && !(1..=MAX_SLOTS).contains(&slots) {
            section.problem(
                "slots",
                format!("{slots} leaders at once are not possible; valid: 1 to {MAX_SLOTS}"),
            );
        }
        if policy.balance && slots != 1 && (section.has("balance") || own) {
            let message = "the leaders of several slots are not balanced; spread = \"sites\" spreads them over the sites";
            section.problem("balance", message);
        }
        policy
    }

    /// Reads the keys that rank the members, all at once: [`PolicySpec`] knows which of them go together.
    fn read_who(&mut self, section: &mut Section<'_>) {
        let news = spec::KEYS.iter().filter_map(|key| Some(((*key).to_owned(), section.raw(key)?)));
        let news: BTreeMap<_, _> = news.collect();
        if !news.is_empty() {
            let had_sites = !self.who.sites().is_empty();
            spec::put_over(&mut self.set, news);
            match section.registry().read(&self.set, self.inputs) {
                Ok(who) => self.who = who,
                Err(error) => {
                    // A problem of [policy] is reported there, and not again for each job.
                    for wrong in error.iter().filter(|wrong| !self.reported.contains(wrong)) {
                        section.problem_within(&wrong.path, &wrong.message);
                    }
                    self.reported = error.iter().cloned().collect();
                }
            }
            if had_sites && self.who.sites().is_empty() && !section.has("sites") {
                let message = "it forbids all of policy.sites; leave out at least one of them";
                section.problem("forbidden_sites", message);
            }
        }
        let settings = BTreeMap::from(self.who.settings());
        for key in spec::KEYS {
            section.show_raw(key, settings.get(key));
        }
    }
}

/// Reads the keys of the engine over the values in `base`.
fn read_election(section: &mut Section<'_>, base: &Policy) -> Policy {
    let any = Duration::ZERO..=DAY * 30;
    let watchdog = SECOND..=DAY;
    let mut policy = base.clone();
    policy.confirm = section.or("confirm", base.confirm);
    policy.better_after = section.duration("failback_after", base.better_after, any.clone());
    policy.failback_windows = read_windows(section, &base.failback_windows);
    policy.min_tenure = section.duration("min_tenure", base.min_tenure, any.clone());
    policy.startup_wait = section.duration("startup_wait", base.startup_wait, any.clone());
    policy.max_takeovers = section.table("max_takeovers", |section| {
        let count = section.or("count", base.max_takeovers.count);
        if count == 0 {
            section.problem("count", "0 would forbid every takeover; 1 or more is valid");
        }
        let within = section.duration("within", base.max_takeovers.within, SECOND..=DAY);
        TakeoverLimit { count, within }
    });
    policy.on_pause = section.or("on_pause", base.on_pause);
    policy.takeover_timeout = section.duration("takeover_timeout", base.takeover_timeout, watchdog.clone());
    policy.release_timeout = section.duration("release_timeout", base.release_timeout, watchdog.clone());
    policy.acquire_timeout = section.duration("acquire_timeout", base.acquire_timeout, watchdog);
    policy.exclusion = section.duration("exclusion", base.exclusion, any.clone());
    policy.max_exclusion = section.duration("max_exclusion", base.max_exclusion, any.clone());
    policy.penalty_window = section.duration("penalty_window", base.penalty_window, any);
    policy.max_site_failures = section.table("max_site_failures", |section| {
        let count = section.or("count", base.max_site_failures.count);
        let within = section.duration("within", base.max_site_failures.within, SECOND..=DAY * 30);
        SiteFailureLimit { count, within }
    });
    policy.fast_failover = section.or("fast_failover", base.fast_failover);
    policy.suspect_after = section.duration("suspect_after", base.suspect_after, SHORTEST_SUSPICION..=DAY);
    policy.slots = section.or("slots", u32::try_from(base.slots).unwrap_or(u32::MAX)) as usize;
    policy
}

/// The windows of automatic moves to another site; `base` if the key is not set.
fn read_windows(section: &mut Section<'_>, base: &Windows) -> Windows {
    let usual = base.texts().map(str::to_owned).collect();
    let texts: Vec<String> = section.or("failback_windows", usual);
    Windows::read(&texts).unwrap_or_else(|error| {
        section.problem("failback_windows", error.to_string());
        Windows::default()
    })
}
