//! A simulated cluster with two processes of classic-controller, a catalog, and two namespaces with an OperatorGroup each.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Parser as _;
use classic_controller::args::Cli;
use classic_controller::{Settings as ControllerSettings, controllers};
use olm_runtime::{Shutdown, leader};
use serde_json::{Value, json};

use super::content::{CATALOG, CATALOG_IMAGE, CHANNEL, Content};
use crate::processes::{Processes, Running, SYSTEM, left_lease};
use crate::{ApiServer, Settings, documents};

pub const LEASE: &str = "classic-controller.operators.coreos.com";
/// A namespace whose OperatorGroup has all namespaces as targets.
pub const ORCHARD: &str = "orchard";
/// A namespace whose OperatorGroup has itself as target, and installs as [`ACCOUNT`].
pub const GARDEN: &str = "garden";
/// Both.
pub const NAMESPACES: [&str; 2] = [ORCHARD, GARDEN];
/// A namespace without an OperatorGroup.
pub const YARD: &str = "yard";
/// The account by which the group of [`GARDEN`] installs.
pub const ACCOUNT: &str = "installer";
/// The name of foreign objects.
pub const FOREIGN: &str = "foreign";

const API: &str = "operators.coreos.com";

/// What all seeds have in common, which takes long to read: the definitions of the controllers' own kinds, and the content.
pub type Prepared = (Arc<[Value]>, Arc<Content>);

/// Reads it.
pub fn prepare() -> Result<Prepared> {
    let manifests = documents(&[
        include_str!("../../../../manifests/classic/operators.coreos.com_catalogsources.yaml"),
        include_str!("../../../../manifests/classic/operators.coreos.com_clusterserviceversions.yaml"),
        include_str!("../../../../manifests/classic/operators.coreos.com_installplans.yaml"),
        include_str!("../../../../manifests/classic/operators.coreos.com_olmconfigs.yaml"),
        include_str!("../../../../manifests/classic/operators.coreos.com_operatorconditions.yaml"),
        include_str!("../../../../manifests/classic/operators.coreos.com_operatorgroups.yaml"),
        include_str!("../../../../manifests/classic/operators.coreos.com_operators.yaml"),
        include_str!("../../../../manifests/classic/operators.coreos.com_subscriptions.yaml"),
    ]);
    Ok((manifests, Content::new()?))
}

pub struct Cluster {
    pub server: ApiServer,
    pub content: Arc<Content>,
    pub processes: Processes,
}

impl Cluster {
    /// A cluster with a catalog, the namespaces with foreign objects in each, and its processes.
    pub fn start(seed: u64, (manifests, content): Prepared) -> Result<Self> {
        let server = ApiServer::new(seed, Settings { manifests, ..Settings::default() });
        for namespace in [SYSTEM, YARD] {
            server.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))?;
        }
        server.put(left_lease(LEASE))?;
        let objects = NAMESPACES.into_iter().flat_map(furniture).chain(rights());
        for object in objects.chain([catalog_source(CATALOG_IMAGE)]) {
            server.put(object)?;
        }
        let (apiserver, prepared) = (server.clone(), Arc::clone(&content));
        let processes = Processes::start(&server, LEASE, move |running| {
            process(running, apiserver.clone(), Arc::clone(&prepared))
        });
        Ok(Self { server, content, processes })
    }
}

/// One process of classic-controller, until it loses the lease.
async fn process(running: Running, server: ApiServer, content: Arc<Content>) {
    let (client, metrics) = (server.client(&running.name), running.metrics.clone());
    let (stop, election) = (Shutdown::new(), running.election(LEASE));
    let args = Cli::parse_from(["classic-controller"]).serve;
    let settings = ControllerSettings {
        global_namespace: SYSTEM.to_owned(),
        plan_retry_window: args.plan_retry_window(),
        unpack_timeout: args.unpack_timeout(),
        repair_deployments: args.repair_deployments,
        protected_namespaces: args.protected_namespaces(),
    };
    let writing = election.client(&client);
    let work = controllers::run(writing, args, settings, |_| content, metrics.clone(), stop.clone());
    // the loss of the lease ends the process
    let _ = leader::lead(client, Some(election), &metrics, &stop, work).await;
}

/// The namespace with its OperatorGroup, its accounts, and objects of other clients.
pub fn furniture(namespace: &str) -> Vec<Value> {
    let meta = |name: &str| json!({"name": name, "namespace": namespace});
    let of = |name: &str| json!({"app": name});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(ACCOUNT)}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(FOREIGN)}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(FOREIGN), "data": {"of": "a user"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta(FOREIGN)}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": meta(FOREIGN), "spec": {"ports": [{"port": 80}]}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta(FOREIGN), "rules": []}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta(FOREIGN), "spec": {
            "selector": {"matchLabels": of(FOREIGN)}, "template": {"metadata": {"labels": of(FOREIGN)},
            "spec": {"containers": [{"name": "a", "image": "registry.example.com/foreign:1"}]}}}}),
        group(namespace),
    ]
}

/// The OperatorGroup of a namespace.
pub fn group(namespace: &str) -> Value {
    let spec = match namespace {
        GARDEN => json!({"targetNamespaces": [GARDEN], "serviceAccountName": ACCOUNT}),
        _ => json!({}),
    };
    json!({"apiVersion": format!("{API}/v1"), "kind": "OperatorGroup",
        "metadata": {"name": namespace, "namespace": namespace}, "spec": spec})
}

/// A Subscription to a package, which has its name.
pub fn subscription(package: &str, namespace: &str, is_manual: bool) -> Value {
    let approval = if is_manual { "Manual" } else { "Automatic" };
    json!({"apiVersion": format!("{API}/v1alpha1"), "kind": "Subscription", "metadata": {"name": package, "namespace": namespace},
        "spec": {"name": package, "channel": CHANNEL, "source": CATALOG, "sourceNamespace": SYSTEM, "installPlanApproval": approval}})
}

/// The catalog of an image, which is polled several times a minute.
pub fn catalog_source(image: &str) -> Value {
    json!({"apiVersion": format!("{API}/v1alpha1"), "kind": "CatalogSource", "metadata": {"name": CATALOG, "namespace": SYSTEM},
        "spec": {"sourceType": "grpc", "image": image, "updateStrategy": {"registryPoll": {"interval": format!("{}s", POLL.as_secs())}}}})
}

/// The interval of the polls.
const POLL: Duration = Duration::from_secs(20);

/// All rights for the account of the group of [`GARDEN`], and a foreign role.
fn rights() -> [Value; 3] {
    let group = "rbac.authorization.k8s.io";
    let api_version = format!("{group}/v1");
    [
        json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": ACCOUNT},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
        json!({"apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": GARDEN}]}),
        json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": FOREIGN}, "rules": []}),
    ]
}
