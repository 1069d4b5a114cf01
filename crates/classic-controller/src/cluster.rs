//! The cluster as the process caches it: one watch for each kind, shared by all controllers.
//!
//! Keys are `namespace/name`. ConfigMaps are not cached, nor Secrets but those with serving certificates.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::runtime::watcher;
use olm_api::classic::{
    CatalogSource, ClusterServiceVersion, InstallPlan, OlmConfig, Operator, OperatorCondition, OperatorGroup,
    Subscription,
};
use olm_classic::install_plan::PlanPhase;
use olm_runtime::watched::{Objects, config_of_large_objects};
use tokio_util::task::AbortOnDropHandle;

use crate::copies::Copies;
use crate::proxy::{self, Proxies};

/// The label of everything that OLM makes.
pub(crate) const MANAGED: &str = "olm.managed=true";
/// Selects ClusterServiceVersions that are no copies.
const ORIGINALS: &str = "!olm.copiedFrom";

/// The caches.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) catalogs: Objects<CatalogSource>,
    pub(crate) subscriptions: Objects<Subscription>,
    /// Without manifests once they are complete.
    pub(crate) plans: Objects<InstallPlan>,
    /// Without copies.
    pub(crate) csvs: Objects<ClusterServiceVersion>,
    pub(crate) copies: Copies,
    pub(crate) groups: Objects<OperatorGroup>,
    pub(crate) conditions: Objects<OperatorCondition>,
    pub(crate) configs: Objects<OlmConfig>,
    pub(crate) operators: Objects<Operator>,
    pub(crate) namespaces: Objects<Namespace>,
    /// Those that OLM made.
    pub(crate) deployments: Objects<Deployment>,
    /// All, without their schemas.
    pub(crate) crds: Objects<CustomResourceDefinition>,
    pub(crate) api_services: Objects<APIService>,
    pub(crate) accounts: Objects<ServiceAccount>,
    pub(crate) roles: Objects<Role>,
    pub(crate) role_bindings: Objects<RoleBinding>,
    pub(crate) cluster_roles: Objects<ClusterRole>,
    pub(crate) cluster_role_bindings: Objects<ClusterRoleBinding>,
    /// Those that OLM made.
    pub(crate) validating_webhooks: Objects<ValidatingWebhookConfiguration>,
    /// Those that OLM made.
    pub(crate) mutating_webhooks: Objects<MutatingWebhookConfiguration>,
    /// Those that OLM made.
    pub(crate) services: Objects<Service>,
    /// Those that OLM made, with their metadata only: content of bundles is up to 1 MiB each.
    pub(crate) config_maps: Objects<ConfigMap>,
    /// Those that OLM made; with their data if they have serving certificates.
    pub(crate) secrets: Objects<Secret>,
    pub(crate) proxies: Proxies,
}

impl Cluster {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            catalogs: Objects::by_namespace(),
            subscriptions: Objects::by_namespace(),
            plans: Objects::by_namespace(),
            csvs: Objects::by_namespace(),
            copies: Copies::default(),
            groups: Objects::by_namespace(),
            conditions: Objects::by_namespace(),
            configs: Objects::empty(),
            operators: Objects::empty(),
            namespaces: Objects::empty(),
            deployments: Objects::by_namespace(),
            crds: Objects::empty(),
            api_services: Objects::empty(),
            accounts: Objects::by_namespace(),
            roles: Objects::by_namespace(),
            role_bindings: Objects::by_namespace(),
            cluster_roles: Objects::empty(),
            cluster_role_bindings: Objects::empty(),
            validating_webhooks: Objects::empty(),
            mutating_webhooks: Objects::empty(),
            services: Objects::by_namespace(),
            config_maps: Objects::by_namespace(),
            secrets: Objects::by_namespace(),
            proxies: Proxies::default(),
        })
    }

    /// Watches every kind until the handles are dropped.
    #[must_use]
    pub(crate) fn watch(&self, client: &Client) -> Vec<AbortOnDropHandle<()>> {
        let managed = || watcher::Config::default().labels(MANAGED);
        let originals = config_of_large_objects().labels(ORIGINALS);
        vec![
            self.catalogs.watch(client),
            self.subscriptions.watch(client),
            self.plans.watch_selected(client, config_of_large_objects(), without_manifests),
            self.csvs.watch_selected(client, originals, |it| it),
            self.copies.watch(client),
            self.groups.watch(client),
            self.conditions.watch(client),
            self.configs.watch(client),
            self.operators.watch(client),
            self.namespaces.watch(client),
            self.deployments.watch_selected(client, managed(), |it| it),
            self.crds.watch_selected(client, config_of_large_objects(), without_schemas),
            self.api_services.watch(client),
            self.accounts.watch(client),
            self.roles.watch(client),
            self.role_bindings.watch(client),
            self.cluster_roles.watch(client),
            self.cluster_role_bindings.watch(client),
            self.validating_webhooks.watch_selected(client, managed(), |it| it),
            self.mutating_webhooks.watch_selected(client, managed(), |it| it),
            self.services.watch_selected(client, managed(), |it| it),
            self.config_maps
                .watch_metadata(client, managed(), |metadata| ConfigMap { metadata, ..ConfigMap::default() }),
            self.secrets.watch_selected(client, managed(), only_certificates),
            proxy::watch(&self.proxies, client, &self.crds),
        ]
    }

    /// Returns when every kind was listed once.
    pub(crate) async fn wait_until_listed(&self) {
        tokio::join!(
            self.catalogs.wait_until_listed(),
            self.subscriptions.wait_until_listed(),
            self.plans.wait_until_listed(),
            self.csvs.wait_until_listed(),
            self.copies.wait_until_listed(),
            self.groups.wait_until_listed(),
            self.conditions.wait_until_listed(),
            self.configs.wait_until_listed(),
            self.operators.wait_until_listed(),
            self.namespaces.wait_until_listed(),
            self.deployments.wait_until_listed(),
            self.crds.wait_until_listed(),
            self.api_services.wait_until_listed(),
            self.accounts.wait_until_listed(),
            self.roles.wait_until_listed(),
            self.role_bindings.wait_until_listed(),
            self.cluster_roles.wait_until_listed(),
            self.cluster_role_bindings.wait_until_listed(),
            self.validating_webhooks.wait_until_listed(),
            self.mutating_webhooks.wait_until_listed(),
            self.services.wait_until_listed(),
            self.config_maps.wait_until_listed(),
            self.secrets.wait_until_listed(),
            self.proxies.wait_until_listed(),
        );
    }

    /// The ClusterServiceVersions of a namespace, without copies.
    pub(crate) fn own_csvs(&self, namespace: &str) -> Vec<Arc<ClusterServiceVersion>> {
        self.csvs.in_namespace(namespace)
    }

    /// The environment variables of the proxy of the cluster; none without one.
    pub(crate) fn proxy(&self) -> BTreeMap<String, String> {
        self.proxies.get(&proxy::CLUSTER.to_owned()).unwrap_or_default()
    }
}

/// The definition without the schemas of its versions, which are most of its size.
fn without_schemas(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.schema = None;
    }
    crd
}

/// A plan that is complete without the manifests of its steps, which are most of its size: nothing is made from them any more. Those of
/// Subscriptions stay, because they name the package (`olm_classic::subscription`). Up to five such plans stay in each namespace.
pub(crate) fn without_manifests(mut plan: InstallPlan) -> InstallPlan {
    if PlanPhase::from_plan(&plan) == Some(PlanPhase::Complete) {
        let steps = plan.status.iter_mut().flat_map(|status| &mut status.plan);
        for step in steps.filter(|step| step.resource.kind != "Subscription") {
            step.resource.manifest = String::new();
        }
    }
    plan
}

fn only_certificates(secret: Secret) -> Secret {
    match secret.type_.as_deref() {
        Some("kubernetes.io/tls") => secret,
        _ => Secret { data: None, string_data: None, ..secret },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::testing::Apiserver;

    #[test]
    fn plans_are_cached_without_manifests_once_complete() {
        for (phase, kind, is_kept) in [
            ("RequiresApproval", "Secret", true),
            ("Installing", "Secret", true),
            ("Failed", "Secret", true),
            ("Complete", "Secret", false),
            ("Complete", "Subscription", true),
        ] {
            let resource = json!({"sourceName": "c", "sourceNamespace": "ns", "group": "", "version": "v1",
                "kind": kind, "name": "x", "manifest": "{}"});
            let step = json!({"resolving": "a.v1", "status": "Created", "resource": resource});
            let plan: InstallPlan = serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "ns"},
                "spec": {"clusterServiceVersionNames": [], "approval": "Automatic", "approved": true},
                "status": {"phase": phase, "catalogSources": [], "plan": [step]},
            }))
            .unwrap();
            let mut want = plan.clone();
            if !is_kept {
                want.status.as_mut().unwrap().plan[0].resource.manifest.clear();
            }
            assert_eq!(without_manifests(plan), want, "{phase} {kind}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lists_of_large_objects_have_small_pages() {
        let apiserver = Apiserver::new(|_, _| (404, json!({})));
        let cluster = Cluster::new();
        let _watches = cluster.watch(&apiserver.client());
        tokio::time::sleep(Duration::from_millis(100)).await;
        let requests = apiserver.requests();
        for (kind, lists) in
            [("customresourcedefinitions", 1), ("clusterserviceversions", 2), ("installplans", 1)]
        {
            let of_kind: Vec<&String> =
                requests.iter().filter(|it| it.contains(&format!("/{kind}?"))).collect();
            assert_eq!(of_kind.len(), lists, "{kind}");
            assert!(of_kind.iter().all(|it| it.contains("limit=100")), "{of_kind:?}");
        }
    }
}
