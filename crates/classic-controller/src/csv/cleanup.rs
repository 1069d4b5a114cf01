//! The end of a ClusterServiceVersion: objects that only labels bind to it are deleted, then its finalizer is removed.
//!
//! Rule: classic-apis §6.6.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use olm_api::classic::ClusterServiceVersion;
use olm_classic::csv::strategy::serving::abandoned;
use olm_classic::operator_group::keys;
use olm_core::Object;
use olm_runtime::apply::{ErrorClass, classify};
use olm_runtime::controller::Requeue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Csvs, FINALIZER, target};
use crate::write::{named, object};

/// Longer texts cannot be values of labels.
const LABEL_LIMIT: usize = 63;

impl Csvs {
    /// Deletes what does not go with the CSV by itself, and lets the CSV go.
    pub(super) async fn release(&self, csv: &ClusterServiceVersion) -> kube::Result<Requeue> {
        let finalizers = csv.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(Requeue::OnChange);
        }
        let mut leftovers = leftovers(&self.context.client, csv).await?;
        // of an earlier specification
        if csv.spec.webhook_definitions.is_empty() {
            leftovers.extend(self.webhooks_of(csv));
        }
        let mut is_conflict = false;
        for leftover in leftovers {
            is_conflict |= !self.writer.delete(&leftover).await?;
        }
        // another object has the name of one of them by now, and may be the CSV's, too
        if is_conflict {
            return Ok(Requeue::Backoff);
        }
        self.end_conversions(csv).await?;
        let others: Vec<&String> = finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let version = csv.meta().resource_version.clone();
        let patch = json!({ "metadata": { "finalizers": others, "resourceVersion": version } });
        self.writer.patch(&target(csv), &patch).await?;
        Ok(Requeue::OnChange)
    }

    /// Definitions whose conversion calls a Service of the CSV are not converted any more: with a webhook that is gone, their objects could
    /// be neither read nor deleted.
    async fn end_conversions(&self, csv: &ClusterServiceVersion) -> kube::Result<()> {
        let namespace = csv.namespace().unwrap_or_default();
        let definitions: Api<CustomResourceDefinition> = Api::all(self.context.client.clone());
        for (name, service) in abandoned(csv, &self.context.cluster.own_csvs(&namespace)) {
            let Some(crd) = definitions.get_opt(name).await? else { continue };
            let webhook = crd.spec.conversion.as_ref().and_then(|conversion| conversion.webhook.as_ref());
            let called = webhook.and_then(|webhook| webhook.client_config.as_ref()?.service.as_ref());
            if !called.is_some_and(|called| called.namespace == namespace && called.name == service) {
                continue;
            }
            let patch = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
            let target = named("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, name);
            match self.writer.patch(&target, &patch).await {
                Err(error) if classify(&error) == ErrorClass::NotFound => {}
                answer => answer.map(drop)?,
            }
        }
        Ok(())
    }
}

/// Objects of the cluster, and of other namespaces, that are a CSV's by label. The apiserver is asked: after the finalizer is gone nothing
/// deletes what a late watch did not show.
async fn leftovers(client: &Client, csv: &ClusterServiceVersion) -> kube::Result<Vec<Object>> {
    let (name, namespace) = (csv.name_any(), csv.namespace().unwrap_or_default());
    if name.len() > LABEL_LIMIT {
        return Ok(Vec::new());
    }
    let selector = format!(
        "{}={name},{}={namespace},{}=ClusterServiceVersion",
        keys::OWNER,
        keys::OWNER_NAMESPACE,
        keys::OWNER_KIND
    );
    let (roles, bindings, services, elsewhere) = tokio::try_join!(
        labelled::<ClusterRole>(client, &selector),
        labelled::<ClusterRoleBinding>(client, &selector),
        labelled::<APIService>(client, &selector),
        labelled::<RoleBinding>(client, &selector),
    )?;
    let elsewhere = elsewhere.into_iter().filter(|it| it.namespace() != Some(&namespace));
    let mut found: Vec<Object> = [roles, bindings, services].into_iter().flatten().chain(elsewhere).collect();
    if !csv.spec.webhook_definitions.is_empty() {
        let (validating, mutating) = tokio::try_join!(
            labelled::<ValidatingWebhookConfiguration>(client, &selector),
            labelled::<MutatingWebhookConfiguration>(client, &selector),
        )?;
        found.extend(validating.into_iter().chain(mutating));
    }
    Ok(found)
}

async fn labelled<K>(client: &Client, selector: &str) -> kube::Result<Vec<Object>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let found = Api::<K>::all(client.clone()).list(&ListParams::default().labels(selector)).await?;
    Ok(found.items.iter().map(object).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use crate::testing::{Apiserver, context};

    #[tokio::test]
    async fn csv_stays_while_another_object_has_the_name_of_a_leftover() {
        for (code, is_released) in [(200, true), (404, true), (409, false)] {
            let apiserver = Apiserver::new(move |method, uri| match method {
                "DELETE" => {
                    let reason = if code == 409 { "Conflict" } else { "NotFound" };
                    (code, json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code}))
                }
                "GET" if uri.contains("/clusterroles") => {
                    (200, json!({"metadata": {}, "items": [{"metadata": {"name": "r", "uid": "1"}}]}))
                }
                "GET" => (200, json!({"metadata": {}, "items": []})),
                _ => (
                    200,
                    json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
                    "metadata": {"name": "a.v1", "namespace": "ns"}}),
                ),
            });
            let csvs = Csvs::new(context("csv", &apiserver, &Cluster::new()));
            let csv: ClusterServiceVersion = serde_json::from_value(json!({
                "metadata": {"name": "a.v1", "namespace": "ns", "finalizers": [FINALIZER]},
                "spec": {"displayName": "a", "install": {"strategy": "deployment"}},
            }))
            .unwrap();
            let next = csvs.release(&csv).await.unwrap();
            assert_eq!(next == Requeue::OnChange, is_released, "{code}");
            let patches = apiserver.requests().iter().filter(|it| it.starts_with("PATCH")).count();
            assert_eq!(patches, usize::from(is_released), "{code}");
        }
    }

    #[tokio::test]
    async fn csv_ends_a_conversion_that_a_late_watch_does_not_show() {
        for (service, is_own) in [("d-service", true), ("other", false)] {
            let apiserver = Apiserver::new(move |method, uri| match method {
                "GET" if uri.contains("/customresourcedefinitions/") => {
                    let client = json!({"service": {"namespace": "ns", "name": service}});
                    let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": client});
                    let names = json!({"kind": "A", "plural": "as"});
                    let conversion = json!({"strategy": "Webhook", "webhook": webhook});
                    let spec = json!({"group": "a.test", "scope": "Cluster", "names": names, "versions": [],
                        "conversion": conversion});
                    (200, json!({"metadata": {"name": "as.a.test"}, "spec": spec}))
                }
                "GET" => (200, json!({"metadata": {}, "items": []})),
                _ => (200, json!({"apiVersion": "v1", "kind": "Any", "metadata": {"name": "any"}})),
            });
            let csvs = Csvs::new(context("csv", &apiserver, &Cluster::new()));
            let csv: ClusterServiceVersion = serde_json::from_value(json!({
                "metadata": {"name": "a.v1", "namespace": "ns", "finalizers": [FINALIZER]},
                "spec": {"displayName": "a", "install": {"strategy": "deployment"}, "webhookdefinitions": [{
                    "type": "ConversionWebhook", "generateName": "c.a.test", "deploymentName": "d",
                    "conversionCRDs": ["as.a.test"], "sideEffects": "None", "admissionReviewVersions": ["v1"],
                }]},
            }))
            .unwrap();
            csvs.release(&csv).await.unwrap();
            let is_patch = |it: &&String| it.starts_with("PATCH") && it.contains("customresourcedefinitions");
            let patches = apiserver.requests().iter().filter(is_patch).count();
            assert_eq!(patches, usize::from(is_own), "{service}");
        }
    }

    #[tokio::test]
    async fn csv_leaves_nothing_that_a_late_watch_does_not_show() {
        let apiserver = Apiserver::new(|_, uri| {
            let items = match uri {
                uri if uri.contains("/clusterrolebindings") => json!([{"metadata": {"name": "b", "uid": "1"},
                    "roleRef": {"apiGroup": "", "kind": "ClusterRole", "name": "r"}}]),
                uri if uri.contains("/rolebindings") => json!([
                    {"metadata": {"name": "own", "namespace": "ns"}, "roleRef": {"apiGroup": "", "kind": "Role", "name": "r"}},
                    {"metadata": {"name": "other", "namespace": "kube-system"},
                        "roleRef": {"apiGroup": "", "kind": "Role", "name": "r"}},
                ]),
                uri if uri.contains("/validatingwebhook") => json!([{"metadata": {"name": "v", "uid": "2"}}]),
                uri if uri.contains("/mutatingwebhook") => json!([{"metadata": {"name": "m", "uid": "3"}}]),
                _ => json!([]),
            };
            (200, json!({"metadata": {}, "items": items}))
        });
        let mut spec = json!({"displayName": "a", "install": {"strategy": "deployment"}});
        let csv = |name: &str, spec: &serde_json::Value| -> ClusterServiceVersion {
            let metadata = json!({"name": name, "namespace": "ns"});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let found = leftovers(&apiserver.client(), &csv("a.v1", &spec)).await.unwrap();
        let names: Vec<&str> = found.iter().map(Object::name).collect();
        assert_eq!(names, ["b", "other"]);
        let labels = "olm.owner%3Da.v1%2Colm.owner.namespace%3Dns%2Colm.owner.kind%3DClusterServiceVersion";
        let requests = apiserver.requests();
        assert!(requests.len() == 4 && requests.iter().all(|it| it.contains(labels)), "{requests:?}");
        assert!(leftovers(&apiserver.client(), &csv(&"a".repeat(64), &spec)).await.unwrap().is_empty());
        assert_eq!(apiserver.requests().len(), 4, "no label has such a value");
        spec["webhookdefinitions"] = json!([{"type": "ValidatingAdmissionWebhook", "generateName": "v.demo.test",
            "deploymentName": "d", "sideEffects": "None", "admissionReviewVersions": ["v1"]}]);
        let found = leftovers(&apiserver.client(), &csv("a.v1", &spec)).await.unwrap();
        let names: Vec<&str> = found.iter().map(Object::name).collect();
        assert_eq!(names, ["b", "other", "v", "m"]);
    }
}
