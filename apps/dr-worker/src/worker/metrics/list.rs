//! The one list of metrics. The descriptions in `/metrics`, the table in `docs/metrics.md` and the Grafana dashboard are
//! made of it.
//!
//! `UPDATE_METRICS=1 cargo test -p dr-worker --lib metrics`, which is `cargo xtask dashboard`, writes the latter two.

use metrics::Unit;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Which series are served. A worker with a thousand jobs would else serve a hundred thousand series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Scope {
    /// Those of the member itself.
    Member,
    /// Those of every job.
    EveryJob,
    /// Those of jobs that are here: the member leads them, takes over or stops them, or has done so a moment ago.
    Here,
    /// The same, and those of jobs whose elector the member is.
    HereOrElector,
}

/// A metric, and where the dashboard shows it.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "tests write the documentation and the dashboard"))]
pub(in crate::worker) struct Metric {
    pub(in crate::worker) name: &'static str,
    pub(in crate::worker) kind: Kind,
    pub(in crate::worker) unit: Option<Unit>,
    /// Beside `member` and `site`, which all have.
    pub(in crate::worker) labels: &'static [&'static str],
    pub(in crate::worker) scope: Scope,
    pub(in crate::worker) help: &'static str,
    pub(in crate::worker) panel: Option<Panel>,
}

/// A panel of the dashboard.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "tests write the dashboard"))]
pub(in crate::worker) struct Panel {
    pub(in crate::worker) row: Row,
    pub(in crate::worker) title: &'static str,
    /// PromQL; `$job`, `$member` and `$__rate_interval` are the dashboard's variables.
    pub(in crate::worker) expr: &'static str,
    /// The name of each line.
    pub(in crate::worker) legend: &'static str,
}

/// A row of the dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Row {
    Leadership,
    Changes,
    Process,
    Network,
    ZooKeeper,
}

impl Metric {
    const fn new(
        kind: Kind,
        scope: Scope,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind, unit: None, labels, scope, help, panel: None }
    }

    const fn seconds(mut self) -> Self {
        self.unit = Some(Unit::Seconds);
        self
    }

    const fn panel(
        mut self,
        row: Row,
        title: &'static str,
        legend: &'static str,
        expr: &'static str,
    ) -> Self {
        self.panel = Some(Panel { row, title, expr, legend });
        self
    }
}

use Kind::{Counter, Gauge, Histogram};
use Scope::{EveryJob, Here, HereOrElector, Member};

/// All that `/metrics` serves, in the order of the documentation.
pub(in crate::worker) const METRICS: &[Metric] = &[
    Metric::new(
        Gauge,
        EveryJob,
        "dr_leader",
        &["job", "slot"],
        "1 on the READY leader whose lease is valid, else 0; with the label slot if the job has several leaders",
    )
    .panel(Row::Leadership, "Leaders", "{{job}} {{slot}} on {{member}}", "dr_leader{job=~\"$job\"} == 1"),
    Metric::new(
        Gauge,
        EveryJob,
        "dr_seconds_since_ready_leader",
        &["job"],
        "Time since this member last knew a READY leader in every slot; 0 while it does",
    )
    .seconds()
    .panel(
        Row::Leadership,
        "Time without a leader",
        "{{job}}",
        "min by (job) (dr_seconds_since_ready_leader{job=~\"$job\"})",
    ),
    Metric::new(
        Gauge,
        EveryJob,
        "dr_held",
        &["job"],
        "1 on the elector while the election is on hold after too many takeovers or failures of the job, else 0",
    )
    .panel(Row::Leadership, "On hold", "{{job}}", "max by (job) (dr_held{job=~\"$job\"}) == 1"),
    Metric::new(
        Gauge,
        EveryJob,
        "dr_stopped",
        &["job"],
        "1 on the leader of a job that an operator has stopped, else 0",
    )
    .panel(Row::Leadership, "Stopped by an operator", "{{job}} on {{member}}", "dr_stopped{job=~\"$job\"} == 1"),
    Metric::new(
        Gauge,
        EveryJob,
        "dr_healthy",
        &["job"],
        "1 if this member is fit to lead, 0 if not, NaN before the first check; only of jobs with a fitness check",
    )
    .panel(
        Row::Leadership,
        "Members that are not fit to lead",
        "{{job}} on {{member}}",
        "dr_healthy{job=~\"$job\", member=~\"$member\"} == 0",
    ),
    Metric::new(Gauge, EveryJob, "dr_term", &["job"], "Term of the last decision that this member has read").panel(
        Row::Changes,
        "Terms",
        "{{job}}",
        "max by (job) (dr_term{job=~\"$job\"})",
    ),
    Metric::new(
        Gauge,
        Here,
        "dr_fencing_token",
        &["job", "slot"],
        "Fencing token of this member's leadership, else 0",
    ),
    Metric::new(
        Counter,
        Here,
        "dr_transitions_total",
        &["job", "cause"],
        "Leaderships that became READY on this member, by cause",
    )
    .panel(
        Row::Changes,
        "Changes of leadership, by cause",
        "{{job}}: {{cause}}",
        "sum by (job, cause) (dr_transitions_total{job=~\"$job\"}) > 0",
    ),
    Metric::new(
        Histogram,
        Member,
        "dr_transition_phase_seconds",
        &["phase"],
        "Duration of the phases detect, decide, release, acquire and takeover of the leaderships that became READY on \
         this member, of all jobs",
    )
    .seconds()
    .panel(
        Row::Changes,
        "Mean duration of each phase",
        "{{phase}}",
        "sum by (phase) (increase(dr_transition_phase_seconds_sum[1h])) / \
         sum by (phase) (increase(dr_transition_phase_seconds_count[1h]) > 0)",
    ),
    Metric::new(
        Gauge,
        Here,
        "dr_last_transition_phase_seconds",
        &["job", "phase"],
        "Duration of each phase of the last leadership that became READY on this member; NaN if unknown",
    )
    .seconds()
    .panel(
        Row::Changes,
        "Phases of the last change",
        "{{job}}: {{phase}}",
        "dr_last_transition_phase_seconds{job=~\"$job\"} and on (job, member) (dr_leader == 1)",
    ),
    Metric::new(
        Counter,
        EveryJob,
        "dr_takeover_failures_total",
        &["job"],
        "Failed takeovers of this member",
    )
    .panel(
        Row::Changes,
        "Failed takeovers",
        "{{job}} on {{member}}",
        "increase(dr_takeover_failures_total{job=~\"$job\", member=~\"$member\"}[$__rate_interval]) > 0",
    ),
    Metric::new(
        Counter,
        HereOrElector,
        "dr_skipped_total",
        &["job", "reason"],
        "Passes of this member as the elector that decided nothing, by reason",
    )
    .panel(
        Row::Changes,
        "Why electors did not decide",
        "{{reason}}",
        "sum by (reason) (increase(dr_skipped_total{job=~\"$job\"}[$__rate_interval])) > 0",
    ),
    Metric::new(
        Gauge,
        Here,
        "dr_drill_last_success_timestamp_seconds",
        &["job"],
        "End of the last drill of the job that passed, as Unix time; on the leader, once there is one",
    )
    .seconds()
    .panel(
        Row::Changes,
        "Time since a drill has passed",
        "{{job}}",
        "time() - max by (job) (dr_drill_last_success_timestamp_seconds{job=~\"$job\"})",
    ),
    Metric::new(
        Gauge,
        Here,
        "dr_drill_check_passed",
        &["job", "plan"],
        "1 if the drill of this plan could have run when the leader evaluated it last, else 0; `dr-worker drill check` has the reasons",
    )
    .panel(
        Row::Changes,
        "Drills that may not run now",
        "{{job}}: {{plan}}",
        "dr_drill_check_passed{job=~\"$job\"} == 0",
    ),
    Metric::new(
        Gauge,
        Here,
        "dr_drill_check_timestamp_seconds",
        &["job", "plan"],
        "When the leader evaluated the plan of a drill last, as Unix time",
    )
    .seconds(),
    Metric::new(
        Gauge,
        Here,
        "dr_drill_check_last_passed_timestamp_seconds",
        &["job", "plan"],
        "When the drill of this plan could have run last, as Unix time; on the leader, once it could while it leads",
    )
    .seconds()
    .panel(
        Row::Changes,
        "Time since a drill could have run",
        "{{job}}: {{plan}}",
        "time() - max by (job, plan) (dr_drill_check_last_passed_timestamp_seconds{job=~\"$job\"})",
    ),
    Metric::new(
        Counter,
        EveryJob,
        "dr_balance_moves_total",
        &["job", "outcome"],
        "Moves for even shares that this member requested, by outcome: asked, done, failed",
    ),
    Metric::new(
        Counter,
        Member,
        "dr_notifications_total",
        &["receiver", "outcome"],
        "Notifications that this member sent, by outcome: delivered, retried, failed (given up or refused), dropped (too \
         many waited)",
    )
    .panel(
        Row::Changes,
        "Notifications that did not arrive",
        "{{receiver}}: {{outcome}}",
        "sum by (receiver, outcome) (increase(dr_notifications_total{member=~\"$member\", \
         outcome=~\"failed|dropped\"}[$__rate_interval])) > 0",
    ),
    Metric::new(
        Gauge,
        Here,
        "dr_process_state",
        &["job", "state"],
        "1 for the current state of the job's process on this member (starting, running, frozen, backoff, stopping, stopped, \
         exited, fatal), 0 for the others",
    )
    .panel(
        Row::Process,
        "State of the process",
        "{{job}} on {{member}}: {{state}}",
        "dr_process_state{job=~\"$job\", member=~\"$member\"} == 1",
    ),
    Metric::new(Counter, Here, "dr_process_restarts_total", &["job"], "Restarts of the job on this member").panel(
        Row::Process,
        "Restarts",
        "{{job}} on {{member}}",
        "increase(dr_process_restarts_total{job=~\"$job\", member=~\"$member\"}[$__rate_interval])",
    ),
    Metric::new(
        Counter,
        Here,
        "dr_liveness_failures_total",
        &["job"],
        "Stops of the job on this member because its liveness check failed",
    ),
    Metric::new(
        Counter,
        EveryJob,
        "dr_hook_failures_total",
        &["job", "hook"],
        "Runs of the job's hooks on this member that failed or did not end in time; only of jobs with hooks",
    )
    .panel(
        Row::Process,
        "Hooks that failed",
        "{{job}} on {{member}}: {{hook}}",
        "increase(dr_hook_failures_total{job=~\"$job\", member=~\"$member\"}[$__rate_interval]) > 0",
    ),
    Metric::new(
        Counter,
        EveryJob,
        "dr_hook_runs_dropped_total",
        &["job", "hook"],
        "Runs of asynchronous hooks that were dropped, or ended, for a newer one; only of jobs with hooks",
    ),
    Metric::new(
        Counter,
        EveryJob,
        "dr_fences_total",
        &["job", "outcome"],
        "Former leaders that this member has tried to fence, by outcome: done, failed; only of jobs with fence commands",
    )
    .panel(
        Row::Changes,
        "Former leaders that could not be fenced",
        "{{job}} on {{member}}",
        "increase(dr_fences_total{job=~\"$job\", member=~\"$member\", outcome=\"failed\"}[$__rate_interval]) > 0",
    ),
    Metric::new(
        Gauge,
        EveryJob,
        "dr_measured",
        &["job", "name"],
        "Last numeric value of the job's measure command; NaN if unknown",
    )
    .panel(
        Row::Process,
        "Values of measure commands",
        "{{job}} on {{member}}: {{name}}",
        "dr_measured{job=~\"$job\", member=~\"$member\"}",
    ),
    Metric::new(
        Counter,
        EveryJob,
        "dr_measurements_total",
        &["job", "outcome"],
        "Runs of the job's measure command, by outcome",
    ),
    Metric::new(
        Counter,
        Here,
        "dr_log_lines_dropped_total",
        &["job"],
        "Log lines dropped because the log was blocked, or could not be written (no reader, a full disk); with the label job, \
         lines of its output, wherever it goes",
    ),
    Metric::new(
        Counter,
        Member,
        "dr_config_reloads_total",
        &["outcome"],
        "Reloads of the configuration by outcome: done, or refused because of a problem; the old one stays in force then",
    ),
    Metric::new(
        Gauge,
        EveryJob,
        "dr_config_version",
        &["job"],
        "Version of the overlay in ZooKeeper that is in force on this member; 0 for none. Only for jobs that have had one",
    ),
    Metric::new(
        Gauge,
        EveryJob,
        "dr_config_refused",
        &["job"],
        "1 while this member refuses the overlay in ZooKeeper and goes on with the former configuration, else 0",
    ),
    Metric::new(
        Gauge,
        Member,
        "dr_peer_rtt_seconds",
        &["peer"],
        "Smoothed round trip to another member's HTTP endpoints; NaN if it does not answer",
    )
    .seconds()
    .panel(
        Row::Network,
        "Round trips between members",
        "{{member}} to {{peer}}",
        "dr_peer_rtt_seconds{member=~\"$member\"}",
    ),
    Metric::new(
        Counter,
        Member,
        "dr_probes_total",
        &["outcome"],
        "Probes of members, ZooKeeper and targets, by outcome: answered, missed",
    ),
    Metric::new(
        Counter,
        Member,
        "dr_round_trips_published_total",
        &[],
        "Publications of this member's round trips; each is a write to ZooKeeper",
    ),
    Metric::new(
        Gauge,
        Member,
        "dr_certificate_expiry_timestamp_seconds",
        &["file"],
        "End of a certificate, as Unix time; only with TLS. file: http.tls.cert_file, zookeeper.tls.cert_file, zookeeper.tls.ca_file, notify.webhook.NAME.ca_file",
    )
    .seconds()
    .panel(
        Row::Network,
        "Certificates that expire within 14 days",
        "{{file}} of {{member}}",
        "(dr_certificate_expiry_timestamp_seconds{member=~\"$member\"} - time()) < 14 * 24 * 3600",
    ),
    Metric::new(
        Counter,
        Member,
        "dr_tls_handshakes_failed_total",
        &[],
        "TLS handshakes at the HTTP port that failed",
    ),
    Metric::new(
        Gauge,
        Member,
        "dr_session_state",
        &["state"],
        "1 for the current state of the ZooKeeper session, 0 for the others",
    )
    .panel(
        Row::ZooKeeper,
        "Sessions that are not active",
        "{{member}}: {{state}}",
        "dr_session_state{member=~\"$member\", state!=\"active\"} == 1",
    ),
    Metric::new(
        Gauge,
        Member,
        "dr_lease_remaining_seconds",
        &[],
        "Time until this member's lease ends unless it is renewed; 0 without a lease",
    )
    .seconds()
    .panel(
        Row::ZooKeeper,
        "Lease that remains",
        "{{member}}",
        "dr_lease_remaining_seconds{member=~\"$member\"}",
    ),
    Metric::new(
        Counter,
        Member,
        "zk_session_requests_total",
        &["op", "outcome", "session"],
        "Operations on ZooKeeper by kind and outcome, retries included",
    )
    .panel(
        Row::ZooKeeper,
        "Operations that failed",
        "{{op}}: {{outcome}}",
        "sum by (op, outcome) (rate(zk_session_requests_total{member=~\"$member\", \
         outcome=~\"unavailable|unknown|session_over|refused\"}[$__rate_interval])) > 0",
    ),
    Metric::new(
        Histogram,
        Member,
        "zk_session_request_seconds",
        &["op", "session"],
        "Time that an operation on ZooKeeper took, retries included; the ops heartbeat and probe are single round trips",
    )
    .seconds()
    .panel(
        Row::ZooKeeper,
        "Heartbeats, 99th percentile",
        "{{member}}",
        "histogram_quantile(0.99, sum by (member, le) \
         (rate(zk_session_request_seconds_bucket{member=~\"$member\", op=\"heartbeat\"}[$__rate_interval])))",
    ),
    Metric::new(
        Counter,
        Member,
        "zk_session_reconnects_total",
        &["session"],
        "Times that a session was paused and became active again",
    )
    .panel(
        Row::ZooKeeper,
        "Reconnects",
        "{{member}}",
        "increase(zk_session_reconnects_total{member=~\"$member\"}[$__rate_interval])",
    ),
    Metric::new(
        Counter,
        Member,
        "zk_session_expirations_total",
        &["session"],
        "Sessions that ended without being closed",
    )
    .panel(
        Row::ZooKeeper,
        "Expired sessions",
        "{{member}}",
        "increase(zk_session_expirations_total{member=~\"$member\"}[$__rate_interval])",
    ),
    Metric::new(
        Counter,
        Member,
        "zk_session_disagreements_total",
        &["session"],
        "Times that the server of the session was found to disagree with the quorum",
    )
    .panel(
        Row::ZooKeeper,
        "Servers that disagree with the quorum",
        "{{member}}",
        "increase(zk_session_disagreements_total{member=~\"$member\"}[$__rate_interval])",
    ),
];

/// The metric of a series with this name.
pub(super) fn metric_of(series: &str) -> Option<&'static Metric> {
    let is_part = |rest: &str| matches!(rest, "" | "_bucket" | "_sum" | "_count");
    METRICS.iter().find(|metric| match metric.kind {
        Kind::Histogram => series.strip_prefix(metric.name).is_some_and(is_part),
        Kind::Counter | Kind::Gauge => series == metric.name,
    })
}
