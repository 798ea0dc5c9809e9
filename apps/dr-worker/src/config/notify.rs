use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use super::{
    parse::{Mismatch, Parse, choice},
    reader::Section,
    tree::Node,
};

choice! {
    /// What is notified of.
    pub enum NotifyEvent {
        /// A leader is READY.
        LeaderChanged = "leader-changed",
        /// A leader was lost or has failed.
        LeaderLost = "leader-lost",
        /// A takeover has failed.
        TakeoverFailed = "takeover-failed",
        /// An election is on hold.
        HoldSet = "hold-set",
        /// A hold has ended.
        HoldEnded = "hold-ended",
        /// A member is not elected for a while.
        MemberExcluded = "member-excluded",
        /// A site has failed as a whole.
        SiteFailed = "site-failed",
        /// The failure of a site is over.
        SiteReturned = "site-returned",
        /// A request of an operator was refused, has failed or has expired.
        RequestFailed = "request-failed",
    }
    later: []
}

/// `[notify]`: who is notified of what happens to the jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct NotifyConfig {
    /// How many notifications may wait for each receiver.
    pub queue: usize,
    /// The webhooks, by name.
    pub webhooks: BTreeMap<String, Webhook>,
    /// The command.
    pub command: Option<NotifyCommand>,
}

/// A webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    /// Where it is sent.
    pub url: WebhookUrl,
    /// The file of the secret that signs it.
    pub secret_file: Option<PathBuf>,
    /// The certificates that it trusts, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// What it is sent; nothing: everything.
    pub events: Vec<NotifyEvent>,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// What follows an attempt that failed.
    pub retry: NotifyRetry,
}

/// A command that is run for each notification.
#[derive(Clone, Debug, PartialEq)]
pub struct NotifyCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// As for [`Webhook::events`].
    pub events: Vec<NotifyEvent>,
    /// How long it may run.
    pub timeout: Duration,
}

/// How often and when an attempt is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotifyRetry {
    /// How often at most.
    pub max: u32,
    /// The first pause, which doubles.
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
}

/// A URL whose path may be a secret: only its scheme and host are shown.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(reqwest::Url);

impl WebhookUrl {
    /// The whole URL.
    pub fn secret(&self) -> &reqwest::Url {
        &self.0
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.0.port().map(|port| format!(":{port}")).unwrap_or_default();
        write!(f, "{}://{}{port}/...", self.0.scheme(), self.0.host_str().unwrap_or_default())
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Parse for WebhookUrl {
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        // The text may be a secret.
        let url = reqwest::Url::parse(&String::parse(node)?).map_err(|why| format!("it is no URL: {why}"))?;
        match url.scheme() {
            "http" => Ok(Self(url)),
            "https" if cfg!(feature = "tls") => Ok(Self(url)),
            scheme => {
                Err(format!("{scheme} is not supported by this program; valid are http and https").into())
            }
        }
    }

    fn show(&self) -> String {
        self.to_string().show()
    }

    #[cfg(test)]
    fn schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::schema(generator)
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

impl Default for NotifyConfig {
    fn default() -> Self {
        Self { queue: 256, webhooks: BTreeMap::new(), command: None }
    }
}

impl NotifyConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let mut queue: u32 = section.or("queue", 256);
        if !(1..=10_000).contains(&queue) {
            section.problem("queue", format!("{queue} is out of range; 1 to 10000 is valid"));
            queue = 256;
        }
        let webhooks = section.table("webhook", |section| {
            section.each_table(|name, section| Some((name.to_owned(), read_webhook(section)?)))
        });
        let command = section.optional_table("command", read_command).flatten();
        Self { queue: queue as usize, webhooks: webhooks.into_iter().flatten().collect(), command }
    }

    /// Whether there is no receiver.
    pub fn is_empty(&self) -> bool {
        self.webhooks.is_empty() && self.command.is_none()
    }
}

fn read_webhook(section: &mut Section<'_>) -> Option<Webhook> {
    let url =
        section.required("url", "where the notifications are sent, such as \"https://alerts.example/dr\"");
    let limits = Duration::from_millis(1)..=Duration::from_secs(24 * 3600);
    Some(Webhook {
        secret_file: section.optional("secret_file"),
        ca_file: section.optional("ca_file"),
        events: section.or("events", Vec::new()),
        timeout: section.duration("timeout", 10 * SECOND, Duration::from_millis(100)..=10 * MINUTE),
        retry: section.table("retry", |section| {
            let backoff = section.duration("backoff", SECOND, limits.clone());
            let backoff_max = section.duration("backoff_max", 5 * MINUTE, limits);
            if backoff_max < backoff {
                section.problem("backoff_max", "it is shorter than backoff");
            }
            NotifyRetry { max: section.or("max", 10), backoff, backoff_max }
        }),
        url: url?,
    })
}

fn read_command(section: &mut Section<'_>) -> Option<NotifyCommand> {
    let command: Option<Vec<String>> =
        section.required("command", "the program that gets each notification on its standard input");
    let events = section.or("events", Vec::new());
    let timeout = section.duration("timeout", 10 * SECOND, Duration::from_millis(100)..=10 * MINUTE);
    let command = command?;
    if command.first().is_none_or(String::is_empty) {
        section.problem("command", "names no program");
        return None;
    }
    Some(NotifyCommand { command, events, timeout })
}
