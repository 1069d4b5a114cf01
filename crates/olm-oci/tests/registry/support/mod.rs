//! A registry on loopback that can misbehave on the wire: it implements HTTP/1.1 itself, so that bodies can be cut, stall,
//! drip or never end. Tests control its content and its failures, and read its requests.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod pki;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use olm_core::{Digest, DigestAlgorithm, ImageRef};
use olm_oci::{
    CertificateDirs, Config, Error, Image, Limits, Puller, RegistriesFiles, Retries, Selection, Timeouts,
};
use sha2::Digest as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub(crate) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// A registry, and a client that calls it insecure.
pub(crate) async fn start() -> (Registry, Client) {
    let registry = Registry::start().await;
    let client = Client::new(&[&registry]);
    (registry, client)
}

/// An image of one file.
pub(crate) fn image() -> Pushed {
    Pushed::new([layer(&[("configs/a", "1")])])
}

/// Pulls an image; the number of its files.
pub(crate) async fn pull(puller: &Puller, reference: &ImageRef) -> Result<usize, Error> {
    let image = puller.open(reference).await?;
    Ok(read_files(&image, Selection::everything()).await?.len())
}

/// The selected files of an image, by path.
pub(crate) async fn read_files(
    image: &Image,
    selection: Selection,
) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let directory = tempfile::tempdir().unwrap();
    image.unpack_to(directory.path(), selection, &Limits::default()).await?;
    let (mut files, mut todo) = (BTreeMap::new(), vec![directory.path().to_owned()]);
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let name = path.strip_prefix(directory.path()).unwrap().display().to_string();
            files.insert(name, std::fs::read(path).unwrap());
        }
    }
    Ok(files)
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// All of it.
    Full(Vec<u8>),
    /// Declares `declared` bytes, sends these and closes.
    Cut { bytes: Vec<u8>, declared: usize },
    /// Declares `declared` bytes, sends these and then nothing, with the connection open.
    Stall { bytes: Vec<u8>, declared: usize },
    /// Sends one byte after the other, with a pause before each.
    Drip { bytes: Vec<u8>, pause: Duration },
    /// Closes the connection without a response.
    Hangup,
    /// Without length, over and over.
    Endless(Vec<u8>),
}

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Body,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: Body::Full(body.into()) }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn body(body: Body) -> Self {
        Self { status: 200, headers: Vec::new(), body }
    }

    pub(crate) fn error(status: u16, code: &str) -> Self {
        let text = format!(r#"{{"errors":[{{"code":"{code}","message":"{}"}}]}}"#, code.to_lowercase());
        Self::new(status, text)
    }
}

type Hook = Box<dyn FnMut(&Request) -> Option<Reply> + Send>;

#[derive(Default)]
struct State {
    blobs: HashMap<String, Vec<u8>>,
    manifests: HashMap<(String, String), (String, Vec<u8>)>,
    log: Vec<Request>,
    hook: Option<Hook>,
    tls: Option<Arc<rustls::ServerConfig>>,
    close: bool,
}

/// The registry; it ends when dropped.
pub(crate) struct Registry {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Registry {
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    pub(crate) async fn start_with(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { tls, ..State::default() }));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                let Ok((socket, _)) = listener.accept().await else { return };
                let state = Arc::clone(&shared);
                tokio::spawn(async move {
                    let tls = state.lock().unwrap().tls.clone();
                    match tls {
                        None => serve(socket, state).await,
                        Some(tls) => {
                            if let Ok(stream) = tokio_rustls::TlsAcceptor::from(tls).accept(socket).await {
                                serve(stream, state).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, state, task }
    }

    pub(crate) fn set_tls(&self, tls: Arc<rustls::ServerConfig>) {
        self.state.lock().unwrap().tls = Some(tls);
    }

    /// Looks at every request first; `None` lets the registry answer.
    pub(crate) fn hook(&self, hook: impl FnMut(&Request) -> Option<Reply> + Send + 'static) {
        self.state.lock().unwrap().hook = Some(Box::new(hook));
    }

    /// Closes the connection after each answer, as an idle one would be.
    pub(crate) fn close_after_each(&self, close: bool) {
        self.state.lock().unwrap().close = close;
    }

    /// `METHOD target` of all requests so far; clears the log.
    pub(crate) fn take_log(&self) -> Vec<String> {
        self.take_requests()
            .into_iter()
            .map(|request| format!("{} {}", request.method, request.target))
            .collect()
    }

    pub(crate) fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }

    pub(crate) fn blob(&self, bytes: &[u8]) -> Digest {
        let digest = digest(bytes);
        self.state.lock().unwrap().blobs.insert(digest.to_string(), bytes.to_vec());
        digest
    }

    pub(crate) fn manifest(
        &self,
        repository: &str,
        tag: Option<&str>,
        media_type: &str,
        bytes: &[u8],
    ) -> Digest {
        let digest = digest(bytes);
        let names = [tag.map(str::to_owned), Some(digest.to_string())];
        for name in names.into_iter().flatten() {
            let stored = (media_type.to_owned(), bytes.to_vec());
            self.state.lock().unwrap().manifests.insert((repository.to_owned(), name), stored);
        }
        digest
    }

    /// Pushes an image of these layers (lowest first).
    pub(crate) fn push(&self, repository: &str, tag: Option<&str>, image: &Pushed) -> Digest {
        let (bytes, media_type) = self.image(image);
        self.manifest(repository, tag, media_type, &bytes)
    }

    fn image(&self, image: &Pushed) -> (Vec<u8>, &'static str) {
        let labels = serde_json::to_string(&image.labels).unwrap();
        let config = format!(r#"{{"architecture":"amd64","os":"linux","config":{{"Labels":{labels}}}}}"#);
        let config_digest = self.blob(config.as_bytes());
        let (media_type, config_type, layer_type) = if image.docker {
            (
                DOCKER_MANIFEST,
                "application/vnd.docker.container.image.v1+json",
                "application/vnd.docker.image.rootfs.diff.tar.gzip",
            )
        } else {
            (
                MANIFEST,
                "application/vnd.oci.image.config.v1+json",
                "application/vnd.oci.image.layer.v1.tar+gzip",
            )
        };
        let layers: Vec<String> = image
            .layers
            .iter()
            .map(|layer| {
                let digest = self.blob(layer);
                format!(r#"{{"mediaType":"{layer_type}","digest":"{digest}","size":{}}}"#, layer.len())
            })
            .collect();
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"{media_type}","config":{{"mediaType":"{config_type}","digest":"{config_digest}","size":{}}},"layers":[{}]}}"#,
            config.len(),
            layers.join(",")
        );
        (manifest.into_bytes(), media_type)
    }

    pub(crate) fn reference(&self, rest: &str) -> ImageRef {
        format!("{}/{rest}", self.address).parse().unwrap()
    }
}

/// An image to push.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pushed {
    pub(crate) layers: Vec<Vec<u8>>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) docker: bool,
}

impl Pushed {
    pub(crate) fn new(layers: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self { layers: layers.into_iter().collect(), ..Self::default() }
    }

    pub(crate) fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    pub(crate) fn docker(mut self) -> Self {
        self.docker = true;
        self
    }
}

/// The credentials `entry` for a registry, as a file of the container tools has them.
pub(crate) fn auths(registry: &Registry, entry: &str) -> String {
    format!(r#"{{"auths":{{"{}":{entry}}}}}"#, registry.address)
}

pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Digest::from_hash(DigestAlgorithm::Sha256, sha2::Sha256::digest(bytes).as_slice()).unwrap()
}

/// A gzip layer of these files.
pub(crate) fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut builder = tar::Builder::new(encoder);
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// Bytes that do not compress.
pub(crate) fn noise(size: usize) -> String {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut text = String::with_capacity(size);
    while text.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    text.truncate(size);
    text
}

/// A client that calls these registries insecure (they speak plain HTTP), with short timeouts.
pub(crate) struct Client {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) config: Config,
}

impl Client {
    pub(crate) fn new(registries: &[&Registry]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let text: String = registries
            .iter()
            .map(|registry| format!("[[registry]]\nlocation = '{}'\ninsecure = true\n", registry.address))
            .collect();
        let client = Self {
            config: Config {
                registries: RegistriesFiles {
                    file: Some(directory.path().join("registries.conf")),
                    ..RegistriesFiles::default()
                },
                timeouts: Timeouts {
                    connect: Duration::from_secs(10),
                    answer: Duration::from_secs(10),
                    stall: Duration::from_millis(300),
                    slow: Duration::from_millis(600),
                    slow_bytes: 1 << 10,
                },
                retries: Retries { first_pause: Duration::from_millis(1), ..Retries::default() },
                platform: olm_oci::Platform { os: "linux".into(), architecture: "amd64".into() },
                ..Config::default()
            },
            directory,
        };
        client.registries_conf(&text);
        client
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn registries_conf(&self, text: &str) {
        std::fs::write(self.path("registries.conf"), text).unwrap();
    }

    pub(crate) fn auth(mut self, document: &str) -> Self {
        let file = self.path("auth.json");
        std::fs::write(&file, document).unwrap();
        self.config.credentials.file = Some(file);
        self
    }

    /// Sends `user:password` to `registry`.
    pub(crate) fn with_password(self, registry: &Registry) -> Self {
        self.auth(&auths(registry, r#"{"username":"user","password":"password"}"#))
    }

    /// Trusts the certificates of `authority` only.
    pub(crate) fn trust(&mut self, authority: &pki::Authority) {
        let directory = self.path("cas");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("ca.crt"), &authority.pem).unwrap();
        self.config.certificates =
            CertificateDirs { every_host: Some(directory), ..CertificateDirs::default() };
    }

    pub(crate) fn puller(&self) -> Puller {
        Puller::new(self.config.clone())
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, state: Arc<Mutex<State>>) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        let close;
        let reply = {
            let mut state = state.lock().unwrap();
            state.log.push(request.clone());
            let hooked = state.hook.as_mut().and_then(|hook| hook(&request));
            close = state.close;
            hooked.unwrap_or_else(|| reply_to(&state, &request))
        };
        let reply = if close { reply.header("Connection", "close") } else { reply };
        if !write_reply(&mut stream, &request, reply).await || close {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

async fn read_request<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut Vec<u8>) -> Option<Request> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if buffer.first().is_some_and(|byte| !byte.is_ascii_uppercase()) {
            return None; // a TLS hello, most likely
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    buffer.drain(..end + 4);
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    while buffer.len() < length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8_lossy(&buffer[..length]).into_owned();
    buffer.drain(..length);
    Some(Request { method, target, headers, body })
}

fn reply_to(state: &State, request: &Request) -> Reply {
    // the target of a proxy request begins with the scheme
    let target = request
        .target
        .strip_prefix("http://")
        .map_or(request.target.as_str(), |rest| rest.find('/').map_or("/", |at| &rest[at..]));
    let Some(path) = target.strip_prefix("/v2/") else { return Reply::new(404, "") };
    if path.is_empty() {
        return Reply::new(200, "{}");
    }
    if let Some((repository, name)) = path.split_once("/manifests/") {
        return match state.manifests.get(&(repository.to_owned(), name.to_owned())) {
            Some((media_type, bytes)) => Reply::new(200, bytes.clone())
                .header("Content-Type", media_type)
                .header("Docker-Content-Digest", digest(bytes).to_string()),
            None => Reply::error(404, "MANIFEST_UNKNOWN"),
        };
    }
    let Some((_, name)) = path.split_once("/blobs/") else { return Reply::error(404, "NAME_UNKNOWN") };
    let Some(bytes) = state.blobs.get(name) else { return Reply::error(404, "BLOB_UNKNOWN") };
    let from = request.header("range").and_then(|text| text.strip_prefix("bytes="));
    match from.and_then(|text| text.trim_end_matches('-').parse::<usize>().ok()) {
        Some(from) if from < bytes.len() => Reply::new(206, &bytes[from..])
            .header("Content-Range", format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len())),
        Some(_) => Reply::new(416, ""),
        None => Reply::new(200, bytes.clone()),
    }
}

/// `false` when the connection is done for.
async fn write_reply<S: AsyncWrite + Unpin>(stream: &mut S, request: &Request, reply: Reply) -> bool {
    if matches!(reply.body, Body::Hangup) {
        return false;
    }
    let mut head = format!("HTTP/1.1 {} Status\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let length = match &reply.body {
        Body::Full(bytes) | Body::Drip { bytes, .. } => Some(bytes.len()),
        Body::Cut { declared, .. } | Body::Stall { declared, .. } => Some(*declared),
        Body::Endless(_) | Body::Hangup => None,
    };
    match length {
        Some(length) => head.push_str(&format!("Content-Length: {length}\r\n\r\n")),
        None => head.push_str("Connection: close\r\n\r\n"),
    }
    if stream.write_all(head.as_bytes()).await.is_err() {
        return false;
    }
    if request.method == "HEAD" {
        return stream.flush().await.is_ok();
    }
    match reply.body {
        Body::Full(bytes) => stream.write_all(&bytes).await.is_ok() && stream.flush().await.is_ok(),
        Body::Cut { bytes, .. } => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            false
        }
        Body::Stall { bytes, .. } => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.flush().await;
            std::future::pending::<()>().await;
            false
        }
        Body::Drip { bytes, pause } => {
            for byte in bytes {
                tokio::time::sleep(pause).await;
                if stream.write_all(&[byte]).await.is_err() || stream.flush().await.is_err() {
                    return false;
                }
            }
            true
        }
        Body::Hangup => false,
        Body::Endless(bytes) => {
            while stream.write_all(&bytes).await.is_ok() {}
            false
        }
    }
}
