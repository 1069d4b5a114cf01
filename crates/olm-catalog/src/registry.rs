//! A registry of OLM Classic over gRPC, service `api.Registry`: one connection, in clear text as the reference has it.
//!
//! It makes no connection again; its user does, see [`Registry::closed`]. Every request has a timeout, and answers have limits.
//! Rules: classic-apis §2.4, fbc §10.7.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use olm_registry::proto;
use olm_registry::proto::registry_client::RegistryClient;
use olm_runtime::Shutdown;
use olm_runtime::error_text::chain;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tower::Service;

/// How long one attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After how long without a byte the other side is probed, and how often it may leave a probe without an answer.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);
const MAX_PROBES: u32 = 3;
/// How long a request for one object may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the list of all bundles may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of one bundle with its manifests: as many as one from an image may have, and its ClusterServiceVersion once more.
const MAX_BUNDLE: usize = 32 << 20;
/// Bytes of one bundle in the list of all. The manifests of an inline bundle are in it.
const MAX_LISTED_BUNDLE: usize = 16 << 20;
/// Bytes of a package with its channels.
const MAX_PACKAGE: usize = 4 << 20;
/// Bundles of all channels. The largest known catalog has about 60,000.
const MAX_BUNDLES: usize = 1_000_000;
/// Packages. The largest known catalog has about 500.
const MAX_PACKAGES: usize = 100_000;
/// Bytes of the names of all packages.
const MAX_PACKAGE_NAMES: usize = 8 << 20;
/// Packages that are asked for at the same time.
const PARALLEL: usize = 8;

/// Why a registry gives no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RegistryError {
    #[error("cannot connect to registry {address}: {why}")]
    Connect { address: String, why: String },
    #[error("failed to {action}: {why}")]
    Request { action: &'static str, why: String },
    #[error("failed to {action}: no complete answer within {} s", .limit.as_secs())]
    Slow { action: &'static str, limit: Duration },
    #[error("failed to {action}: more than the limit of {limit}")]
    TooMany { action: &'static str, limit: usize },
}

/// A connection to a registry. Clones share it.
#[derive(Clone)]
pub struct Registry {
    client: RegistryClient<Transport>,
    closed: Shutdown,
    _connection: Arc<AbortOnDropHandle<()>>,
}

impl Registry {
    /// Connects to `host:port`, and returns when the registry has answered a request.
    ///
    /// # Errors
    /// When there is no connection in time, or the other side is no registry.
    pub async fn connect(address: &str) -> Result<Self, RegistryError> {
        let failed = |why: String| RegistryError::Connect { address: address.to_owned(), why };
        let connecting = async {
            let origin: Uri =
                format!("http://{address}").parse().map_err(|error| failed(format!("{error}")))?;
            let stream = open(address).await.map_err(|error| failed(chain(&error)))?;
            let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
            let (sender, connection) = handshake.map_err(|error| failed(chain(&error)))?;
            let closed = Shutdown::new();
            let running = {
                let closed = closed.clone();
                connection.map(move |_| closed.cancel())
            };
            let connection = Arc::new(AbortOnDropHandle::new(tokio::spawn(running)));
            let client = RegistryClient::with_origin(Transport(sender), origin);
            let client = client.max_decoding_message_size(MAX_BUNDLE);
            let registry = Self { client, closed, _connection: connection };
            registry.check().await.map_err(|status| failed(status.message().to_owned()))?;
            Ok(registry)
        };
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        connected.map_err(|_| failed(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())))?
    }

    /// Whether the other side answers. An answer that reports an error is one.
    async fn check(&self) -> Result<(), tonic::Status> {
        let answer = self.client.clone().list_packages(proto::ListPackageRequest {}).await;
        match answer {
            Ok(_) => Ok(()),
            Err(status) if std::error::Error::source(&status).is_some() => Err(status),
            Err(status) if status.code() == tonic::Code::Unavailable => Err(status),
            Err(_) => Ok(()),
        }
    }

    /// Resolves when the connection has ended, or within two minutes after the other side is gone without an end.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// All bundles, once for each channel that has an entry for them. Manifests are there only of bundles without an image. `take` is
    /// called for one after the other, and bounds what is kept of them: its error ends the list.
    ///
    /// # Errors
    /// When the list does not come to its end.
    pub async fn list_bundles(
        &self,
        mut take: impl FnMut(proto::Bundle) -> Result<(), String>,
    ) -> Result<(), RegistryError> {
        let action = "list bundles";
        let listing = async {
            let mut client = self.client.clone().max_decoding_message_size(MAX_LISTED_BUNDLE);
            let answer = client.list_bundles(proto::ListBundlesRequest {}).await;
            let mut bundles = answer.map_err(|status| failed(action, &status))?.into_inner();
            let mut count = 0;
            while let Some(bundle) = bundles.next().await {
                count += 1;
                if count > MAX_BUNDLES {
                    return Err(RegistryError::TooMany { action, limit: MAX_BUNDLES });
                }
                let taken = take(bundle.map_err(|status| failed(action, &status))?);
                taken.map_err(|why| RegistryError::Request { action, why })?;
            }
            Ok(())
        };
        within(action, LIST_TIMEOUT, listing).await
    }

    /// All packages, by name. `take` is called for one after the other, and its error ends the list.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub async fn packages(
        &self,
        mut take: impl FnMut(proto::Package) -> Result<(), String>,
    ) -> Result<(), RegistryError> {
        let action = "list packages";
        let listing = async {
            let client = self.client.clone().max_decoding_message_size(MAX_PACKAGE);
            let answer = client.clone().list_packages(proto::ListPackageRequest {}).await;
            let mut names = answer.map_err(|status| failed(action, &status))?.into_inner();
            let (mut found, mut bytes) = (Vec::new(), 0);
            while let Some(name) = names.next().await {
                let name = name.map_err(|status| failed(action, &status))?.name;
                bytes += name.len();
                if bytes > MAX_PACKAGE_NAMES {
                    let why = format!("the names have more than the limit of {MAX_PACKAGE_NAMES} bytes");
                    return Err(RegistryError::Request { action, why });
                }
                found.push(name);
                if found.len() > MAX_PACKAGES {
                    return Err(RegistryError::TooMany { action, limit: MAX_PACKAGES });
                }
            }
            found.sort_unstable();
            let packages = futures::stream::iter(found).map(|name| {
                let mut client = client.clone();
                async move { client.get_package(proto::GetPackageRequest { name }).await }
            });
            let mut packages = pin!(packages.buffered(PARALLEL));
            while let Some(package) = packages.next().await {
                let package = package.map_err(|status| failed(action, &status))?.into_inner();
                take(package).map_err(|why| RegistryError::Request { action, why })?;
            }
            Ok(())
        };
        within(action, LIST_TIMEOUT, listing).await
    }

    /// A bundle of a channel with its manifests.
    ///
    /// # Errors
    /// When there is none, or no answer.
    pub async fn bundle(
        &self,
        package: &str,
        channel: &str,
        name: &str,
    ) -> Result<proto::Bundle, RegistryError> {
        let action = "get bundle";
        let request = proto::GetBundleRequest {
            pkg_name: package.to_owned(),
            channel_name: channel.to_owned(),
            csv_name: name.to_owned(),
        };
        let getting = async {
            let answer = self.client.clone().get_bundle(request).await;
            answer.map(tonic::Response::into_inner).map_err(|status| failed(action, &status))
        };
        within(action, REQUEST_TIMEOUT, getting).await
    }
}

/// Connects to `host:port`. The system ends the connection if the other side is gone: a machine that is lost sends no end.
///
/// Not by pings of HTTP/2: servers of gRPC close the connection of a client that pings them while it has no request.
async fn open(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    let socket = SockRef::from(&stream);
    let probes = TcpKeepalive::new().with_time(PROBE_INTERVAL).with_interval(PROBE_INTERVAL);
    socket.set_tcp_keepalive(&probes.with_retries(MAX_PROBES))?;
    // what was sent and not received is not probed
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(PROBE_INTERVAL * (MAX_PROBES + 1)))?;
    Ok(stream)
}

async fn within<T>(
    action: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, RegistryError>>,
) -> Result<T, RegistryError> {
    let done = tokio::time::timeout(limit, work).await;
    done.map_err(|_| RegistryError::Slow { action, limit })?
}

fn failed(action: &'static str, status: &tonic::Status) -> RegistryError {
    RegistryError::Request { action, why: format!("{}: {}", status.code(), status.message()) }
}

/// A connection as tonic uses it.
#[derive(Clone)]
struct Transport(SendRequest<Body>);

impl Service<Request<Body>> for Transport {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.send_request(request).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::{HeaderMap, HeaderName, HeaderValue};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use tokio::net::TcpListener;

    use super::*;

    /// A registry that answers each method with one body.
    async fn serve(answers: Vec<(&'static str, Vec<u8>)>) -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let method = request.uri().path().trim_start_matches("/api.Registry/");
                let found = answers.iter().find(|(answered, _)| *answered == method);
                let body = Bytes::from(found.map(|(_, body)| body.clone()).unwrap_or_default());
                let status = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
                let frames = [Frame::data(body), Frame::trailers(HeaderMap::from_iter([status]))];
                let frames = futures::stream::iter(frames.map(Ok::<_, Infallible>));
                let answer = Response::builder().header("content-type", "application/grpc");
                let answer = answer.body(StreamBody::new(frames)).unwrap();
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            connection.serve_connection(TokioIo::new(stream), service).await.ok();
        });
        Registry::connect(&address).await.unwrap()
    }

    /// The head of a message of so many bytes.
    fn head(bytes: usize) -> Vec<u8> {
        [&[0][..], &u32::try_from(bytes).unwrap().to_be_bytes()[..]].concat()
    }

    /// A message with a name of so many bytes, at most 127.
    fn named(bytes: u8) -> Vec<u8> {
        [head(usize::from(bytes) + 2), vec![10, bytes], vec![b'n'; usize::from(bytes)]].concat()
    }

    #[tokio::test]
    async fn registry_answers_are_limited() {
        let skips = [head(2 * 100_001), [114_u8, 0].repeat(100_001)].concat();
        for (bundles, want) in [
            (named(5), "Ok(())"),
            (head(MAX_LISTED_BUNDLE + 1), "the limit is: 16777216 bytes"),
            (skips, "more than the limit of 100000 fields"),
            (head(0).repeat(MAX_BUNDLES + 1), "failed to list bundles: more than the limit of 1000000"),
        ] {
            let registry = serve(vec![("ListBundles", bundles)]).await;
            let listed = registry.list_bundles(|_| Ok(())).await.map_err(|error| error.to_string());
            assert!(format!("{listed:?}").contains(want), "{listed:?}");
        }
        let names = named(120).repeat(MAX_PACKAGE_NAMES / 120 + 1);
        for (names, package, want) in [
            (named(5), named(5), "Ok(())"),
            (names, Vec::new(), "the names have more than the limit of 8388608 bytes"),
            (
                head(0).repeat(MAX_PACKAGES + 1),
                Vec::new(),
                "failed to list packages: more than the limit of 100000",
            ),
            (named(5), head(MAX_PACKAGE + 1), "the limit is: 4194304 bytes"),
        ] {
            let registry = serve(vec![("ListPackages", names), ("GetPackage", package)]).await;
            let listed = registry.packages(|_| Ok(())).await.map_err(|error| error.to_string());
            assert!(format!("{listed:?}").contains(want), "{listed:?}");
        }
        let registry = serve(vec![("GetBundle", head(MAX_BUNDLE + 1))]).await;
        let error = registry.bundle("p", "c", "b").await.unwrap_err().to_string();
        assert!(error.contains("the limit is: 33554432 bytes"), "{error}");
    }

    #[tokio::test]
    async fn registry_lists_end_at_an_error_of_the_reader() {
        let answers =
            [("ListBundles", named(5).repeat(3)), ("ListPackages", named(5)), ("GetPackage", named(5))];
        let registry = serve(answers.into()).await;
        let mut taken = 0;
        let listed = registry.list_bundles(|bundle| {
            taken += 1;
            assert_eq!(bundle.csv_name, "nnnnn");
            if taken < 2 { Ok(()) } else { Err("too large".to_owned()) }
        });
        assert_eq!(listed.await.unwrap_err().to_string(), "failed to list bundles: too large");
        assert_eq!(taken, 2);
        let error = registry.packages(|_| Err("too large".to_owned())).await.unwrap_err();
        assert_eq!(error.to_string(), "failed to list packages: too large");
    }

    #[tokio::test]
    async fn connection_probes_the_other_side() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = open(&listener.local_addr().unwrap().to_string()).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), PROBE_INTERVAL);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), PROBE_INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), MAX_PROBES);
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(60)));
    }
}
