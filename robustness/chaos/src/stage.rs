//! The deployment.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use e2e::{Cluster, Driver, Setup, own_ensemble, program};
use robustness::schedule::{MEMBERS, SERVERS, Schedule};
use zk_testkit::{Ensemble, Network};

use crate::store::Store;

/// What operators send with a POST.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Four workers of two sites on hosts of their own, a server for each site and one in a third, and the store.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) ensemble: Arc<Ensemble>,
    pub(crate) store: Store,
}

impl Stage {
    pub(crate) async fn start(schedule: &Schedule, dir: &Path) -> anyhow::Result<Self> {
        // The error has what to do.
        Network::new()?;
        let servers = dir.join("servers");
        let ensemble = own_ensemble(|builder| {
            builder.servers(SERVERS).in_namespaces(true).with(|settings| settings.dir = Some(servers))
        })
        .await;
        let network = ensemble.network().context("an ensemble in namespaces")?;
        let store = Store::serve(network.own_address())?;
        let tokens = dir.join("http-tokens");
        fs::write(&tokens, format!("{TOKEN}\n"))?;
        fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600))?;
        let job = vec![
            program("chaos-job").display().to_string(),
            "--history".to_owned(),
            dir.join("history").display().to_string(),
            "--store".to_owned(),
            store.address().to_string(),
            "--ends".to_owned(),
            schedule.job.name().to_owned(),
        ];
        let setup = Setup::new(Driver::Native)
            .workers(&MEMBERS)
            .on_hosts()
            .command(job)
            .set("http.token_file", tokens.display().to_string());
        let set = |setup: Setup, (key, value): &(String, String)| setup.set(key, value.clone());
        let cluster = Cluster::on(Arc::clone(&ensemble), schedule.settings.iter().fold(setup, set)).await;
        Ok(Self { cluster, ensemble, store })
    }

    /// Keeps the logs of the workers.
    pub(crate) fn keep_logs(&mut self, dir: &Path) -> anyhow::Result<()> {
        for worker in self.cluster.workers() {
            fs::write(dir.join("logs").join(format!("{}.log", worker.id())), worker.log_text())?;
        }
        Ok(())
    }
}
