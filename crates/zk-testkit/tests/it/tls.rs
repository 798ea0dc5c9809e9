//! The embedded server over TLS.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use zk_session::{ConnectError, CreateMode, Session, TlsOptions};
use zk_testkit::TestServer;
use zk_testkit::rustls::ServerConfig;
use zk_testkit::rustls::pki_types::pem::PemObject as _;
use zk_testkit::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const SOON: Duration = Duration::from_secs(15);

/// An authority, and its certificate of `localhost`.
fn make_certificates(dir: &Path) {
    std::fs::write(dir.join("extensions"), "subjectAltName=DNS:localhost\n").unwrap();
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    for arguments in [
        format!("req -x509 {new_key} -days 2 -subj /CN=ca -keyout ca.key -out ca.pem"),
        format!("req {new_key} -subj /CN=server -keyout server.key -out server.csr"),
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out server.pem".into(),
    ] {
        let output = Command::new("openssl").args(arguments.split_whitespace()).current_dir(dir).output();
        let output = output.expect("the command openssl is needed to make certificates");
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn server_config(dir: &Path) -> Arc<ServerConfig> {
    make_certificates(dir);
    let certificate = CertificateDer::from_pem_file(dir.join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(dir.join("server.key")).unwrap();
    let tls = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key);
    Arc::new(tls.unwrap())
}

#[tokio::test]
async fn a_connection_counts_before_it_speaks_tls() {
    let dir = tempfile::tempdir().unwrap();
    let builder = TestServer::builder().with(|settings| {
        settings.tls = Some(server_config(dir.path()));
        settings.handshake_timeout = Duration::from_secs(2);
        settings.max_connections = 1;
    });
    let server = builder.start().await.unwrap();
    let mut silent = TcpStream::connect(server.addresses()[0]).await.unwrap();
    let counts = async {
        while server.connections() == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, counts).await.expect("it counts");
    let mut second = TcpStream::connect(server.addresses()[0]).await.unwrap();
    let refused = timeout(SOON, second.read(&mut [0])).await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionReset, "it is one too many");
    assert_eq!(timeout(SOON, silent.read(&mut [0])).await.unwrap().unwrap(), 0, "its time is over");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn an_embedded_server_speaks_tls_alone() {
    let dir = tempfile::tempdir().unwrap();
    let tls = server_config(dir.path());
    let server = TestServer::builder().with(|server| server.tls = Some(tls)).start().await.unwrap();
    let address = format!("localhost:{}", server.addresses()[0].port());

    let builder = Session::builder(&address).tls(TlsOptions::new(dir.path().join("ca.pem")));
    let session = builder.connect().await.unwrap();
    // Longer than what TLS sends at once.
    let data = vec![7; 300_000];
    session.create("/long", &data, CreateMode::Persistent).await.unwrap();
    assert_eq!(session.get("/long").await.unwrap().expect("it is there").data, data);
    session.close(Duration::from_secs(5)).await;

    let foreign = Session::builder(&address).tls(TlsOptions::system_roots()).connect().await;
    assert!(matches!(foreign, Err(ConnectError::Tls { .. })), "{foreign:?}");
}
