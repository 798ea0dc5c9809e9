//! A year of two sites, generated from a seed, with the defaults and with each alternative.
//!
//! Every setting has the same years, so the difference between two rows is the effect of the setting.

use std::fmt::Write as _;

use fastrand::Rng;

use crate::{
    DAY, HOUR, MINUTE, Millis, SECOND,
    account::Sum,
    incident::{Incident, Job, Where},
    policy::Rules,
    world::World,
};

const MEMBERS: [&str; 4] = ["east-1", "east-2", "west-1", "west-2"];
const SITES: [&str; 2] = ["east", "west"];
const LENGTH: Millis = 365 * DAY;

/// The base of all settings.
const BASE: &str = r#"sites=["east", "west"]"#;

/// Leadership returns to the first site by itself.
const AUTO: &str = r#"auto_moves="all""#;

/// A score precedes the order of sites.
const SCORE: &str = r#"pipeline=[{ stage = "score", attributes = { fitness = { worst = 0, best = 1000 } } }, "site-order", "incumbent"]"#;

/// One repeated incident.
struct Kind {
    what: &'static str,
    per_year: u32,
    draw: fn(&mut Rng, Millis, &mut Plan),
}

/// The incidents with their times.
type Plan = Vec<(Millis, Incident)>;

/// The incidents of a year.
const KINDS: [Kind; 16] = [
    Kind { what: "a worker dies, and is started again after 5 s", per_year: 24, draw: worker_dies },
    Kind { what: "a host restarts, and is away for 2 to 10 minutes", per_year: 12, draw: host_restarts },
    Kind { what: "a host is broken, and is away for 2 to 24 hours", per_year: 2, draw: host_breaks },
    Kind { what: "a site has no power for half an hour to 2 hours", per_year: 2, draw: power_fails },
    Kind {
        what: "the hosts of a site go one after the other, 1 to 5 minutes apart, for 2 hours",
        per_year: 2,
        draw: site_goes_down,
    },
    Kind {
        what: "all hosts are switched off for an hour, and come back within half a minute",
        per_year: 1,
        draw: everything_is_off,
    },
    Kind { what: "a site is cut off from ZooKeeper for 1 to 30 minutes", per_year: 6, draw: site_is_cut },
    Kind {
        what: "a site is cut off for 12 s every 5 to 40 minutes, 12 to 48 times",
        per_year: 6,
        draw: link_flaps,
    },
    Kind { what: "the leader's job fails once", per_year: 24, draw: job_fails },
    Kind {
        what: "a deployment to one site fails within 2 minutes of each start, for 20 to 60 minutes",
        per_year: 6,
        draw: bad_deployment,
    },
    Kind { what: "a deployment to both fails so, for 10 to 30 minutes", per_year: 2, draw: worse_deployment },
    Kind {
        what: "what the job needs is away, and it fails at its start everywhere, for 5 to 40 minutes",
        per_year: 4,
        draw: dependency_fails,
    },
    Kind {
        what: "a host is unhealthy for 1 to 5 minutes every 6 to 60, 6 to 24 times",
        per_year: 8,
        draw: disk_is_slow,
    },
    Kind {
        what: "the job of a host takes 20 to 120 s to start, for 2 to 8 hours",
        per_year: 4,
        draw: start_is_slow,
    },
    Kind {
        what: "all workers are restarted in turn, 10 minutes apart, each away for 4",
        per_year: 12,
        draw: upgrade,
    },
    Kind { what: "ZooKeeper is away for 3 to 20 s", per_year: 4, draw: outage },
];

/// Only with a policy that uses measurements.
const WAVERING: Kind = Kind {
    what: "what every member measures of itself, from 0 to 1000, is wrong by up to 60 each minute, for 6 hours",
    per_year: 12,
    draw: values_waver,
};

fn worker_dies(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    plan.push((at, Incident::Crash(member(rng))));
}

fn host_restarts(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    lasting(plan, at, rng.u64(2 * MINUTE..10 * MINUTE), Incident::PowerOff(member(rng)));
}

fn host_breaks(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    lasting(plan, at, rng.u64(2 * HOUR..DAY), Incident::PowerOff(member(rng)));
}

fn power_fails(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    lasting(plan, at, rng.u64(HOUR / 2..2 * HOUR), Incident::PowerOff(site(rng)));
}

fn site_goes_down(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    let site = SITES[rng.usize(..SITES.len())];
    let mut hosts: Vec<_> = MEMBERS.into_iter().filter(|member| member.starts_with(site)).collect();
    rng.shuffle(&mut hosts);
    for (turn, host) in hosts.into_iter().enumerate() {
        let at = at + turn as Millis * rng.u64(MINUTE..5 * MINUTE);
        lasting(plan, at, 2 * HOUR, Incident::PowerOff(Where(host.to_owned())));
    }
}

fn everything_is_off(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    for host in MEMBERS {
        lasting(plan, at, HOUR + rng.u64(0..30 * SECOND), Incident::PowerOff(Where(host.to_owned())));
    }
}

fn site_is_cut(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    lasting(plan, at, rng.u64(MINUTE..30 * MINUTE), Incident::Cut(site(rng)));
}

fn link_flaps(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    let (site, every) = (site(rng), rng.u64(5 * MINUTE..40 * MINUTE));
    for round in 0..rng.u64(12..48) {
        lasting(plan, at + round * every, 12 * SECOND, Incident::Cut(site.clone()));
    }
}

fn job_fails(_: &mut Rng, at: Millis, plan: &mut Plan) {
    plan.push((at, Incident::JobFails("exit status 1".to_owned())));
}

fn bad_deployment(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    let site = site(rng);
    let job = Job::FailsAfter(rng.u64(SECOND..2 * MINUTE), "exit status 101".to_owned());
    lasting(plan, at, rng.u64(20 * MINUTE..HOUR), Incident::Deploy(site, job));
}

fn worse_deployment(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    let job = Job::FailsAfter(rng.u64(SECOND..2 * MINUTE), "exit status 101".to_owned());
    lasting(plan, at, rng.u64(10 * MINUTE..30 * MINUTE), Incident::Deploy(everywhere(), job));
}

fn dependency_fails(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    let job = Job::FailsAtStart("the database does not answer".to_owned());
    lasting(plan, at, rng.u64(5 * MINUTE..40 * MINUTE), Incident::Deploy(everywhere(), job));
}

fn disk_is_slow(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    let (host, every) = (member(rng), rng.u64(6 * MINUTE..HOUR));
    for round in 0..rng.u64(6..24) {
        let unwell = Incident::Unwell(host.clone(), "a write takes 4.1 s".to_owned());
        lasting(plan, at + round * every, rng.u64(MINUTE..5 * MINUTE), unwell);
    }
}

fn start_is_slow(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    let slow = Incident::Deploy(member(rng), Job::Slow(rng.u64(20 * SECOND..2 * MINUTE)));
    lasting(plan, at, rng.u64(2 * HOUR..8 * HOUR), slow);
}

fn upgrade(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    let night = at / DAY * DAY + HOUR;
    let mut order = MEMBERS;
    rng.shuffle(&mut order);
    for (turn, member) in order.iter().enumerate() {
        plan.push((
            night + turn as Millis * 10 * MINUTE,
            Incident::End(Where((*member).to_owned()), 4 * MINUTE),
        ));
    }
}

fn outage(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    lasting(plan, at, rng.u64(3 * SECOND..20 * SECOND), Incident::Outage);
}

fn values_waver(rng: &mut Rng, at: Millis, plan: &mut Plan) {
    for minute in 0..6 * 60 {
        for host in MEMBERS {
            let value = 500 - 60 + rng.u64(0..=120);
            let measure = Incident::Measure(Where(host.to_owned()), "fitness".to_owned(), value.to_string());
            plan.push((at + minute * MINUTE, measure));
        }
    }
}

fn lasting(plan: &mut Plan, at: Millis, lasts: Millis, incident: Incident) {
    plan.extend(incident.end().map(|end| (at + lasts, end)));
    plan.push((at, incident));
}

fn member(rng: &mut Rng) -> Where {
    Where(MEMBERS[rng.usize(..MEMBERS.len())].to_owned())
}

fn site(rng: &mut Rng) -> Where {
    Where(SITES[rng.usize(..SITES.len())].to_owned())
}

fn everywhere() -> Where {
    Where("all".to_owned())
}

/// The incidents of a year, and the operator, who checks at ten on working days.
fn plan(seed: u64, wavers: bool) -> Plan {
    let mut rng = Rng::with_seed(seed);
    let mut plan = vec![(0, Incident::Start(everywhere()))];
    for host in MEMBERS {
        let measure = Incident::Measure(Where(host.to_owned()), "fitness".to_owned(), "500".to_owned());
        plan.push((0, measure));
    }
    for kind in KINDS.iter().chain(wavers.then_some(&WAVERING)) {
        for _ in 0..kind.per_year {
            let at = rng.u64(DAY..LENGTH - 2 * DAY);
            (kind.draw)(&mut rng, at, &mut plan);
        }
    }
    let working_days = (0..LENGTH / DAY).filter(|day| day % 7 < 5);
    plan.extend(working_days.map(|day| (day * DAY + 10 * HOUR, Incident::Round)));
    plan
}

/// The totals of the year of a seed with these rules; `wavers`: whether measurements fluctuate.
///
/// # Errors
/// If the world can't be created.
pub fn live(rules: &Rules, seed: u64, wavers: bool) -> Result<Sum, String> {
    let mut world = World::new(rules.clone(), &MEMBERS, false)?;
    for (at, incident) in plan(seed, wavers) {
        world.plan(at, incident);
    }
    for day in 1..=LENGTH / DAY {
        world.run_until(day * DAY);
        world.forget_history();
    }
    Ok(world.account().sum())
}

/// A table of settings, one changed at a time.
struct Table {
    title: &'static str,
    /// The settings of all rows beside the defaults.
    base: &'static [&'static str],
    /// Whether the members' measurements fluctuate.
    wavers: bool,
    rows: &'static [&'static str],
}

const TABLES: [Table; 3] = [
    Table {
        title: "the defaults",
        base: &[],
        wavers: false,
        rows: &[
            r#"on_leader_failure="same-site-first""#,
            r#"on_leader_failure="prefer-order""#,
            r#"max_takeovers={ count = 2, within = "10m" }"#,
            r#"max_takeovers={ count = 10, within = "10m" }"#,
            r#"max_takeovers={ count = 50, within = "10m" }"#,
            r#"exclusion="30s""#,
            r#"exclusion="30m""#,
            r#"max_exclusion="5m""#,
            r#"max_exclusion="6h""#,
            r#"penalty_window="0s""#,
            r#"penalty_window="1h""#,
            r#"penalty_window="6h""#,
            r#"max_site_failures={ count = 1, within = "24h" }"#,
            r#"max_site_failures={ count = 8, within = "24h" }"#,
            r#"startup_wait="0s""#,
            r#"startup_wait="30s""#,
            r#"takeover_timeout="30s""#,
            r#"takeover_timeout="5m""#,
        ],
    },
    Table {
        title: "the defaults with automatic moves",
        base: &[AUTO],
        wavers: false,
        rows: &[
            r#"failback_after="1m""#,
            r#"failback_after="10m""#,
            r#"failback_after="2h""#,
            r#"failback_windows=["02:00-04:00"]"#,
            r#"min_tenure="0s""#,
            r#"min_tenure="10m""#,
            r#"min_tenure="2h""#,
            r#"on_leader_failure="same-site-first""#,
            r#"max_takeovers={ count = 2, within = "10m" }"#,
            r#"penalty_window="0s""#,
            r#"penalty_window="6h""#,
            r#"max_site_failures={ count = 1, within = "24h" }"#,
            r#"max_site_failures={ count = 8, within = "24h" }"#,
        ],
    },
    Table {
        title: "the same with a score that wavers, without a margin",
        base: &[AUTO, SCORE],
        wavers: true,
        rows: &[
            r#"pipeline=[{ stage = "score", margin = 50, attributes = { fitness = { worst = 0, best = 1000 } } }, "site-order", "incumbent"]"#,
            r#"pipeline=[{ stage = "score", margin = 130, attributes = { fitness = { worst = 0, best = 1000 } } }, "site-order", "incumbent"]"#,
            r#"failback_after="1m""#,
            r#"failback_after="10m""#,
            r#"min_tenure="0s""#,
            r#"min_tenure="2h""#,
            r#"max_takeovers={ count = 2, within = "10m" }"#,
        ],
    },
];

/// The number of years of which the tables of the document are the means.
pub const YEARS: u64 = 10;

/// The lines of the document between which the tables are.
const BEGIN: &str = "<!-- written by policy-world -->\n\n";
const END: &str = "\n<!-- end of what is written -->";

const HEAD: &str = "| setting | minutes without a leader | while somebody could lead | moves | not needed \
                    | hours outside of the first site |\n|---|---|---|---|---|---|\n";

/// The incidents and the tables, as Markdown, over this number of years.
///
/// # Errors
/// A setting that a worker refuses, or two leaders at once.
pub fn tables(years: u64) -> Result<String, String> {
    let mut out = kinds();
    for table in &TABLES {
        let _ = write!(out, "\n{HEAD}");
        for row in table.rows() {
            let _ = writeln!(out, "{}", table.line(row, years)?);
        }
    }
    Ok(out)
}

/// The document with these tables in it.
///
/// # Errors
/// If it has no marks for them.
pub fn written_into(document: &str, tables: &str) -> Result<String, String> {
    let (before, rest) = document.split_once(BEGIN).ok_or("the document does not say where tables begin")?;
    let (_, after) = rest.split_once(END).ok_or("the document does not say where tables end")?;
    Ok(format!("{before}{BEGIN}{tables}{END}{after}"))
}

/// The incidents of a year, as Markdown.
pub fn kinds() -> String {
    let mut out = String::from("| what happens | times a year |\n|---|---|\n");
    for kind in KINDS.iter().chain([&WAVERING]) {
        let _ = writeln!(out, "| {} | {} |", kind.what, kind.per_year);
    }
    out
}

/// The names of the rows.
pub fn rows() -> impl Iterator<Item = String> {
    TABLES.iter().flat_map(|table| table.rows().map(|row| table.words(row)))
}

/// The first line of the first table: the defaults.
///
/// # Errors
/// As of [`tables`].
pub fn defaults() -> Result<String, String> {
    TABLES[0].line(None, YEARS)
}

impl Table {
    fn rows(&self) -> impl Iterator<Item = Option<&'static str>> + use<> {
        std::iter::once(None).chain(self.rows.iter().copied().map(Some))
    }

    /// The name of a row: the setting; of a pipeline, the margin alone.
    fn words(&self, row: Option<&str>) -> String {
        let Some(setting) = row else { return self.title.to_owned() };
        let margin = setting.split_once("margin = ").and_then(|(_, rest)| rest.split_once(','));
        match margin {
            Some((margin, _)) => format!("`margin = {margin}`"),
            None => format!("`{}`", setting.replacen('=', " = ", 1)),
        }
    }

    /// A row, as means over the years.
    fn line(&self, row: Option<&str>, years: u64) -> Result<String, String> {
        let settings = [BASE].into_iter().chain(self.base.iter().copied()).chain(row);
        let rules = Rules::of(settings.map(str::to_owned)).map_err(|e| format!("{row:?}: {e}"))?;
        let lived = (1..=years).map(|seed| live(&rules, seed, self.wavers));
        let lived = lived.collect::<Result<Vec<_>, _>>()?;
        if let Some(year) = lived.iter().position(|year| year.doubles > 0) {
            return Err(format!("{row:?}: two leaders at once in the year of seed {}", year + 1));
        }
        let mean = |of: fn(&Sum) -> u64, unit: Millis| {
            lived.iter().map(of).sum::<u64>() as f64 / years as f64 / unit as f64
        };
        Ok(format!(
            "| {} | {:.1} | {:.1} | {:.0} | {:.1} | {:.0} |",
            self.words(row),
            mean(|year| year.vacant_ms, MINUTE),
            mean(|year| year.idle_ms, MINUTE),
            mean(|year| year.moves as u64, 1),
            mean(|year| year.needless as u64, 1),
            mean(|year| year.away_ms, HOUR),
        ))
    }
}
