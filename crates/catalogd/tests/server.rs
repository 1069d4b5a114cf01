//! The content server on real sockets: TLS, both HTTP versions, bounds on clients, and the end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use catalogd::http::{Catalogs, Endpoints, Metrics, server};
use catalogd::store::{Served, Store};
use olm_kit::Ca;
use olm_runtime::Shutdown;
use olm_runtime::tls::{self, ServingPair, TlsSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const LIMIT: Duration = Duration::from_secs(20);

struct World {
    address: std::net::SocketAddr,
    stop: Shutdown,
    server: JoinHandle<()>,
    client: reqwest::Client,
    body: Vec<u8>,
    _root: tempfile::TempDir,
}

impl World {
    async fn new(limits: server::Limits, bundles: usize) -> Result<Self> {
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
        let mut config = (*tls::server_config(pair, &settings)?).clone();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let stop = Shutdown::new();
        let catalogs = Arc::new(Catalogs::new(store, Endpoints { metas: true, graphql: false }));
        let serving = server::serve(
            listener,
            Arc::new(config),
            catalogs,
            Metrics::default(),
            limits,
            stop.clone().cancelled_owned(),
        );
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

    fn url(&self) -> String {
        format!("https://{}/catalogs/cat/api/v1/all", self.address)
    }

    /// A TLS connection of our own, to misbehave on.
    async fn raw(&self) -> Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = tokio_rustls::rustls::RootCertStore::empty();
        let pem = Ca::shared()?.pem();
        for certificate in tokio_rustls::rustls::pki_types::pem::PemObject::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate?)?;
        }
        let config =
            tokio_rustls::rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let socket = TcpStream::connect(self.address).await?;
        Ok(connector.connect(self.address.ip().into(), socket).await?)
    }

    async fn end(self) -> Result<()> {
        self.stop.cancel();
        tokio::time::timeout(LIMIT, self.server).await.context("the server does not end")??;
        Ok(())
    }
}

#[tokio::test]
async fn both_http_versions_give_the_whole_file() -> Result<()> {
    let world = World::new(server::Limits::default(), 1000).await?;
    let ca = reqwest::Certificate::from_pem(Ca::shared()?.pem().as_bytes())?;
    let only_http1 = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().http1_only().build()?;
    for (client, version) in
        [(&world.client, reqwest::Version::HTTP_2), (&only_http1, reqwest::Version::HTTP_11)]
    {
        let answer = client.get(world.url()).send().await?;
        assert_eq!(answer.version(), version);
        assert_eq!(answer.headers()["content-length"], world.body.len().to_string());
        assert_eq!(answer.bytes().await?, world.body);
        let many =
            (0..16).map(|_| async { anyhow::Ok(client.get(world.url()).send().await?.bytes().await?.len()) });
        for length in futures::future::try_join_all(many).await? {
            assert_eq!(length, world.body.len());
        }
    }
    world.end().await
}

#[tokio::test]
async fn running_answers_end_and_new_ones_are_not_taken() -> Result<()> {
    // Larger than all socket buffers, so that the answer cannot be in flight as a whole.
    let world = World::new(server::Limits::default(), 30_000).await?;
    let mut answer = world.client.get(world.url()).send().await?;
    let first = answer.chunk().await?.context("no bytes")?;
    world.stop.cancel();
    let mut got = first.len();
    while let Some(chunk) = answer.chunk().await? {
        got += chunk.len();
    }
    assert_eq!(got, world.body.len());
    drop(answer);
    let refused = Ca::shared()?.http_client()?.get(world.url()).send().await;
    assert!(refused.is_err(), "{refused:?}");
    world.end().await
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_let_go() -> Result<()> {
    let limits = server::Limits {
        stall: Duration::from_secs(1),
        drain: Duration::from_secs(15),
        ..server::Limits::default()
    };
    let world = World::new(limits, 30_000).await?;
    let mut stream = world.raw().await?;
    stream.write_all(b"GET /catalogs/cat/api/v1/all HTTP/1.1\r\nHost: x\r\n\r\n").await?;
    let mut byte = [0];
    stream.read_exact(&mut byte).await?;
    // The server can only end before its 15 s of patience if it has given up on us.
    world.end().await
}

#[tokio::test]
async fn bounds_on_requests_are_told() -> Result<()> {
    let limits = server::Limits { headers: Duration::from_millis(500), ..server::Limits::default() };
    let world = World::new(limits, 1).await?;
    let long = format!("https://{}/{}", world.address, "a".repeat(9000));
    assert_eq!(world.client.get(long).send().await?.status(), 414);

    let ask = async |head: Vec<u8>| -> Result<String> {
        let mut stream = world.raw().await?;
        stream.write_all(&head).await?;
        let mut text = Vec::new();
        let read = tokio::time::timeout(LIMIT, stream.read_to_end(&mut text)).await.context("not closed")?;
        // A server that gives up does not always say goodbye in TLS.
        ensure!(read.is_ok() || text.is_empty() || text.starts_with(b"HTTP"), "{read:?}");
        Ok(String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned())
    };
    let huge = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(100_000));
    assert_eq!(ask(huge.into_bytes()).await?, "HTTP/1.1 431 Request Header Fields Too Large");
    let slow = ask(b"GET / HTTP/1.1\r\nHost:".to_vec()).await?;
    assert!(slow.is_empty() || slow.contains("408"), "{slow}");
    assert_eq!(ask(b"\x00\x01nonsense\r\n\r\n".to_vec()).await?, "HTTP/1.1 400 Bad Request");
    world.end().await
}
