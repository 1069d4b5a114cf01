//! Traces by OpenTelemetry: spans are sent over OTLP (HTTP, protobuf) to a collector, if one is named. Without, nothing of this
//! exists: no layer, no thread, no connection.
//!
//! The environment that every OpenTelemetry program reads counts: `OTEL_EXPORTER_OTLP_ENDPOINT` (also `…_TRACES_…`), `…_HEADERS`,
//! `…_TIMEOUT`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`, `OTEL_SDK_DISABLED`. A flag
//! wins over it. A collector that cannot be reached costs spans, never work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use super::TelemetryError;
use crate::tls::{CaPool, TlsSettings};

/// The path below an endpoint that is given for all signals.
const PATH: &str = "v1/traces";
/// The answer of a collector is short.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// How long the end of the process waits for the last spans.
const FLUSH: Duration = Duration::from_secs(3);

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Whether a collector is named by the flag or by the environment, and tracing is not switched off.
pub(super) fn is_enabled(flag: &str) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let off = std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
    !off && (!flag.is_empty()
        || set("OTEL_EXPORTER_OTLP_ENDPOINT")
        || set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
}

/// The layer that sends spans of this process, `service` by name. Must be called in the async runtime.
///
/// # Errors
/// When the endpoint is no URL, or TLS cannot be set up.
pub(super) fn layer<S>(flag: &str, service: &str) -> Result<impl Layer<S>, TelemetryError>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let fail = |error: String| TelemetryError::Traces(error);
    let mut exporter = SpanExporter::builder().with_http().with_http_client(Client::new()?);
    if !flag.is_empty() {
        exporter = exporter.with_endpoint(format!("{}/{PATH}", flag.trim_end_matches('/')));
    }
    let exporter = exporter.build().map_err(|error| fail(crate::error_text::chain(&error)))?;
    // the resource of the environment wins over what is set here
    let named = std::env::var_os("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty());
    let resource = Resource::builder();
    let resource = if named { resource } else { resource.with_service_name(service.to_owned()) };
    let provider =
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
    let tracer = provider.tracer("olm-rs");
    if PROVIDER.set(provider).is_err() {
        return Err(fail("traces are sent already".to_owned()));
    }
    let layer: OpenTelemetryLayer<S, SdkTracer> =
        tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
    Ok(layer.with_filter(spans()))
}

/// Which spans are sent: ours, and one for each request to the apiserver.
fn spans() -> Targets {
    let ours = [
        "catalogd",
        "operator_controller",
        "cluster_operator",
        "classic_controller",
        "olm_runtime",
        "olm_oci",
        "olm_signature",
        "olm_catalog",
        "olm_install",
    ];
    let all = ours.map(|target| (target, tracing::Level::INFO));
    Targets::new().with_targets(all).with_target("kube_client", tracing::Level::DEBUG)
}

/// Sends what is left, for a moment. Blocks: for the end of `main`, while the async runtime still runs.
pub(crate) fn finish() {
    if let Some(provider) = PROVIDER.get()
        && let Err(error) = provider.shutdown_with_timeout(FLUSH)
    {
        tracing::warn!(error = crate::error_text::chain(&error), "the last spans could not be sent");
    }
}

/// Sends spans with our own TLS. The exporter's thread has no async runtime, so requests run in that of the process.
#[derive(Debug)]
struct Client {
    client: reqwest::Client,
    runtime: Handle,
    /// The last request failed; logged once, not every few seconds.
    failing: Arc<AtomicBool>,
}

/// Logs when the collector stops or begins to take spans.
fn log_change(failing: &AtomicBool, problem: Option<String>) {
    let before = failing.swap(problem.is_some(), Ordering::Relaxed);
    match problem {
        Some(problem) if !before => tracing::warn!(problem, "the collector takes no spans; they are dropped"),
        None if before => tracing::info!("the collector takes spans again"),
        _ => {}
    }
}

impl Client {
    fn new() -> Result<Self, TelemetryError> {
        fn fail(error: &(dyn std::error::Error + 'static)) -> TelemetryError {
            TelemetryError::Traces(crate::error_text::chain(error))
        }
        let settings =
            TlsSettings::parse("intermediate", &[], &[], "TLSv1.2").map_err(|error| fail(&error))?;
        let tls = CaPool::load(None)
            .and_then(|pool| pool.client_config(&settings))
            .map_err(|error| fail(&error))?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(10))
            .build()
            .map_err(|error| fail(&error))?;
        Ok(Self { client, runtime: Handle::current(), failing: Arc::default() })
    }
}

impl HttpClient for Client {
    fn send_bytes<'me, 'out>(
        &'me self,
        request: Request<Bytes>,
    ) -> BoxFuture<'out, Result<Response<Bytes>, HttpError>>
    where
        'me: 'out,
        Self: 'out,
    {
        let (client, failing) = (self.client.clone(), Arc::clone(&self.failing));
        let sending = self.runtime.spawn(async move {
            let mut answer = client.execute(request.try_into()?).await?;
            let mut body = Vec::new();
            while let Some(chunk) = answer.chunk().await? {
                if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                    return Err(HttpError::from("the collector's answer is too long"));
                }
                body.extend_from_slice(&chunk);
            }
            let mut response = Response::builder().status(answer.status());
            if let Some(headers) = response.headers_mut() {
                headers.clone_from(answer.headers());
            }
            Ok(response.body(Bytes::from(body))?)
        });
        Box::pin(async move {
            let outcome: Result<Response<Bytes>, HttpError> = sending.await?;
            log_change(
                &failing,
                match &outcome {
                    Ok(answer) if answer.status().is_success() => None,
                    Ok(answer) => Some(format!("it answered {}", answer.status())),
                    Err(error) => Some(crate::error_text::chain(error.as_ref())),
                },
            );
            outcome
        })
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn traces_have_the_spans_of_every_program() {
        let spans = spans();
        for program in ["catalogd", "operator_controller", "cluster_operator", "classic_controller"] {
            assert!(spans.would_enable(&format!("{program}::controller"), &Level::INFO), "{program}");
        }
        assert!(spans.would_enable("kube_client::client::builder", &Level::DEBUG), "one for each request");
        assert!(!spans.would_enable("hyper", &Level::INFO));
    }
}
