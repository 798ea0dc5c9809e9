//! Certificates by the tool `openssl`, and a client for https.

use std::{fs, io, net::TcpStream, path::PathBuf, process::Command, sync::Arc};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::LONG;

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

/// The name that every worker of a test is reached by.
pub(crate) const HERE: &str = "IP:127.0.0.1";

/// A directory of certificates, and their authorities.
pub(crate) struct Pki {
    dir: tempfile::TempDir,
}

impl Pki {
    /// With the authorities `ca`, `clients` and `foreign`.
    pub(crate) fn new() -> Self {
        let pki = Self { dir: tempfile::tempdir().expect("a directory") };
        for ca in ["ca", "clients", "foreign"] {
            pki.openssl(&format!(
                "req -x509 {KEY} -days 30 -subj /CN={ca} -addext basicConstraints=critical,CA:TRUE \
                 -addext keyUsage=critical,keyCertSign -keyout {ca}.key -out {ca}.pem"
            ));
        }
        pki
    }

    /// A certificate `name.pem` with `name.key`, by this authority, for these names and days.
    pub(crate) fn issue(&self, name: &str, ca: &str, names: &str, days: i32) {
        fs::write(self.dir.path().join("extensions"), format!("subjectAltName={names}\n")).expect("a file");
        self.openssl(&format!("req {KEY} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -days {days} -extfile extensions \
             -out {name}.pem"
        ));
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        let output = command.args(arguments.split_whitespace()).current_dir(self.dir.path()).output();
        let output = output.expect("the command openssl is needed to make certificates");
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts a file in the place of another at once.
    pub(crate) fn replace(&self, with: &str, name: &str) {
        let fresh = self.path("fresh");
        fs::copy(self.path(with), &fresh).expect("a copy");
        fs::rename(fresh, self.path(name)).expect("in its place");
    }

    /// The setting `http.tls` with these files.
    pub(crate) fn setting(&self, files: &[(&str, &str)]) -> String {
        let files = files.iter().map(|(key, name)| format!("{key} = \"{}\"", self.path(name).display()));
        format!("http.tls={{ {} }}", files.collect::<Vec<_>>().join(", "))
    }

    /// A server with this certificate.
    pub(crate) fn server(&self, name: &str) -> Arc<ServerConfig> {
        let chain = CertificateDer::from_pem_file(self.path(&format!("{name}.pem"))).expect("it was made");
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth();
        Arc::new(config.with_single_cert(vec![chain], key).expect("a pair"))
    }

    /// A client that trusts the authority `ca`, and has this certificate.
    pub(crate) fn client(&self, certificate: Option<&str>) -> Https {
        let pem = |name: &str| self.path(&format!("{name}.pem"));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(pem("ca")).expect("it was made")).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        Https(Arc::new(match certificate {
            None => config.with_no_client_auth(),
            Some(name) => {
                let chain = vec![CertificateDer::from_pem_file(pem(name)).expect("it was made")];
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).expect("a key");
                config.with_client_auth_cert(chain, key).expect("a pair")
            }
        }))
    }
}

/// A client for https.
#[derive(Clone, Debug)]
pub(crate) struct Https(Arc<ClientConfig>);

impl Https {
    pub(crate) fn over(&self, stream: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
        let name = "127.0.0.1".try_into().expect("a name");
        StreamOwned::new(ClientConnection::new(Arc::clone(&self.0), name).expect("a client"), stream)
    }

    /// A GET: the head and the body, or why there is none.
    pub(crate) fn get(&self, port: u16, path: &str) -> io::Result<(String, String)> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(LONG))?;
        super::request(self.over(stream), "GET", path, &[], "")
    }
}
