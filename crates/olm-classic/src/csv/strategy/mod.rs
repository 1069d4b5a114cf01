//! The objects of the install strategy: Deployments here, what serves webhooks and aggregated APIs in [`serving`].
//!
//! Rules: classic-apis §3.4, §6.5, §9.

pub mod serving;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use olm_api::classic::ClusterServiceVersion;
use olm_api::classic::cluster_service_version::StrategyDetailsDeployment;
use olm_api::classic::subscription::SubscriptionConfig;
use olm_bundle::{DeploymentConfig, override_deployment};
use olm_core::{Object, member_map};
use serde_json::{Map, Value, json};

use super::labels::{self, SPEC_HASH, is_owned, managed, name, namespace, refer_to_owner, set_owner};
use super::spec_hash;
use crate::operator_condition::ENVIRONMENT;

/// Variables of the cluster's proxy. They count together: setting one in a Subscription replaces all of the cluster's.
const PROXY: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];
/// Entries of lists that settings of a Subscription may add to the Deployments of a CSV, each counted once for each container that gets it.
/// The apiserver takes no Deployment with ten times as many.
const MAX_CONFIG_ENTRIES: usize = 10_000;
/// Annotation of pods with a serving certificate, and of its Secret: a hash of the CA, so that a new CA restarts the pods.
pub(super) const CA_HASH: &str = "olmcahash";

/// Why an install strategy is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    #[error("spec.install.strategy is {0:?}; only \"deployment\" is supported")]
    Unknown(String),
    #[error("spec.install.spec is missing")]
    Missing,
    #[error("spec.install.spec.deployments[{0}] has no name")]
    Nameless(usize),
    #[error("spec.install.spec.deployments has {0:?} more than once; give each Deployment its own name")]
    Repeated(String),
    #[error("spec of deployment {0:?} in spec.install.spec.deployments is not an object")]
    NoSpec(String),
    #[error(
        "spec.config of the Subscription to {csv} adds {count} entries to its Deployments, more than {limit}; those of env, envFrom and \
         volumeMounts count for each container: list fewer, or put variables in a ConfigMap and name it in envFrom",
        limit = MAX_CONFIG_ENTRIES
    )]
    TooMuchConfig { csv: String, count: usize },
}

/// What Deployments depend on beside the CSV.
#[derive(Debug, Clone, Default)]
pub struct Settings<'a> {
    /// Of the Subscription whose CSV this is.
    pub config: Option<&'a SubscriptionConfig>,
    /// `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` of the cluster, as far as they are set.
    pub proxy: BTreeMap<String, String>,
    /// The hash of the CA of each Deployment that serves webhooks or aggregated APIs, by Deployment; without it nothing is mounted yet.
    pub ca_hashes: BTreeMap<String, String>,
}

/// The environment variables of OpenShift's Proxy with this status: the values that are in effect, as far as they are set.
#[must_use]
pub fn proxy_variables(status: &Value) -> BTreeMap<String, String> {
    let fields = PROXY.into_iter().zip(["httpProxy", "httpsProxy", "noProxy"]);
    let values = fields.filter_map(|(variable, field)| Some((variable, status[field].as_str()?)));
    let values = values.filter(|(_, value)| !value.is_empty());
    values.map(|(variable, value)| (variable.to_owned(), value.to_owned())).collect()
}

/// The strategy of a CSV.
///
/// # Errors
/// When it is missing, of another kind, or its Deployments cannot be distinguished.
pub fn check(csv: &ClusterServiceVersion) -> Result<&StrategyDetailsDeployment, StrategyError> {
    let install = &csv.spec.install;
    if install.strategy != "deployment" {
        return Err(StrategyError::Unknown(install.strategy.clone()));
    }
    let strategy = install.spec.as_ref().ok_or(StrategyError::Missing)?;
    let mut names = BTreeSet::new();
    for (index, deployment) in strategy.deployments.iter().enumerate() {
        if deployment.name.is_empty() {
            return Err(StrategyError::Nameless(index));
        }
        if !names.insert(&deployment.name) {
            return Err(StrategyError::Repeated(deployment.name.clone()));
        }
        if !deployment.spec.is_object() {
            return Err(StrategyError::NoSpec(deployment.name.clone()));
        }
    }
    Ok(strategy)
}

/// The Deployments of a CSV, in the order of the strategy.
///
/// # Errors
/// As [`check`], and when the settings of the Subscription are too many.
pub fn deployments(
    csv: &ClusterServiceVersion,
    settings: &Settings<'_>,
) -> Result<Vec<Object>, StrategyError> {
    let strategy = check(csv)?;
    if let Some(config) = settings.config {
        let count: usize = strategy.deployments.iter().map(|it| added_entries(config, &it.spec)).sum();
        if count > MAX_CONFIG_ENTRIES {
            return Err(StrategyError::TooMuchConfig { csv: name(csv).to_owned(), count });
        }
    }
    let served = serving::deployments(csv);
    let render = |deployment: &olm_api::classic::cluster_service_version::StrategyDeploymentSpec| {
        let mut object = managed("apps/v1", "Deployment", namespace(csv), &deployment.name);
        for (key, value) in &deployment.label {
            object.set_label(key, value);
        }
        set_owner(&mut object, csv);
        refer_to_owner(&mut object, csv);
        object.0.insert("spec".to_owned(), deployment.spec.clone());
        let ca_hash = settings.ca_hashes.get(&deployment.name);
        let ca_hash = ca_hash.filter(|_| served.contains(deployment.name.as_str()));
        shape(&mut object, csv, settings, ca_hash);
        let hash = object.0.get("spec").map(spec_hash::deployment).unwrap_or_default();
        object.set_label(SPEC_HASH, &hash);
        object
    };
    Ok(strategy.deployments.iter().map(render).collect())
}

/// How many entries of lists the settings of a Subscription add to a Deployment with this specification.
fn added_entries(config: &SubscriptionConfig, deployment: &Value) -> usize {
    let containers = deployment.pointer("/template/spec/containers").and_then(Value::as_array);
    let of_each = config.env.len() + config.env_from.len() + config.volume_mounts.len();
    let of_pod = config.volumes.len() + config.tolerations.len();
    of_each.saturating_mul(containers.map_or(0, Vec::len)).saturating_add(of_pod)
}

/// The Deployments of a CSV that are not in its strategy any more; none if the strategy is invalid.
#[must_use]
pub fn obsolete<'a>(csv: &ClusterServiceVersion, live: &'a [Object]) -> Vec<&'a Object> {
    let Ok(strategy) = check(csv) else { return Vec::new() };
    let named: BTreeSet<_> = strategy.deployments.iter().map(|it| it.name.as_str()).collect();
    let is_obsolete = |object: &&Object| {
        object.kind() == "Deployment" && is_owned(object, csv) && !named.contains(object.name())
    };
    live.iter().filter(is_obsolete).collect()
}

/// Removes from a Deployment of the cluster the annotations that an earlier install gave to it and to its pods, and that the pods of the new
/// one do not have: `spec.config` of the Subscription had them. Others may add their own, which stay.
pub fn remove_withdrawn(live: &mut Object, new: &Object) {
    fn of_pods(object: &Object) -> Option<&Map<String, Value>> {
        object.0.get("spec")?.pointer("/template/metadata/annotations")?.as_object()
    }
    let (before, after) = (of_pods(live), of_pods(new));
    let annotations = live.metadata().and_then(|metadata| metadata.get("annotations")?.as_object());
    let withdrawn = annotations.into_iter().flatten().filter(|(key, value)| {
        before.and_then(|before| before.get(*key)) == Some(*value)
            && !after.is_some_and(|after| after.contains_key(*key))
    });
    let withdrawn: Vec<String> = withdrawn.map(|(key, _)| key.clone()).collect();
    if let Some(Value::Object(annotations)) = live.metadata_mut().get_mut("annotations") {
        annotations.retain(|key, _| !withdrawn.contains(key));
    }
}

/// The specification of a Deployment of the strategy becomes that of the cluster: annotations of the CSV, the certificate, the settings of the
/// Subscription, the proxy, and the name of the OperatorCondition, which nothing overrides.
fn shape(
    object: &mut Object,
    csv: &ClusterServiceVersion,
    settings: &Settings<'_>,
    ca_hash: Option<&String>,
) {
    let secret = serving::secret_name(object.name());
    let spec = member_map(&mut object.0, "spec");
    spec.insert("revisionHistoryLimit".to_owned(), 1.into());
    let template = member_map(spec, "template");
    let of_csv = csv.metadata.annotations.iter().flatten();
    let of_csv = of_csv.map(|(key, value)| (key.clone(), value.clone()));
    for (key, value) in of_csv.chain(ca_hash.map(|hash| (CA_HASH.to_owned(), hash.clone()))) {
        member_map(member_map(template, "metadata"), "annotations").insert(key, value.into());
    }
    let pod = member_map(template, "spec");
    if ca_hash.is_some() {
        serving::mount_certificate(pod, &secret);
    }
    if let Some(config) = settings.config {
        configure(object, config);
    }
    let overridden = settings.config.iter().flat_map(|config| &config.env);
    let overrides_proxy =
        overridden.into_iter().any(|variable| PROXY.contains(&labels::text(variable, "name")));
    let proxy = settings.proxy.iter().filter(|(name, _)| !overrides_proxy && PROXY.contains(&name.as_str()));
    let proxy = proxy.map(|(name, value)| json!({"name": name, "value": value}));
    let env = proxy.chain([json!({"name": ENVIRONMENT, "value": name(csv)})]).collect();
    override_deployment(&DeploymentConfig { env, ..DeploymentConfig::default() }, object);
}

/// As v1 changes a Deployment by its `deploymentConfig`, but an affinity where there is none is taken over as it is.
fn configure(object: &mut Object, config: &SubscriptionConfig) {
    let affinity = config.affinity.as_ref().and_then(Value::as_object);
    let pod = member_map(member_map(member_map(&mut object.0, "spec"), "template"), "spec");
    let is_new = affinity.is_some_and(|affinity| !affinity.is_empty()) && !pod.contains_key("affinity");
    if let Some(affinity) = affinity.filter(|_| is_new) {
        pod.insert("affinity".to_owned(), Value::Object(affinity.clone()));
    }
    let node_selector = config.node_selector.as_ref().map(|selector| {
        selector.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect::<Map<_, _>>()
    });
    let changes = DeploymentConfig {
        env: config.env.clone(),
        env_from: config.env_from.clone(),
        volumes: config.volumes.clone(),
        volume_mounts: config.volume_mounts.clone(),
        tolerations: config.tolerations.clone(),
        resources: config.resources.clone(),
        node_selector,
        affinity: affinity.filter(|_| !is_new).cloned(),
        annotations: config.annotations.clone(),
    };
    override_deployment(&changes, object);
}
