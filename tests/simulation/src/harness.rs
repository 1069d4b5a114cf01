//! A simulated cluster: the apiserver, two processes of operator-controller, a catalog, and the operators of installed packages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use olm_api::condition;
use olm_install::dependencies::DependencyCheck;
use olm_install::preflight;
use olm_install::render::RenderSettings;
use olm_install::resolution;
use olm_resolver::{Environment, EnvironmentConstraints};
use olm_runtime::controller::Workers;
use olm_runtime::leader::{self, Election, Moment, Timing};
use olm_runtime::metrics::Metrics;
use olm_runtime::{Intervals, Shutdown};
use operator_controller::accounts::Mode;
use operator_controller::controllers;
use operator_controller::extension::context::Settings as ControllerSettings;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::content::{Content, FINALIZER, PACKAGES, Source};
use crate::invariants::CUSTOM_RESOURCE_WAIT;
use crate::schedule::relies_on_events;
use crate::{ApiServer, Settings};

/// The namespace of the controllers.
pub const SYSTEM: &str = "olm";
/// The definition of [`monitors`].
pub const MONITORS: &str = "servicemonitors.monitoring.coreos.com";
/// The lease of the controllers.
pub const LEASE: &str = "operator-controller";
/// Who takes the lease without leading.
pub const THIEF: &str = "thief";
/// The processes whose name begins like this are those of operator-controller.
pub const PROCESS: &str = "controller-";
/// Processes of operator-controller.
pub const PROCESSES: usize = 2;
/// The time between the end of a process and the start of the next in its place.
const RESTART: Duration = Duration::from_secs(2);
/// The time that a process takes to end after it has lost the lease; its tasks continue meanwhile.
const EXIT: Duration = Duration::from_secs(1);
/// Longer than any simulation.
const NEVER: Duration = Duration::from_secs(24 * 3_600);
/// The name of the service account in the namespace of each package.
pub const ACCOUNT: &str = "installer";
/// How often operators finalize custom resources.
const OPERATOR: Duration = Duration::from_secs(2);

const CRDS: [&str; 3] = [
    include_str!("../../../manifests/crds/olm.operatorframework.io_clustercatalogs.yaml"),
    include_str!("../../../manifests/crds/olm.operatorframework.io_clusterextensions.yaml"),
    include_str!("../../../manifests/crds/olm.operatorframework.io_clusterobjectsets.yaml"),
];

/// The cluster.
pub struct Cluster {
    pub server: ApiServer,
    pub content: Arc<Content>,
    places: Vec<ProcessRef>,
}

/// Where a process runs, one after another.
struct ProcessRef {
    /// The process that runs now.
    running: Arc<Mutex<Running>>,
    is_lost: watch::Sender<bool>,
}

/// A process of operator-controller.
#[derive(Clone, Default)]
struct Running {
    name: String,
    metrics: Metrics,
    /// For how long its machine was suspended.
    suspended: Arc<Mutex<Duration>>,
}

impl Cluster {
    /// A cluster with a served catalog, the namespaces of all packages and a foreign object in each, and its processes.
    ///
    /// # Errors
    /// When the prepared content or an object is not accepted.
    pub fn start(seed: u64, content: Arc<Content>) -> Result<Self> {
        let settings = Settings { manifests: CRDS.map(str::to_owned).to_vec(), ..Settings::default() };
        let server = ApiServer::new(seed, settings);
        for namespace in PACKAGES.into_iter().chain([SYSTEM]) {
            server.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))?;
            server.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "foreign", "namespace": namespace},
                "data": {"of": "a user"}}))?;
        }
        // as another process has left it, so that none waits
        server.put(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE, "namespace": SYSTEM}}))?;
        server.put(catalog())?;
        server.put(monitors())?;
        for package in PACKAGES {
            server.put(account(package))?;
        }
        for object in rights() {
            server.put(object)?;
        }
        let mut intervals = Intervals::default();
        if relies_on_events(seed) {
            intervals.unfinished = NEVER;
        }
        let start = |place| ProcessRef::start(place, &server, &content, intervals);
        let places = (0..PROCESSES).map(start).collect();
        tokio::spawn(operators(server.clone()));
        Ok(Self { server, content, places })
    }

    /// The process that runs in a place now.
    pub fn process(&self, place: usize) -> String {
        self.places[place % PROCESSES].running.lock().name.clone()
    }

    /// Suspends the machine of the leader for a time, after which the other process leads. Nothing happens if none leads.
    ///
    /// # Errors
    /// When the lease cannot be written.
    pub fn suspend(&self, time: Duration) -> Result<()> {
        let Some(lease) = self.server.get("leases", Some(SYSTEM), LEASE) else { return Ok(()) };
        let names: Vec<String> = (0..PROCESSES).map(|place| self.process(place)).collect();
        let Some(leader) = names.iter().position(|name| lease["spec"]["holderIdentity"] == name.as_str())
        else {
            return Ok(());
        };
        let next = (leader + 1) % PROCESSES;
        if *self.places[next].is_lost.borrow() {
            return Ok(());
        }
        *self.places[leader].running.lock().suspended.lock() += time;
        self.server.break_connections(&names[leader]);
        let patch = json!({"spec": {"holderIdentity": names[next]}});
        self.server.patch("leases", Some(SYSTEM), LEASE, patch).map(drop)
    }

    /// How many passes over extensions and revisions the present processes have finished.
    pub fn passes(&self) -> u64 {
        let counted = |metrics: &Metrics| -> u64 {
            let text = metrics.classic();
            let rows = text.lines().filter(|row| row.starts_with("controller_runtime_reconcile_total{"));
            rows.filter_map(|row| row.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
        };
        self.places.iter().map(|place| counted(&place.running.lock().metrics)).sum()
    }

    /// Kills the process in a place, or lets the next one start.
    pub fn lose(&self, place: usize, is_lost: bool) {
        self.places[place % PROCESSES].is_lost.send_replace(is_lost);
    }
}

impl ProcessRef {
    fn start(place: usize, server: &ApiServer, content: &Arc<Content>, intervals: Intervals) -> Self {
        let (is_lost, mut lost) = watch::channel(false);
        let running = Arc::new(Mutex::new(Running::default()));
        let (present, server, content) = (Arc::clone(&running), server.clone(), Arc::clone(content));
        tokio::spawn(async move {
            for number in 1_u32.. {
                if lost.wait_for(|is_lost| !is_lost).await.is_err() {
                    return;
                }
                let own = Running { name: format!("{PROCESS}{place}-{number}"), ..Running::default() };
                present.lock().clone_from(&own);
                let has_lost_lease = tokio::select! {
                    biased;
                    _ = lost.wait_for(|is_lost| *is_lost) => false,
                    () = process(&own, &server, &content, intervals) => true,
                };
                if has_lost_lease {
                    tokio::time::sleep(EXIT).await;
                }
                // its tasks are still there, but reach nothing
                server.end(&own.name);
                tokio::time::sleep(RESTART).await;
            }
        });
        Self { running, is_lost }
    }
}

/// One process of operator-controller, until it loses the lease.
async fn process(running: &Running, server: &ApiServer, content: &Arc<Content>, intervals: Intervals) {
    let Running { name, metrics, suspended } = running.clone();
    let client = server.client(&name);
    let (stop, start) = (Shutdown::new(), Instant::now());
    let clock = move || {
        let (monotonic, suspended) = (Instant::now(), *suspended.lock());
        Moment { monotonic, boot: monotonic - start + suspended, wall: SystemTime::now() + suspended }
    };
    let election =
        Election::new(LEASE, SYSTEM.to_owned()).with_identity(&name, Timing::default()).with_clock(clock);
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
        bundles: Box::new(Source(Arc::clone(content))),
        packages: Box::new(Source(Arc::clone(content))),
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
                let (Some(uid), Some(name)) = (metadata["uid"].as_str(), metadata["name"].as_str()) else {
                    continue;
                };
                if metadata["deletionTimestamp"].is_null() || metadata["finalizers"].is_null() {
                    continue;
                }
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
#[must_use]
pub fn custom_resource(package: &str, number: usize) -> serde_json::Value {
    json!({
        "apiVersion": format!("{package}.example.com/v1"), "kind": format!("{}{}", package[..1].to_uppercase(), &package[1..]),
        "metadata": {"name": format!("example-{number}"), "namespace": package, "finalizers": [FINALIZER]},
        "spec": {"number": number},
    })
}

/// The service account of a package.
#[must_use]
pub fn account(package: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": package}})
}

/// All rights for the service accounts.
fn rights() -> [serde_json::Value; 2] {
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
#[must_use]
pub fn monitors() -> serde_json::Value {
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
fn catalog() -> serde_json::Value {
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
