//! Notifications of what happens to the jobs of this worker.
//!
//! One member sends: the elector, or with a recipe without an elector the leader. It never waits for a receiver: each has
//! its own task and a bounded queue. A member that becomes the sender also sends what has happened a short time before, since
//! the sender before it may have been lost. So a notification arrives at least once, and its id is the same each time.

mod command;
mod event;
mod notification;
mod requests;
mod standbys;
mod webhook;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use election_core::{
    Paths,
    status::{ElectionStatus, Role},
};
use metrics::{Counter, counter};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use zk_session::Session;

use crate::{
    config::{Config, NotifyCommand, NotifyConfig, NotifyEvent, Recipe, Webhook},
    wall::{ms, unix_ms},
    worker::{
        state::{Job, Worker},
        unsent::{NOTIFICATIONS, Unsent},
    },
};
use event::{Event, Looks, SeenStatus};
use notification::Notification;
pub(super) use webhook::WebhookClient;

/// How many ids of sent notifications are remembered.
const REMEMBERED: usize = 256;

/// How many events of requests and standbys may wait to be looked at.
const WAITING: usize = 64;

/// How long after the end of a lost sender's session a new one finds what that one may not have sent.
const MARGIN: Duration = Duration::from_secs(5);

/// The name of the command among the receivers.
const COMMAND: &str = "command";

/// What becomes of a notification.
const OUTCOMES: [&str; 4] = ["delivered", "retried", "failed", "dropped"];

/// The notifications that wait for a receiver.
type Waiting = async_channel::Receiver<Unsent<Arc<Notification>>>;

/// A receiver of notifications.
#[derive(Debug)]
struct Receiver {
    name: String,
    events: Vec<NotifyEvent>,
    /// Bounded: a new one drops the oldest.
    queue: async_channel::Sender<Unsent<Arc<Notification>>>,
}

impl Receiver {
    fn offer(&self, kind: NotifyEvent, notification: &Arc<Notification>) {
        if !self.events.is_empty() && !self.events.contains(&kind) {
            return;
        }
        let notification = Unsent::new(Arc::clone(notification), &NOTIFICATIONS);
        if let Ok(Some(dropped)) = self.queue.force_send(notification) {
            self.count("dropped");
            let (receiver, id) = (&self.name, &dropped.id);
            tracing::warn!(
                receiver,
                id,
                "too many notifications wait for this receiver: the oldest is dropped"
            );
        }
    }

    fn counter(&self, outcome: &'static str) -> Counter {
        counter!("dr_notifications_total", "receiver" => self.name.clone(), "outcome" => outcome)
    }

    fn count(&self, outcome: &'static str) {
        self.counter(outcome).increment(1);
    }

    fn delivered(&self, notification: &Notification) {
        self.count("delivered");
        tracing::debug!(receiver = self.name, id = notification.id, "notification delivered");
    }

    fn failed(&self, notification: &Notification, why: &str) {
        self.count("failed");
        tracing::warn!(receiver = self.name, id = notification.id, why, "a notification was not delivered");
    }

    async fn send_to_webhook(self: Arc<Self>, webhook: Webhook, waiting: Waiting) {
        let retry = webhook.retry;
        let mut hook = WebhookClient::new(webhook);
        if let Err(why) = hook.client().await {
            tracing::error!(receiver = self.name, why, "no notification can be sent to this receiver now");
        }
        while let Ok(notification) = waiting.recv().await {
            let mut failed = 0;
            loop {
                let Err(failure) = hook.attempt(&notification).await else {
                    self.delivered(&notification);
                    break;
                };
                failed += 1;
                let Some(pause) = failure.pause(retry, failed) else {
                    self.failed(&notification, failure.why());
                    break;
                };
                self.count("retried");
                let (receiver, id, why, pause_ms) = (&self.name, &notification.id, failure.why(), ms(pause));
                tracing::info!(receiver, id, why, pause_ms, "a notification is sent again");
                tokio::time::sleep(pause).await;
            }
        }
    }

    async fn send_to_command(self: Arc<Self>, command: NotifyCommand, waiting: Waiting) {
        while let Ok(notification) = waiting.recv().await {
            match command::run(&command, &notification).await {
                Ok(()) => self.delivered(&notification),
                Err(why) => self.failed(&notification, &why),
            }
        }
    }
}

/// The receivers of a configuration, by name. Each has a task that sends.
#[derive(Default)]
struct Receivers {
    present: BTreeMap<String, (ReceiverConfig, Arc<Receiver>)>,
    queue: usize,
    tasks: JoinSet<()>,
}

/// Who is notified, and how.
#[derive(Clone, PartialEq)]
enum ReceiverConfig {
    Webhook(Webhook),
    Command(NotifyCommand),
}

impl Receivers {
    /// Sends to those of this configuration from now on. One that is gone or has changed still gets what waits for it.
    fn take_over(&mut self, config: &NotifyConfig) -> Vec<Arc<Receiver>> {
        while self.tasks.try_join_next().is_some() {}
        let webhooks = config.webhooks.iter();
        let webhooks =
            webhooks.map(|(name, webhook)| (name.clone(), ReceiverConfig::Webhook(webhook.clone())));
        let command =
            config.command.clone().map(|command| (COMMAND.to_owned(), ReceiverConfig::Command(command)));
        let wanted: BTreeMap<_, _> = webhooks.chain(command).collect();
        let is_same_queue = self.queue == config.queue;
        self.queue = config.queue;
        self.present.retain(|name, (of, receiver)| {
            let stays = is_same_queue && wanted.get(name) == Some(of);
            if !stays {
                receiver.queue.close();
            }
            stays
        });
        for (name, of) in wanted {
            if !self.present.contains_key(&name) {
                let receiver = self.start(&name, of.clone());
                self.present.insert(name, (of, receiver));
            }
        }
        self.present.values().map(|(_, receiver)| Arc::clone(receiver)).collect()
    }

    fn start(&mut self, name: &str, of: ReceiverConfig) -> Arc<Receiver> {
        let (queue, waiting) = async_channel::bounded(self.queue.max(1));
        let (ReceiverConfig::Webhook(Webhook { events, .. })
        | ReceiverConfig::Command(NotifyCommand { events, .. })) = &of;
        let receiver = Arc::new(Receiver { name: name.to_owned(), events: events.clone(), queue });
        // Of a counter that appears with its first event, `increase` misses that event.
        for outcome in OUTCOMES {
            receiver.counter(outcome).absolute(0);
        }
        let sends = Arc::clone(&receiver);
        match of {
            ReceiverConfig::Webhook(webhook) => self.tasks.spawn(sends.send_to_webhook(webhook, waiting)),
            ReceiverConfig::Command(command) => self.tasks.spawn(sends.send_to_command(command, waiting)),
        };
        receiver
    }
}

/// Follows all jobs once the worker has joined, until this is dropped, and notifies by the configuration in force.
pub(super) async fn run(worker: Arc<Worker>) {
    let mut in_force = worker.config_changes();
    let mut receivers = Receivers::default();
    let (present, _) = watch::channel(Vec::new());
    let mut following = JoinSet::new();
    loop {
        let all = receivers.take_over(&in_force.borrow_and_update().notify);
        let has_some = !all.is_empty();
        present.send_replace(all);
        worker.until_joined().await;
        let Some(session) = worker.session() else { return };
        if !has_some {
            following = JoinSet::new();
        } else if following.is_empty() {
            for at in 0..worker.jobs().len() {
                let receivers = present.subscribe();
                let sender = JobSender { worker: Arc::clone(&worker), at, receivers, sent: VecDeque::new() };
                following.spawn(sender.follow(session.clone()));
            }
        }
        if in_force.changed().await.is_err() {
            return;
        }
    }
}

/// Sends the events of one job while this member is the sender.
struct JobSender {
    worker: Arc<Worker>,
    /// Which job of the worker.
    at: usize,
    receivers: watch::Receiver<Vec<Arc<Receiver>>>,
    /// The latest ids.
    sent: VecDeque<String>,
}

impl JobSender {
    fn has_elector(&self, job: &Job) -> bool {
        let config = self.worker.config();
        let mut jobs = config.jobs.iter();
        jobs.find(|other| other.name() == job.slot.name()).is_none_or(|job| job.recipe == Recipe::Elector)
    }

    async fn follow(mut self, session: Session) {
        let worker = Arc::clone(&self.worker);
        let Some(job) = worker.jobs().get(self.at) else { return };
        let has_elector = self.has_elector(job);
        let Ok(paths) = Paths::new(worker.root(), job.slot.name()) else { return };
        let patience = worker.config().zookeeper.session_timeout + MARGIN;
        let has_standby = job.slot.standby().is_some();
        let mut status = job.election.status();
        let (mut looks, mut sending) = (Looks::new(ms(patience)), None::<Sending>);
        loop {
            let now = status.now();
            let is_sender = is_sender(&now, has_elector);
            for event in looks.look(|before| SeenStatus::of(&now, before), unix_ms(), is_sender) {
                self.send(&event);
            }
            if is_sender {
                sending.get_or_insert_with(|| {
                    Sending::new(&session, has_elector.then(|| paths.clone()), patience, has_standby)
                });
            } else {
                sending = None;
            }
            tokio::select! {
                changed = status.changed() => if changed.is_none() { return },
                Some(event) = async { sending.as_mut()?.found.recv().await } => self.send(&event),
            }
        }
    }

    fn send(&mut self, event: &Event) {
        let Some(job) = self.worker.jobs().get(self.at) else { return };
        let (node, root) = (self.worker.node(), self.worker.root());
        let notification = Arc::new(Notification::of(event, node, root, job.slot.name(), unix_ms()));
        if self.sent.contains(&notification.id) {
            return;
        }
        self.sent.push_back(notification.id.clone());
        if self.sent.len() > REMEMBERED {
            self.sent.pop_front();
        }
        for receiver in self.receivers.borrow().iter() {
            receiver.offer(event.kind, &notification);
        }
    }
}

/// What only a sender follows.
struct Sending {
    /// The events that are not in the status.
    found: mpsc::Receiver<Event>,
    /// Follows the requests and the standbys until it is dropped.
    _follows: JoinSet<()>,
}

impl Sending {
    /// `paths`: of an election with an elector, whose members have records. What has happened within `patience` is news.
    fn new(session: &Session, paths: Option<Paths>, patience: Duration, has_standby: bool) -> Self {
        let since_ms = unix_ms().saturating_sub(ms(patience));
        let (events, found) = mpsc::channel(WAITING);
        let mut follows = JoinSet::new();
        if let Some(paths) = paths {
            if has_standby {
                let (session, paths, recent) = (session.clone(), paths.clone(), (since_ms, patience));
                follows.spawn(standbys::follow(session, paths, recent, events.clone()));
            }
            follows.spawn(requests::follow(session.clone(), paths, since_ms, events));
        }
        Self { found, _follows: follows }
    }
}

fn is_sender(status: &ElectionStatus, has_elector: bool) -> bool {
    if has_elector { status.is_elector } else { status.role == Role::Leader }
}

/// Sends a test to each receiver, once. Returns what became of it, by name.
pub(crate) async fn test(config: &Config) -> Vec<(String, Result<(), String>)> {
    let notification = Notification::test(&config.node, &config.zookeeper.root, unix_ms());
    let mut results = Vec::new();
    for (name, webhook) in &config.notify.webhooks {
        let shown = format!("webhook {name} ({})", webhook.url);
        let result = WebhookClient::new(webhook.clone()).attempt(&notification).await;
        results.push((shown, result.map_err(|failure| failure.why().to_owned())));
    }
    if let Some(command) = &config.notify.command {
        let shown = format!("command {}", command.command.first().map_or("", String::as_str));
        results.push((shown, command::run(command, &notification).await));
    }
    results
}

#[cfg(test)]
mod tests {
    use super::{OUTCOMES, ReceiverConfig, Receivers};
    use crate::config::NotifyCommand;

    #[tokio::test]
    async fn the_counters_of_a_receiver_are_there_before_its_first_notification() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let command = ReceiverConfig::Command(NotifyCommand::default());
        let mut receivers = Receivers::default();
        let receiver = metrics::with_local_recorder(&recorder, || receivers.start("pager", command.clone()));
        for outcome in OUTCOMES {
            let line = format!("dr_notifications_total{{receiver=\"pager\",outcome=\"{outcome}\"}} 0\n");
            let text = recorder.handle().render();
            assert!(text.contains(&line), "{line} is not in:\n{text}");
        }
        // A changed configuration starts it again.
        metrics::with_local_recorder(&recorder, || {
            receiver.count("failed");
            receivers.start("pager", command)
        });
        assert!(recorder.handle().render().contains("outcome=\"failed\"} 1\n"));
    }
}
