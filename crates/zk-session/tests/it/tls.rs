//! TLS with real servers: who holds the right certificates gets in, nobody else does, and is told at once why.

#![cfg(feature = "tls")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use crate::common::{PATIENCE, TICK, TIMEOUT, wait_state};
use tempfile::TempDir;
use zk_session::{
    Acl, CloseOutcome, ConnectError, CreateMode, DriverKind, OpError, Session, SessionBuilder, SessionState,
    TlsOptions,
};
use zk_testkit::{Ensemble, Proxy, TestServer};

/// Certificates made for one test.
struct Pki {
    dir: TempDir,
}

impl Pki {
    fn new() -> Self {
        let pki = Self { dir: tempfile::tempdir().unwrap() };
        for ca in ["ca", "foreign-ca"] {
            pki.openssl(&format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={ca} \
                 -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign \
                 -keyout {ca}.key -out {ca}.pem"
            ));
        }
        pki.issue("server", "ca", "DNS:localhost");
        pki.issue("client", "ca", "DNS:client");
        pki.issue("other-client", "ca", "DNS:client");
        pki.issue("foreign-client", "foreign-ca", "DNS:client");
        pki.install("server");
        pki
    }

    /// For the server, which wants certificate and key in one file.
    fn install(&self, name: &str) {
        let both = [self.read(&format!("{name}.pem")), self.read(&format!("{name}.key"))].concat();
        std::fs::write(self.path("server-both.pem"), both).unwrap();
    }

    fn issue(&self, name: &str, ca: &str, names: &str) {
        std::fs::write(self.path("extensions"), format!("subjectAltName={names}\n")).unwrap();
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -days 2 -extfile extensions \
             -out {name}.pem"
        ));
    }

    fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl")
            .args(arguments.split_whitespace())
            .current_dir(self.dir.path())
            .output()
            .expect("the command openssl is needed to make certificates");
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    fn options(&self, ca: &str, client: Option<&str>) -> TlsOptions {
        let options = TlsOptions::new(self.path(&format!("{ca}.pem")));
        match client {
            Some(name) => {
                options.identity(self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")))
            }
            None => options,
        }
    }
}

/// A server that speaks nothing but TLS, with a proxy in front of it.
struct TlsBed {
    pki: Pki,
    proxy: Proxy,
    ensemble: Ensemble,
}

impl TlsBed {
    /// `client_auth` as ZooKeeper calls it: `none` or `need`. `protocol`: `TLSv1.2` or `TLSv1.3`.
    async fn start(client_auth: &str, protocol: &str) -> Self {
        let pki = Pki::new();
        let mut ensemble = Ensemble::builder();
        if protocol == "TLSv1.3" {
            // The server's own list has those of TLS 1.2 alone.
            ensemble = ensemble.setting("ssl.ciphersuites", "TLS_AES_128_GCM_SHA256");
        }
        let ensemble = ensemble
            .servers(1)
            .tick_time(TICK)
            .with(|settings| {
                settings.tls_only = Some(["server-both.pem", "ca.pem"].map(|name| pki.path(name)))
            })
            .setting("ssl.clientAuth", client_auth)
            .setting("ssl.protocol", protocol)
            .setting("ssl.enabledProtocols", protocol)
            .start()
            .await
            .unwrap();
        let proxy = Proxy::start(ensemble.addresses()[0]).await.unwrap();
        Self { pki, proxy, ensemble }
    }

    fn builder(&self, options: TlsOptions) -> SessionBuilder {
        self.builder_for("localhost", options)
    }

    fn builder_for(&self, name: &str, options: TlsOptions) -> SessionBuilder {
        Session::builder(format!("{name}:{}", self.proxy.addr().port()))
            .driver(DriverKind::Native)
            .session_timeout(TIMEOUT)
            .connect_timeout(PATIENCE)
            .tick_time(TICK)
            .tls(options)
    }

    async fn assert_refused(&self, what: &str, builder: SessionBuilder, words: &[&str]) {
        let started = Instant::now();
        let error = builder.connect().await.unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, ConnectError::Tls { .. }), "{what}: {said}");
        assert!(words.iter().any(|word| said.contains(word)), "{what}: none of {words:?} in: {said}");
        assert!(started.elapsed() < PATIENCE / 3, "{what}: after {:?}", started.elapsed());
    }
}

#[tokio::test]
async fn a_client_that_knows_the_servers_authority_gets_in() {
    let bed = TlsBed::start("none", "TLSv1.2").await;
    let session = bed.builder(bed.pki.options("ca", None)).connect().await.unwrap();
    session.create("/a", "one", CreateMode::Ephemeral).await.unwrap();
    // And over another connection.
    assert!(bed.proxy.cut().await > 0);
    assert_eq!(session.get("/a").await.unwrap().unwrap().data, b"one");
    session.close(PATIENCE).await;
}

#[tokio::test]
async fn a_server_that_is_not_the_one_meant_is_not_talked_to() {
    let bed = TlsBed::start("none", "TLSv1.2").await;
    let foreign = bed.builder(bed.pki.options("foreign-ca", None));
    bed.assert_refused("of another authority", foreign, &["UnknownIssuer"]).await;
    // The certificate is for localhost; the same server under another name is a stranger.
    let other_name = bed.builder_for("127.0.0.1", bed.pki.options("ca", None));
    bed.assert_refused("of another name", other_name, &["not valid for name"]).await;
    let plain = TestServer::start().await.unwrap();
    let not_tls = Session::builder(format!("localhost:{}", plain.addresses()[0].port()))
        .connect_timeout(3 * TICK)
        .tls(bed.pki.options("ca", None));
    let error = not_tls.connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::Tls { .. } | ConnectError::Unreachable { .. }), "{error}");
}

async fn only_clients_with_a_certificate(protocol: &str) {
    let bed = TlsBed::start("need", protocol).await;
    let options = |client| bed.pki.options("ca", client);
    // What the server says differs; that it was the server is what counts.
    let alert = &["received fatal alert"];
    bed.assert_refused("no certificate", bed.builder(options(None)), alert).await;
    bed.assert_refused("a foreign one", bed.builder(options(Some("foreign-client"))), alert).await;

    // Who gets in is known by the certificate, so access lists work.
    let builder = bed.builder(options(Some("client"))).acl(Acl::CreatorAll);
    let session = builder.connect().await.unwrap();
    session.create("/mine", "", CreateMode::Persistent).await.unwrap();
    assert!(bed.proxy.cut().await > 0);
    assert!(session.get("/mine").await.unwrap().is_some());
    let other = bed.builder(options(Some("other-client"))).connect().await.unwrap();
    other.barrier().await.unwrap();
    assert!(matches!(other.get("/mine").await, Err(OpError::NoAuth { .. })));
}

#[tokio::test]
async fn a_client_without_a_certificate_must_not_get_in() {
    only_clients_with_a_certificate("TLSv1.2").await;
}

/// There the handshake is over for the client before the server has looked at its certificate.
#[tokio::test]
async fn a_client_without_a_certificate_must_not_get_in_by_tls_1_3() {
    only_clients_with_a_certificate("TLSv1.3").await;
}

/// Each connection uses the files as they are; while they are no use, those that were read last.
#[tokio::test]
async fn renewed_files_are_used_from_the_next_connection_on() {
    let bed = TlsBed::start("need", "TLSv1.2").await;
    let install = |name: &str| {
        std::fs::write(bed.pki.path("mine.key"), bed.pki.read(&format!("{name}.key"))).unwrap();
        std::fs::write(bed.pki.path("mine.pem"), bed.pki.read(&format!("{name}.pem"))).unwrap();
    };
    let is_active = |state: &SessionState| state.is_active();
    let is_not = |state: &SessionState| !state.is_active();
    install("client");
    let session = bed.builder(bed.pki.options("ca", Some("mine"))).connect().await.unwrap();
    for spoiled in ["", "no certificate"] {
        std::fs::write(bed.pki.path("mine.pem"), spoiled).unwrap();
        bed.proxy.cut().await;
        wait_state(&session, "paused", is_not).await;
        wait_state(&session, "active with the last certificate", is_active).await;
    }
    // The servers do not accept this one, which is read nevertheless.
    install("foreign-client");
    bed.proxy.cut().await;
    wait_state(&session, "over", |state| matches!(state, SessionState::Inactive { .. })).await;
    install("other-client");
    wait_state(&session, "active with the renewed certificate", is_active).await;
    session.close(PATIENCE).await;
}

#[tokio::test]
async fn files_are_read_by_the_function_that_is_given() {
    let bed = TlsBed::start("need", "TLSv1.2").await;
    // The servers read theirs again.
    std::fs::copy(bed.pki.path("ca.pem"), bed.pki.path("known.pem")).unwrap();
    let contents =
        ["known.pem", "client.pem", "client.key"].map(|name| (bed.pki.path(name), bed.pki.read(name)));
    let options = bed.pki.options("known", Some("client"));
    for (path, _) in &contents {
        std::fs::write(path, "another").unwrap();
    }
    let builder = bed.builder(options);
    assert!(matches!(builder.check(), Err(ConnectError::Tls { .. })));
    let builder = builder.read_files_by(move |path| {
        let found = contents.iter().find(|(known, _)| known == path);
        found.map(|(_, content)| content.clone()).ok_or_else(|| std::io::ErrorKind::NotFound.into())
    });
    builder.check().unwrap();
    let session = builder.connect().await.unwrap();
    assert!(bed.proxy.cut().await > 0);
    session.barrier().await.unwrap();
    session.close(PATIENCE).await;
}

/// The servers get certificates of a new authority, whose certificate was added to the clients' file before.
#[tokio::test]
async fn a_renewed_authority_is_used_from_the_next_connection_on() {
    let bed = TlsBed::start("none", "TLSv1.2").await;
    let known = bed.pki.path("known.pem");
    std::fs::write(&known, bed.pki.read("ca.pem")).unwrap();
    let session = bed.builder(bed.pki.options("known", None)).connect().await.unwrap();
    std::fs::write(&known, [bed.pki.read("ca.pem"), bed.pki.read("foreign-ca.pem")].concat()).unwrap();
    bed.pki.issue("renewed", "foreign-ca", "DNS:localhost");
    bed.pki.install("renewed");
    bed.ensemble.stop(0).await.unwrap();
    wait_state(&session, "paused", |state| !state.is_active()).await;
    bed.ensemble.start_server(0).await.unwrap();
    wait_state(&session, "active with the new authority", SessionState::is_active).await;
    session.close(PATIENCE).await;
}

#[tokio::test]
async fn files_that_are_no_use_are_named() {
    let pki = Pki::new();
    let connect = |options: TlsOptions| async move {
        // Nobody listens there, and nobody needs to.
        let error =
            Session::builder("localhost:1").connect_timeout(TICK).tls(options).connect().await.unwrap_err();
        error.to_string()
    };
    let nowhere = TlsOptions::new("/nowhere/ca.pem");
    assert!(connect(TlsOptions::new("")).await.contains("ca_file is missing"));
    // These are read once there is somebody to talk to.
    let bed = TlsBed::start("none", "TLSv1.2").await;
    let swapped = pki.options("ca", None).identity(pki.path("client.key"), pki.path("client.pem"));
    for (options, file) in [
        (nowhere, "/nowhere/ca.pem"),
        (TlsOptions::new(pki.path("ca.key")), "ca.key"),
        (swapped, "client.key"),
    ] {
        let started = Instant::now();
        let error = bed.builder(options).connect().await.unwrap_err();
        assert!(matches!(&error, ConnectError::Tls { reason } if reason.contains(file)), "{error}");
        assert!(started.elapsed() < PATIENCE / 3);
    }
}

#[tokio::test]
async fn certificates_and_keys_may_come_from_memory() {
    let bed = TlsBed::start("need", "TLSv1.2").await;
    let read = |name: &str| bed.pki.read(name);
    let options = TlsOptions::from_pem(read("ca.pem"));
    let session = bed
        .builder(options.clone().identity_pem(read("client.pem"), read("client.key")))
        .acl(Acl::CreatorAll)
        .connect()
        .await
        .unwrap();
    session.create("/mine", "", CreateMode::Persistent).await.unwrap();
    assert!(bed.proxy.cut().await > 0);
    assert!(session.get("/mine").await.unwrap().is_some());
    session.close(PATIENCE).await;

    let foreign = bed.builder(TlsOptions::from_pem(read("foreign-ca.pem")));
    bed.assert_refused("of another authority", foreign, &["UnknownIssuer"]).await;
    let swapped = options.clone().identity_pem(read("client.key"), read("client.pem"));
    let mixed = options.identity_pem(read("client.pem"), read("other-client.key"));
    let key = String::from_utf8(read("client.key")).unwrap();
    for wrong in [TlsOptions::from_pem("no certificate"), swapped, mixed] {
        let shown = format!("{wrong:?}");
        let error = bed.builder(wrong).check().unwrap_err();
        assert!(matches!(&error, ConnectError::Tls { reason } if reason.contains("given")), "{error}");
        let told = format!("{shown} {error} {error:?}");
        assert!(!key.lines().filter(|line| !line.starts_with('-')).any(|line| told.contains(line)), "{told}");
    }
}

#[tokio::test]
async fn the_callers_configuration_is_used_as_it_is() {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
    use rustls::{ClientConfig, RootCertStore};
    use zk_session::rustls;

    let bed = TlsBed::start("need", "TLSv1.2").await;
    let config = |ca: &str| {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(bed.pki.path(ca)).unwrap()).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(ring);
        builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots)
    };
    let chain = vec![CertificateDer::from_pem_file(bed.pki.path("client.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(bed.pki.path("client.key")).unwrap();
    let mine = Arc::new(config("ca.pem").with_client_auth_cert(chain, key).unwrap());
    let plain = || Session::builder(format!("localhost:{}", bed.proxy.addr().port()));
    let builder = |config| plain().session_timeout(TIMEOUT).tick_time(TICK).tls_config(config);
    // By its certificate, the servers know the creator.
    let session = builder(mine).acl(Acl::CreatorAll).connect().await.unwrap();
    session.create("/mine", "", CreateMode::Persistent).await.unwrap();
    assert!(bed.proxy.cut().await > 0);
    assert!(session.get("/mine").await.unwrap().is_some());
    session.close(PATIENCE).await;

    let anonymous = Arc::new(config("ca.pem").with_no_client_auth());
    let error = builder(Arc::clone(&anonymous)).acl(Acl::CreatorAll).check().unwrap_err();
    assert!(matches!(error, ConnectError::InvalidSetting { .. }), "{error}");
    bed.assert_refused("no certificate", builder(anonymous), &["received fatal alert"]).await;
    let foreign = Arc::new(config("foreign-ca.pem").with_no_client_auth());
    bed.assert_refused("of another authority", builder(foreign), &["UnknownIssuer"]).await;
}

/// Where this process is to find its server; unset in the others.
const PORT: &str = "ZK_SESSION_TEST_TLS_PORT";

#[tokio::test]
async fn a_process_with_the_systems_authorities() {
    let Ok(port) = std::env::var(PORT) else { return };
    let builder = Session::builder(format!("localhost:{port}")).tls(TlsOptions::system_roots());
    let connected = builder.session_timeout(TIMEOUT).tick_time(TICK).connect().await;
    println!("{}", connected.map_or_else(|error| error.to_string(), |_| "connected".to_owned()));
}

/// The environment says which these are.
#[tokio::test]
async fn the_systems_authorities_are_those_that_programs_of_the_system_trust() {
    let bed = TlsBed::start("none", "TLSv1.2").await;
    for (ca, expected) in [("ca.pem", "connected"), ("foreign-ca.pem", "UnknownIssuer")] {
        let process = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tls::a_process_with_the_systems_authorities", "--nocapture"])
            .env(PORT, bed.proxy.addr().port().to_string())
            .env("SSL_CERT_FILE", bed.pki.path(ca))
            .env_remove("SSL_CERT_DIR")
            .output();
        let output = process.await.unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains(expected), "{ca}: {printed}");
    }
}

#[tokio::test]
async fn a_session_that_was_left_behind_is_closed_over_tls() {
    let bed = TlsBed::start("need", "TLSv1.2").await;
    let user = || bed.builder(bed.pki.options("ca", Some("client")));
    let (left, observer) = (user().connect().await.unwrap(), user().connect().await.unwrap());
    left.create("/mine", "", CreateMode::Ephemeral).await.unwrap();
    let ticket = left.hand_over().await.unwrap();
    let closed = bed.builder(bed.pki.options("ca", None)).close_left_behind(ticket.clone(), PATIENCE).await;
    assert!(matches!(closed, Err(ConnectError::Tls { .. })), "without a certificate: {closed:?}");
    let closed = user().close_left_behind(ticket, PATIENCE).await;
    assert_eq!(closed, Ok(CloseOutcome::Acknowledged));
    observer.barrier().await.unwrap();
    assert_eq!(observer.get("/mine").await.unwrap(), None);
}
