//! The facts that a step of the phase machine depends on, from the caches.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt as _;
use olm_api::classic::subscription::{SubscriptionConfig, SubscriptionStatus};
use olm_api::classic::{ClusterServiceVersion, OperatorGroup, Subscription};
use olm_classic::csv::requirements::{
    self, Api, Cluster, ObservedApiService, ObservedCrd, ObservedServiceAccount, Requirements,
};
use olm_classic::csv::strategy::{self, Settings, StrategyError, serving};
use olm_classic::csv::{ApiServices, Health, Observed, Phase, UpgradeGate, chain, health};
use olm_classic::operator_condition;
use olm_classic::operator_group::{self, is_fail_forward, keys};
use olm_core::{KubernetesVersion, Object};
use serde_json::json;

use super::rights::Rights;
use super::{Csvs, installs::Inputs, key, labelled_owner};
use crate::write::object;

/// The annotations of a CustomResourceDefinition that name the CSVs that it came with.
const INSTALLED_ALONGSIDE: &str = "operatorframework.io/installed-alongside-";
/// The annotation of the Secret of a serving certificate.
pub(super) const CA_HASH: &str = "olmcahash";

impl Csvs {
    /// Everything that the next step depends on.
    pub(super) async fn observe(&self, csv: &ClusterServiceVersion) -> kube::Result<Observed> {
        let cluster = &self.context.cluster;
        let namespace = csv.namespace().unwrap_or_default();
        let phase = Phase::read(csv);
        let requirements = match phase {
            Phase::Replacing | Phase::Deleting => Requirements::default(),
            _ => self.requirements(csv).await?,
        };
        Ok(Observed {
            group: operator_group::check(csv, &cluster.groups.all()),
            is_fail_forward: self.group(&namespace).is_some_and(|group| is_fail_forward(&group)),
            gate: self.gate(csv),
            requirements,
            neighbors: chain::neighbors(csv, &cluster.csvs.all(), &self.named_services(csv)),
            install: self.installs.result(&key(csv), &self.inputs(csv)),
            health: if phase.depends_on_health() { self.health(csv) } else { Health::Healthy },
            api_services: self.api_services(csv),
            certificates: self.certificates_in_use(csv),
            is_certificate_missing: serving::deployments(csv).into_iter().any(|deployment| {
                cluster.secrets.find(&format!("{namespace}/{}", serving::secret_name(deployment))).is_none()
            }),
        })
    }

    /// The first group of a namespace.
    pub(super) fn group(&self, namespace: &str) -> Option<std::sync::Arc<OperatorGroup>> {
        self.context.cluster.groups.in_namespace(namespace).into_iter().next()
    }

    /// The Subscription whose CSV this is, or what replaces this one: until then its operator keeps the settings.
    fn subscription(&self, csv: &ClusterServiceVersion) -> Option<std::sync::Arc<Subscription>> {
        let (cluster, namespace) = (&self.context.cluster, csv.namespace().unwrap_or_default());
        let here = cluster.subscriptions.in_namespace(&namespace);
        let find = |name: &str| {
            let is_it =
                |status: &SubscriptionStatus| status.installed_csv == name || status.current_csv == name;
            here.iter().find(|subscription| subscription.status.as_ref().is_some_and(is_it)).cloned()
        };
        let name = csv.name_any();
        find(&name).or_else(|| {
            let csvs = cluster.own_csvs(&namespace);
            chain::successors(&name, &csvs).find_map(|newer| find(&newer.name_any()))
        })
    }

    pub(super) fn config(&self, csv: &ClusterServiceVersion) -> Option<SubscriptionConfig> {
        self.subscription(csv).and_then(|subscription| subscription.spec.config.clone())
    }

    /// What an install depends on beside the cluster.
    pub(super) fn inputs(&self, csv: &ClusterServiceVersion) -> Inputs {
        let namespace = csv.namespace().unwrap_or_default();
        let account = self.group(&namespace).map(|group| group.spec.service_account_name.clone());
        let account = account.filter(|account| !account.is_empty());
        // it binds a role there for what serves
        let system = Some(serving::SYSTEM_NAMESPACE).filter(|_| !serving::deployments(csv).is_empty());
        let rights = account.as_ref().map(|account| {
            let at = [namespace.as_str()].into_iter().chain(system);
            let account = (namespace.as_str(), account.as_str());
            at.map(|at| Rights::at(&self.context.cluster, at, account)).collect::<Vec<_>>()
        });
        Inputs {
            uid: csv.uid(),
            generation: csv.metadata.generation,
            config: json!([self.config(csv), self.context.cluster.proxy()]).to_string(),
            account: format!("{account:?} {rights:?}"),
        }
    }

    fn gate(&self, csv: &ClusterServiceVersion) -> UpgradeGate {
        let cluster = &self.context.cluster;
        let replaced = format!("{}/{}", csv.namespace().unwrap_or_default(), csv.spec.replaces);
        // none replaces itself
        if replaced == key(csv) || csv.spec.replaces.is_empty() || cluster.csvs.find(&replaced).is_none() {
            return UpgradeGate::Open;
        }
        match operator_condition::upgradeable(cluster.conditions.find(&replaced).as_deref()) {
            Ok(()) => UpgradeGate::Open,
            Err(error) => UpgradeGate::Closed(error.to_string()),
        }
    }

    async fn requirements(&self, csv: &ClusterServiceVersion) -> kube::Result<Requirements> {
        let cluster = &self.context.cluster;
        let namespace = csv.namespace().unwrap_or_default();
        let version = if csv.spec.min_kube_version.is_empty() {
            KubernetesVersion { major: 0, minor: 0, patch: 0 }
        } else {
            self.discovery.version().await?
        };
        // while its server is down the apiserver refuses to name the kinds of such an API
        let is_down = |(group, version, _): &(String, String, String)| {
            let service = cluster.api_services.find(&format!("{version}.{group}"));
            service.is_some_and(|service| !api_service(&service).is_available)
        };
        let mut apis = named_apis(csv);
        apis.retain(|api| !is_down(api));
        let apis = self.discovery.served(apis).await?;
        let crds =
            named_crds(csv).filter_map(|name| Some((name.to_owned(), crd(&*cluster.crds.find(name)?))));
        let accounts: BTreeSet<&str> = named_accounts(csv).collect();
        let found = accounts.iter().filter_map(|name| {
            let account = cluster.accounts.find(&format!("{namespace}/{name}"))?;
            let owners = account.owner_references().iter();
            let owners = owners.filter(|owner| owner.kind == "ClusterServiceVersion");
            let owners = owners.map(|owner| owner.name.clone()).collect();
            Some((
                (*name).to_owned(),
                ObservedServiceAccount { uid: account.uid().unwrap_or_default(), owners },
            ))
        });
        let rights: BTreeMap<&str, Rights> = accounts
            .iter()
            .map(|account| (*account, Rights::of_account(cluster, &namespace, account)))
            .collect();
        Ok(requirements::check(
            csv,
            &Cluster {
                version,
                crds: &crds.collect(),
                apis: &apis,
                api_services: &self.named_services(csv),
                has_replaced: cluster.csvs.find(&format!("{namespace}/{}", csv.spec.replaces)).is_some(),
                service_accounts: &found.collect(),
                may: &|account, scope, rule| {
                    let rule: Option<PolicyRule> = serde_json::from_value(rule.clone()).ok();
                    let rights = rights.get(account);
                    rule.zip(rights).is_some_and(|(rule, rights)| rights.allow(scope, &rule))
                },
            },
        ))
    }

    /// The APIServices of the cluster that a CSV names.
    fn named_services(&self, csv: &ClusterServiceVersion) -> BTreeMap<String, ObservedApiService> {
        let find = |name: String| {
            let found = api_service(&*self.context.cluster.api_services.find(&name)?);
            Some((name, found))
        };
        named_api_services(csv).filter_map(find).collect()
    }

    /// What the Deployments of a CSV depend on beside it.
    pub(super) fn settings<'a>(
        &self,
        csv: &ClusterServiceVersion,
        config: Option<&'a SubscriptionConfig>,
    ) -> Settings<'a> {
        let namespace = csv.namespace().unwrap_or_default();
        let ca_hashes = serving::deployments(csv).into_iter().filter_map(|deployment| {
            let secret = format!("{namespace}/{}", serving::secret_name(deployment));
            let secret = self.context.cluster.secrets.find(&secret)?;
            Some((deployment.to_owned(), secret.annotations().get(CA_HASH)?.clone()))
        });
        Settings { config, proxy: self.context.cluster.proxy(), ca_hashes: ca_hashes.collect() }
    }

    /// The Deployments of the cluster that are a CSV's by label or by name.
    pub(super) fn deployments_of(&self, csv: &ClusterServiceVersion) -> Vec<Object> {
        let name = csv.name_any();
        let here = self.context.cluster.deployments.in_namespace(&csv.namespace().unwrap_or_default());
        let owned = here.iter().filter(|it| it.labels().get(keys::OWNER) == Some(&name));
        owned.map(|it| object(&**it)).collect()
    }

    fn health(&self, csv: &ClusterServiceVersion) -> Health {
        let config = self.config(csv);
        let desired = match strategy::deployments(csv, &self.settings(csv, config.as_ref())) {
            Ok(desired) => desired,
            // the install reports it, too, and the CSV is installed again when the Subscription changes
            Err(error @ StrategyError::TooMuchConfig { .. }) => return Health::Waiting(error.to_string()),
            Err(
                StrategyError::Unknown(_)
                | StrategyError::Missing
                | StrategyError::Nameless(_)
                | StrategyError::Repeated(_)
                | StrategyError::NoSpec(_),
            ) => Vec::new(),
        };
        let live = self.live(csv, &desired);
        let name = csv.name_any();
        let is_taken = live.iter().any(|it| it.labels().get(keys::OWNER).is_some_and(|owner| *owner != name));
        let here = if is_taken {
            self.context.cluster.own_csvs(&csv.namespace().unwrap_or_default())
        } else {
            vec![]
        };
        health::check(&desired, &live, &chain::others(csv, &here))
    }

    /// The Deployments of the cluster with the names of these.
    pub(super) fn live(&self, csv: &ClusterServiceVersion, desired: &[Object]) -> Vec<Object> {
        let namespace = csv.namespace().unwrap_or_default();
        let live = desired.iter().filter_map(|desired| {
            let live = self.context.cluster.deployments.find(&format!("{namespace}/{}", desired.name()))?;
            Some(object(&*live))
        });
        live.collect()
    }

    fn api_services(&self, csv: &ClusterServiceVersion) -> ApiServices {
        let cluster = &self.context.cluster;
        let namespace = csv.namespace().unwrap_or_default();
        let owned = csv.spec.api_service_definitions.iter().flat_map(|services| &services.owned);
        let mut unavailable = Vec::new();
        for service in owned {
            let name = format!("{}.{}", service.version, service.group);
            let backend = serving::service_name(&service.deployment_name);
            let Some(present) = cluster.api_services.find(&name) else {
                return ApiServices::Missing(format!("APIService {name} is not present"));
            };
            let reference = present.spec.as_ref().and_then(|spec| spec.service.as_ref());
            if reference.is_none_or(|it| {
                it.name.as_ref() != Some(&backend) || it.namespace.as_ref() != Some(&namespace)
            }) {
                return ApiServices::Missing(format!(
                    "APIService {name} does not refer to Service {namespace}/{backend}"
                ));
            }
            if cluster.services.find(&format!("{namespace}/{backend}")).is_none() {
                return ApiServices::Missing(format!("Service {namespace}/{backend} is not present"));
            }
            let secret = format!("{namespace}/{}", serving::secret_name(&service.deployment_name));
            if cluster.secrets.find(&secret).is_none() {
                return ApiServices::Missing(format!("Secret {secret} is not present"));
            }
            if !api_service(&present).is_available {
                unavailable.push(name);
            }
        }
        if unavailable.is_empty() {
            ApiServices::Present
        } else {
            ApiServices::Unavailable(unavailable.join(", "))
        }
    }
}

/// The CustomResourceDefinitions that a CSV owns or requires.
pub(super) fn named_crds(csv: &ClusterServiceVersion) -> impl Iterator<Item = &str> {
    let crds = csv.spec.custom_resource_definitions.iter();
    crds.flat_map(|crds| crds.owned.iter().chain(&crds.required)).map(|crd| crd.name.as_str())
}

/// The APIServices that a CSV owns or requires, as `VERSION.GROUP`.
pub(super) fn named_api_services(csv: &ClusterServiceVersion) -> impl Iterator<Item = String> {
    let services = csv.spec.api_service_definitions.iter();
    let services = services.flat_map(|services| services.owned.iter().chain(&services.required));
    services.map(|service| format!("{}.{}", service.version, service.group))
}

/// The ServiceAccounts that permissions of a CSV name.
pub(super) fn named_accounts(csv: &ClusterServiceVersion) -> impl Iterator<Item = &str> {
    let strategy = csv.spec.install.spec.iter();
    let permissions = strategy.flat_map(|it| it.permissions.iter().chain(&it.cluster_permissions));
    permissions.map(|permissions| permissions.service_account_name.as_str())
}

/// The APIs that have to be in discovery.
fn named_apis(csv: &ClusterServiceVersion) -> BTreeSet<Api> {
    let native = csv.spec.native_apis.iter();
    let native = native.map(|api| (api.group.clone(), api.version.clone(), api.kind.clone()));
    let required = csv.spec.api_service_definitions.iter().flat_map(|services| &services.required);
    let required = required.map(|api| (api.group.clone(), api.version.clone(), api.kind.clone()));
    native.chain(required).collect()
}

fn crd(crd: &CustomResourceDefinition) -> ObservedCrd {
    let conditions = || crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_true = |type_: &str| conditions().any(|it| it.type_ == type_ && it.status == "True");
    let served = crd.spec.versions.iter().filter(|version| version.served);
    let alongside = crd.annotations().iter().filter(|(key, _)| key.starts_with(INSTALLED_ALONGSIDE));
    ObservedCrd {
        uid: crd.uid().unwrap_or_default(),
        served_versions: served.map(|version| version.name.clone()).collect(),
        is_established: is_true("Established"),
        are_names_accepted: is_true("NamesAccepted"),
        installed_alongside: alongside.map(|(_, csv)| csv.clone()).collect(),
    }
}

fn api_service(service: &APIService) -> ObservedApiService {
    let conditions = || service.status.iter().flat_map(|status| status.conditions.iter().flatten());
    ObservedApiService {
        uid: service.uid().unwrap_or_default(),
        is_available: conditions().any(|it| it.type_ == "Available" && it.status == "True"),
        owner: labelled_owner(&service.metadata),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Apiserver, context, failure_with, put};

    #[test]
    fn observed_crd_has_served_versions_and_conditions() {
        let value = json!({
            "metadata": {
                "name": "widgets.x.io", "uid": "u",
                "annotations": {"operatorframework.io/installed-alongside-abc": "ns/demo.v1", "other": "x"},
            },
            "spec": {
                "group": "x.io", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v0", "served": false, "storage": false}],
            },
            "status": {"conditions": [{"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "False"}]},
        });
        let read: CustomResourceDefinition = serde_json::from_value(value).unwrap();
        let want = ObservedCrd {
            uid: "u".to_owned(),
            served_versions: BTreeSet::from(["v1".to_owned()]),
            is_established: true,
            are_names_accepted: false,
            installed_alongside: BTreeSet::from(["ns/demo.v1".to_owned()]),
        };
        assert_eq!(crd(&read), want);
    }

    #[tokio::test]
    async fn observed_proxy_is_a_setting_and_an_input() {
        let csv: ClusterServiceVersion = serde_json::from_value(json!({
            "metadata": {"name": "a.v1", "namespace": "ns"}, "spec": {"displayName": "a", "install": {"strategy": "deployment"}},
        }))
        .unwrap();
        let cluster = crate::cluster::Cluster::new();
        let csvs = Csvs::new(context("csv", &Apiserver::new(|_, _| (404, json!({}))), &cluster));
        let before = csvs.inputs(&csv);
        let proxy = BTreeMap::from([("HTTP_PROXY".to_owned(), "http://p".to_owned())]);
        cluster.proxies.insert("cluster".to_owned(), proxy.clone());
        assert_eq!(csvs.settings(&csv, None).proxy, proxy);
        assert_ne!(csvs.inputs(&csv), before);
        let before = csvs.inputs(&csv);
        let mut created_again = csv.clone();
        created_again.metadata.uid = Some("u".to_owned());
        assert_ne!(csvs.inputs(&created_again), before);
    }

    fn csv(name: &str, replaces: &str) -> ClusterServiceVersion {
        let spec = json!({"displayName": "a", "replaces": replaces, "install": {"strategy": "deployment"}});
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec})).unwrap()
    }

    #[tokio::test]
    async fn observed_gate_is_of_the_replaced_csv_that_is_there() {
        let cluster = crate::cluster::Cluster::new();
        let csvs = Csvs::new(context("csv", &Apiserver::new(|_, _| (404, json!({}))), &cluster));
        let replaced = olm_runtime::watched::Object::new(csv("a.v1", ""));
        cluster.csvs.insert("ns/a.v1".to_owned(), replaced);
        let set = json!({"type": "Upgradeable", "status": "False", "reason": "Some", "message": "busy"});
        for name in ["a.v0", "a.v1"] {
            let condition = json!({
                "apiVersion": "operators.coreos.com/v2", "kind": "OperatorCondition",
                "metadata": {"name": name, "namespace": "ns"}, "spec": {"overrides": [set]},
            });
            put(&cluster.conditions, condition);
        }
        for (name, replaces, is_open) in
            [("a.v2", "a.v1", false), ("a.v2", "a.v0", true), ("a.v1", "a.v1", true), ("a.v1", "", true)]
        {
            let gate = csvs.gate(&csv(name, replaces));
            assert_eq!(gate == UpgradeGate::Open, is_open, "{name} replaces {replaces}: {gate:?}");
        }
    }

    #[tokio::test]
    async fn settings_stay_until_the_newer_version_replaces() {
        let cluster = crate::cluster::Cluster::new();
        let csvs = Csvs::new(context("csv", &Apiserver::new(|_, _| (404, json!({}))), &cluster));
        for (name, replaces) in [("a.v1", ""), ("a.v2", "a.v1"), ("a.v3", "a.v2"), ("b.v1", "")] {
            let csv = olm_runtime::watched::Object::new(csv(name, replaces));
            cluster.csvs.insert(format!("ns/{name}"), csv);
        }
        let subscription = json!({
            "metadata": {"name": "s", "namespace": "ns"},
            "spec": {"name": "a", "source": "c", "sourceNamespace": "ns", "config": {"env": [{"name": "A"}]}},
            "status": {"currentCSV": "a.v3", "lastUpdated": "2026-01-01T00:00:00Z"},
        });
        put(&cluster.subscriptions, subscription);
        for (name, has_settings) in [("a.v1", true), ("a.v2", true), ("a.v3", true), ("b.v1", false)] {
            assert_eq!(csvs.config(&csv(name, "")).is_some(), has_settings, "{name}");
        }
    }

    #[tokio::test]
    async fn observed_health_names_settings_that_are_too_many() {
        let containers = json!([{"name": "c"}]);
        let csv: ClusterServiceVersion = serde_json::from_value(json!({
            "metadata": {"name": "a.v1", "namespace": "ns"},
            "spec": {"displayName": "a", "install": {"strategy": "deployment", "spec": {"deployments": [
                {"name": "d", "spec": {"template": {"spec": {"containers": containers}}}},
            ]}}},
        }))
        .unwrap();
        for (variables, want) in [
            (1, "missing deployment with name=d"),
            (150_000, "spec.config of the Subscription to a.v1 adds 150000"),
        ] {
            let env: Vec<_> = (0..variables).map(|it| json!({"name": it.to_string()})).collect();
            let subscription = json!({
                "metadata": {"name": "s", "namespace": "ns"},
                "spec": {"name": "a", "source": "c", "sourceNamespace": "ns", "config": {"env": env}},
                "status": {"currentCSV": "a.v1", "lastUpdated": "2026-01-01T00:00:00Z"},
            });
            let apiserver = Apiserver::new(|_, _| (200, json!({})));
            let cluster = crate::cluster::Cluster::new();
            put(&cluster.subscriptions, subscription);
            let health = Csvs::new(context("csv", &apiserver, &cluster)).health(&csv);
            assert!(
                health.message().is_some_and(|it| it.starts_with(want)),
                "{variables} variables: {health:?}"
            );
        }
    }

    #[tokio::test]
    async fn observed_api_whose_server_is_down_is_not_served() {
        let csv: ClusterServiceVersion = serde_json::from_value(json!({
            "metadata": {"name": "a.v1", "namespace": "ns"},
            "spec": {
                "displayName": "a", "install": {"strategy": "deployment"},
                "apiservicedefinitions": {"required": [{"name": "as", "group": "a.test", "version": "v1", "kind": "A"}]},
            },
        }))
        .unwrap();
        for (available, is_observed) in [("False", true), ("True", false)] {
            let apiserver = Apiserver::new(|_, _| {
                let text = "the server is currently unable to handle the request";
                failure_with(503, "ServiceUnavailable", text)
            });
            let cluster = crate::cluster::Cluster::new();
            let conditions = json!([{"type": "Available", "status": available}]);
            let metadata = json!({"name": "v1.a.test", "uid": "u"});
            put(&cluster.api_services, json!({"metadata": metadata, "status": {"conditions": conditions}}));
            let csvs = Csvs::new(context("csv", &apiserver, &cluster));
            assert_eq!(csvs.requirements(&csv).await.is_ok(), is_observed, "{available}");
        }
    }
}
