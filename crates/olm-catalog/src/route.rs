//! Routes to catalogd: direct HTTP, or the Service proxy of the API server.
//!
//! A workstation does not reach Services of the cluster, but it reaches the API server: a user with `get` on
//! `services/proxy` reads catalogd through it with the credentials of the kubeconfig. [`crate::catalogd`] makes the
//! requests.

use http_body_util::BodyExt as _;
use kube::client::Body;
use olm_runtime::error_text::chain;
use reqwest::header::HeaderMap;

#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// The connection failed.
    #[error("error performing request: {}", chain(.0))]
    Transport(#[source] reqwest::Error),
    /// The Service proxy of the API server failed or rejected it.
    #[error("cannot reach catalogd through the apiserver's Service proxy: {0}")]
    Proxy(String),
    /// The Service proxy was requested for an address that is not a Service.
    #[error("{0} names no Service of the cluster, so the apiserver cannot lead there")]
    NoService(String),
}

/// A route to catalogd.
#[derive(Clone)]
pub enum Route {
    /// To the address that the catalog's status names.
    Direct(reqwest::Client),
    /// To another address with the same paths, for development: `https://127.0.0.1:8443`.
    Address(reqwest::Client, String),
    /// Through the apiserver, for base URLs that name a Service of the cluster.
    Proxy(kube::Client),
}

/// A response whose body has not been read yet.
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: HeaderMap,
    body: Source,
}

enum Source {
    Direct(reqwest::Response),
    Proxy(Body),
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Direct(_) => f.write_str("Direct"),
            Self::Address(_, address) => write!(f, "Address({address})"),
            Self::Proxy(_) => f.write_str("Proxy"),
        }
    }
}

impl Route {
    /// Sends a GET and waits for the head of the response. `base` is `status.urls.base` of the catalog, `rest` the rest of the path
    /// with the query, percent-encoded, and `known` the ETag of the cached content.
    pub(crate) async fn send(
        &self,
        base: &str,
        rest: &str,
        known: Option<&str>,
    ) -> Result<Response, RouteError> {
        match self {
            Self::Direct(client) => direct(client, &format!("{}{rest}", trimmed(base)), known).await,
            Self::Address(client, address) => {
                direct(client, &format!("{}{}{rest}", trimmed(address), path_of(base)), known).await
            }
            Self::Proxy(client) => {
                let path = proxy_path(base).ok_or_else(|| RouteError::NoService(base.to_owned()))?;
                proxied(client, &format!("{path}{rest}"), known).await
            }
        }
    }
}

async fn direct(client: &reqwest::Client, url: &str, known: Option<&str>) -> Result<Response, RouteError> {
    let mut request = client.get(url);
    if let Some(tag) = known {
        request = request.header(http::header::IF_NONE_MATCH, tag);
    }
    let response = request.send().await.map_err(RouteError::Transport)?;
    Ok(Response {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: Source::Direct(response),
    })
}

async fn proxied(client: &kube::Client, path: &str, known: Option<&str>) -> Result<Response, RouteError> {
    let mut request = http::Request::get(path);
    if let Some(tag) = known {
        request = request.header(http::header::IF_NONE_MATCH, tag);
    }
    let request = request.body(Body::empty()).map_err(|error| RouteError::Proxy(error.to_string()))?;
    let response = client.send(request).await.map_err(|error| RouteError::Proxy(chain(&error)))?;
    let (head, body) = response.into_parts();
    // errors of catalogd are plain text; JSON is an error of the API server
    let json = head
        .headers
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if head.status.as_u16() >= 400 && json {
        let body = http_body_util::Limited::new(body, MAX_STATUS).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let status: Status = serde_json::from_slice(&body).unwrap_or_default();
        return Err(RouteError::Proxy(format!("{}: {}", head.status.as_u16(), status.message)));
    }
    Ok(Response { status: head.status.as_u16(), headers: head.headers, body: Source::Proxy(body) })
}

/// Most bytes of an error of the API server that are read.
const MAX_STATUS: usize = 64 * 1024;

/// An error of the API server.
#[derive(Default, serde::Deserialize)]
struct Status {
    #[serde(default)]
    message: String,
}

impl Response {
    /// A response whose body has these chunks.
    #[cfg(test)]
    pub(crate) fn from_chunks(status: u16, chunks: Vec<String>) -> Self {
        let frames = chunks.into_iter().map(|chunk| {
            Ok::<_, std::convert::Infallible>(http_body::Frame::data(bytes::Bytes::from(chunk)))
        });
        let body = http_body_util::StreamBody::new(futures::stream::iter(frames));
        let response = http::Response::new(reqwest::Body::wrap(body)).into();
        Self { status, headers: HeaderMap::new(), body: Source::Direct(response) }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The next bytes of the body.
    pub(crate) async fn chunk(&mut self) -> Result<Option<bytes::Bytes>, RouteError> {
        match &mut self.body {
            Source::Direct(response) => response.chunk().await.map_err(RouteError::Transport),
            Source::Proxy(body) => loop {
                match body.frame().await {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(RouteError::Proxy(chain(&error))),
                    Some(Ok(frame)) => {
                        // trailers are not used
                        if let Ok(data) = frame.into_data() {
                            return Ok(Some(data));
                        }
                    }
                }
            },
        }
    }
}

fn trimmed(url: &str) -> &str {
    url.trim_end_matches('/')
}

/// The path of a URL, without a slash at its end.
fn path_of(url: &str) -> &str {
    let after = url.split_once("://").map_or(url, |(_, after)| after);
    after.find('/').map_or("", |at| trimmed(&after[at..]))
}

/// The path of the Service proxy for `https://<service>.<namespace>.svc[.cluster.local][:port]/<path>`; `None` for other URLs.
pub(crate) fn proxy_path(base: &str) -> Option<String> {
    let (scheme, after) = base.split_once("://")?;
    let authority = after.split('/').next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().ok()?),
        None => (authority, if scheme == "https" { 443 } else { 80 }),
    };
    let mut labels = host.split('.');
    let (service, namespace) = (labels.next()?, labels.next()?);
    if labels.next()? != "svc" || service.is_empty() || namespace.is_empty() {
        return None;
    }
    let path = path_of(base);
    Some(format!("/api/v1/namespaces/{namespace}/services/{scheme}:{service}:{port}/proxy{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_detects_service_by_host() {
        for (base, want) in [
            (
                "https://catalogd-service.olmv1-system.svc/catalogs/c",
                Some("/api/v1/namespaces/olmv1-system/services/https:catalogd-service:443/proxy/catalogs/c"),
            ),
            (
                "http://s.n.svc.cluster.local:8080/catalogs/c/",
                Some("/api/v1/namespaces/n/services/http:s:8080/proxy/catalogs/c"),
            ),
            ("https://127.0.0.1:8443/catalogs/c", None),
            ("https://example.com/catalogs/c", None),
            ("https://s.n.svc:port/c", None),
            ("catalogs/c", None),
        ] {
            assert_eq!(proxy_path(base).as_deref(), want, "{base}");
        }
    }

    #[test]
    fn route_address_keeps_the_path() {
        for (base, want) in
            [("https://a.b.svc/catalogs/c", "/catalogs/c"), ("https://a.b.svc", ""), ("https://a/b/", "/b")]
        {
            assert_eq!(path_of(base), want, "{base}");
        }
    }
}
