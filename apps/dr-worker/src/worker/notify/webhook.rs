//! Sends a notification to a webhook, signed.
//!
//! The signature covers the time and the body, so that a receiver can refuse what someone has recorded and sends again
//! later. The secret and the certificates are read for each attempt, so they are replaced without a restart.

use std::{path::PathBuf, time::Duration};

use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::{Client, StatusCode, header};
use sha2::Sha256;

use super::notification::Notification;
use crate::{
    checked, client,
    config::{NotifyRetry, Tokens, Webhook},
    wall::unix_ms,
};

/// The headers of a delivery.
const ID: &str = "DR-Event-Id";
const EVENT: &str = "DR-Event";
const TIMESTAMP: &str = "DR-Timestamp";
const SIGNATURE: &str = "DR-Signature";

/// Why an attempt has failed. No text contains the URL or the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Another attempt may succeed.
    Temporary(String),
    /// The receiver does not want it.
    Refused(String),
}

impl Failure {
    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Temporary(why) | Self::Refused(why) => why,
        }
    }

    /// The pause before the next attempt, after this many that have failed; `None` if there is none.
    pub(in crate::worker) fn pause(&self, retry: NotifyRetry, failed: u32) -> Option<Duration> {
        let doubled = retry.backoff.saturating_mul(2_u32.saturating_pow(failed.saturating_sub(1)));
        let is_repeated = matches!(self, Self::Temporary(_)) && failed <= retry.max;
        is_repeated.then_some(doubled.min(retry.backoff_max))
    }
}

/// A webhook, and the client that sends to it.
#[derive(Debug)]
pub(crate) struct WebhookClient {
    webhook: Webhook,
    in_use: Option<Trusting>,
    /// Why the present certificates are not in use.
    problem: Option<String>,
}

/// A client, and the certificates that it trusts; `None`: those of the system.
#[derive(Clone, Debug)]
struct Trusting {
    certificates: Option<Vec<u8>>,
    client: Client,
}

impl Trusting {
    /// By the file as it is now; `last` if that has not changed. It blocks.
    fn read(ca_file: Option<PathBuf>, timeout: Duration, last: Option<Self>) -> Result<Self, String> {
        let read = |path: PathBuf| {
            let read = checked::read(&path, || std::fs::read(&path));
            read.map_err(|why| format!("ca_file: {} can't be read: {why}", path.display()))
        };
        let certificates = ca_file.map(read).transpose()?;
        if let Some(last) = last.filter(|last| last.certificates == certificates) {
            return Ok(last);
        }
        let builder = client::secure(certificates.as_deref())
            .map_err(|why| format!("ca_file: {}", client::cause(&why)))?;
        let client = builder.timeout(timeout).build();
        let client = client.map_err(|why| format!("can't make an HTTP client: {}", client::cause(&why)))?;
        Ok(Self { certificates, client })
    }
}

impl WebhookClient {
    pub(crate) fn new(webhook: Webhook) -> Self {
        Self { webhook, in_use: None, problem: None }
    }

    /// The client for an attempt: that of the last one if the certificates can't be used now.
    ///
    /// # Errors
    /// Why they can't be used, if they never could.
    pub(super) async fn client(&mut self) -> Result<Client, String> {
        let Webhook { ca_file, timeout, .. } = self.webhook.clone();
        let last = self.in_use.clone();
        let read = in_time(timeout, move || Trusting::read(ca_file, timeout, last)).await;
        match (read.unwrap_or_else(|| Err("ca_file: it was not read in time".to_owned())), &self.in_use) {
            (Ok(trusting), _) => {
                self.problem = None;
                Ok(self.in_use.insert(trusting).client.clone())
            }
            (Err(why), Some(last)) => {
                if self.problem.as_ref() != Some(&why) {
                    let url = &self.webhook.url;
                    tracing::warn!(%url, why, "the certificates of a webhook can't be used; the former ones remain in use");
                }
                self.problem = Some(why);
                Ok(last.client.clone())
            }
            (Err(why), None) => Err(why),
        }
    }

    /// Sends it once.
    ///
    /// # Errors
    /// Why it has failed.
    pub(crate) async fn attempt(&mut self, notification: &Notification) -> Result<(), Failure> {
        let body = notification.body.clone();
        let seconds = unix_ms() / 1000;
        let mut headers = vec![
            (ID, notification.id.clone()),
            (EVENT, notification.event.to_owned()),
            (TIMESTAMP, seconds.to_string()),
        ];
        if let Some(path) = self.webhook.secret_file.clone() {
            let read = in_time(self.webhook.timeout, move || Tokens::read(&path)).await;
            let secret = match read {
                Some(secret) => secret.map_err(|why| Failure::Temporary(format!("secret_file: {why}")))?,
                None => return Err(Failure::Temporary("secret_file: it was not read in time".to_owned())),
            };
            headers.push((SIGNATURE, signature(secret.first(), seconds, &body)));
        }
        self.post(body, headers).await
    }

    /// Posts this JSON once, with these headers beside the usual ones.
    ///
    /// # Errors
    /// Why it has failed.
    pub(in crate::worker) async fn post(
        &mut self,
        body: String,
        headers: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Result<(), Failure> {
        let client = self.client().await.map_err(Failure::Temporary)?;
        let request = client
            .post(self.webhook.url.secret().clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("dr-worker/", env!("CARGO_PKG_VERSION")));
        let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        match request.body(body).send().await {
            Ok(answer) => judge(answer.status()),
            Err(error) => Err(Failure::Temporary(client::cause(&error))),
        }
    }
}

/// What `read` returns, if that is in time: a file system that hangs must not hang this task's thread.
async fn in_time<T: Send + 'static>(
    timeout: Duration,
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::time::timeout(timeout, tokio::task::spawn_blocking(read)).await.ok()?.ok()
}

/// Whether an answer means that the notification has arrived.
fn judge(status: StatusCode) -> Result<(), Failure> {
    let why = format!("the receiver answered {status}");
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            Err(Failure::Temporary(why))
        }
        status if status.is_server_error() => Err(Failure::Temporary(why)),
        _ => Err(Failure::Refused(why)),
    }
}

/// `sha256=` and the HMAC of `TIMESTAMP.BODY` in hexadecimal digits.
fn signature(secret: &str, seconds: u64, body: &str) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else {
        // A key of any length is valid.
        return String::new();
    };
    mac.update(format!("{seconds}.{body}").as_bytes());
    let digits: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected digits come from `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef`.
    #[test]
    fn the_signature_is_that_of_openssl() {
        assert_eq!(
            signature("0123456789abcdef", 1_700_000_000, "{\"a\":1}"),
            "sha256=9eb18f493f8ec135d9eb2dad817c369bb4e9cbfa818657897a7437c1cd8c3a23"
        );
    }

    #[test]
    fn pauses_double_up_to_their_bound() {
        let second = Duration::from_secs(1);
        let retry = NotifyRetry { max: 5, backoff: second, backoff_max: 5 * second };
        let pause = |retry, failed| Failure::Temporary(String::new()).pause(retry, failed);
        let pauses: Vec<_> =
            (1..=6).map(|failed| pause(retry, failed).map(|pause| pause.as_secs())).collect();
        assert_eq!(pauses, [Some(1), Some(2), Some(4), Some(5), Some(5), None]);
        assert_eq!(pause(NotifyRetry { max: u32::MAX, ..retry }, u32::MAX), Some(5 * second));
        assert_eq!(pause(NotifyRetry { max: 0, ..retry }, 1), None);
        assert_eq!(Failure::Refused(String::new()).pause(retry, 1), None);
    }

    #[test]
    fn an_answer_is_an_arrival_or_a_reason_to_repeat_or_a_refusal() {
        let judged = |code| judge(StatusCode::from_u16(code).unwrap());
        assert_eq!((judged(200), judged(204)), (Ok(()), Ok(())));
        for code in [408, 425, 429, 500, 503] {
            assert!(matches!(judged(code), Err(Failure::Temporary(_))), "{code}");
        }
        for code in [301, 400, 401, 404, 410] {
            assert!(matches!(judged(code), Err(Failure::Refused(_))), "{code}");
        }
    }
}
