use std::{env, fmt};

use super::{COALESCED, Change, Crowd, Group, Kind, Loss, Rest, Who};
use election_core::internals::BATCH;

/// How many members an ordinary run has.
const MEMBERS: usize = 500;

/// How many sites, where their number does not matter.
const SITES: usize = 3;

/// Requests of a passive member at a change: two reads of the decision and of the leader znode each, and a read of a znode
/// that does not exist takes two requests.
const PASSIVE: u64 = 8;

/// Requests of all members but the one that is lost and the next leader, whichever is lost; if all follow who leads, without the
/// two reads of each passive one. The member that is the elector next reads all records, `BATCH` by one request, twice of 500.
const BEYOND: u64 = 20;
const ALL_RECORDS: u64 = 2;

/// Requests of all members together.
const TOGETHER: u64 = 36;

/// Requests of a member in line: it reads each state of the two at once, up to four of the decision and three of the leader
/// znode, and lists the ballots if the one before its own is gone.
const IN_LINE: u64 = 16;

/// Requests of a member that acts: each step of leaving, deciding and taking over is one, and watches begin and end.
const ACTIVE: u64 = 48;

/// Writes of a change by all members: those steps, the records of the members that act, the history.
const WRITES: u64 = 24;

/// Requests of the one member of a queue that is next now: it reads the record of the one before it.
const NEXT: u64 = 6;

/// Requests of each member of the recipe `single` at a change: a creation, a read of the winner's znode, and the reads of
/// its watch: on the deletion, the creation and READY.
const CONTENDER: u64 = 8;

/// Requests of a member until it has joined, without those that are due to the number of members.
const JOINS: u64 = 24;

/// How far two runs are apart that differ only in the order of their messages.
const APART: u64 = 6;

struct Measured {
    kind: Kind,
    members: usize,
    sites: usize,
    joined: Group,
    rest: Rest,
    changes: Vec<(&'static str, Change)>,
    /// A killed member that starts again, and all others.
    restart: Option<(Group, Group)>,
}

const fn losses(kind: Kind) -> &'static [(&'static str, Who, Loss)] {
    match kind {
        Kind::Elector => &[
            ("the leader, who decides, leaves", Who::Elector, Loss::Leaves),
            ("the leader, who decides, crashes", Who::Elector, Loss::Crashes),
        ],
        Kind::AllFollow => &[
            ("the leader leaves", Who::Leader, Loss::Leaves),
            ("the leader crashes", Who::Leader, Loss::Crashes),
        ],
        Kind::ElectorStays => &[
            ("the leader leaves", Who::Leader, Loss::Leaves),
            ("the leader crashes", Who::Leader, Loss::Crashes),
            ("a passive member leaves", Who::Onlooker, Loss::Leaves),
            ("a passive member crashes", Who::Onlooker, Loss::Crashes),
            ("the elector leaves", Who::Elector, Loss::Leaves),
            ("the elector crashes", Who::Elector, Loss::Crashes),
        ],
        Kind::Queue | Kind::Single => &[
            ("the leader leaves", Who::Leader, Loss::Leaves),
            ("the leader crashes", Who::Leader, Loss::Crashes),
            ("another member leaves", Who::Onlooker, Loss::Leaves),
            ("another member crashes", Who::Onlooker, Loss::Crashes),
        ],
    }
}

fn measure(kind: Kind, members: usize, sites: usize) -> Measured {
    let mut crowd = Crowd::gather(kind, members, sites);
    let (joined, rest) = (crowd.all(), crowd.rest());
    let mut changes = Vec::new();
    for (what, who, loss) in losses(kind) {
        // Afterwards another member decides, or leads: those losses have a crowd of their own.
        let mut other = (*who == Who::Elector).then(|| Crowd::gather(kind, members, sites));
        changes.push((*what, other.as_mut().unwrap_or(&mut crowd).change(*who, *loss)));
    }
    let restart = matches!(kind, Kind::ElectorStays | Kind::Queue).then(|| crowd.restart());
    let measured = Measured { kind, members, sites, joined, rest, changes, restart };
    println!("{measured}");
    measured
}

/// Half of the members, and all.
fn half_and_all(kind: Kind) -> [Measured; 2] {
    let all = members();
    [all / 2, all].map(|members| measure(kind, members, SITES))
}

fn members() -> usize {
    let Ok(text) = env::var("CROWD") else { return MEMBERS };
    let members = text.parse().unwrap_or_else(|_| panic!("CROWD must be a number, and is {text:?}"));
    assert!(members >= 64, "CROWD is {members}: of so few members hardly one is passive");
    members
}

// ---- the bounds ----

impl Measured {
    fn check(&self, holds: bool, what: &str) {
        assert!(holds, "{what}\n{self}");
    }

    /// Nobody reads, writes or is notified at rest, and at most so many sessions send heartbeats.
    fn is_quiet(&self, leases: usize) {
        let Rest { seconds, total, leases: keepers, .. } = &self.rest;
        self.check(total.requests() + total.events == 0, "a crowd at rest sends nothing but heartbeats");
        self.check(keepers.len() <= leases, "no more members keep a lease than may have to act");
        let beats = keepers.len() as u64 * (seconds * 4 / 10 + 1);
        self.check(total.heartbeats <= beats, "a lease takes four heartbeats in a session timeout");
    }

    fn each_change(&self, check: impl Fn(&Change)) {
        for (_, change) in &self.changes {
            check(change);
        }
    }

    /// What an election with an elector costs, for any number of members.
    fn involves_few(&self) {
        self.is_quiet(3);
        self.check(self.rest.leases.is_subset(&self.rest.involved), "who is passive keeps no lease");
        self.each_change(|change| {
            let all_records = self.members.div_ceil(BATCH) as u64;
            for group in [&change.old, &change.successor, &change.elector] {
                self.check(group.most_requests <= ACTIVE + all_records, "who acts sends few requests");
            }
            self.check(change.in_line.most_requests <= IN_LINE, "who is in line sends few requests");
            let beyond = BEYOND + all_records.saturating_sub(ALL_RECORDS);
            self.check(change.beyond <= beyond, "all others send few requests");
            if self.kind != Kind::AllFollow {
                let together = TOGETHER + all_records.saturating_sub(ALL_RECORDS);
                self.check(change.total().requests() <= together, "all together send few requests");
                self.check(
                    change.others.total.requests() <= PASSIVE,
                    "who is passive sends nothing, or lists the ballots",
                );
            }
            self.check(change.others.most_requests <= PASSIVE, "who is passive sends few requests");
            self.check(change.others.most_events <= PASSIVE, "who is passive is seldom notified");
            self.check(change.others.total.writes == 0, "who is passive writes nothing");
            self.check(change.total().writes <= WRITES, "a change takes few writes");
            self.check(change.takes < COALESCED / 2, "who is passive and named reads without a delay");
        });
    }
}

/// Twice the members take at most twice the requests to join, and write no more at a change.
fn compare(half: &Measured, all: &Measured) {
    let (requests, twice) = (all.joined.total.requests(), 2 * half.joined.total.requests());
    all.check(requests <= JOINS * all.members as u64, "a member joins with few requests");
    all.check(requests <= twice + twice / 10, "twice the members, twice the requests to join");
    for ((_, change), (what, before)) in all.changes.iter().zip(&half.changes) {
        let (requests, before) = (change.total().requests(), before.total().requests());
        // Those that have gone are missing twice.
        let twice = 2 * (before + CONTENDER) + APART;
        all.check(requests <= twice, &format!("{what}: twice the members, twice the requests"));
    }
}

fn writes_as_much(one: &Measured, other: &Measured) {
    for ((_, change), (what, before)) in one.changes.iter().zip(&other.changes) {
        let (writes, before) = (change.total().writes, before.total().writes);
        one.check(writes.abs_diff(before) <= APART, &format!("{what}: the same writes, or nearly"));
    }
}

/// However many members there are. Returns what half of them and all of them cost.
fn a_change_involves_few(kind: Kind) -> [Measured; 2] {
    let [half, all] = half_and_all(kind);
    for measured in [&half, &all] {
        measured.involves_few();
    }
    compare(&half, &all);
    writes_as_much(&half, &all);
    [half, all]
}

#[test]
fn a_change_under_an_elector_involves_few_members() {
    for measured in a_change_involves_few(Kind::ElectorStays) {
        let Some((own, others)) = measured.restart else { continue };
        measured.check(own.most_requests <= ACTIVE, "a member that starts again sends few requests");
        // The one behind its former ballot lists the ballots.
        measured
            .check(others.total.requests() <= ACTIVE, "another one that starts again concerns few members");
    }
}

#[test]
fn all_can_follow_who_leads() {
    a_change_involves_few(Kind::AllFollow);
}

#[test]
fn an_elector_that_is_lost_with_its_leadership_costs_one_reading_of_all_records() {
    a_change_involves_few(Kind::Elector);
}

#[test]
fn the_number_of_sites_costs_nothing() {
    let [two, eight] = [2, 8].map(|sites| measure(Kind::ElectorStays, members() / 2, sites));
    for measured in [&two, &eight] {
        measured.involves_few();
    }
    writes_as_much(&two, &eight);
}

#[test]
fn a_change_in_a_queue_concerns_one_other_member() {
    let [half, all] = half_and_all(Kind::Queue);
    for measured in [&half, &all] {
        measured.is_quiet(2);
        measured.each_change(|change| {
            measured.check(change.others.total.requests() <= NEXT, "one other member reads what has changed");
            measured.check(change.others.total.events <= NEXT, "one other member is notified");
            measured.check(change.beyond <= BEYOND, "all others send few requests");
            measured.check(change.total().writes <= WRITES, "a change takes few writes");
        });
        let Some((own, others)) = measured.restart else { continue };
        let records = measured.members as u64;
        measured.check(own.most_requests <= ACTIVE + records, "who starts again reads each record once");
        measured.check(others.total.requests() <= NEXT, "another one that starts again concerns one member");
    }
    compare(&half, &all);
    for ((_, change), (what, before)) in all.changes.iter().zip(&half.changes) {
        let (requests, before) = (change.total().requests(), before.total().requests());
        all.check(requests <= before + APART, &format!("{what}: twice the members, the same requests"));
    }
}

#[test]
fn a_change_of_a_single_znode_concerns_each_member_once() {
    let [half, all] = half_and_all(Kind::Single);
    for measured in [&half, &all] {
        measured.is_quiet(1);
        measured.each_change(|change| {
            measured.check(change.others.most_requests <= CONTENDER, "each member tries once");
            measured.check(change.others.total.writes <= measured.members as u64, "each member writes once");
        });
    }
    compare(&half, &all);
}

// ---- the table ----

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { members, sites, .. } = self;
        let what = match self.kind {
            Kind::Elector => format!("elector, which leads, {sites} sites"),
            Kind::ElectorStays => format!("elector, which does not lead, {sites} sites"),
            Kind::AllFollow => format!("elector, which does not lead, all follow, {sites} sites"),
            Kind::Queue => "queue".to_owned(),
            Kind::Single => "single".to_owned(),
        };
        let what = format!("{what}, {members} members");
        write!(
            f,
            "{what:<58}{:>8}{:>9}{:>8}{:>10}{:>12}",
            "members", "reads", "writes", "notified", "names"
        )?;
        writeln!(f, "   most of one: requests, notified")?;
        row(f, "until all have joined", "", &self.joined)?;
        for (what, change) in &self.changes {
            let Change { old, successor, elector, in_line, others, .. } = change;
            let groups = [
                ("that member", old),
                ("the leader now", successor),
                ("the elector", elector),
                ("in line", in_line),
                ("all others", others),
            ];
            for (who, group) in groups {
                row(f, what, who, group)?;
            }
            let beyond = change.beyond;
            let reads = if self.kind == Kind::AllFollow { ", beyond two reads of each" } else { "" };
            let together = change.total().requests();
            writeln!(
                f,
                "  {what:<38}all but the old and the next leader: {beyond} requests{reads}; all together: {together}"
            )?;
        }
        if let Some((own, others)) = &self.restart {
            row(f, "a member is killed and starts again", "that member", own)?;
            row(f, "a member is killed and starts again", "all others", others)?;
        }
        let Rest { seconds, total, leases, .. } = &self.rest;
        let (leases, each) = (leases.len(), total.heartbeats as f64 / *seconds as f64);
        write!(f, "at rest: {leases} sessions keep a lease and send {each:.1} heartbeats a second;")?;
        let (reads, writes, events) = (total.reads, total.writes, total.events);
        writeln!(f, " {reads} reads, {writes} writes and {events} notifications in {seconds} s")
    }
}

fn row(f: &mut fmt::Formatter<'_>, what: &str, who: &str, group: &Group) -> fmt::Result {
    let Group { members, total, most_requests, most_events } = group;
    if *members == 0 || total.requests() + total.events == 0 {
        return Ok(());
    }
    let (reads, writes, events, names) = (total.reads, total.writes, total.events, total.names);
    write!(f, "  {what:<38}{who:<18}{members:>8}{reads:>9}{writes:>8}{events:>10}{names:>12}")?;
    writeln!(f, "{most_requests:>24}{most_events:>10}")
}
