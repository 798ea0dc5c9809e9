//! `ledger check`: does the store hold exactly what the orders require?
//!
//! It does not rely on any trigger or constraint of the store: it recomputes everything from the orders and the
//! records, so that a defective fence is found as well.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::Serialize;

use crate::cli::Output;
use crate::failure::Failure;
use crate::orders::{self, Order};
use crate::output::{print_json, print_line};
use crate::store::{self, ClaimRecord, Refused, Snapshot, StoreAddress};

/// How many examples of a fault are named.
const EXAMPLES: usize = 3;

/// Checks, prints what was found, and fails if anything is wrong.
pub(crate) fn run(orders: &Path, address: &StoreAddress, output: Output) -> Result<(), Failure> {
    let orders = orders::read(orders)?;
    let snapshot = store::open_existing(address)?.snapshot()?;
    let report = Report::of(&orders, &snapshot);
    match output {
        Output::Json => print_json(&report)?,
        Output::Pretty => print_line(&report.in_words())?,
    }
    if report.ok { Ok(()) } else { Err(Failure::CheckFailed { problems: report.problems.len() }) }
}

/// The result of a check. `ok` exactly if `problems` is empty.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    /// Orders in the file.
    orders: usize,
    /// Entries in the store.
    booked: usize,
    /// Orders without an entry.
    lost: usize,
    /// Entries beyond the first of an order.
    twice: usize,
    /// Entries without an order.
    unknown: usize,
    /// Entries whose account, currency or amount is not the order's.
    altered: usize,
    accounts: usize,
    /// Balances that are not the sum of the orders.
    wrong_balances: usize,
    /// Bookings under an older token than one claimed before them, or than that
    /// of the entry before.
    late_accepted: usize,
    /// Late writes that the store refused.
    refused: Refused,
    /// The number of bookings of each leadership, oldest token first.
    leaderships: Vec<Share>,
    /// One sentence for each kind of fault.
    problems: Vec<String>,
}

/// One leadership's part in the ledger.
#[derive(Debug, Serialize)]
struct Share {
    token: i64,
    term: i64,
    member: String,
    site: String,
    claimed_at: String,
    booked: usize,
}

impl Report {
    fn of(orders: &[Order], snapshot: &Snapshot) -> Self {
        let mut faults = Faults::default();
        let by_id: HashMap<&str, &Order> =
            orders.iter().map(|order| (order.order_id.as_str(), order)).collect();

        let mut times_booked: HashMap<&str, usize> = HashMap::new();
        for entry in &snapshot.entries {
            let times = times_booked.entry(&entry.order_id).or_default();
            *times += 1;
            if *times > 1 {
                faults.twice.push(entry.order_id.clone());
            }
            match by_id.get(entry.order_id.as_str()) {
                None => faults.unknown.push(entry.order_id.clone()),
                Some(order)
                    if (&order.account, &order.currency, order.amount_cents)
                        != (&entry.account, &entry.currency, entry.amount_cents) =>
                {
                    faults.altered.push(entry.order_id.clone());
                }
                Some(_) => {}
            }
        }
        for order in orders {
            if !times_booked.contains_key(order.order_id.as_str()) {
                faults.lost.push(order.order_id.clone());
            }
        }
        check_balances(orders, snapshot, &mut faults);
        check_numbers(snapshot, &mut faults);
        check_tokens(snapshot, &mut faults);

        let mut booked_by_token: BTreeMap<i64, usize> = BTreeMap::new();
        for entry in &snapshot.entries {
            *booked_by_token.entry(entry.token).or_default() += 1;
        }
        let leaderships = snapshot.claims.iter().map(|claim| Share {
            token: claim.token,
            term: claim.term,
            member: claim.member.clone(),
            site: claim.site.clone(),
            claimed_at: claim.claimed_at.clone(),
            booked: booked_by_token.get(&claim.token).copied().unwrap_or(0),
        });

        let problems = faults.in_words();
        Self {
            ok: problems.is_empty(),
            orders: orders.len(),
            booked: snapshot.entries.len(),
            lost: faults.lost.len(),
            twice: faults.twice.len(),
            unknown: faults.unknown.len(),
            altered: faults.altered.len(),
            accounts: snapshot.balances.len(),
            wrong_balances: faults.balances.len(),
            late_accepted: faults.late.len(),
            refused: snapshot.refused,
            leaderships: leaderships.collect(),
            problems,
        }
    }

    fn in_words(&self) -> String {
        let mut lines = vec![
            format!("{} orders, {} entries in the store.", self.orders, self.booked),
            format!(
                "Lost: {}. Booked twice: {}. Of no order: {}. Altered: {}.",
                self.lost, self.twice, self.unknown, self.altered
            ),
            format!("{} balances, {} of them wrong.", self.accounts, self.wrong_balances),
            format!(
                "Writes of deposed leaders: {} bookings and {} claims refused, {} accepted.",
                self.refused.bookings, self.refused.claims, self.late_accepted
            ),
        ];
        for share in &self.leaderships {
            let site = if share.site.is_empty() { String::new() } else { format!(" of site {}", share.site) };
            lines.push(format!(
                "Token {} (term {}): {}{site} claimed it at {} and booked {}.",
                share.token, share.term, share.member, share.claimed_at, share.booked
            ));
        }
        for problem in &self.problems {
            lines.push(format!("WRONG: {problem}"));
        }
        lines.push(if self.ok {
            "Every order is booked once, and every balance agrees.".into()
        } else {
            "The ledger is not right.".into()
        });
        lines.join("\n")
    }
}

/// Each kind of fault, with what it was found in.
#[derive(Debug, Default)]
struct Faults {
    lost: Vec<String>,
    twice: Vec<String>,
    unknown: Vec<String>,
    altered: Vec<String>,
    balances: Vec<String>,
    numbers: Vec<String>,
    late: Vec<String>,
    unclaimed: Vec<String>,
    claim: Vec<String>,
}

impl Faults {
    fn in_words(&self) -> Vec<String> {
        [
            ("not booked (lost, or still to come)", &self.lost),
            ("booked more than once", &self.twice),
            ("booked, but in no order", &self.unknown),
            ("booked with another account, currency or amount than ordered", &self.altered),
            ("balance other than the sum of the orders", &self.balances),
            ("entry numbers do not run from 1 without a gap", &self.numbers),
            ("booked under an older token than the store had seen by then", &self.late),
            ("booked under a token that was not claimed by then", &self.unclaimed),
            ("the claim does not agree with the record of claims", &self.claim),
        ]
        .into_iter()
        .filter(|(_, found)| !found.is_empty())
        .map(|(what, found)| {
            let more = if found.len() > EXAMPLES { ", ..." } else { "" };
            format!("{what}: {} ({}{more})", found.len(), found[..found.len().min(EXAMPLES)].join(", "))
        })
        .collect()
    }
}

fn check_balances(orders: &[Order], snapshot: &Snapshot, faults: &mut Faults) {
    // i128: a sum of 64-bit amounts can't overflow it.
    let mut expected: BTreeMap<(&str, &str), i128> = BTreeMap::new();
    for order in orders {
        *expected.entry((&order.account, &order.currency)).or_default() += i128::from(order.amount_cents);
    }
    for balance in &snapshot.balances {
        let wanted = expected.remove(&(balance.account.as_str(), balance.currency.as_str()));
        if wanted != Some(i128::from(balance.balance_cents)) {
            faults.balances.push(format!(
                "{} {}: {}, should be {}",
                balance.account,
                balance.currency,
                balance.balance_cents,
                wanted.unwrap_or(0)
            ));
        }
    }
    for ((account, currency), wanted) in expected {
        faults.balances.push(format!("{account} {currency}: missing, should be {wanted}"));
    }
}

fn check_numbers(snapshot: &Snapshot, faults: &mut Faults) {
    for (expected, entry) in (1_i64..).zip(&snapshot.entries) {
        if entry.number != expected {
            faults.numbers.push(format!("{} where {expected} was due", entry.number));
            // All entries after it are out of step as well.
            break;
        }
    }
}

fn check_tokens(snapshot: &Snapshot, faults: &mut Faults) {
    // Oldest first, so the last one that came before an entry is the newest.
    let mut claims = snapshot.claims.iter().peekable();
    let mut seen = 0;
    for entry in &snapshot.entries {
        while let Some(claim) = claims.next_if(|claim| claim.entries_before < entry.number) {
            seen = seen.max(claim.token);
        }
        if entry.token < seen {
            faults.late.push(format!("{} under {} after {seen}", entry.order_id, entry.token));
        }
        seen = seen.max(entry.token);
        let claimed = |claim: &ClaimRecord| claim.token == entry.token && claim.entries_before < entry.number;
        if !snapshot.claims.iter().any(claimed) {
            faults.unclaimed.push(format!("{} under {}", entry.order_id, entry.token));
        }
    }
    let newest = snapshot.claims.iter().map(|claim| claim.token).max().unwrap_or(0);
    if snapshot.token != newest {
        faults.claim.push(format!("claimed: {}, newest on record: {newest}", snapshot.token));
    }
    for pair in snapshot.claims.windows(2) {
        if pair[0].entries_before > pair[1].entries_before {
            faults.claim.push(format!(
                "token {} was claimed before the older token {}",
                pair[1].token, pair[0].token
            ));
        }
    }
}
