//! Discovery of the aggregated API `packages.operators.coreos.com/v1`, so that the APIService of an installation of the reference stays
//! available. It serves no PackageManifests yet, and lists no resource for them.

use std::path::Path;
use std::sync::Arc;

use axum::routing::get;
use axum::{Json, Router};
use futures::FutureExt as _;
use olm_runtime::args::Serving;
use olm_runtime::tls::{self, ServingPair, TlsError, TlsSettings, WatchedPair};
use olm_runtime::{Shutdown, listen, serve};
use serde_json::{Value, json};

use crate::args::ServeArgs;

const GROUP: &str = "packages.operators.coreos.com";

/// Serves until `stop`. `None`: it is off.
///
/// # Errors
/// When there is no certificate, or the address cannot be used.
pub(crate) async fn server(
    args: &ServeArgs,
    settings: &TlsSettings,
    stop: Shutdown,
) -> anyhow::Result<Option<impl Future<Output = ()> + use<>>> {
    let Some(listener) = listen::optional(&args.packages_bind_address).await? else { return Ok(None) };
    let Some(Serving::Files { cert, key }) = args.tls.serving()? else {
        anyhow::bail!("--packages-bind-address requires --tls-cert and --tls-key");
    };
    let (pair, keeping) = watched_pair(&cert, &key, stop.clone())?;
    let config = tls::server_config(pair, settings)?;
    let serving = serve::https(listener, router(), config, serve::Limits::default(), stop);
    Ok(Some(futures::future::join(serving, keeping).map(|_| ())))
}

/// The pair in the files, and the work that follows them until `stop`.
fn watched_pair(cert: &Path, key: &Path, stop: Shutdown) -> Result<WatchedPair, TlsError> {
    let pair = ServingPair::load(cert, key)?;
    Ok((Arc::clone(&pair), pair.watch(stop).boxed()))
}

fn router() -> Router {
    let version = || json!({"groupVersion": format!("{GROUP}/v1"), "version": "v1"});
    let group = || json!({"name": GROUP, "versions": [version()], "preferredVersion": version()});
    let with_kind = |kind: &str, mut value: Value| {
        value["kind"] = kind.into();
        value["apiVersion"] = "v1".into();
        value
    };
    let groups = with_kind("APIGroupList", json!({"groups": [group()]}));
    let one = with_kind("APIGroup", group());
    let resources =
        with_kind("APIResourceList", json!({"groupVersion": format!("{GROUP}/v1"), "resources": []}));
    let answer = |value: Value| get(move || std::future::ready(Json(value)));
    Router::new()
        .route("/apis", answer(groups))
        .route(&format!("/apis/{GROUP}"), answer(one))
        .route(&format!("/apis/{GROUP}/v1"), answer(resources))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use http::{Request, StatusCode};
    use http_body_util::BodyExt as _;
    use k8s_openapi::jiff::{SignedDuration, Timestamp};
    use olm_certificates::material::{Keys, issue};
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn packages_certificate_follows_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let [cert, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        let write = |name: &str| {
            let (names, keys) = ([name.to_owned()], Keys::generate().unwrap());
            let issued =
                issue("test CA", &names, Timestamp::now(), SignedDuration::from_hours(1), keys).unwrap();
            std::fs::write(&cert, issued.certificate).unwrap();
            std::fs::write(&key, issued.key.pem()).unwrap();
        };
        write("first.test");
        let (pair, keeping) = watched_pair(&cert, &key, Shutdown::new()).unwrap();
        let first = pair.current().cert.clone();
        let rotated = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            write("second-and-longer.test");
            tokio::time::sleep(Duration::from_secs(9)).await;
        };
        tokio::select! {
            () = keeping => panic!("it ends"),
            () = rotated => {}
        }
        assert_ne!(pair.current().cert, first);
    }

    #[tokio::test]
    async fn packages_discovery_lists_no_resource() {
        for (path, code, want) in [
            ("/apis", StatusCode::OK, "APIGroupList"),
            ("/apis/packages.operators.coreos.com", StatusCode::OK, "APIGroup"),
            ("/apis/packages.operators.coreos.com/v1", StatusCode::OK, "APIResourceList"),
            ("/apis/packages.operators.coreos.com/v1/packagemanifests", StatusCode::NOT_FOUND, ""),
        ] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let response = router().oneshot(request).await.unwrap();
            assert_eq!(response.status(), code, "{path}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let kind =
                serde_json::from_slice::<Value>(&body).map_or(Value::Null, |body| body["kind"].clone());
            assert_eq!(kind.as_str().unwrap_or_default(), want, "{path}");
        }
    }
}
