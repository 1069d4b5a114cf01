//! Handshakes over loopback with certificates made on the spot.

use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A CA that signs serving certificates for `localhost` with a chosen common name.
pub(crate) struct TestCa(CertifiedIssuer<'static, KeyPair>);

impl TestCa {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test CA");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn write_ca(&self, path: &Path) {
        std::fs::write(path, self.0.pem()).unwrap();
    }

    /// Writes `tls.crt` and `tls.key`; returns the certificate's DER.
    pub(crate) fn write_pair(&self, folder: &Path, name: &str) -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        std::fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
        std::fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
        certificate.der().to_vec()
    }
}

/// One handshake; returns the certificate that the server showed and the protocol version.
async fn handshake(
    server: Arc<rustls::ServerConfig>,
    client: rustls::ClientConfig,
) -> std::io::Result<(Vec<u8>, rustls::ProtocolVersion)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serve = async {
        let (stream, _) = listener.accept().await?;
        let mut stream = tokio_rustls::TlsAcceptor::from(server).accept(stream).await?;
        stream.write_all(b"hello").await?;
        stream.shutdown().await
    };
    let ask = async {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = tokio_rustls::TlsConnector::from(Arc::new(client)).connect(name, stream).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        assert_eq!(text, "hello");
        let session = stream.get_ref().1;
        Ok::<_, std::io::Error>((
            session.peer_certificates().unwrap()[0].to_vec(),
            session.protocol_version().unwrap(),
        ))
    };
    let (served, asked) = tokio::join!(serve, ask);
    let asked = asked?;
    served?;
    Ok(asked)
}

fn settings(profile: &str) -> TlsSettings {
    TlsSettings::parse(profile, &[], &[], "TLSv1.2").unwrap()
}

#[tokio::test]
async fn tls_new_handshakes_use_the_new_pair() {
    let folder = tempfile::tempdir().unwrap();
    let cas = tempfile::tempdir().unwrap();
    let ca = TestCa::new();
    ca.write_ca(&cas.path().join("ca.crt"));
    let first = ca.write_pair(folder.path(), "first");
    let pair = ServingPair::load(folder.path().join("tls.crt"), folder.path().join("tls.key")).unwrap();
    let server = server_config(Arc::clone(&pair), &settings("intermediate")).unwrap();
    let pool = CaPool::given(Vec::new(), Some(cas.path())).unwrap();
    let client = || pool.client_config(&settings("intermediate")).unwrap();

    assert_eq!(handshake(Arc::clone(&server), client()).await.unwrap().0, first);
    assert!(!pair.reload_if_changed().unwrap(), "nothing has changed");

    let second = ca.write_pair(folder.path(), "second, with a longer name");
    assert!(pair.reload_if_changed().unwrap());
    assert_eq!(handshake(Arc::clone(&server), client()).await.unwrap().0, second);

    // half of a new pair: the key belongs to another certificate
    std::fs::write(folder.path().join("tls.key"), KeyPair::generate().unwrap().serialize_pem() + "\n")
        .unwrap();
    let error = pair.reload_if_changed().unwrap_err().to_string();
    assert!(error.ends_with("tls.key cannot be used together"), "{error}");
    assert!(!pair.reload_if_changed().unwrap(), "a broken pair is read once");
    assert_eq!(handshake(Arc::clone(&server), client()).await.unwrap().0, second);
    assert_eq!(pair.counts(), (3, 1));

    let given = folder.path().join("given");
    std::fs::create_dir(&given).unwrap();
    let third = ca.write_pair(&given, "given");
    let text = |name: &str| std::fs::read_to_string(given.join(name)).unwrap();
    assert!(pair.replace(&text("tls.crt"), &text("tls.key")).unwrap());
    assert!(!pair.replace(&text("tls.crt"), &text("tls.key")).unwrap(), "the same once more");
    assert_eq!(handshake(server, client()).await.unwrap().0, third);
    let metrics = crate::metrics::Metrics::new();
    metrics.watch_pair(Arc::clone(&pair));
    let line =
        format!("olm_serving_certificate_expiry_timestamp_seconds {}", pair.ends().unwrap().as_second());
    assert!(metrics.classic().contains(&line), "{}", metrics.classic());
}

/// A folder stands for a file that cannot be read for a while.
#[test]
fn tls_files_that_could_not_be_read_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let ca = TestCa::new();
    ca.write_pair(folder.path(), "server");
    let [cert, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
    let pair = ServingPair::load(&cert, &key).unwrap();
    std::fs::remove_file(&key).unwrap();
    let missing = pair.reload_if_changed().unwrap_err();
    assert!(missing.to_string().starts_with("cannot read "), "{missing}");
    assert!(!pair.reload_if_changed().unwrap(), "it is seen when it is there");
    std::fs::create_dir(&key).unwrap();
    for _ in 0..2 {
        assert!(pair.reload_if_changed().unwrap_err().is_unread());
    }
    assert_eq!(pair.counts(), (4, 3));
}

#[tokio::test]
async fn tls_profiles_decide_the_version() {
    let folder = tempfile::tempdir().unwrap();
    let cas = tempfile::tempdir().unwrap();
    let ca = TestCa::new();
    ca.write_ca(&cas.path().join("ca.crt"));
    ca.write_pair(folder.path(), "server");
    let pair = ServingPair::load(folder.path().join("tls.crt"), folder.path().join("tls.key")).unwrap();
    let pool = CaPool::given(Vec::new(), Some(cas.path())).unwrap();
    let old_client = || {
        let mut config =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_protocol_versions(&[&rustls::version::TLS12])
                .unwrap()
                .with_root_certificates(pool.root_store())
                .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    };
    for (profile, old_client_works) in [("modern", false), ("intermediate", true), ("old", true)] {
        let server = server_config(Arc::clone(&pair), &settings(profile)).unwrap();
        let new = handshake(Arc::clone(&server), pool.client_config(&settings("modern")).unwrap()).await;
        assert_eq!(new.unwrap().1, rustls::ProtocolVersion::TLSv1_3, "{profile}");
        assert_eq!(handshake(server, old_client()).await.is_ok(), old_client_works, "{profile}");
    }
}

#[tokio::test]
async fn tls_ca_pool_follows_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let cas = tempfile::tempdir().unwrap();
    let (old, new) = (TestCa::new(), TestCa::new());
    old.write_ca(&cas.path().join("old.crt"));
    std::fs::create_dir(cas.path().join("..data")).unwrap();
    new.write_pair(folder.path(), "server");
    let pair = ServingPair::load(folder.path().join("tls.crt"), folder.path().join("tls.key")).unwrap();
    let server = server_config(pair, &settings("intermediate")).unwrap();
    let pool = CaPool::given(Vec::new(), Some(cas.path())).unwrap();
    let client = |pool: &CaPool| pool.client_config(&settings("intermediate")).unwrap();

    let refused = handshake(Arc::clone(&server), client(&pool)).await.unwrap_err().to_string();
    assert!(refused.contains("UnknownIssuer") || refused.contains("BadSignature"), "{refused}");
    new.write_ca(&cas.path().join("new.crt"));
    assert!(pool.reload_if_changed().unwrap());
    assert!(!pool.reload_if_changed().unwrap());
    handshake(server, client(&pool)).await.unwrap();

    std::fs::write(
        cas.path().join("new.crt"),
        "-----BEGIN CERTIFICATE-----\nnonsense!\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    assert!(pool.reload_if_changed().unwrap_err().to_string().starts_with("cannot parse "));
    assert_eq!(pool.certificates().len(), 2, "the old certificates stay");
}

#[test]
fn tls_errors_name_the_invalid_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = |result: Result<Arc<ServingPair>, TlsError>| {
        result.unwrap_err().to_string().replace(&folder.path().display().to_string(), "<dir>")
    };
    assert_eq!(text(ServingPair::load(path("no.crt"), path("no.key"))), "cannot read <dir>/no.crt");
    TestCa::new().write_pair(folder.path(), "server");
    std::fs::write(path("empty"), "").unwrap();
    let want = "<dir>/empty holds no certificate in PEM form";
    assert_eq!(text(ServingPair::load(path("empty"), path("tls.key"))), want);
    let want = "<dir>/empty holds no private key in PEM form";
    assert_eq!(text(ServingPair::load(path("tls.crt"), path("empty"))), want);
    let empty = tempfile::tempdir().unwrap();
    let error = CaPool::load(Some(empty.path())).unwrap_err().to_string();
    assert!(error.starts_with("no certificates found in "), "{error}");
    let missing = CaPool::load(Some(&empty.path().join("gone"))).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read "), "{missing}");
}
