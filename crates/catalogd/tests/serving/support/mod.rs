//! The content server of one catalog on a port of its own.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use catalogd::http::{Catalogs, Endpoints, Metrics, server};
use catalogd::store::{Served, Store};
use olm_kit::Ca;
use olm_runtime::Shutdown;
use olm_runtime::serve::Limits;
use olm_runtime::tls::{self, ServingPair, TlsSettings};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

/// How long anything may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The server with one catalog, and what it takes to talk to it.
pub(crate) struct World {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) stop: Shutdown,
    pub(crate) server: JoinHandle<()>,
    pub(crate) client: reqwest::Client,
    pub(crate) body: Vec<u8>,
    _root: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new(limits: Limits, bundles: usize) -> Result<Self> {
        tls::install_provider();
        let root = tempfile::tempdir()?;
        let (store, _) = Store::open(root.path())?;
        let digest = format!("sha256:{}", "a".repeat(64)).parse()?;
        let staging = store.stage(store.lease(&digest))?;
        let body: String = (0..bundles)
            .map(|n| {
                format!("{{\"name\":\"b{n}\",\"pad\":\"{}\",\"schema\":\"olm.bundle\"}}\n", "x".repeat(1000))
            })
            .collect();
        let mut ingest = olm_fbc::Ingest::new(staging.spool()?, olm_fbc::IngestLimits::default());
        ingest.file("catalog.json", &mut body.as_bytes())?;
        let (content, _lease) = staging.commit(ingest.finish()?)?;
        store.publish("cat", Served { content, reference: String::new(), source: None, last_unpacked: 1 })?;
        let ca = Ca::shared()?;
        let identity = ca.server(&olm_kit::unique("server"), &[])?;
        let pair = ServingPair::load(identity.certificate, identity.key)?;
        let settings = TlsSettings::parse("intermediate", &[], &[], "TLSv1.2")?;
        let config = tls::server_config(pair, &settings)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let stop = Shutdown::new();
        let catalogs = Arc::new(Catalogs::new(store, Endpoints { metas: true, graphql: true }));
        let serving = server::serve(listener, config, catalogs, Metrics::default(), limits, stop.clone());
        let client = ca.http_client()?;
        Ok(Self {
            address,
            stop,
            server: tokio::spawn(serving),
            client,
            body: body.into_bytes(),
            _root: root,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/catalogs/cat/api/v1/all", self.address)
    }

    /// A TLS connection of our own, to misbehave on; it offers these protocols.
    pub(crate) async fn raw_as(&self, protocols: &[&str]) -> Result<TlsStream<TcpStream>> {
        self.encrypt(TcpStream::connect(self.address).await?, protocols).await
    }

    /// TLS on a connection to the server.
    pub(crate) async fn encrypt(
        &self,
        socket: TcpStream,
        protocols: &[&str],
    ) -> Result<TlsStream<TcpStream>> {
        let mut roots = tokio_rustls::rustls::RootCertStore::empty();
        let pem = Ca::shared()?.pem();
        for certificate in tokio_rustls::rustls::pki_types::pem::PemObject::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate?)?;
        }
        let mut config =
            tokio_rustls::rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        Ok(connector.connect(self.address.ip().into(), socket).await?)
    }

    /// The same with what HTTP/1.1 clients offer that know of no other.
    pub(crate) async fn raw(&self) -> Result<TlsStream<TcpStream>> {
        self.raw_as(&[]).await
    }

    pub(crate) async fn end(self) -> Result<()> {
        self.stop.cancel();
        tokio::time::timeout(LIMIT, self.server).await.context("the server does not end")??;
        Ok(())
    }
}
