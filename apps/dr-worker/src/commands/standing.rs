//! Standing orders: what a change of them reports.

use election_admin::orders::Ordered;
use election_core::{
    config::SiteId,
    internals::record::{Control, FailedSite, Maintenance, Mode},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::schema::Object;

use super::operation::{Ask, Election, Order, OrderChange, Outcome, Report};

/// The standing orders of a job after a change.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StandingOrders {
    /// The job.
    election: String,
    /// Whether the change made a difference.
    changed: bool,
    #[schemars(with = "String")]
    mode: Mode,
    #[schemars(with = "Vec<String>")]
    drained: Vec<SiteId>,
    #[schemars(with = "Vec<Object>")]
    failed_sites: Vec<FailedSite>,
    #[schemars(with = "Vec<Object>")]
    maintenance: Vec<Maintenance>,
    #[schemars(with = "Option<String>")]
    preferred_site: Option<SiteId>,
    #[schemars(with = "Vec<String>")]
    site_order: Vec<SiteId>,
}

impl Outcome for StandingOrders {
    const IS_ORDER: bool = true;
}

impl StandingOrders {
    /// A change that is always possible, and not dangerous.
    pub(super) fn ask<'a>(
        of: &'a Election<'a>,
        what: String,
        mut change: impl FnMut(&mut Control) + Send + 'a,
    ) -> Ask<'a, Self> {
        let change = move |control: &mut Control| {
            change(control);
            Ok(())
        };
        Ask::Order(Self::order(of, what, Box::new(change)))
    }

    /// A change that reports the orders in force, and is not dangerous.
    pub(super) fn order<'a>(of: &'a Election<'a>, what: String, change: OrderChange<'a>) -> Order<'a, Self> {
        let report = |ordered: &Ordered| Report::new(Self::new(of.job, ordered), describe(of.job, ordered));
        Order::new(what, change, report)
    }

    fn new(job: &str, ordered: &Ordered) -> Self {
        let Control { mode, drained, failed_sites, maintenance, preferred_site, site_order, .. } =
            ordered.after.clone();
        let (election, changed) = (job.to_owned(), ordered.is_news());
        Self { election, changed, mode, drained, failed_sites, maintenance, preferred_site, site_order }
    }
}

fn describe(job: &str, ordered: &Ordered) -> String {
    let control = &ordered.after;
    let mut orders =
        describe_orders(control.mode, &control.drained, &control.preferred_site, &control.site_order);
    orders.extend(control.closed());
    orders.extend(control.failed_sites.iter().map(|failed| format!("site {} has failed", failed.site)));
    orders.extend(control.maintenance.iter().map(ToString::to_string));
    if control.mode == Mode::Auto {
        orders.insert(0, "mode auto".to_owned());
    }
    let nothing = if ordered.is_news() { "" } else { "nothing to change; in force: " };
    format!("{job}: {nothing}{}", orders.join(", "))
}

/// Standing orders as text; defaults are left out.
pub(crate) fn describe_orders(
    mode: Mode,
    drained: &[SiteId],
    preferred: &Option<SiteId>,
    order: &[SiteId],
) -> Vec<String> {
    let mut orders = Vec::new();
    if mode != Mode::Auto {
        orders.push(format!("mode {mode}"));
    }
    orders.extend(drained.iter().map(|site| format!("site {site} is drained")));
    orders.extend(preferred.iter().map(|site| format!("site {site} is preferred")));
    if !order.is_empty() {
        let order: Vec<_> = order.iter().map(|site| site.as_str()).collect();
        orders.push(format!("sites in the order {}", order.join(", ")));
    }
    orders
}
