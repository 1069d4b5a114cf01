//! A simulated cluster: the apiserver, two processes of operator-controller, a catalog, and the operators of installed packages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use http::Request as HttpRequest;
use kube::Client;
use kube::client::Body;
use olm_api::condition;
use olm_install::preflight;
use olm_install::render::RenderSettings;
use olm_runtime::controller::Workers;
use olm_runtime::leader::{self, Election, Moment, Timing};
use olm_runtime::metrics::Metrics;
use olm_runtime::{Intervals, Shutdown};
use operator_controller::accounts::Mode;
use operator_controller::controllers;
use operator_controller::extension::context::{DependencyCheck, Settings as ControllerSettings};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::BoxError;

use crate::content::{Content, FINALIZER, PACKAGES, Source};
use crate::{ApiServer, Settings};

/// The namespace of the controllers.
pub const SYSTEM: &str = "olm";
/// The lease of the controllers.
pub const LEASE: &str = "operator-controller";
/// The processes whose name begins like this are those of operator-controller.
pub const PROCESS: &str = "controller-";
/// Processes of operator-controller.
pub const PROCESSES: usize = 2;
/// The time between the end of a process and the start of the next in its place.
const RESTART: Duration = Duration::from_secs(2);
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
    name: Arc<Mutex<String>>,
    is_lost: watch::Sender<bool>,
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
        server.put(catalog())?;
        let places = (0..PROCESSES).map(|place| ProcessRef::start(place, &server, &content)).collect();
        tokio::spawn(operators(server.clone()));
        Ok(Self { server, content, places })
    }

    /// The process that runs in a place now.
    pub fn process(&self, place: usize) -> String {
        self.places[place % PROCESSES].name.lock().clone()
    }

    /// Kills the process in a place, or lets the next one start.
    pub fn lose(&self, place: usize, is_lost: bool) {
        self.places[place % PROCESSES].is_lost.send_replace(is_lost);
    }
}

impl ProcessRef {
    fn start(place: usize, server: &ApiServer, content: &Arc<Content>) -> Self {
        let (is_lost, mut lost) = watch::channel(false);
        let name = Arc::new(Mutex::new(String::new()));
        let (running, server, content) = (Arc::clone(&name), server.clone(), Arc::clone(content));
        tokio::spawn(async move {
            for number in 1_u32.. {
                if lost.wait_for(|is_lost| !is_lost).await.is_err() {
                    return;
                }
                let name = format!("{PROCESS}{place}-{number}");
                running.lock().clone_from(&name);
                let is_dead = Arc::new(AtomicBool::new(false));
                tokio::select! {
                    biased;
                    _ = lost.wait_for(|is_lost| *is_lost) => {}
                    () = process(&name, &server, &content, &is_dead) => {}
                }
                // its tasks are still there, but reach nothing
                is_dead.store(true, Ordering::Relaxed);
                server.partition(&name, true);
                tokio::time::sleep(RESTART).await;
            }
        });
        Self { name, is_lost }
    }
}

/// One process of operator-controller, until it loses the lease.
async fn process(name: &str, server: &ApiServer, content: &Arc<Content>, is_dead: &Arc<AtomicBool>) {
    let client = unless_dead(server.client(name), Arc::clone(is_dead));
    let (metrics, stop, start) = (Metrics::new(), Shutdown::new(), Instant::now());
    let clock = move || {
        let monotonic = Instant::now();
        Moment { monotonic, boot: monotonic - start, wall: SystemTime::now() }
    };
    let election =
        Election::new(LEASE, SYSTEM.to_owned()).with_identity(name, Timing::default()).with_clock(clock);
    let settings = ControllerSettings {
        system_namespace: SYSTEM.to_owned(),
        service_account_mode: Mode::Impersonate,
        render: RenderSettings::default(),
        separate_release: true,
        dependency_check: DependencyCheck::Enforce,
        preflight: preflight::Settings { existing_objects: false },
        intervals: Intervals::default(),
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

/// Requests of a process that is dead are never answered.
fn unless_dead(client: Client, is_dead: Arc<AtomicBool>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: HttpRequest<Body>| {
        let (client, is_dead) = (client.clone(), Arc::clone(&is_dead));
        async move {
            if is_dead.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            Ok::<_, BoxError>(client.send(request).await?)
        }
    });
    Client::new(service, namespace)
}

/// The operators of all packages: each removes its finalizer from custom resources that are being deleted, while it is there.
async fn operators(server: ApiServer) {
    loop {
        tokio::time::sleep(OPERATOR).await;
        for package in PACKAGES {
            let resource = format!("{package}s");
            if server.get("deployments", Some(package), package).is_none() {
                continue;
            }
            for found in server.list(&resource) {
                let metadata = &found["metadata"];
                let (Some(name), namespace) = (metadata["name"].as_str(), metadata["namespace"].as_str())
                else {
                    continue;
                };
                if !metadata["deletionTimestamp"].is_null() && !metadata["finalizers"].is_null() {
                    let patch = json!({"metadata": {"finalizers": null}});
                    if let Err(error) = server.patch(&resource, namespace, name, patch) {
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
