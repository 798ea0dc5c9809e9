//! What a worker does by its configuration beside its elections. A part is started anew where its settings change.

use std::{collections::BTreeMap, future::pending, sync::Arc};

use election_core::{
    Election,
    internals::record::{AppliedOverlay, Health},
};
use job_guard::Guards;
use tokio::{net::TcpListener, sync::watch};

use super::{
    fitness, following,
    http_port::HttpPort,
    led::{self, OwnJob},
    measure,
    measured::Measured,
    settings::{election, needs},
    site_check, standby_state,
    task::Task,
};
use crate::{
    config::{self, Config, JobConfig},
    worker::{
        balance::Balanced,
        probes::{self, Prober},
        state::{JobSlot, Others, SeenJob},
    },
};

/// The parts of a worker that has joined its elections.
pub(super) struct Parts {
    pub(super) http: HttpPort,
    pub(super) guards: Guards,
    /// Sorted by name, as in the configuration.
    pub(super) jobs: Vec<JobParts>,
    pub(super) led: Vec<Task>,
    others: Arc<Others>,
    following: Vec<Task>,
    other_jobs: watch::Receiver<BTreeMap<String, SeenJob>>,
    pub(super) site_check: Option<Task>,
    pub(super) balanced: Option<watch::Sender<Balanced>>,
}

/// The parts beside the election of one job.
pub(super) struct JobParts {
    pub(super) slot: Arc<JobSlot>,
    pub(super) prober: Prober,
    pub(super) measured: Arc<Measured>,
    /// None of these three once this member has left the election for good.
    probing: Option<Task>,
    measuring: Option<Task>,
    checking: Option<Task>,
    /// Keeps the standby, and publishes its state.
    standing_by: Option<[Task; 2]>,
}

impl JobParts {
    /// `is_again`: this member continues, and has reported its health.
    pub(super) fn start(slot: Arc<JobSlot>, prober: Prober, is_again: bool) -> Self {
        let spec = slot.spec();
        let measured = Arc::new(Measured::of(prober.election.clone()));
        let probing = Some(Task::spawn(probes::run(prober.clone())));
        let mut parts =
            Self { slot, prober, measured, probing, measuring: None, checking: None, standing_by: None };
        parts.measuring = spec.measure.clone().map(|measure| parts.measure(measure));
        parts.checking = parts.check(spec.fitness.clone(), is_again);
        parts.standing_by = parts.slot.standby().map(|standby| {
            let (job, publishes) = (parts.slot.name().to_owned(), Arc::clone(&parts.measured));
            let publish = standby_state::keep(Arc::clone(standby), job, publishes);
            [Task::spawn(Arc::clone(standby).keep()), Task::spawn(publish)]
        });
        parts
    }

    fn election(&self) -> Election {
        self.prober.election.clone()
    }

    fn measure(&self, measure: config::Measure) -> Task {
        let publishes = Arc::clone(&self.measured);
        Task::spawn(measure::keep(Arc::clone(&self.slot), self.election(), publishes, measure))
    }

    /// `None` if nothing says whether this member is fit.
    fn check(&self, check: Option<config::Check>, is_again: bool) -> Option<Task> {
        let (slot, election) = (Arc::clone(&self.slot), self.election());
        let standby = self.slot.requires_standby();
        (standby || check.is_some()).then(|| Task::spawn(fitness::keep(slot, election, check, is_again)))
    }

    fn take_over(
        &mut self,
        (old, new): (&Config, &Config),
        (was, is): (&JobConfig, &JobConfig),
        http_port: u16,
    ) {
        if self.probing.is_none() {
            return;
        }
        self.slot.set_config(is);
        let settings = election(new, is, &self.prober.paths, &self.slot, http_port);
        self.prober.election.reconfigure(settings);
        if was.spec.measure != is.spec.measure {
            self.measuring = is.spec.measure.clone().map(|measure| self.measure(measure));
            if self.measuring.is_none() {
                self.measured.change(is.name(), |parts| parts.by_command.clear());
            }
        }
        if was.spec.fitness != is.spec.fitness {
            // The last result counts until the new check has one.
            self.checking = self.check(is.spec.fitness.clone(), false);
            if self.checking.is_none() {
                self.prober.election.set_health(Health::Unchecked);
            }
        }
        let needs = needs(is);
        if self.prober.needs != needs || old.probes != new.probes {
            (self.prober.needs, self.prober.probes) = (needs, new.probes.clone());
            self.probing = Some(Task::spawn(probes::run(self.prober.clone())));
        }
    }
}

impl Parts {
    pub(super) fn new(http: HttpPort, guards: Guards, others: Arc<Others>) -> Self {
        let other_jobs = others.changes();
        let (jobs, led, following) = (Vec::new(), Vec::new(), Vec::new());
        Self { http, guards, jobs, led, others, following, other_jobs, site_check: None, balanced: None }
    }

    /// Follows the elections that other jobs depend on, as configured, and none of those before.
    pub(super) fn follow_others(&mut self, config: &Config) {
        self.following.clear();
        self.others.set_config(&config.jobs);
        let Some(Prober { session, .. }) = self.jobs.first().map(|parts| &parts.prober) else { return };
        let elections =
            self.jobs.iter().map(|parts| (parts.slot.name(), &parts.prober.election, &parts.prober.paths));
        self.following = following::follow(&self.others, session, &Others::wanted(&config.jobs), elections);
    }

    /// This member has left the election at this position for good.
    pub(super) fn left(&mut self, at: usize) {
        if let Some(parts) = self.jobs.get_mut(at) {
            (parts.probing, parts.measuring, parts.checking) = (None, None, None);
        }
    }

    /// Waits until another job has moved, or may have. Cancel safe.
    pub(super) async fn other_jobs_changed(&mut self) {
        if self.other_jobs.changed().await.is_err() {
            pending::<()>().await;
        }
    }

    /// Has each election decide by where other jobs are led now, if its policy goes by that.
    pub(super) fn reconsider(&self, config: &Config) {
        for (parts, job) in self.jobs.iter().zip(&config.jobs) {
            if parts.slot.set_other_jobs(self.others.led(&needs(job).jobs)) {
                let settings = election(config, job, &parts.prober.paths, &parts.slot, self.http.port);
                parts.prober.election.reconfigure(settings);
            }
        }
    }

    /// Does what is in `new` from now on, except what needs a restart of the worker: of that `new` has the old values.
    /// `overlays` are reported by the members; `listener` replaces the present one.
    pub(super) fn take_over(
        &mut self,
        old: &Config,
        new: &Config,
        overlays: &BTreeMap<String, AppliedOverlay>,
        listener: Option<TcpListener>,
    ) {
        if let Some(listener) = listener {
            self.http.take_over(listener);
        }
        let is_same_profile = old.node.attributes == new.node.attributes
            && old.node.priority == new.node.priority
            && old.http.listen == new.http.listen
            && old.http.has_tls() == new.http.has_tls();
        let pairs = || old.jobs.iter().zip(&new.jobs);
        for (parts, (was, is)) in self.jobs.iter_mut().zip(pairs()) {
            let has_news = parts.slot.set_overlay(overlays.get(is.name()).cloned());
            if has_news || was != is || !is_same_profile || old.probes != new.probes {
                parts.take_over((old, new), (was, is), self.http.port);
            }
        }
        if pairs().any(|(was, is)| was.load != is.load || needs(was) != needs(is)) {
            self.led.clear();
            self.led = led::keep(self.own_jobs(new));
        }
        if Others::wanted(&old.jobs) != Others::wanted(&new.jobs)
            || pairs().any(|(was, is)| was.spec.after != is.spec.after)
        {
            self.follow_others(new);
        }
        self.reconsider(new);
        if old.node.site_check != new.node.site_check {
            self.site_check = None;
            self.check_site(new, false);
        }
        if let Some(balanced) = &self.balanced {
            match Balanced::of(new) {
                Ok(news) => drop(balanced.send_replace(news)),
                Err(error) => tracing::error!(%error, "the balancer goes on with the old configuration"),
            }
        }
    }

    pub(super) fn own_jobs(&self, config: &Config) -> Vec<OwnJob> {
        let own_job = |(parts, job): (&JobParts, &JobConfig)| OwnJob {
            name: job.name().to_owned(),
            load: job.load,
            needs: needs(job),
            status: parts.prober.election.status().into(),
            measured: Arc::clone(&parts.measured),
        };
        self.jobs.iter().zip(&config.jobs).map(own_job).collect()
    }

    /// Checks the site from now on, if the configuration says so.
    pub(super) fn check_site(&mut self, config: &Config, is_again: bool) {
        let elections: Vec<_> = self.jobs.iter().map(JobParts::election).collect();
        self.site_check = match config.node.site_check.clone() {
            Some(check) => {
                let check =
                    site_check::keep(config.node.clone(), check, elections, self.guards.clone(), is_again);
                Some(Task::spawn(check))
            }
            None => {
                elections.iter().for_each(|election| election.set_site_health(None));
                None
            }
        };
    }
}
