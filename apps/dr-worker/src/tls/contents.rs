//! What is made of the files.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::Path,
    sync::Arc,
};

use rustls::{
    ClientConfig, Error, RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _, verify_server_name},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::{ParsedCertificate, WebPkiClientVerifier},
};

use super::{CERT, Certificate, Expiry, PairFiles, TlsFiles, Unusable, ZOOKEEPER_CA, ZOOKEEPER_CERT};
use crate::{checked, host_fault::HostFault, private_file};

const KEY: &str = "http.tls.key_file";
const CLIENT_CA: &str = "http.tls.client_ca_file";
const CA: &str = "http.tls.ca_file";

/// The contents of the files, as they were read.
#[derive(Debug)]
pub(crate) struct Contents {
    pair: Option<Pair>,
    client_ca: Option<Pem>,
    ca: Option<Pem>,
}

#[derive(Debug)]
struct Pair {
    chain: Pem,
    key: Secret,
    files: PairFiles,
}

/// A file of certificates.
#[derive(Clone, Debug)]
struct Pem {
    key: &'static str,
    name: String,
    text: Vec<u8>,
}

/// A key, which is never shown.
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("...")
    }
}

impl Pem {
    fn read(key: &'static str, path: &Path) -> Result<Self, Unusable> {
        let name = path.display().to_string();
        match checked::read(path, || std::fs::read(path)) {
            Ok(text) => Ok(Self { key, name, text }),
            Err(error) => Err(Unusable { key, fault: HostFault::io(path, " can't be read", &error) }),
        }
    }

    fn wrong(&self, why: impl std::fmt::Display) -> Unusable {
        Unusable::new(self.key, format!("{}: {why}", self.name))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Unusable> {
        let all: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_slice_iter(&self.text).collect();
        let all = all.map_err(|error| self.wrong(error))?;
        if all.is_empty() { Err(self.wrong("no certificate in this file")) } else { Ok(all) }
    }

    fn authorities(&self) -> Result<Arc<RootCertStore>, Unusable> {
        let mut store = RootCertStore::empty();
        for certificate in self.certificates()? {
            store.add(certificate).map_err(|error| self.wrong(error))?;
        }
        Ok(Arc::new(store))
    }
}

impl Contents {
    /// Reads the files. It blocks.
    ///
    /// # Errors
    /// Which one can't be read, or can be read by too many.
    pub(crate) fn read(files: &TlsFiles) -> Result<Self, Unusable> {
        let pair = files.pair.clone().map(|files| {
            let chain = Pem::read(CERT, &files.cert_file)?;
            let key = private_file::read(&files.key_file).map_err(|fault| Unusable { key: KEY, fault })?;
            Ok(Pair { chain, key: Secret(key), files })
        });
        let read = |key, path: &Option<std::path::PathBuf>| {
            path.as_ref().map(|path| Pem::read(key, path)).transpose()
        };
        let client_ca = read(CLIENT_CA, &files.client_ca_file)?;
        let ca = read(CA, &files.ca_file)?.or_else(|| client_ca.clone());
        Ok(Self { pair: pair.transpose()?, client_ca, ca })
    }

    /// The same number for the same contents.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.pair.as_ref().map(|pair| (&pair.chain.text, &pair.key.0)).hash(&mut hasher);
        [&self.client_ca, &self.ca].map(|pem| pem.as_ref().map(|pem| &pem.text)).hash(&mut hasher);
        hasher.finish()
    }

    /// What is made of them. `presents`: this worker shows its certificate to other workers.
    ///
    /// # Errors
    /// Which one can't be used.
    pub(crate) fn load(self, presents: bool) -> Result<Tls, Unusable> {
        let authorities = self.ca.as_ref().map(Pem::authorities).transpose()?;
        let verifier = authorities.clone().map(|roots| {
            let built = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
            built.map_err(|error| Unusable::new(CA, error.to_string()))
        });
        let verifier = verifier.transpose()?;
        let roots = authorities.unwrap_or_else(|| Arc::new(RootCertStore::empty()));
        let client = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| Unusable::new(CA, error.to_string()))?
            .with_root_certificates(roots);
        let Some(pair) = self.pair else {
            let client = ClientTls(Arc::new(client.with_no_client_auth()));
            return Ok(Tls { server: None, client, chain: Vec::new(), leaf: None, verifier });
        };
        let chain = pair.chain.certificates()?;
        let leaf = Certificate::read(&chain[0]).ok_or_else(|| pair.chain.wrong("not a certificate"))?;
        let server = pair.server(chain.clone(), self.client_ca.as_ref())?;
        let client = if presents {
            let key = pair.key()?;
            client.with_client_auth_cert(chain.clone(), key).map_err(|error| pair.mismatch(&error))?
        } else {
            client.with_no_client_auth()
        };
        let client = ClientTls(Arc::new(client));
        Ok(Tls { server: Some(server), client, chain, leaf: Some(leaf), verifier })
    }
}

impl Pair {
    fn key(&self) -> Result<PrivateKeyDer<'static>, Unusable> {
        // Without the error's text: no part of a key may get into an error.
        PrivateKeyDer::from_pem_slice(self.key.0.as_bytes()).map_err(|_| {
            let why = format!("{}: no unencrypted private key in this file", self.files.key_file.display());
            Unusable::new(KEY, why)
        })
    }

    fn mismatch(&self, error: &Error) -> Unusable {
        let PairFiles { cert_file, key_file } = &self.files;
        let why = match error {
            Error::InconsistentKeys(_) => {
                format!("{} is not the key of the certificate in {}", key_file.display(), cert_file.display())
            }
            other => format!("{} with {}: {other}", key_file.display(), cert_file.display()),
        };
        Unusable::new(KEY, why)
    }

    fn server(
        &self,
        chain: Vec<CertificateDer<'static>>,
        client_ca: Option<&Pem>,
    ) -> Result<Arc<ServerConfig>, Unusable> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| Unusable::new(CERT, error.to_string()))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                // Each endpoint decides whether it takes one. Without `status`, health checks have none.
                let verifier = WebPkiClientVerifier::builder_with_provider(pem.authorities()?, provider());
                let verifier = verifier.allow_unauthenticated().build().map_err(|error| pem.wrong(error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let server = builder.with_single_cert(chain, self.key()?);
        let mut server = server.map_err(|error| self.mismatch(&error))?;
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(server))
    }
}

/// The one provider of this program, that of the sessions with ZooKeeper.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What the files are used for.
#[derive(Debug)]
pub(crate) struct Tls {
    /// The port's; `None`: it has no TLS.
    pub(crate) server: Option<Arc<ServerConfig>>,
    /// For requests to other workers.
    pub(crate) client: ClientTls,
    chain: Vec<CertificateDer<'static>>,
    leaf: Option<Certificate>,
    verifier: Option<Arc<WebPkiServerVerifier>>,
}

impl Tls {
    /// When this worker's certificate ends.
    pub(crate) fn expires(&self) -> Option<Expiry> {
        self.leaf.as_ref().map(|leaf| Expiry { key: CERT.into(), not_after: leaf.not_after })
    }

    /// Why other workers, which reach this one at `host`, refuse its certificate now.
    pub(crate) fn refused_by_workers(&self, host: &str) -> Option<String> {
        let (leaf, intermediates) = self.chain.split_first()?;
        let Ok(name) = ServerName::try_from(host) else {
            return Some(format!("{host:?} can't be in a certificate"));
        };
        let checked = match &self.verifier {
            Some(verifier) => {
                verifier.verify_server_cert(leaf, intermediates, &name, &[], UnixTime::now()).map(drop)
            }
            None => ParsedCertificate::try_from(leaf).and_then(|leaf| verify_server_name(&leaf, &name)),
        };
        checked.err().map(|error| error.to_string())
    }
}

/// When the certificates for ZooKeeper end: that of this client, and of the authorities the one that lasts longest. Those of
/// files that can't be used are missing; the session reports these. It blocks.
pub(crate) fn of_zookeeper(ca_file: &Path, cert_file: Option<&Path>) -> Vec<Expiry> {
    let leaf = cert_file.and_then(|path| ends(path).next());
    let leaf = leaf.map(|not_after| Expiry { key: ZOOKEEPER_CERT.into(), not_after });
    leaf.into_iter().chain(of_authorities(ZOOKEEPER_CA, ca_file)).collect()
}

/// When the authorities of this file end: the one that lasts longest. `None` if the file can't be used. It blocks.
pub(crate) fn of_authorities(key: impl Into<Cow<'static, str>>, path: &Path) -> Option<Expiry> {
    Some(Expiry { key: key.into(), not_after: ends(path).max()? })
}

/// When the certificates of this file end.
fn ends(path: &Path) -> impl Iterator<Item = u64> {
    let all = Pem::read(ZOOKEEPER_CA, path).and_then(|pem| pem.certificates()).unwrap_or_default();
    all.into_iter().filter_map(|one| Certificate::read(&one)).map(|one| one.not_after)
}

/// How to verify other workers.
#[derive(Clone, Debug)]
pub(crate) struct ClientTls(pub(crate) Arc<ClientConfig>);

impl ClientTls {
    /// For a command, whose user may be allowed to read less than the worker. What can't be read is left out.
    pub(crate) fn of_operator(files: &TlsFiles) -> Option<Self> {
        let load = |files: &TlsFiles| Contents::read(files)?.load(true);
        let without_pair = TlsFiles { pair: None, ..files.clone() };
        let loaded = load(files).or_else(|_| load(&without_pair)).or_else(|_| load(&TlsFiles::default()));
        loaded.map(|tls| tls.client).ok()
    }
}
