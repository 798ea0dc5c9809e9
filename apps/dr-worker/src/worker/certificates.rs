//! Keeps what is made of the files of `[http.tls]` up to date: certificates are renewed while the worker runs. And it warns
//! before a certificate ends, also of those for ZooKeeper and webhooks, which are read for each connection and attempt.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use metrics::{counter, gauge};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Instant, sleep},
};

use crate::{
    config::Config,
    error::Error,
    tls::{Contents, Expiry, Tls, Unusable},
    wall::unix_ms,
};

/// How often the files are read.
const LOOK: Duration = Duration::from_secs(5);

/// How often a warning is repeated.
const REPEAT: Duration = Duration::from_secs(24 * 3600);

/// What is made of the files now.
pub(super) type Certificates = watch::Receiver<Arc<Tls>>;

/// Reads the files again and again.
pub(super) struct CertificateKeeper {
    config: Arc<Config>,
    /// Of the contents that are in use, and whether this worker shows its certificate to others.
    used: (u64, bool),
    sender: watch::Sender<Arc<Tls>>,
    /// Why the contents of the files are not in use.
    problem: Option<Unusable>,
    warned: Option<Instant>,
    /// Of the certificates for ZooKeeper and webhooks.
    of_others: Vec<Expiry>,
    /// The keys of the files whose ends were published.
    published: BTreeSet<Cow<'static, str>>,
}

/// Reads the files for the first time.
///
/// # Errors
/// Which one can't be used.
pub(super) fn load(config: &Config) -> Result<(CertificateKeeper, Certificates), Error> {
    let wrong = |Unusable { key, fault }| Error::on_host(key, fault);
    let contents = Contents::read(&config.http.tls).map_err(wrong)?;
    let used = (contents.digest(), config.http.presents());
    let tls = contents.load(config.http.presents()).map_err(wrong)?;
    let (sender, certificates) = watch::channel(Arc::new(tls));
    let keeper = CertificateKeeper {
        config: Arc::new(config.clone()),
        used,
        sender,
        problem: None,
        warned: None,
        of_others: Vec::new(),
        published: BTreeSet::new(),
    };
    Ok((keeper, certificates))
}

impl CertificateKeeper {
    /// Until it is dropped, by the configuration in force.
    pub(super) async fn keep(mut self, mut in_force: watch::Receiver<Arc<Config>>) {
        loop {
            if self.config.http.has_tls() {
                counter!("dr_tls_handshakes_failed_total").absolute(0);
            }
            let config = Arc::clone(&self.config);
            if let Ok(found) = spawn_blocking(move || config.expiries_of_others()).await {
                self.of_others = found;
            }
            let found = self.expiries();
            publish(&mut self.published, found);
            self.warn();
            tokio::select! {
                () = sleep(LOOK), if self.has_files() => {}
                changed = in_force.changed() => if changed.is_err() { return },
            }
            self.config = Arc::clone(&in_force.borrow_and_update());
            self.look().await;
        }
    }

    fn has_files(&self) -> bool {
        self.config.http.tls != Default::default()
            || self.config.zookeeper.tls.is_some()
            || self.config.notify.webhooks.values().any(|webhook| webhook.ca_file.is_some())
    }

    async fn look(&mut self) {
        let (files, presents, used) = (self.config.http.tls.clone(), self.config.http.presents(), self.used);
        let read = spawn_blocking(move || {
            let contents = Contents::read(&files)?;
            let found = (contents.digest(), presents);
            Ok((found, (found != used).then(|| contents.load(presents)).transpose()?))
        });
        let Ok(read) = read.await else { return };
        match read {
            Ok((_, None)) => {
                if self.problem.take().is_some() {
                    tracing::info!("the files of http.tls match the certificates in use again");
                }
            }
            Ok((found, Some(tls))) => {
                (self.used, self.problem, self.warned) = (found, None, None);
                self.sender.send_replace(Arc::new(tls));
                tracing::info!("the certificates of http.tls were replaced");
            }
            Err(why) if self.problem.as_ref() != Some(&why) => {
                tracing::warn!(%why, "the new files of http.tls can't be used; the former ones remain in use");
                self.problem = Some(why);
            }
            Err(_) => {}
        }
    }

    fn expiries(&self) -> Vec<Expiry> {
        self.sender.borrow().expires().into_iter().chain(self.of_others.iter().cloned()).collect()
    }

    /// Once a day.
    fn warn(&mut self) {
        if self.warned.is_some_and(|at| at.elapsed() < REPEAT) {
            return;
        }
        let tls = Arc::clone(&self.sender.borrow());
        let refused = tls.refused_by_workers(&self.config.public_host());
        let endings = self.expiries().into_iter().filter_map(|expiry| expiry.ending(unix_ms() / 1000));
        let mut sentences: Vec<_> = endings.map(|ending| ending.sentence).collect();
        if let (true, Some(why)) = (sentences.is_empty(), refused) {
            sentences.push(self.config.refusal(&why));
        }
        if sentences.is_empty() {
            return;
        }
        tracing::warn!("{}", sentences.join("; "));
        self.warned = Some(Instant::now());
    }
}

/// Sets the metrics of these certificates. One that is not found any more, of those `published` before, has no end.
#[allow(clippy::cast_precision_loss, reason = "seconds until long after the year 9999 are exact")]
fn publish(published: &mut BTreeSet<Cow<'static, str>>, found: Vec<Expiry>) {
    let set = |key: Cow<'static, str>, at: f64| {
        gauge!("dr_certificate_expiry_timestamp_seconds", "file" => key.into_owned()).set(at);
    };
    let mut gone = std::mem::take(published);
    for Expiry { key, not_after } in found {
        gone.remove(&key);
        published.insert(key.clone());
        set(key, not_after as f64);
    }
    gone.into_iter().for_each(|key| set(key, f64::NAN));
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn a_certificate_that_is_not_used_any_more_has_no_end() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (mut published, key) = (BTreeSet::new(), "zookeeper.tls.ca_file");
        metrics::with_local_recorder(&recorder, || {
            for (found, value) in [(Some(7), "7"), (None, "NaN"), (None, "NaN"), (Some(9), "9")] {
                let found = found.map(|not_after| Expiry { key: key.into(), not_after });
                publish(&mut published, found.into_iter().collect());
                let text = recorder.handle().render();
                let line = format!("dr_certificate_expiry_timestamp_seconds{{file=\"{key}\"}} {value}\n");
                assert!(text.contains(&line), "{line}{text}");
            }
        });
    }
}
