use std::time::Duration;

use super::{
    notify::{Webhook, WebhookUrl},
    parse::{MILLISECOND, MINUTE, SECOND},
    table::{required, table, value},
};

table! {
    /// `[trace]`: where changes of leadership are sent as traces.
    #[derive(Clone, Debug, PartialEq)]
    pub struct TraceConfig {
        /// Where a trace is sent, with its path.
        pub url: WebhookUrl = WebhookUrl::unset() => required(
            "where traces are sent, such as \"http://127.0.0.1:4318/v1/traces\""
        ).example("\"http://127.0.0.1:4318/v1/traces\"");
        /// How long one attempt may take.
        pub timeout: Duration = 10 * SECOND => value().within(100 * MILLISECOND..=10 * MINUTE);
    }
}

impl From<TraceConfig> for Webhook {
    fn from(TraceConfig { url, timeout }: TraceConfig) -> Self {
        Self { url, timeout, ..Self::default() }
    }
}
