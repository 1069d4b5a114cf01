//! Between the controllers and the apiserver: passes everything on, and makes the watches of chosen kinds late, or the list of API groups.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use http::StatusCode;
use http::header::{ACCEPT, CONNECTION, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use kube::Client;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The list of API groups, for [`Proxy::hold`]. operator-controller gets it while it renders a bundle with webhooks, and only then.
pub(crate) const GROUPS: &str = "/apis";

/// A running proxy; it ends with the runtime of the test.
pub(crate) struct Proxy {
    /// That of an account, by way of the proxy.
    pub(crate) kubeconfig: PathBuf,
    held: watch::Sender<BTreeSet<String>>,
}

struct Upstream {
    client: Client,
    held: watch::Receiver<BTreeSet<String>>,
}

impl Proxy {
    /// For the account of a kubeconfig, which has a token.
    pub(crate) async fn start(kubeconfig: &Path) -> Result<Self> {
        let mut direct = Kubeconfig::read_from(kubeconfig)?;
        // each request names its user
        for user in &mut direct.auth_infos {
            user.auth_info = Some(AuthInfo::default());
        }
        let mut config = kube::Config::from_custom_kubeconfig(direct, &KubeConfigOptions::default()).await?;
        (config.proxy_url, config.read_timeout, config.default_retry) = (None, None, false);
        let (held, receiver) = watch::channel(BTreeSet::new());
        let upstream = Arc::new(Upstream { client: Client::try_from(config)?, held: receiver });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let server = format!("http://{}", listener.local_addr()?);
        let router = axum::Router::new().fallback(pass_on).with_state(upstream);
        tokio::spawn(async move { axum::serve(listener, router).await });

        let mut file: Value = serde_json::from_str(&std::fs::read_to_string(kubeconfig)?)?;
        file["clusters"][0]["cluster"] = json!({"server": server});
        let path = kubeconfig.with_extension("proxied");
        std::fs::write(&path, file.to_string()).context("cannot write the kubeconfig")?;
        Ok(Self { kubeconfig: path, held })
    }

    /// From now on the watches of these kinds show nothing, and requests for these paths get no body; other requests are answered as ever.
    pub(crate) fn hold(&self, names: &[&str]) {
        self.held.send_modify(|held| held.extend(names.iter().map(|name| (*name).to_owned())));
    }

    /// The watches of this kind, or the responses to requests for this path, show what they held back, in order.
    pub(crate) fn release(&self, name: &str) {
        self.held.send_modify(|held| {
            held.remove(name);
        });
    }
}

async fn pass_on(State(upstream): State<Arc<Upstream>>, request: Request) -> Response {
    respond(&upstream, request)
        .await
        .unwrap_or_else(|error| (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response())
}

async fn respond(upstream: &Upstream, request: Request) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let name = name_of(&parts);
    let target = parts.uri.path_and_query().context("no path")?.as_str();
    let mut forwarded = http::Request::builder().method(parts.method).uri(target);
    for (name, value) in &parts.headers {
        if ![HOST, CONNECTION, TRANSFER_ENCODING].contains(name) {
            forwarded = forwarded.header(name, value);
        }
    }
    let body = body.collect().await?.to_bytes().to_vec();
    let (mut head, body) = upstream.client.send(forwarded.body(body.into())?).await?.into_parts();
    head.headers.remove(TRANSFER_ENCODING);
    head.headers.remove(CONNECTION);
    let held = upstream.held.clone();
    let frames = BodyStream::new(body).then(move |frame| {
        let (mut held, name) = (held.clone(), name.clone());
        async move {
            // an error means that the test has ended
            let _ = held.wait_for(|held| !held.contains(&name)).await;
            frame
        }
    });
    Ok(Response::from_parts(head, Body::new(StreamBody::new(frames))))
}

/// The name by which a response is held: the plural of a watch, or the path of another request.
fn name_of(request: &Parts) -> String {
    let path = request.uri.path();
    let is_watch = request.uri.query().is_some_and(|query| query.contains("watch=true"));
    let accepted = request.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    match path.rsplit('/').next() {
        Some(plural) if is_watch => plural.to_owned(),
        // the APIs of all groups have the path of the list of groups
        _ if accepted.contains("apidiscovery") => String::new(),
        _ => path.to_owned(),
    }
}
