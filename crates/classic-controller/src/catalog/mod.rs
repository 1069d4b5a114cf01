//! The controller of CatalogSources.
//!
//! Images are read in the process, so there are no registry pods: decision 53. Rule: classic-apis §2.

mod backed;
mod catalogs;
mod config_map;
mod entry;
mod error;
mod link;
mod memory;
pub(crate) mod metrics;
mod shared;
mod snapshot;
#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _};
use olm_api::classic::CatalogSource;
use olm_classic::catalog_source::{
    self as rules, FALLBACK_INTERVAL, Poll, Polling, SourceObserved, TEMPLATE_ANNOTATION, template,
};
use olm_classic::install_plan::WAITING_EVENT;
use olm_core::KubernetesVersion;
use olm_runtime::apply::{self, ErrorClass};
use olm_runtime::controller::{self, Requeue};
use olm_runtime::events::NewEvent;
use olm_runtime::metrics::Outcome;
use olm_runtime::watched::Object;
use olm_runtime::write_status;
use serde_json::json;

pub(crate) use self::catalogs::Catalogs;
pub(crate) use self::snapshot::{BundleContent, Snapshot};
use crate::context::{Context, MANAGER};
use crate::controllers;

/// Its name in logs and metrics.
pub(crate) const NAME: &str = "catalogsource";
/// Passes at the same time.
pub(crate) const WORKERS: u16 = 4;

/// Runs until the process stops.
pub(crate) async fn controller(context: Arc<Context>, catalogs: Arc<Catalogs>) {
    metrics::register(&context.metrics, &context.cluster, &catalogs);
    let runner = context.controller(controllers::catalog_sources(&context.cluster, &catalogs));
    let ready = context.cluster.wait_until_listed();
    controller::run(runner, ready, |key| {
        let Some(source) = context.cluster.catalogs.find(key) else {
            catalogs.remove(key);
            return None;
        };
        let (context, catalogs, key) = (Arc::clone(&context), Arc::clone(&catalogs), key.to_owned());
        Some(async move {
            match reconcile(&context, &catalogs, &key, &source).await {
                Ok(Requeue::After(wait)) => (Requeue::After(wait), Outcome::RequeueAfter),
                Ok(requeue) => (requeue, Outcome::Success),
                Err(error) => {
                    tracing::warn!(catalog = key, error, "cannot reconcile a CatalogSource");
                    (Requeue::Backoff, Outcome::Error)
                }
            }
        })
    })
    .await;
}

async fn reconcile(
    context: &Context,
    catalogs: &Arc<Catalogs>,
    key: &str,
    source: &Arc<CatalogSource>,
) -> Result<Requeue, String> {
    let now = Timestamp::now();
    let namespace = source.metadata.namespace.as_deref().unwrap_or_default();
    let name = source.metadata.name.as_deref().unwrap_or_default();
    let api: Api<CatalogSource> = Api::namespaced(context.client.clone(), namespace);
    let (version, mut requeue) = cluster_version(context, source).await;
    if let Some(image) = template(source, version, now).image {
        // the reference writes an empty icon along with it
        let icon = source.spec.icon.clone().unwrap_or_default();
        // one that was changed or created again since may name another image, and have no template
        let read = &source.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": read}, "spec": {"image": image, "icon": icon}});
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        return match api.patch(name, &params, &Patch::Merge(patch)).await {
            Ok(written) => {
                context.cluster.catalogs.update(key.to_owned(), Object::new(written));
                Ok(Requeue::OnChange)
            }
            Err(error) if matches!(apply::classify(&error), ErrorClass::Conflict | ErrorClass::NotFound) => {
                Ok(Requeue::Backoff)
            }
            Err(error) => Err(apply::message(&error)),
        };
    }
    let connection = catalogs.state(source);
    let config_map = catalogs.config_map(key);
    let is_config_map = matches!(rules::validate(&source.spec), Ok(rules::Backing::ConfigMap(_)));
    let problem = catalogs.problem(key);
    if is_config_map && connection == Some(rules::ConnectionState::Connecting) && problem.is_none() {
        // whether it exists is not known yet
        return Ok(Requeue::Unfinished);
    }
    if connection == Some(rules::ConnectionState::Connecting) && was_ready(source) && catalogs.is_first(key) {
        // a process that was started again connects to the same content: the status counts until that ends
        return Ok(Requeue::Unfinished);
    }
    let observed = SourceObserved {
        version,
        config_map: config_map.as_ref(),
        is_served: connection.is_some(),
        problem: problem.as_deref(),
        connection,
    };
    let mut status = rules::sync(source, observed, now);
    if let Some(polling) = Polling::from_source(source) {
        let wait = match polling.poll(source, now, chance()) {
            Poll::After(wait) => wait,
            Poll::Now => {
                catalogs.poll(key);
                status.latest_image_registry_poll = Some(olm_api::classic::Time(now));
                polling.interval.min(FALLBACK_INTERVAL)
            }
        };
        requeue = requeue.within(Some(wait));
    }
    match write_status(&api, source, status, MANAGER).await {
        Ok(Some(written)) => {
            report_wait(context, source, &written).await;
            context.cluster.catalogs.update(key.to_owned(), Object::new(written));
        }
        Ok(None) => {}
        Err(error) if error.is_gone() => {}
        // what changed may wake no pass
        Err(error) if error.is_conflict() => return Ok(Requeue::Backoff),
        Err(error) => return Err(error.to_string()),
    }
    Ok(requeue)
}

/// Emits an event if a catalog waits for something else than before.
async fn report_wait(context: &Context, before: &CatalogSource, after: &CatalogSource) {
    let wait = rules::catalog_wait(after);
    let Some(note) = wait.filter(|note| rules::catalog_wait(before).as_ref() != Some(note)) else { return };
    let event = NewEvent { warning: false, reason: WAITING_EVENT, action: "Reconcile", note: &note };
    context.events.publish(&after.object_ref(&()), event).await;
}

/// Whether the status has a connection that is READY.
fn was_ready(source: &CatalogSource) -> bool {
    let connection = source.status.as_ref().and_then(|status| status.connection_state.as_ref());
    connection.is_some_and(|it| it.last_observed_state == rules::ConnectionState::Ready.as_str())
}

/// The version of the cluster, if a template may ask for it, and when to read it again: no watch shows another one. What is no version stays
/// so until the cluster is updated; the condition TemplatesHaveResolved names the variables.
async fn cluster_version(context: &Context, source: &CatalogSource) -> (Option<KubernetesVersion>, Requeue) {
    if !has_template(source) {
        return (None, Requeue::OnChange);
    }
    match context.client.apiserver_version().await {
        Ok(version) => {
            let read = version.git_version.parse::<KubernetesVersion>();
            if let Err(error) = &read {
                tracing::warn!(%error, "cannot use the version of the cluster for an image template");
            }
            (read.ok(), Requeue::After(FALLBACK_INTERVAL))
        }
        Err(error) => {
            tracing::warn!(%error, "cannot read the version of the cluster for an image template");
            (None, Requeue::Unfinished)
        }
    }
}

fn has_template(source: &CatalogSource) -> bool {
    let annotations = source.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(TEMPLATE_ANNOTATION))
}

/// From 0 to 1, to spread the polls of many catalogs.
fn chance() -> f64 {
    let nanoseconds = Timestamp::now().subsec_nanosecond();
    f64::from(nanoseconds) / Duration::from_secs(1).as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use olm_bundle::BundleLimits;
    use serde_json::Value;
    use tempfile::TempDir;

    use super::*;
    use crate::cluster::Cluster;
    use crate::images::Images;
    use crate::testing::{self, Apiserver, failure, failure_with};

    fn dependencies(apiserver: &Apiserver) -> (Arc<Context>, Arc<Catalogs>, TempDir) {
        let cache = tempfile::tempdir().unwrap();
        let limits = (olm_oci::Limits::bundle(), BundleLimits::default());
        let images =
            Images::open(apiserver.client(), cache.path(), olm_oci::Config::default(), limits).unwrap();
        let catalogs = Catalogs::new(&apiserver.client(), Arc::new(images));
        (testing::context(NAME, apiserver, &Cluster::new()), catalogs, cache)
    }

    #[tokio::test]
    async fn status_has_state_and_error_of_the_registry() {
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let source = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
            "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
            "spec": {"sourceType": "grpc", "address": unused.to_string()},
        });
        let stored = source.clone();
        let apiserver = Apiserver::new(move |_, _| (200, stored.clone()));
        let (context, catalogs, _cache) = dependencies(&apiserver);
        let source: Arc<CatalogSource> = Arc::new(serde_json::from_value(source).unwrap());
        // returns when an attempt to connect has ended
        assert!(catalogs.content(&source).await.is_err());
        reconcile(&context, &catalogs, "ns/c", &source).await.unwrap();
        let written = apiserver.requests().pop().unwrap();
        for part in [
            "\"message\":\"cannot connect to registry 127.0.0.1:",
            "; start the registry at spec.address",
            "\"lastObservedState\":\"TRANSIENT_FAILURE\"",
        ] {
            assert!(written.contains(part), "{part}: {written}");
        }
    }

    /// A process that was started again leaves the status of one that was READY.
    #[tokio::test]
    async fn config_map_that_may_not_be_read_is_in_the_status() {
        for (state, is_written) in [("TRANSIENT_FAILURE", true), ("READY", false)] {
            let source = json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
                "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
                "spec": {"sourceType": "configmap", "configMap": "content"},
                "status": {"connectionState": {"lastObservedState": state}},
            });
            let stored = source.clone();
            let apiserver = Apiserver::new(move |_, uri| match uri.contains("/configmaps") {
                true => failure_with(403, "Forbidden", "configmaps is forbidden"),
                false => (200, stored.clone()),
            });
            let (context, catalogs, _cache) = dependencies(&apiserver);
            let source: Arc<CatalogSource> = Arc::new(serde_json::from_value(source).unwrap());
            // returns when the first request was answered
            assert!(catalogs.content(&source).await.is_err());
            reconcile(&context, &catalogs, "ns/c", &source).await.unwrap();
            let requests = apiserver.requests();
            let is_report = |line: &String| {
                line.contains(r#""reason":"ConfigMapError""#) && line.contains("configmaps is forbidden")
            };
            assert_eq!(requests.iter().any(is_report), is_written, "{state}: {requests:?}");
        }
    }

    #[tokio::test]
    async fn catalog_wait_is_an_event() {
        let catalog = |message: &str| -> CatalogSource {
            let status = json!({"reason": "RegistryServerError", "message": message});
            serde_json::from_value(json!({
                "metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "spec": {"sourceType": "grpc", "image": "i"},
                "status": status,
            }))
            .unwrap()
        };
        for (before, after, is_event) in [("", "down", true), ("down", "down", false), ("down", "", false)] {
            let apiserver = Apiserver::new(|_, _| (201, json!({"metadata": {"name": "e"}})));
            let (context, ..) = dependencies(&apiserver);
            report_wait(&context, &catalog(before), &catalog(after)).await;
            let requests = apiserver.requests();
            let is_wait =
                |line: &String| line.contains(r#""reason":"Waiting""#) && line.contains(r#""note":"down""#);
            assert_eq!(requests.iter().any(is_wait), is_event, "{before} {after}: {requests:?}");
        }
    }

    #[tokio::test]
    async fn template_is_resolved_again_after_a_time_or_an_error() {
        let source = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
            "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "1",
                "annotations": {TEMPLATE_ANNOTATION: "registry.test/c:v{kube_minor_version}"}},
            "spec": {"sourceType": "grpc", "image": "registry.test/c:v36"},
        });
        let version = |version: &str| {
            let info = json!({"major": "1", "minor": "36", "gitVersion": version, "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
            (200, info)
        };
        for ((code, answer), want, is_resolved) in [
            (version("v1.36.3"), Requeue::After(FALLBACK_INTERVAL), true),
            (version("next"), Requeue::After(FALLBACK_INTERVAL), false),
            (failure(500, "InternalError"), Requeue::Unfinished, false),
        ] {
            let stored: Value = source.clone();
            let apiserver = Apiserver::new(move |_, uri| match uri.starts_with("/version") {
                true => (code, answer.clone()),
                false => (200, stored.clone()),
            });
            let (context, catalogs, _cache) = dependencies(&apiserver);
            let source = Arc::new(serde_json::from_value(source.clone()).unwrap());
            let requeue = reconcile(&context, &catalogs, "ns/c", &source).await.unwrap();
            let requests = apiserver.requests();
            assert_eq!(requeue, want, "{code}: {requests:?}");
            let names_variable = requests.iter().any(|it| it.contains("could not be resolved"));
            assert_eq!(names_variable, !is_resolved, "{code}: {requests:?}");
        }
    }

    #[tokio::test]
    async fn image_of_a_template_is_written_to_what_was_read() {
        let source = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
            "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "1",
                "annotations": {TEMPLATE_ANNOTATION: "registry.test/c:v{kube_minor_version}"}},
            "spec": {"sourceType": "grpc", "image": "registry.test/c:v35"},
        });
        let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
        for ((code, answer), want) in [
            ((200, source.clone()), Requeue::OnChange),
            (failure(409, "Conflict"), Requeue::Backoff),
            (failure(404, "NotFound"), Requeue::Backoff),
        ] {
            let version = version.clone();
            let apiserver = Apiserver::new(move |_, uri| match uri.starts_with("/version") {
                true => (200, version.clone()),
                false => (code, answer.clone()),
            });
            let (context, catalogs, _cache) = dependencies(&apiserver);
            let source = Arc::new(serde_json::from_value(source.clone()).unwrap());
            assert_eq!(reconcile(&context, &catalogs, "ns/c", &source).await, Ok(want), "{code}");
            let written = apiserver.requests().pop().unwrap();
            assert!(written.starts_with("PATCH ") && written.contains("registry.test/c:v36"), "{written}");
            assert!(written.contains(r#""metadata":{"resourceVersion":"1"}"#), "{written}");
        }
    }
}
