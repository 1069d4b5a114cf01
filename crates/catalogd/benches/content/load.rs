//! Clients: kept HTTP/1.1 connections over TLS 1.3 that ask for the same thing again and again and read all of it.
//!
//! Only one cipher is offered, so that both servers encrypt alike.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{CipherSuite, ClientConfig, RootCertStore, crypto, version};

/// How long a server may send nothing in the middle of an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) address: SocketAddr,
    /// path and query
    pub(crate) target: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) status: u16,
}

impl Ask {
    /// A plain GET that is answered with 200.
    pub(crate) fn get(address: SocketAddr, target: &str) -> Self {
        Self { address, target: target.to_owned(), headers: Vec::new(), status: 200 }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    fn text(&self) -> String {
        let mut text = format!("GET {} HTTP/1.1\r\nHost: {}\r\n", self.target, self.address);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text + "\r\n"
    }
}

/// An answer that was read whole.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.split_once(':').is_some_and(|(key, _)| key.eq_ignore_ascii_case(name));
        self.head.lines().find(named).and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
    }
}

/// How connections are made.
pub(crate) fn connector() -> Result<TlsConnector> {
    let mut provider = crypto::ring::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS13_AES_256_GCM_SHA384);
    let mut roots = RootCertStore::empty();
    let pem = olm_kit::Ca::shared()?.pem();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// One kept connection.
pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
    /// bytes in the buffer that have not been used
    have: usize,
}

impl Connection {
    pub(crate) async fn open(connector: &TlsConnector, address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let stream = connector.connect(ServerName::from(address.ip()), socket).await?;
        Ok(Self { stream, buffer: vec![0; 256 << 10], have: 0 })
    }

    /// Asks and reads all; the body goes to `take`.
    async fn ask(&mut self, ask: &Ask, mut take: impl FnMut(&[u8])) -> Result<String> {
        self.stream.write_all(ask.text().as_bytes()).await?;
        self.stream.flush().await?;
        let head = self.until(b"\r\n\r\n").await?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok());
        ensure!(status == Some(ask.status), "{}: {}", ask.target, head.lines().next().unwrap_or_default());
        let field = |key: &str| {
            let mut fields = head.lines().filter_map(|line| line.split_once(": "));
            fields.find_map(|(name, value)| name.eq_ignore_ascii_case(key).then_some(value))
        };
        if status == Some(304) {
            return Ok(head);
        }
        if let Some(length) = field("content-length") {
            self.body(length.parse()?, &mut take).await?;
        } else {
            ensure!(
                field("transfer-encoding") == Some("chunked"),
                "{}: an answer without length",
                ask.target
            );
            loop {
                let size = self.until(b"\r\n").await?;
                let size = usize::from_str_radix(size.trim(), 16)?;
                self.body(size, &mut take).await?;
                self.until(b"\r\n").await?;
                if size == 0 {
                    break;
                }
            }
        }
        Ok(head)
    }

    /// What comes until `mark`, mark included.
    async fn until(&mut self, mark: &[u8]) -> Result<String> {
        loop {
            let found = self.buffer[..self.have].windows(mark.len()).position(|here| here == mark);
            if let Some(at) = found {
                let end = at + mark.len();
                let text = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                self.drop_front(end);
                return Ok(text);
            }
            ensure!(self.have < self.buffer.len(), "endless head");
            let read =
                tokio::time::timeout(READ_TIMEOUT, self.stream.read(&mut self.buffer[self.have..])).await;
            let count =
                read.with_context(|| format!("nothing more of a head after {} bytes", self.have))??;
            ensure!(count > 0, "the server closed the connection");
            self.have += count;
        }
    }

    async fn body(&mut self, mut left: usize, take: &mut impl FnMut(&[u8])) -> Result<()> {
        let here = left.min(self.have);
        take(&self.buffer[..here]);
        self.drop_front(here);
        left -= here;
        while left > 0 {
            let size = left.min(self.buffer.len());
            let read = tokio::time::timeout(READ_TIMEOUT, self.stream.read(&mut self.buffer[..size])).await;
            let count = read.with_context(|| format!("nothing more, {left} bytes before the end"))??;
            ensure!(count > 0, "the answer was cut off");
            take(&self.buffer[..count]);
            left -= count;
        }
        Ok(())
    }

    fn drop_front(&mut self, bytes: usize) {
        self.buffer.copy_within(bytes..self.have, 0);
        self.have -= bytes;
    }

    /// Sends a request and returns the answer.
    pub(crate) async fn fetch(&mut self, ask: &Ask) -> Result<Response> {
        let mut body = Vec::new();
        let head = self.ask(ask, |bytes| body.extend_from_slice(bytes)).await?;
        Ok(Response { head, body })
    }
}

/// Asks once on a connection of its own.
pub(crate) async fn once(connector: &TlsConnector, ask: &Ask) -> Result<Response> {
    Connection::open(connector, ask.address).await?.fetch(ask).await
}

/// What clients saw.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// seconds, one an answer
    pub(crate) latencies: Vec<f64>,
    pub(crate) bytes: u64,
    pub(crate) wall: Duration,
}

/// Connections that have answered once, ready to be driven.
pub(crate) async fn warm(connector: &TlsConnector, ask: &Ask, count: usize) -> Result<Vec<Connection>> {
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        let mut connection = Connection::open(connector, ask.address).await?;
        if connections.is_empty() {
            connection.ask(ask, |_| {}).await?;
        }
        connections.push(connection);
    }
    Ok(connections)
}

/// Sends requests on all connections for a while; each finishes at least one answer.
pub(crate) async fn drive(connections: Vec<Connection>, ask: &Ask, length: Duration) -> Result<Measured> {
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for mut connection in connections {
        let ask = ask.clone();
        tasks.spawn(async move {
            let mut measured = Measured::default();
            loop {
                let asked = Instant::now();
                connection.ask(&ask, |bytes| measured.bytes += bytes.len() as u64).await?;
                measured.latencies.push(asked.elapsed().as_secs_f64());
                if began.elapsed() >= length {
                    return anyhow::Ok(measured);
                }
            }
        });
    }
    let mut all = Measured::default();
    while let Some(done) = tasks.join_next().await {
        let measured = done.context("a client ended badly")??;
        all.latencies.extend(measured.latencies);
        all.bytes += measured.bytes;
    }
    all.wall = began.elapsed();
    Ok(all)
}
