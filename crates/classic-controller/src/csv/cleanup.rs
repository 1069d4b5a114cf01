//! The end of a ClusterServiceVersion: objects that only labels bind to it are deleted, then its finalizer is removed.
//!
//! Rule: classic-apis §6.6.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use olm_api::classic::{ClusterServiceVersion, InstallPlan};
use olm_classic::csv::strategy::serving::abandoned;
use olm_classic::install_plan::PlanPhase;
use olm_classic::operator_group::keys;
use olm_core::Object;
use olm_runtime::apply::{ErrorClass, classify};
use olm_runtime::controller::Requeue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Csvs, FINALIZER, has_finalizer, labelled_owner, target};
use crate::write::{named, object};

/// Longer texts cannot be values of labels.
const LABEL_LIMIT: usize = 63;
/// How long rights are left alone whose CSV does not exist: a backup may be restored that has both.
const RESTORED: Duration = Duration::from_secs(300);

impl Csvs {
    /// Deletes what does not go with the CSV by itself, and lets the CSV go.
    pub(super) async fn release(&self, csv: &ClusterServiceVersion) -> kube::Result<Requeue> {
        if !has_finalizer(csv) {
            return Ok(Requeue::OnChange);
        }
        let mut leftovers = leftovers(&self.context.client, csv).await?;
        // of an earlier specification
        if csv.spec.webhook_definitions.is_empty() {
            leftovers.extend(self.webhooks_of(csv));
        }
        let mut is_conflict = false;
        for leftover in &leftovers {
            is_conflict |= !self.writer.delete(leftover).await?;
        }
        // another object has the name of one of them by now, and may be the CSV's, too
        if is_conflict {
            return Ok(Requeue::Backoff);
        }
        let held = leftovers.iter().filter(|it| is_held(it));
        let held: Vec<String> = held.map(|it| format!("{} {}", it.kind(), it.name())).collect();
        if !held.is_empty() {
            let note = format!("waiting until the finalizers of {} are removed", held.join(", "));
            self.report_wait(csv, &note).await;
            return Ok(Requeue::Backoff);
        }
        self.end_conversions(csv).await?;
        let others: Vec<&String> =
            csv.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let version = csv.meta().resource_version.clone();
        let patch = json!({ "metadata": { "finalizers": others, "resourceVersion": version } });
        self.writer.patch(&target(csv), &patch).await?;
        Ok(Requeue::OnChange)
    }

    /// Whether labels name a CSV as the owner of rights in the cluster.
    pub(super) fn has_rights(&self, csv: &str) -> bool {
        let cluster = &self.context.cluster;
        let is_owner = |meta: &ObjectMeta| labelled_owner(meta).is_some_and(|owner| owner == csv);
        cluster.cluster_role_bindings.all().iter().any(|it| is_owner(it.meta()))
            || cluster.cluster_roles.all().iter().any(|it| is_owner(it.meta()))
    }

    /// Deletes the rights in the cluster of a CSV that does not exist: a plan wrote them after the CSV was deleted, and its process ended
    /// then. Those of a plan that has not ended may be used yet; the CSV is woken when it ends.
    pub(super) async fn revoke(&self, csv: &str) -> kube::Result<Requeue> {
        let Some((namespace, name)) = csv.split_once('/') else { return Ok(Requeue::Gone) };
        let is_named = |plan: &InstallPlan| !is_ended(plan) && steps_of(plan).any(|csv| csv == name);
        if self.context.cluster.plans.in_namespace(namespace).iter().any(|plan| is_named(plan)) {
            return Ok(Requeue::Gone);
        }
        let (client, selector) = (&self.context.client, selector(namespace, name));
        let (bindings, roles) = tokio::try_join!(
            labelled::<ClusterRoleBinding>(client, &selector),
            labelled::<ClusterRole>(client, &selector),
        )?;
        let csvs: Api<ClusterServiceVersion> = Api::namespaced(client.clone(), namespace);
        if csvs.get_metadata_opt(name).await?.is_some() {
            return Ok(Requeue::Gone);
        }
        let now = Timestamp::now();
        let mut wait = None;
        for right in bindings.iter().chain(&roles) {
            let rest = RESTORED.saturating_sub(age(right, now));
            if rest.is_zero() {
                tracing::info!("{} is deleted: its ClusterServiceVersion is gone", right.key());
                self.writer.delete(right).await?;
            } else {
                wait = wait.max(Some(rest));
            }
        }
        Ok(wait.map_or(Requeue::Gone, Requeue::After))
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
            // a newer version may have written its own conversion since
            let version = crd.resource_version();
            let conversion = json!({ "strategy": "None", "webhook": null });
            let patch =
                json!({ "metadata": { "resourceVersion": version }, "spec": { "conversion": conversion } });
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
    let selector = selector(&namespace, &name);
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

/// Selects what is a CSV's by label.
fn selector(namespace: &str, name: &str) -> String {
    format!(
        "{}={name},{}={namespace},{}=ClusterServiceVersion",
        keys::OWNER,
        keys::OWNER_NAMESPACE,
        keys::OWNER_KIND
    )
}

/// Whether an object stays for a while after it was deleted.
fn is_held(object: &Object) -> bool {
    let finalizers = object.metadata().and_then(|metadata| metadata.get("finalizers")?.as_array());
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

/// Whether a plan does nothing any more.
pub(super) fn is_ended(plan: &InstallPlan) -> bool {
    matches!(PlanPhase::from_plan(plan), Some(PlanPhase::Complete | PlanPhase::Failed))
}

/// The names of the CSVs whose bundles a plan installs.
pub(super) fn steps_of(plan: &InstallPlan) -> impl Iterator<Item = &str> {
    plan.status.iter().flat_map(|status| &status.plan).map(|step| step.resolving.as_str())
}

/// How long an object has been there.
fn age(object: &Object, now: Timestamp) -> Duration {
    let created = object.metadata().and_then(|it| it.get("creationTimestamp")?.as_str()?.parse().ok());
    created.and_then(|created: Timestamp| now.duration_since(created).try_into().ok()).unwrap_or_default()
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
    use crate::testing::{Apiserver, context, failure, put, success};

    fn deleted_csv() -> ClusterServiceVersion {
        serde_json::from_value(json!({
            "metadata": {"name": "a.v1", "namespace": "ns", "finalizers": [FINALIZER]},
            "spec": {"displayName": "a", "install": {"strategy": "deployment"}},
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn csv_stays_while_another_object_has_the_name_of_a_leftover() {
        for (code, is_released) in [(200, true), (404, true), (409, false)] {
            let apiserver = Apiserver::new(move |method, uri| match method {
                "DELETE" => {
                    let reason = if code == 409 { "Conflict" } else { "NotFound" };
                    failure(code, reason)
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
            let next = csvs.release(&deleted_csv()).await.unwrap();
            assert_eq!(next == Requeue::OnChange, is_released, "{code}");
            let patches = apiserver.requests().iter().filter(|it| it.starts_with("PATCH")).count();
            assert_eq!(patches, usize::from(is_released), "{code}");
        }
    }

    #[tokio::test]
    async fn csv_waits_until_its_leftovers_are_gone() {
        for (finalizers, is_released) in [(json!([]), true), (json!(["x.test/f"]), false)] {
            let role = json!({"metadata": {"name": "r", "uid": "1", "finalizers": finalizers}});
            let apiserver = Apiserver::new(move |method, uri| match method {
                "DELETE" => success(),
                "GET" if uri.contains("/clusterroles?") => (200, json!({"metadata": {}, "items": [role]})),
                "GET" => (200, json!({"metadata": {}, "items": []})),
                _ => (200, json!({"apiVersion": "v1", "kind": "Any", "metadata": {"name": "any"}})),
            });
            let csvs = Csvs::new(context("csv", &apiserver, &Cluster::new()));
            let next = csvs.release(&deleted_csv()).await.unwrap();
            assert_eq!(next == Requeue::OnChange, is_released, "{next:?}");
            let requests = apiserver.requests();
            assert_eq!(requests.iter().any(|it| it.starts_with("PATCH")), is_released, "{requests:?}");
            let note = "waiting until the finalizers of ClusterRole r are removed";
            assert_eq!(requests.iter().any(|it| it.contains(note)), !is_released, "{requests:?}");
        }
    }

    /// Whether rights are there, and what is deleted.
    async fn revoked(is_present: bool, phase: &str, age: u64) -> (bool, Requeue, usize) {
        let created = Timestamp::now() - Duration::from_secs(age);
        let labels = json!({"olm.owner": "a.v1", "olm.owner.namespace": "ns", "olm.owner.kind": "ClusterServiceVersion"});
        let metadata = json!({"name": "r", "uid": "1", "labels": labels, "creationTimestamp": created});
        let role = json!({"metadata": metadata});
        let apiserver = Apiserver::new({
            let role = role.clone();
            move |method, uri| match method {
                "GET" if uri.contains("/clusterroles?") => (200, json!({"metadata": {}, "items": [role]})),
                "GET" if uri.contains("/clusterserviceversions/") && !is_present => failure(404, "NotFound"),
                "GET" => (200, json!({"metadata": {}, "items": []})),
                _ => success(),
            }
        });
        let cluster = Cluster::new();
        put(&cluster.cluster_roles, role);
        let step = json!({"resolving": "a.v1", "status": "Created", "resource": {"group": "", "version": "v1", "kind": "A",
            "name": "a", "manifest": "", "sourceName": "s", "sourceNamespace": "ns"}});
        let plan = json!({"metadata": {"name": "p", "namespace": "ns"},
            "spec": {"approval": "Automatic", "approved": true, "clusterServiceVersionNames": ["a.v1"]},
            "status": {"phase": phase, "catalogSources": [], "plan": [step]}});
        put(&cluster.plans, plan);
        let csvs = Csvs::new(context("csv", &apiserver, &cluster));
        let next = csvs.revoke("ns/a.v1").await.unwrap();
        let deleted = apiserver.requests().iter().filter(|it| it.starts_with("DELETE")).count();
        (csvs.has_rights("ns/a.v1") && !csvs.has_rights("ns/a.v2"), next, deleted)
    }

    #[tokio::test]
    async fn rights_of_a_csv_that_does_not_exist_go_after_five_minutes() {
        assert_eq!(revoked(false, "Complete", 301).await, (true, Requeue::Gone, 1));
        assert_eq!(revoked(true, "Complete", 301).await, (true, Requeue::Gone, 0));
        assert_eq!(revoked(false, "Installing", 301).await, (true, Requeue::Gone, 0));
        let (_, next, deleted) = revoked(false, "Failed", 100).await;
        let Requeue::After(wait) = next else { panic!("{next:?}") };
        assert!(deleted == 0 && wait.as_secs().abs_diff(200) <= 1, "{wait:?}");
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
                    let spec = json!({"group": "a.test", "scope": "Cluster", "names": names, "versions": [], "conversion": conversion});
                    (200, json!({"metadata": {"name": "as.a.test", "resourceVersion": "7"}, "spec": spec}))
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
            let requests = apiserver.requests();
            let patches: Vec<&String> = requests.iter().filter(is_patch).collect();
            assert_eq!(patches.len(), usize::from(is_own), "{service}");
            assert!(patches.iter().all(|it| it.contains(r#""resourceVersion":"7""#)), "{patches:?}");
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
                    {"metadata": {"name": "other", "namespace": "kube-system"}, "roleRef": {"apiGroup": "", "kind": "Role", "name": "r"}},
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
