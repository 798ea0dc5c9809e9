use std::{collections::BTreeMap, fmt, path::PathBuf, str::FromStr, time::Duration};

use super::{
    parse::{DAY, MILLISECOND, MINUTE, SECOND, choice, text},
    reader::Section,
    table::{nested, optional, optional_nested, required, table, tables, value},
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
        /// The last ready standby of a site is gone.
        StandbysLost = "standbys-lost",
        /// A site has a ready standby again.
        StandbysReturned = "standbys-returned",
        /// A request of an operator was refused, has failed or has expired.
        RequestFailed = "request-failed",
    }
}

table! {
    /// `[notify]`: who is notified of what happens to the jobs.
    #[derive(Clone, Debug, PartialEq)]
    pub struct NotifyConfig {
        /// How many notifications may wait for each receiver. Beyond that the oldest is dropped, and counted.
        pub queue: usize = 256 => value().within(1..=10_000);
        /// Webhooks, by names of your choice: each gets each notification by POST.
        pub webhooks as webhook: BTreeMap<String, Webhook> = BTreeMap::new() => tables(Webhook::default()).name("ops");
        /// Program that is run for each notification, which it gets on its standard input. No shell.
        pub command: Option<NotifyCommand> = None => optional_nested(NotifyCommand::default());
    }
}

table! {
    /// A webhook.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Webhook {
        /// Where it is sent.
        pub url: WebhookUrl = WebhookUrl::unset() => required(
            "where the notifications are sent, such as \"https://alerts.example/dr\""
        ).example("\"https://alerts.example/dr-worker\"");
        /// File of the secret that signs it, of 16 characters or more, readable by its owner, and by its group if you allow
        /// that.
        pub secret_file: Option<PathBuf> = None => optional().example("\"/etc/dr-worker/notify-secret\"");
        /// Certificates to trust instead of the system's.
        pub ca_file: Option<PathBuf> = None => optional().example("\"/etc/ssl/certs/ca-certificates.crt\"");
        /// Which of leader-changed, leader-lost, takeover-failed, hold-set, hold-ended, member-excluded, site-failed,
        /// site-returned, standbys-lost, standbys-returned and request-failed; none named: all.
        pub events: Vec<NotifyEvent> = Vec::new() => value();
        /// How long one attempt may take.
        pub timeout: Duration = 10 * SECOND => value().within(100 * MILLISECOND..=10 * MINUTE);
        /// Attempts after one that failed.
        pub retry: NotifyRetry = NotifyRetry::default() => nested();
    }
}

table! {
    /// A command that is run for each notification.
    #[derive(Clone, Debug, PartialEq)]
    pub struct NotifyCommand {
        /// The program and its arguments.
        pub command: Vec<String> = Vec::new() => required(
            "the program that gets each notification on its standard input"
        ).example("[\"/usr/bin/page-someone\"]").check(|command: &Vec<String>| names_none(command));
        /// As for a webhook.
        pub events: Vec<NotifyEvent> = Vec::new() => value();
        /// How long it may run; then it is killed.
        pub timeout: Duration = 10 * SECOND => value().within(100 * MILLISECOND..=10 * MINUTE);
    }
}

table! {
    /// How often and when an attempt is repeated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct NotifyRetry {
        /// So many more attempts, ...
        pub max: u32 = 10 => value();
        /// ... after a pause that doubles from this one ...
        pub backoff: Duration = SECOND => value().within(MILLISECOND..=DAY);
        /// ... to this one.
        pub backoff_max: Duration = 5 * MINUTE => value().within(MILLISECOND..=DAY);
    }
    check NotifyRetry::check;
}

impl NotifyRetry {
    fn check(&mut self, section: &mut Section<'_>) {
        if self.backoff_max < self.backoff {
            section.problem("backoff_max", "it is shorter than backoff");
        }
    }
}

fn names_none(command: &[String]) -> Option<String> {
    command.first().is_none_or(String::is_empty).then(|| "names no program".to_owned())
}

/// A URL whose path may be a secret: only its scheme and host are shown.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(reqwest::Url);

impl WebhookUrl {
    /// What a webhook has until its URL is read.
    pub(super) fn unset() -> Self {
        Self(reqwest::Url::parse("http://unset/").expect("it is a URL"))
    }

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

impl FromStr for WebhookUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The text may be a secret.
        let url = reqwest::Url::parse(text).map_err(|why| format!("it is not a URL: {why}"))?;
        match url.scheme() {
            "http" => Ok(Self(url)),
            "https" if cfg!(feature = "tls") => Ok(Self(url)),
            scheme => Err(format!("{scheme} is not supported by this program; valid are http and https")),
        }
    }
}

text!(WebhookUrl);

impl NotifyConfig {
    /// Whether there is no receiver.
    pub fn is_empty(&self) -> bool {
        self.webhooks.is_empty() && self.command.is_none()
    }
}
