//! A simulated cluster: the apiserver, two processes of operator-controller, a catalog, and the operators of installed packages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use olm_api::condition;
use olm_install::dependencies::DependencyCheck;
use olm_install::preflight;
use olm_install::render::RenderSettings;
use olm_install::resolution;
use olm_resolver::{Environment, EnvironmentConstraints};
use olm_runtime::controller::Workers;
use olm_runtime::{Intervals, Shutdown, leader};
use operator_controller::accounts::Mode;
use operator_controller::controllers;
use operator_controller::extension::context::Settings as ControllerSettings;
use serde_json::{Value, json};

use crate::content::{Content, FINALIZER, PACKAGES, Source};
use crate::invariants::CUSTOM_RESOURCE_WAIT;
use crate::processes::{Processes, Running, SYSTEM, left_lease};
use crate::schedule::relies_on_events;
use crate::{ApiServer, Settings, documents};

/// The definition of [`monitors`].
pub const MONITORS: &str = "servicemonitors.monitoring.coreos.com";
pub const LEASE: &str = "operator-controller";
/// Longer than any simulation.
const NEVER: Duration = Duration::from_secs(24 * 3_600);
/// The name of the service account in the namespace of each package.
pub const ACCOUNT: &str = "installer";
/// How often operators finalize custom resources.
const OPERATOR: Duration = Duration::from_secs(2);

/// What all seeds have in common, which takes long to read: the definitions of the controllers' own kinds, and the content.
pub type Prepared = (Arc<[Value]>, Arc<Content>);

/// Reads it.
pub fn prepare() -> Result<Prepared> {
    let manifests = documents(&[
        include_str!("../../../manifests/crds/olm.operatorframework.io_clustercatalogs.yaml"),
        include_str!("../../../manifests/crds/olm.operatorframework.io_clusterextensions.yaml"),
        include_str!("../../../manifests/crds/olm.operatorframework.io_clusterobjectsets.yaml"),
    ]);
    Ok((manifests, Content::new()?))
}

pub struct Cluster {
    pub server: ApiServer,
    pub content: Arc<Content>,
    pub processes: Processes,
}

impl Cluster {
    /// A cluster with a served catalog, the namespaces of all packages and a foreign object in each, and its processes.
    pub fn start(seed: u64, (manifests, content): Prepared) -> Result<Self> {
        let server = ApiServer::new(seed, Settings { manifests, ..Settings::default() });
        for namespace in PACKAGES.into_iter().chain([SYSTEM]) {
            server.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))?;
            server.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "foreign", "namespace": namespace},
                "data": {"of": "a user"}}))?;
        }
        let accounts = PACKAGES.into_iter().map(account);
        for object in [left_lease(LEASE), catalog(), monitors()].into_iter().chain(accounts).chain(rights()) {
            server.put(object)?;
        }
        let mut intervals = Intervals::default();
        if relies_on_events(seed) {
            intervals.unfinished = NEVER;
        }
        let (apiserver, prepared) = (server.clone(), Arc::clone(&content));
        let processes = Processes::start(&server, LEASE, move |running| {
            process(running, apiserver.clone(), Arc::clone(&prepared), intervals)
        });
        tokio::spawn(operators(server.clone()));
        Ok(Self { server, content, processes })
    }
}

/// One process of operator-controller, until it loses the lease.
async fn process(running: Running, server: ApiServer, content: Arc<Content>, intervals: Intervals) {
    let (client, metrics) = (server.client(&running.name), running.metrics.clone());
    let (stop, election) = (Shutdown::new(), running.election(LEASE));
    let settings = ControllerSettings {
        system_namespace: SYSTEM.to_owned(),
        service_account_mode: Mode::Impersonate,
        render: RenderSettings::default(),
        resolution: resolution::Settings {
            separate_release: true,
            // the simulated apiserver has no version and no list of its APIs
            environment: Environment {
                constraints: EnvironmentConstraints::Ignore,
                ..Environment::default()
            },
            ..resolution::Settings::default()
        },
        dependency_check: DependencyCheck::Enforce,
        preflight: preflight::Settings { existing_objects: false },
        intervals,
    };
    let sources = controllers::Content {
        bundles: Box::new(Source(Arc::clone(&content))),
        packages: Box::new(Source(content)),
        trust: Box::pin(futures::stream::pending()),
        workers: Workers::new(16, stop.clone()),
    };
    let work = controllers::run(election.client(&client), sources, settings, &metrics, stop.clone());
    // the loss of the lease ends the process
    let _ = leader::lead(client, Some(election), &metrics, &stop, work).await;
}

/// The operators of all packages: each removes its finalizer from custom resources that are being deleted, while it is there. Of one that
/// is gone, the user removes it when no removal waits for it any more.
async fn operators(server: ApiServer) {
    let mut deleted = BTreeMap::new();
    loop {
        tokio::time::sleep(OPERATOR).await;
        for package in PACKAGES {
            let resource = format!("{package}s");
            let is_there = server.get("deployments", Some(package), package).is_some();
            for found in server.list(&resource) {
                let metadata = &found["metadata"];
                let names = metadata["uid"].as_str().zip(metadata["name"].as_str());
                let is_held = !metadata["deletionTimestamp"].is_null() && !metadata["finalizers"].is_null();
                let Some((uid, name)) = names.filter(|_| is_held) else { continue };
                let since: &mut Duration = deleted.entry(uid.to_owned()).or_insert(server.elapsed());
                if is_there || server.elapsed() >= *since + CUSTOM_RESOURCE_WAIT + OPERATOR * 2 {
                    let patch = json!({"metadata": {"finalizers": null}});
                    if let Err(error) = server.patch(&resource, metadata["namespace"].as_str(), name, patch) {
                        tracing::debug!(%error, "operator cannot finalize");
                    }
                }
            }
        }
    }
}

/// A custom resource that its operator must finalize.
pub fn custom_resource(package: &str, number: usize) -> Value {
    json!({
        "apiVersion": format!("{package}.example.com/v1"), "kind": format!("{}{}", package[..1].to_uppercase(), &package[1..]),
        "metadata": {"name": format!("example-{number}"), "namespace": package, "finalizers": [FINALIZER]}, "spec": {"number": number},
    })
}

/// The service account of a package.
pub fn account(package: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": package}})
}

/// All rights for the service accounts.
fn rights() -> [Value; 2] {
    let group = "rbac.authorization.k8s.io";
    let subject = |package: &str| json!({"kind": "ServiceAccount", "name": ACCOUNT, "namespace": package});
    [
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": ACCOUNT},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ACCOUNT},
            "subjects": PACKAGES.map(subject)}),
    ]
}

/// The definition of a custom resource that the bundles contain and that is of no package.
pub fn monitors() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": MONITORS},
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"kind": "ServiceMonitor", "listKind": "ServiceMonitorList", "plural": "servicemonitors",
                "singular": "servicemonitor"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

/// A catalog that is served.
fn catalog() -> Value {
    let digest = "c".repeat(64);
    let condition = |type_: &str, reason: &str| {
        json!({"type": type_, "status": "True", "reason": reason, "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2025-01-01T00:00:00Z"})
    };
    json!({
        "apiVersion": olm_api::API_VERSION, "kind": "ClusterCatalog",
        "metadata": {"name": "fruit", "labels": BTreeMap::from([(olm_api::labels::METADATA_NAME, "fruit")])},
        "spec": {"availabilityMode": "Available", "priority": 0, "source": {"type": "Image", "image": {
            "ref": "registry.example.com/fruit:latest"}}},
        "status": {
            "conditions": [condition(condition::SERVING, "Available"), condition(condition::PROGRESSING, "Succeeded")],
            "resolvedSource": {"type": "Image", "image": {"ref": format!("registry.example.com/fruit@sha256:{digest}")}},
            "urls": {"base": "https://catalogd.olm.svc/catalogs/fruit"},
            "lastUnpacked": "2025-01-01T00:00:00Z",
        },
    })
}
