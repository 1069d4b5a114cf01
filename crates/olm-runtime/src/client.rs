//! The client for the apiserver: from a kubeconfig or from inside the cluster, without a rate limit of its own, counted.
//!
//! Proxies: `proxy-url` of the kubeconfig and `HTTPS_PROXY`/`NO_PROXY`, as kubectl has them.

use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{Layer, Service};

use crate::metrics::Metrics;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error("cannot use kubeconfig {path}")]
    Kubeconfig {
        /// Which file.
        path: String,
        /// Why not.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// No flag, no `KUBECONFIG`, no `~/.kube/config`, not inside a cluster.
    #[error("cannot find the cluster; give --kubeconfig, set KUBECONFIG, or run inside a cluster")]
    Infer(#[source] Box<kube::config::InferConfigError>),
    /// The connection cannot be set up.
    #[error("cannot make a client for {url}")]
    Build {
        /// The apiserver.
        url: String,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
}

/// The configuration: from the file if one is named, else from the environment or the pod.
///
/// # Errors
/// If none of them can be used.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, ClientError> {
    let Some(path) = kubeconfig else {
        return Config::infer().await.map_err(|error| ClientError::Infer(Box::new(error)));
    };
    let fail =
        |source| ClientError::Kubeconfig { path: path.display().to_string(), source: Box::new(source) };
    let file = Kubeconfig::read_from(path).map_err(fail)?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(fail)
}

/// A client that counts its requests.
///
/// # Errors
/// If the configuration cannot be turned into a connection.
pub fn client(config: Config, metrics: &Metrics) -> Result<Client, ClientError> {
    let url = config.cluster_url.to_string();
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let builder = ClientBuilder::try_from(config)
        .map_err(|source| ClientError::Build { url, source: Box::new(source) })?;
    Ok(builder.with_layer(&Counting { metrics: metrics.clone(), host }).build())
}

/// [`config`] and [`client`] in one.
///
/// # Errors
/// As the two.
pub async fn connect(kubeconfig: Option<&Path>, metrics: &Metrics) -> Result<Client, ClientError> {
    client(config(kubeconfig).await?, metrics)
}

/// Counts requests by code, host and method.
#[derive(Clone, Debug)]
struct Counting {
    metrics: Metrics,
    host: String,
}

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, counting: self.clone() }
    }
}

#[derive(Clone, Debug)]
struct Counted<S> {
    inner: S,
    counting: Counting,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().as_str().to_owned();
        let Counting { metrics, host } = self.counting.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code =
                answer.as_ref().map_or_else(|_| "<error>".to_owned(), |ok| ok.status().as_str().to_owned());
            metrics.request(&code, &host, &method);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    #[tokio::test]
    async fn counts_requests_and_failures() {
        let metrics = Metrics::new();
        let layer = Counting { metrics: metrics.clone(), host: "cluster:6443".to_owned() };
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

    #[tokio::test]
    async fn names_the_kubeconfig_that_is_missing() {
        let error = config(Some(Path::new("no/such/file"))).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot use kubeconfig no/such/file");
    }
}
