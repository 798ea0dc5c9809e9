use std::{collections::BTreeMap, sync::Arc, time::Duration};

use election_core::{
    Policy, SiteFailureLimit, SiteId, calendar::Windows, record::MAX_SLOTS, strategy::Strategy,
};
use strategies::{
    Pipeline, PolicySpec,
    meter::Publishing,
    spec::{self, Inputs, Needs, Value},
};

use super::{parse::choice, reader::Section};

/// `[policy]`, or `[job.NAME.policy]` over it: when and where leadership moves.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyConfig {
    /// In order of preference.
    pub sites: Vec<SiteId>,
    /// No member of these may lead.
    pub forbidden_sites: Vec<SiteId>,
    /// A site with fewer fit members goes behind those that have as many.
    pub site_minimum: u32,
    /// Who follows a leader that failed.
    pub on_leader_failure: OnLeaderFailure,
    /// Where leadership moves by itself while the leader is fit.
    pub auto_moves: AutoMoves,
    /// What of that waits for an operator's word.
    pub confirm: Confirm,
    /// For how long a better member must have been there before it moves.
    pub failback_after: Duration,
    /// When it may move to another site.
    pub failback_windows: Windows,
    /// How long a leader leads at least before a move that nothing forces.
    pub min_tenure: Duration,
    /// How long the first decision waits for somebody better.
    pub startup_wait: Duration,
    /// Past this many takeovers the election holds still.
    pub max_takeovers: TakeoverLimit,
    /// What the leader does while ZooKeeper can't be reached.
    pub on_pause: OnPause,
    /// How long a takeover may last.
    pub takeover_timeout: Duration,
    /// How long the old leader may take to let go.
    pub release_timeout: Duration,
    /// How long the elected one may take to appear.
    pub acquire_timeout: Duration,
    /// For how long a member that failed is not named.
    pub exclusion: Duration,
    /// The longest exclusion of a member that fails again and again.
    pub max_exclusion: Duration,
    /// For how long failures are remembered.
    pub penalty_window: Duration,
    /// A site that has failed so often is not gone back to.
    pub max_site_failures: TakeoverLimit,
    /// Whether a leader that enough members don't reach makes room before its session ends, if
    /// the job is fenced.
    pub fast_failover: bool,
    /// How long a member must have gone unanswered before another one says so.
    pub suspect_after: Duration,
    /// How many members lead at once.
    pub slots: u32,
    /// Where the leaders of several slots stand.
    pub spread: Spread,
    /// Whether leadership is moved for the sake of even shares of all jobs.
    pub balance: bool,
    /// What is set of the keys that say who should lead, here or in what this goes over.
    pub(super) set: BTreeMap<String, Value>,
    /// What workers publish for that to go by.
    pub(super) inputs: Inputs,
    /// What these keys come to.
    pub(super) spec: PolicySpec,
}

/// So many in so long: takeovers, or failures of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeoverLimit {
    /// So many.
    pub count: u32,
    /// In so long.
    pub within: Duration,
}

choice! {
    /// Who follows a leader that failed.
    pub enum OnLeaderFailure {
        /// Somebody of another site than the failed leader's.
        OtherSite = "other-site",
        /// The best by the order of sites.
        PreferOrder = "prefer-order",
        /// Somebody of the same site, if there is one.
        SameSiteFirst = "same-site-first",
    }
    later: []
}

choice! {
    /// Where leadership moves by itself to a better member, while the leader is fit.
    pub enum AutoMoves {
        /// Nowhere: only when an operator says so.
        None = "none",
        /// Within the leader's site, after `failback_after`.
        InSite = "in-site",
        /// To any site, and so back to the preferred one.
        All = "all",
    }
    later: []
}

choice! {
    /// Which of these moves wait for an operator's word.
    pub enum Confirm {
        /// None.
        Never = "never",
        /// Those to another site.
        CrossSite = "cross-site",
    }
    later: []
}

choice! {
    /// What the leader does while ZooKeeper can't be reached.
    pub enum OnPause {
        /// It stops its job before its lease ends: at most one leader.
        Stop = "stop",
        /// It goes on: at least one leader. The resource must check tokens.
        Keep = "keep",
    }
    later: []
}

choice! {
    /// Where the leaders of several slots stand.
    pub enum Spread {
        /// Each where it is best by itself.
        None = "none",
        /// Over the sites, before any other preference of sites.
        Sites = "sites",
    }
    later: []
}

impl Default for PolicyConfig {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            sites: Vec::new(),
            forbidden_sites: Vec::new(),
            site_minimum: 1,
            on_leader_failure: OnLeaderFailure::OtherSite,
            auto_moves: AutoMoves::None,
            confirm: Confirm::Never,
            failback_after: seconds(1800),
            failback_windows: Windows::default(),
            min_tenure: seconds(60),
            startup_wait: seconds(5),
            max_takeovers: TakeoverLimit { count: 5, within: seconds(600) },
            on_pause: OnPause::Stop,
            takeover_timeout: seconds(60),
            release_timeout: seconds(30),
            acquire_timeout: seconds(10),
            exclusion: seconds(300),
            max_exclusion: seconds(3600),
            penalty_window: DAY,
            max_site_failures: TakeoverLimit { count: 2, within: DAY },
            fast_failover: false,
            suspect_after: Duration::from_millis(500),
            slots: 1,
            spread: Spread::None,
            balance: false,
            set: BTreeMap::new(),
            inputs: Inputs::ALL,
            spec: PolicySpec::default(),
        }
    }
}

/// What only an elector heeds.
const DECISIONS: [&str; 20] = [
    "sites",
    "forbidden_sites",
    "site_minimum",
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

/// What is read by the crate that carries it out.
const WHOLE: [&str; 4] = ["pipeline", "pipelines", "rules", "strategy"];

/// A day: a longer wait than that is a mistake in the unit.
const DAY: Duration = Duration::from_secs(24 * 3600);
const SECOND: Duration = Duration::from_secs(1);
/// Below that a busy machine would suspect everybody.
const SHORTEST_SUSPICION: Duration = Duration::from_millis(100);

impl PolicyConfig {
    /// Who should lead.
    pub fn strategy(&self) -> Arc<dyn Strategy> {
        self.spec.strategy()
    }

    /// What it goes by that must be measured.
    pub fn needs(&self) -> Needs {
        self.spec.needs()
    }

    /// A short word that is the same where all of this is; for a job that is `fenced` or not.
    pub fn fingerprint(&self, fenced: bool) -> String {
        // FNV-1a: it has to be the same in every build, and nobody gains by a word that is the same for two.
        let fold = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = format!("{self:?} {fenced}").bytes().fold(0xcbf2_9ce4_8422_2325, fold);
        format!("{hash:016x}")
    }

    /// The strategy, with what can be asked of it beyond who is first.
    pub fn pipeline(&self) -> Pipeline {
        self.spec.pipeline()
    }

    /// Whether leadership moves by itself to somebody better.
    pub fn moves_by_itself(&self) -> bool {
        self.spec.moves_by_itself()
    }

    /// The same for the election of one job that puts so much load on the node that leads it.
    #[must_use]
    pub fn for_job(mut self, name: &str, load: u32) -> Self {
        self.spec = self.spec.for_election(name).with_load(load);
        self
    }

    /// How the election behaves for a job that needs `stop_budget` to end; `fenced` if its
    /// resource checks tokens.
    pub fn engine(&self, stop_budget: Duration, fenced: bool) -> Policy {
        Policy {
            slots: self.slots as usize,
            on_pause: match self.on_pause {
                OnPause::Stop => election_core::OnPause::Stop,
                OnPause::Keep => election_core::OnPause::Keep { max_pause: None },
            },
            stop_budget: Some(stop_budget),
            takeover_timeout: self.takeover_timeout,
            release_timeout: self.release_timeout,
            acquire_timeout: self.acquire_timeout,
            exclusion: self.exclusion,
            max_exclusion: self.max_exclusion,
            penalty_window: self.penalty_window,
            max_site_failures: SiteFailureLimit {
                count: self.max_site_failures.count,
                within: self.max_site_failures.within,
            },
            min_tenure: self.min_tenure,
            startup_wait: self.startup_wait,
            max_takeovers: election_core::TakeoverLimit {
                count: self.max_takeovers.count,
                within: self.max_takeovers.within,
            },
            better_after: self.failback_after,
            failback_windows: self.failback_windows.clone(),
            confirm: match self.confirm {
                Confirm::Never => election_core::Confirm::Never,
                Confirm::CrossSite => election_core::Confirm::CrossSite,
            },
            fenced,
            fast_failover: self.fast_failover,
            suspect_after: self.suspect_after,
            ..Policy::default()
        }
    }

    /// A job's own policy must not ask for what its recipe has nobody to decide.
    pub(super) fn refuse_what_takes_an_elector(section: &mut Section<'_>, recipe: &str) {
        for key in DECISIONS {
            if section.has(key) {
                let message = format!("the recipe {recipe:?} has nobody to heed it; only \"elector\" has");
                section.problem(key, message);
            }
        }
    }

    /// The defaults, where round trips are published so.
    pub(super) fn measured_to(publishing: Publishing) -> Self {
        Self { inputs: Inputs { round_trips: Some(publishing), ..Inputs::ALL }, ..Self::default() }
    }

    /// Reads a section over the values in `base`.
    pub(super) fn read(section: &mut Section<'_>, base: &Self) -> Self {
        let any = Duration::ZERO..=DAY * 30;
        let watchdog = SECOND..=DAY;
        let mut sites: Vec<SiteId> = section.or("sites", base.sites.clone());
        let forbidden_sites: Vec<SiteId> = section.or("forbidden_sites", base.forbidden_sites.clone());
        for (index, site) in sites.iter().enumerate() {
            // What a job has from [policy] is complained of there.
            if section.has("sites") && sites[..index].contains(site) {
                section.problem("sites", format!("{:?} is listed twice", site.as_str()));
            }
        }
        if leaves_out_sites(section) && !sites.is_empty() {
            sites.retain(|site| !forbidden_sites.contains(site));
            if sites.is_empty() {
                let message = "it forbids all of policy.sites; leave out at least one of them";
                section.problem("forbidden_sites", message);
            }
        }
        let mut policy = Self {
            sites,
            forbidden_sites,
            site_minimum: section.or("site_minimum", base.site_minimum),
            on_leader_failure: section.or("on_leader_failure", base.on_leader_failure),
            auto_moves: section.or("auto_moves", base.auto_moves),
            confirm: section.or("confirm", base.confirm),
            failback_windows: read_windows(section, &base.failback_windows),
            failback_after: section.duration("failback_after", base.failback_after, any.clone()),
            min_tenure: section.duration("min_tenure", base.min_tenure, any.clone()),
            startup_wait: section.duration("startup_wait", base.startup_wait, any.clone()),
            max_takeovers: section.table("max_takeovers", |section| {
                let count = section.or("count", base.max_takeovers.count);
                if count == 0 {
                    section.problem("count", "0 would never let anybody take over; 1 or more is valid");
                }
                TakeoverLimit {
                    count,
                    within: section.duration("within", base.max_takeovers.within, SECOND..=DAY),
                }
            }),
            on_pause: section.or("on_pause", base.on_pause),
            takeover_timeout: section.duration("takeover_timeout", base.takeover_timeout, watchdog.clone()),
            release_timeout: section.duration("release_timeout", base.release_timeout, watchdog.clone()),
            acquire_timeout: section.duration("acquire_timeout", base.acquire_timeout, watchdog),
            exclusion: section.duration("exclusion", base.exclusion, any.clone()),
            max_exclusion: section.duration("max_exclusion", base.max_exclusion, any.clone()),
            penalty_window: section.duration("penalty_window", base.penalty_window, any.clone()),
            max_site_failures: section.table("max_site_failures", |section| TakeoverLimit {
                count: section.or("count", base.max_site_failures.count),
                within: section.duration("within", base.max_site_failures.within, SECOND..=DAY * 30),
            }),
            fast_failover: section.or("fast_failover", base.fast_failover),
            suspect_after: section.duration("suspect_after", base.suspect_after, SHORTEST_SUSPICION..=DAY),
            slots: section.or("slots", base.slots),
            spread: section.or("spread", base.spread),
            balance: section.or("balance", base.balance),
            set: base.set.clone(),
            inputs: base.inputs,
            spec: base.spec.clone(),
        };
        policy.read_who(section);
        if policy.confirm == Confirm::CrossSite
            && policy.auto_moves != AutoMoves::All
            && section.has("confirm")
        {
            let message = format!(
                "leadership moves by itself to another site only with auto_moves = \"all\", and that is {:?}",
                policy.auto_moves.as_str()
            );
            section.problem("confirm", message);
        }
        // What a job has from [policy] is complained of there.
        let own = policy.slots != base.slots;
        if own && !(1..=MAX_SLOTS).contains(&(policy.slots as usize)) {
            let slots = policy.slots;
            section.problem(
                "slots",
                format!("{slots} leaders at once are not possible; valid: 1 to {MAX_SLOTS}"),
            );
        }
        if policy.balance && policy.slots != 1 && (section.has("balance") || own) {
            let message = "the leaders of several slots are not balanced; spread = \"sites\" spreads them over the sites";
            section.problem("balance", message);
        }
        policy
    }

    /// Who should lead: all keys about it are read together, as the crate that knows what goes
    /// with what wants them.
    fn read_who(&mut self, section: &mut Section<'_>) {
        let text = |text: &str| Value::Text(text.to_owned());
        let mut sites = Vec::new();
        for site in self.sites.iter().map(|site| text(site.as_str())) {
            // One that is listed twice has been complained of.
            if !sites.contains(&site) {
                sites.push(site);
            }
        }
        let forbidden = self.forbidden_sites.iter().map(|site| text(site.as_str())).collect();
        let own = [
            ("sites", Value::List(sites)),
            ("forbidden_sites", Value::List(forbidden)),
            ("site_minimum", Value::Whole(self.site_minimum.into())),
            ("on_leader_failure", text(self.on_leader_failure.as_str())),
            ("auto_moves", text(self.auto_moves.as_str())),
            ("spread", text(self.spread.as_str())),
        ];
        let own = own
            .into_iter()
            .filter(|(key, _)| section.has(key) || (*key == "sites" && leaves_out_sites(section)));
        let mut news: BTreeMap<_, _> = own.map(|(key, value)| (key.to_owned(), value)).collect();
        for key in WHOLE {
            news.extend(section.optional::<Value>(key).map(|value| (key.to_owned(), value)));
        }
        if news.is_empty() {
            return;
        }
        spec::put_over(&mut self.set, news);
        match section.registry().read(&self.set, self.inputs) {
            Ok(spec) => self.spec = spec,
            Err(error) => error.iter().for_each(|wrong| section.problem_within(&wrong.path, &wrong.message)),
        }
    }
}

/// Whether this leaves the sites that it forbids out of those that it takes over from `[policy]`.
fn leaves_out_sites(section: &Section<'_>) -> bool {
    section.has("forbidden_sites") && !section.has("sites")
}

/// The hours in which leadership may return; `base` if the key is not set.
fn read_windows(section: &mut Section<'_>, base: &Windows) -> Windows {
    let usual = base.texts().map(str::to_owned).collect();
    let texts: Vec<String> = section.or("failback_windows", usual);
    Windows::read(&texts).unwrap_or_else(|error| {
        section.problem("failback_windows", error.to_string());
        Windows::default()
    })
}
