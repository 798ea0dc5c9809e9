//! The setup of a cluster: its configuration, as keys and values.

use std::time::Duration;

use toml::{Table, Value};

use crate::driver::Driver;
use crate::programs::DR_WORKER;
use crate::shared_ensemble::TICK;

/// The usual job.
pub const JOB: &str = "orders";

/// The hosts of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On loopback.
    Here,
    /// Each on its own host, in the ensemble's network.
    Hosts,
    /// The same, and they reach each other's HTTP endpoints through delaying relays.
    DelayedHosts,
}

/// The configuration of all workers of a cluster, and the differences between workers.
#[derive(Clone, Debug)]
pub struct Setup {
    pub(crate) workers: Vec<(&'static str, &'static str)>,
    pub(crate) started: bool,
    pub(crate) place: Place,
    /// Workers on hosts of servers.
    pub(crate) beside: Vec<(&'static str, usize)>,
    pub(crate) ledger: Option<(u32, Duration)>,
    pub(crate) options: Vec<&'static str>,
    pub(crate) command: Option<Vec<String>>,
    pub(crate) program: &'static str,
    pub(crate) common: Table,
    pub(crate) own: Vec<(&'static str, Table)>,
}

impl Setup {
    /// Two sites with two workers each, and the job `e2e-job`. All times are as short as a busy machine permits.
    pub fn new(driver: Driver) -> Self {
        let setup = Self {
            workers: vec![("east-1", "east"), ("east-2", "east"), ("west-1", "west"), ("west-2", "west")],
            started: true,
            place: Place::Here,
            beside: Vec::new(),
            ledger: None,
            options: Vec::new(),
            command: None,
            program: DR_WORKER,
            common: Table::new(),
            own: Vec::new(),
        };
        setup
            .set("zookeeper.driver", driver.to_string())
            .set("zookeeper.session_timeout", "6s")
            .set("zookeeper.tick_time", format!("{}ms", TICK.as_millis()))
            .set("policy.sites", vec!["east", "west"])
            // A test has as many takeovers in a minute as a deployment in a year.
            .set("policy.max_takeovers.count", 50)
            .set("job.orders.stop_timeout", "1s")
            .set("job.orders.ready.after", "0s")
            .set("job.orders.fenced", true)
    }

    /// Other workers than the usual four, as `(id, site)`.
    #[must_use]
    pub fn workers(mut self, workers: &[(&'static str, &'static str)]) -> Self {
        self.workers = workers.to_vec();
        self
    }

    /// Runs the workers and the operator's commands with this program of the workspace instead of `dr-worker`.
    #[must_use]
    pub fn program(mut self, name: &'static str) -> Self {
        self.program = name;
        self
    }

    /// Don't start the workers.
    #[must_use]
    pub fn not_started(mut self) -> Self {
        self.started = false;
        self
    }

    /// Each worker has its own host; the ensemble must be in namespaces too.
    #[must_use]
    pub fn on_hosts(mut self) -> Self {
        self.place = Place::Hosts;
        self
    }

    /// The host of a worker is that of a server of the ensemble. With [`on_hosts`](Self::on_hosts).
    #[must_use]
    pub fn beside_server(mut self, id: &'static str, server: usize) -> Self {
        self.beside.push((id, server));
        self
    }

    /// The same as [`on_hosts`](Self::on_hosts), with delays between them: see [`Delays`](crate::Delays).
    #[must_use]
    pub fn on_delayed_hosts(mut self) -> Self {
        self.place = Place::DelayedHosts;
        self
    }

    /// The job is the ledger, with so many orders and this pause after each.
    #[must_use]
    pub fn ledger(mut self, orders: u32, pace: Duration) -> Self {
        self.ledger = Some((orders, pace));
        self
    }

    /// The job is this program.
    #[must_use]
    pub fn command(mut self, command: Vec<String>) -> Self {
        self.command = Some(command);
        self
    }

    /// Options for the job `e2e-job`.
    #[must_use]
    pub fn job_options(mut self, options: &[&'static str]) -> Self {
        self.options = options.to_vec();
        self
    }

    /// Sets a key, such as `policy.min_tenure`, for all workers.
    ///
    /// # Panics
    /// If a part of the key is set to a value that is no table.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        put(&mut self.common, key, value.into());
        self
    }

    /// Sets all keys of this table, for all workers.
    #[must_use]
    pub fn with(mut self, table: &Table) -> Self {
        merge(&mut self.common, table);
        self
    }

    /// Removes a key or a section, for its default.
    ///
    /// # Panics
    /// If it was not set.
    #[must_use]
    pub fn unset(mut self, key: &str) -> Self {
        let (above, name) = key.rsplit_once('.').unwrap_or(("", key));
        let mut parts = above.split('.').filter(|part| !part.is_empty());
        let section = parts.try_fold(&mut self.common, |table, part| table.get_mut(part)?.as_table_mut());
        let value = section.and_then(|table| table.remove(name));
        assert!(value.is_some(), "{key} was not set");
        self
    }

    /// Sets a key for one worker.
    ///
    /// # Panics
    /// As [`set`](Self::set).
    #[must_use]
    pub fn set_for(mut self, id: &'static str, key: &str, value: impl Into<Value>) -> Self {
        put(self.own_of(id), key, value.into());
        self
    }

    /// Sets all keys of this table, for one worker.
    #[must_use]
    pub fn with_for(mut self, id: &'static str, table: &Table) -> Self {
        merge(self.own_of(id), table);
        self
    }

    fn own_of(&mut self, id: &'static str) -> &mut Table {
        let at = self.own.iter().position(|(known, _)| *known == id).unwrap_or_else(|| {
            self.own.push((id, Table::new()));
            self.own.len() - 1
        });
        &mut self.own[at].1
    }
}

pub(crate) fn merge(into: &mut Table, from: &Table) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Table(known)), Value::Table(more)) => merge(known, more),
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

pub(crate) fn put(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((section, rest)) => {
            let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            let Value::Table(section) = section else { panic!("{key}: a part of it is no table") };
            put(section, rest, value);
        }
    }
}
