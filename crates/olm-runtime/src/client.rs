//! The client for the apiserver: from a kubeconfig or from inside the cluster, without a rate limit of its own but for watches that end
//! soon, counted, and with a time limit on every answer.
//!
//! Proxies: `proxy-url` of the kubeconfig and `HTTPS_PROXY`/`NO_PROXY`, as kubectl has them.

mod proxy;
mod watches;

use std::error::Error;
use std::ffi::OsStr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use olm_core::message;
use tower::retry::RetryLayer;
use tower::{BoxError, Layer, Service, ServiceBuilder};

use crate::error_text::{chain, innermost};
use crate::metrics::Metrics;
pub use proxy::config_from;
use watches::{AnswerBody, Watches};

/// The longest wait for the head of an answer; the apiserver itself ends requests other than watches after this time.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest wait for the head of an answer to a GET, which is safe to repeat: the apiserver holds the first list of a kind whose CRD was
/// just created for a minute at times, and answers the next one immediately.
const GET_TIMEOUT: Duration = Duration::from_secs(25);
/// The longest pause within an answer. A watch never pauses for so long: the apiserver ends it earlier.
const READ_TIMEOUT: Duration = Duration::from_secs(330);

/// The longest waits for the head of an answer; `None` waits for ever.
#[derive(Debug, Clone, Copy)]
struct Waits {
    read: Option<Duration>,
    write: Option<Duration>,
}

impl Waits {
    /// Those of controllers.
    const CONTROLLER: Self = Self { read: Some(GET_TIMEOUT), write: Some(RESPONSE_TIMEOUT) };

    fn for_method(self, method: &http::Method) -> Option<Duration> {
        if *method == http::Method::GET { self.read } else { self.write }
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error("cannot use kubeconfig {path}: {why}")]
    Kubeconfig { path: String, why: String },
    /// No flag, no `KUBECONFIG`, no `~/.kube/config`, not inside a cluster.
    #[error("cannot find the cluster; give --kubeconfig, set KUBECONFIG, or run inside a cluster: {0}")]
    Infer(String),
    /// The connection cannot be set up.
    #[error("cannot make a client for {url}")]
    Build {
        url: String,
        #[source]
        source: Box<kube::Error>,
    },
}

/// The configuration: from the file if one is named, else from the environment or the pod.
///
/// # Errors
/// If none of them can be used.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, ClientError> {
    let options = KubeConfigOptions::default();
    let Some(path) = kubeconfig else {
        let inferred = Config::infer().await;
        let mut config = inferred.map_err(|error| ClientError::Infer(without_quotes(&error)))?;
        // a pod has no kubeconfig
        if let Ok(file) = Kubeconfig::read()
            && let Ok(same) = config_from(file, &options).await
        {
            config.proxy_url = same.proxy_url;
        }
        return Ok(config);
    };
    let fail = |error: KubeconfigError| ClientError::Kubeconfig {
        path: path.display().to_string(),
        why: without_quotes(&error),
    };
    let file = Kubeconfig::read_from(path).map_err(fail)?;
    config_from(file, &options).await.map_err(fail)
}

/// The first line of an error about a kubeconfig and its causes. The lines after it quote the file, which may hold tokens.
#[must_use]
pub fn without_quotes(error: &(dyn Error + 'static)) -> String {
    message::first_line(&chain(error)).to_owned()
}

/// A client that counts its requests and waits for no answer longer than a minute.
///
/// # Errors
/// If the configuration cannot be turned into a connection.
pub fn client(config: Config, metrics: &Metrics) -> Result<Client, ClientError> {
    build(config, metrics, Waits::CONTROLLER, TokioExecutor::new())
}

/// As [`client`] for a command that a user waits for: with the longest wait for the head of an answer (`None` waits for ever), and as kubectl
/// it repeats a request that the apiserver puts off (429, 503, 504), up to four times within about 7 s. That happens when a kind is first read
/// right after its CRD was created.
///
/// # Errors
/// If the configuration cannot be turned into a connection.
pub fn client_within(
    config: Config,
    metrics: &Metrics,
    limit: Option<Duration>,
) -> Result<Client, ClientError> {
    let client = build(config, metrics, Waits { read: limit, write: limit }, TokioExecutor::new())?;
    let namespace = client.default_namespace().to_owned();
    let sending = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move { client.send(request).await.map_err(BoxError::from) }
    });
    Ok(Client::new(repeating(sending), namespace))
}

/// The requests of a command, repeated while the apiserver puts them off.
fn repeating<S, R>(
    inner: S,
) -> impl Service<Request<Body>, Response = Response<R>, Error = BoxError, Future: Send> + Send
where
    S: Service<Request<Body>, Response = Response<R>, Error = BoxError, Future: Send> + Clone + Send,
    R: Send,
{
    let (first, longest) = (Duration::from_millis(500), Duration::from_secs(2));
    let policy = RetryPolicy::new(first, longest, 4, false).ok();
    ServiceBuilder::new().option_layer(policy.map(RetryLayer::new)).service(inner)
}

/// A task that reads and writes one connection.
pub(crate) type ConnectionTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// As [`client`], with the executor that runs its connections.
pub(crate) fn client_on(
    config: Config,
    metrics: &Metrics,
    executor: impl hyper::rt::Executor<ConnectionTask> + Clone + Send + Sync + 'static,
) -> Result<Client, ClientError> {
    build(config, metrics, Waits::CONTROLLER, executor)
}

fn build(
    mut config: Config,
    metrics: &Metrics,
    waits: Waits,
    executor: impl hyper::rt::Executor<ConnectionTask> + Clone + Send + Sync + 'static,
) -> Result<Client, ClientError> {
    config.read_timeout = config.read_timeout.or(Some(READ_TIMEOUT));
    // else the time that a connection was unused counts as a pause
    config.reset_reader_on_write = true;
    // the client's own policy retries for minutes after a 429 or 503, holds a worker up and hides what is wrong; a controller retries with a
    // backoff of its own
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, agent(std::env::args_os().next().as_deref())));
    let url = config.cluster_url.to_string();
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let builder = ClientBuilder::try_from((config, executor))
        .map_err(|source| ClientError::Build { url, source: Box::new(source) })?;
    let counting = Counting { metrics: metrics.clone(), host, waits, watches: Watches::default() };
    Ok(builder.with_layer(&counting).build())
}

/// How the process started as `argv0` calls itself to the apiserver, which writes it into its audit record, as Go's client does:
/// `catalogd/0.1.0 (linux/x86_64)`.
fn agent(argv0: Option<&OsStr>) -> HeaderValue {
    let program =
        argv0.map(Path::new).and_then(Path::file_name).unwrap_or(OsStr::new("olm-rs")).to_string_lossy();
    let (version, os, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    let named = HeaderValue::from_str(&format!("{program}/{version} ({os}/{arch})"));
    // a file may be called anything
    named.unwrap_or(HeaderValue::from_static(concat!("olm-rs/", env!("CARGO_PKG_VERSION"))))
}

/// [`config`] and [`client`] in one.
///
/// # Errors
/// As the two.
pub async fn connect(kubeconfig: Option<&Path>, metrics: &Metrics) -> Result<Client, ClientError> {
    client(config(kubeconfig).await?, metrics)
}

/// The same connections with another identity: each request acts as `user` (impersonation), who must be allowed to do it.
#[must_use]
pub fn impersonating(client: &Client, user: &str) -> Client {
    let (client, namespace) = (client.clone(), client.default_namespace().to_owned());
    // a name that is no header value is no user either: the apiserver rejects it
    let user = HeaderValue::from_str(user).unwrap_or(HeaderValue::from_static("invalid"));
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let client = client.clone();
        request.headers_mut().insert("impersonate-user", user.clone());
        async move { client.send(request).await }
    });
    Client::new(service, namespace)
}

/// A request that the apiserver did not answer.
#[derive(Debug, thiserror::Error)]
#[error("no answer from {url}: {why}")]
pub struct ConnectionError {
    /// Address of the apiserver.
    pub url: String,
    /// The innermost cause, such as `connection refused`.
    pub why: String,
}

impl ConnectionError {
    /// The one behind an error, if there is one.
    #[must_use]
    pub fn behind(error: &kube::Error) -> Option<&Self> {
        let kube::Error::Service(cause) = error else { return None };
        match cause.downcast_ref::<Self>() {
            Some(found) => Some(found),
            None => Self::behind(cause.downcast_ref::<kube::Error>()?),
        }
    }
}

/// The same connections; an error of one is a [`ConnectionError`].
#[must_use]
pub fn naming_address(client: &Client, url: &str) -> Client {
    let (client, namespace) = (client.clone(), client.default_namespace().to_owned());
    let url: std::sync::Arc<str> = url.into();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, url) = (client.clone(), url.clone());
        async move {
            client.send(request).await.map_err(|error| match error {
                kube::Error::Service(cause) => {
                    let why = innermost(cause.as_ref());
                    kube::Error::Service(Box::new(ConnectionError { url: url.to_string(), why }))
                }
                other => other,
            })
        }
    });
    Client::new(service, namespace)
}

/// Counts requests by code, host and method, gives up those that are not answered in time, and bounds the rate of watches.
#[derive(Clone)]
struct Counting {
    metrics: Metrics,
    host: String,
    waits: Waits,
    watches: Watches,
}

/// The apiserver did not answer in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer from the apiserver at {host} within {} s", limit.as_secs_f64())]
struct NoAnswer {
    host: String,
    limit: Duration,
}

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, counting: self.clone() }
    }
}

#[derive(Clone)]
struct Counted<S> {
    inner: S,
    counting: Counting,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: 'static,
{
    type Response = Response<AnswerBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().as_str().to_owned();
        let Counting { metrics, host, waits, watches } = self.counting.clone();
        let limit = waits.for_method(request.method());
        let watch = watches.watch(request.uri());
        let answer = self.inner.call(request);
        Box::pin(async move {
            if let Some(watch) = &watch {
                watch.begin().await;
            }
            let answer: Result<Response<B>, BoxError> = match limit {
                None => answer.await.map_err(Into::into),
                Some(limit) => match tokio::time::timeout(limit, answer).await {
                    Ok(answer) => answer.map_err(Into::into),
                    Err(_) => Err(NoAnswer { host: host.clone(), limit }.into()),
                },
            };
            let code =
                answer.as_ref().map_or_else(|_| "<error>".to_owned(), |ok| ok.status().as_str().to_owned());
            metrics.request(&code, &host, &method);
            answer.map(|answer| {
                // the watcher itself waits after another answer
                let watch = watch.filter(|_| answer.status().is_success());
                answer.map(|body| AnswerBody::new(body, watch))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    fn counting(metrics: &Metrics, waits: Waits) -> Counting {
        let host = "cluster:6443".to_owned();
        Counting { metrics: metrics.clone(), host, waits, watches: Watches::default() }
    }

    #[tokio::test]
    async fn client_counts_requests_and_failures() {
        let metrics = Metrics::new();
        let layer = counting(&metrics, Waits::CONTROLLER);
        for status in [Some(StatusCode::OK), Some(StatusCode::NOT_FOUND), None] {
            let mut service = layer.layer(tower::service_fn(move |_: Request<Body>| async move {
                let status = status.ok_or("refused")?;
                Response::builder().status(status).body(Body::empty()).map_err(|_| "odd")
            }));
            let answer = service.call(Request::get("/api").body(Body::empty()).unwrap()).await;
            assert_eq!(answer.map(|ok| ok.status()).ok(), status);
        }
        let text = metrics.classic();
        for code in ["200", "404", "<error>"] {
            let series = format!(
                "rest_client_requests_total{{code=\"{code}\",host=\"cluster:6443\",method=\"GET\"}} 1\n"
            );
            assert!(text.contains(&series), "{series} in {text}");
        }
    }

    #[test]
    fn client_user_agent_is_the_program() {
        let platform = format!("({}/{})", std::env::consts::OS, std::env::consts::ARCH);
        let version = env!("CARGO_PKG_VERSION");
        for (argv0, program) in
            [(Some("/usr/bin/catalogd"), "catalogd"), (Some("kubectl-olm"), "kubectl-olm"), (None, "olm-rs")]
        {
            let want = format!("{program}/{version} {platform}");
            assert_eq!(agent(argv0.map(OsStr::new)), want.as_str());
        }
        assert_eq!(agent(Some(OsStr::new("a\nb"))), format!("olm-rs/{version}").as_str());
    }

    #[tokio::test]
    async fn client_gives_up_requests_without_an_answer() {
        let limit = Duration::from_millis(10);
        let waits = Waits { read: Some(limit), write: None };
        let layer = counting(&Metrics::new(), waits);
        let mut service = layer.layer(tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, BoxError>>()
        }));
        let answer = service.call(Request::get("/api").body(Body::empty()).unwrap()).await;
        let want = "no answer from the apiserver at cluster:6443 within 0.01 s";
        assert_eq!(answer.unwrap_err().to_string(), want);
        let write = service.call(Request::post("/api").body(Body::empty()).unwrap());
        assert!(tokio::time::timeout(10 * limit, write).await.is_err(), "a write has its own limit");
    }

    #[tokio::test(start_paused = true)]
    async fn client_repeats_requests_that_are_put_off() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let sent = std::sync::Arc::new(AtomicU32::new(0));
        for (status, failures, requests, want) in [(429, 2, 3, 200), (429, 9, 5, 429), (500, 2, 1, 500)] {
            sent.store(0, Ordering::Relaxed);
            let counter = std::sync::Arc::clone(&sent);
            let mut service = repeating(tower::service_fn(move |_: Request<Body>| {
                let refuse = counter.fetch_add(1, Ordering::Relaxed) < failures;
                let status = if refuse { status } else { 200 };
                std::future::ready(
                    Response::builder().status(status).body(Body::empty()).map_err(BoxError::from),
                )
            }));
            let answer = service.call(Request::get("/api").body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!((sent.load(Ordering::Relaxed), answer.status().as_u16()), (requests, want));
        }
    }

    #[tokio::test]
    async fn client_names_the_missing_kubeconfig() {
        let error = config(Some(Path::new("no/such/file"))).await.unwrap_err().to_string();
        let want = "cannot use kubeconfig no/such/file: failed to read kubeconfig";
        assert!(error.starts_with(want) && error.contains("No such file"), "{error}");
    }

    #[tokio::test]
    async fn client_quotes_no_line_of_a_broken_kubeconfig() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "users:\n- name: u\n  user:\n    token: secret\n    x: [\n").unwrap();
        let error = config(Some(file.path())).await.unwrap_err().to_string();
        let want = format!("cannot use kubeconfig {}: failed to parse", file.path().display());
        assert!(error.starts_with(&want) && !error.contains("secret"), "{error}");
    }
}
