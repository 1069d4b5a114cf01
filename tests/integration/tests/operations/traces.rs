//! Spans arrive at a collector: of catalogd's look at a catalog and its pull, and of operator-controller's passes. Without a
//! collector nothing is sent anywhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use olm_kit::{BundleImage, Entry, Options, Stack, eventually};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use parking_lot::Mutex;
use prost::Message as _;

use crate::world::{LIMIT, World};

/// Service, name of the span and its attributes, as text.
type Spans = Arc<Mutex<BTreeSet<(String, String, String)>>>;

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|one| one.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        other => Some(format!("{other:?}")),
    }
}

fn take(spans: &Spans, body: &Bytes) -> Result<()> {
    let request = ExportTraceServiceRequest::decode(body.clone())?;
    let mut known = spans.lock();
    for resource in request.resource_spans {
        let service =
            resource.resource.and_then(|one| text(&one.attributes, "service.name")).unwrap_or_default();
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let of = ["catalog", "extension", "revision", "image", "http.method"]
                .iter()
                .find_map(|key| text(&span.attributes, key));
            known.insert((service.clone(), span.name, of.unwrap_or_default()));
        }
    }
    Ok(())
}

/// A stand-in for a collector on loopback; gives its URL.
async fn collector(spans: Spans) -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let receive = move |headers: HeaderMap, body: Bytes| {
        let protobuf = headers.get("content-type").is_some_and(|kind| kind == "application/x-protobuf");
        let status = match take(&spans, &body) {
            Ok(()) if protobuf => StatusCode::OK,
            _ => StatusCode::BAD_REQUEST,
        };
        std::future::ready(status)
    };
    let router = Router::new().route("/v1/traces", post(receive));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(url)
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_cover_a_pull_and_a_reconcile() -> Result<()> {
    let spans = Spans::default();
    let url = collector(Arc::clone(&spans)).await?;
    // one by flag, the other by the environment
    let stack = Stack::start_with(&Options::default(), |program| {
        let program = program.env("OTEL_BSP_SCHEDULE_DELAY", "100");
        if program.name() == "catalogd" {
            program.flag("--otlp-endpoint", &url)
        } else {
            program.env("OTEL_EXPORTER_OTLP_ENDPOINT", &url).env("OTEL_SERVICE_NAME", "named-by-environment")
        }
    })
    .await?;
    let stack: &'static Stack = Box::leak(Box::new(stack));
    let world = World::on(stack, "traced").await?;
    world.serve([("1.0.0", BundleImage::new(&world.name, "1.0.0").crds([]))], [Entry::new("1.0.0")]).await?;
    world.install_any("1.0.0").await?;

    let controller = "named-by-environment";
    let expected = [
        ("catalogd", "catalog", world.name.as_str()),
        ("catalogd", "read image", &format!("{}/catalog", world.name)),
        // a request to the apiserver is named by what the client did
        ("catalogd", "", "PATCH"),
        (controller, "extension", &world.name),
        (controller, "revision", &world.name),
        (controller, "read image", &format!("{}/bundle", world.name)),
    ];
    eventually("all spans have arrived", LIMIT, || async {
        let known = spans.lock().clone();
        for (service, name, of) in expected {
            let found = known
                .iter()
                .any(|one| one.0 == service && (name.is_empty() || one.1 == name) && one.2.contains(of));
            ensure!(found, "no span {name} of {service} about {of}; there are {known:#?}");
        }
        Ok(())
    })
    .await
}
