//! The dependencies that every controller of the process shares.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use olm_runtime::Shutdown;
use olm_runtime::apply::{ErrorClass, classify, message};
use olm_runtime::controller::{Controller, Requeue, Source, Workers};
use olm_runtime::events::Events;
use olm_runtime::leader;
use olm_runtime::metrics::{ControllerMetrics, Metrics, Outcome};

use crate::args::RepairDeployments;
use crate::cluster::Cluster;

/// The field manager of writes.
pub(crate) const MANAGER: &str = "olm";

/// The settings of the controllers.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its catalogs are available everywhere.
    pub global_namespace: String,
    /// How long an InstallPlan whose steps fail is retried.
    pub plan_retry_window: Duration,
    /// How long the image of a bundle may take.
    pub unpack_timeout: Duration,
    pub repair_deployments: RepairDeployments,
    /// They keep copies of ClusterServiceVersions although copies are disabled.
    pub protected_namespaces: BTreeSet<String>,
}

/// What a controller gets.
pub(crate) struct Context {
    /// Writes with it are in time of the lease.
    pub(crate) client: Client,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) settings: Settings,
    pub(crate) events: Events,
    /// For metrics of its own.
    pub(crate) metrics: Metrics,
    meter: ControllerMetrics,
    stop: Shutdown,
    name: &'static str,
    workers: u16,
}

impl Context {
    pub(crate) fn new(
        (name, workers): (&'static str, u16),
        client: &Client,
        cluster: &Arc<Cluster>,
        settings: &Settings,
        metrics: &Metrics,
        stop: &Shutdown,
    ) -> Arc<Self> {
        let events = Events::new(client.clone(), "olm", Some(leader::identity())).counted(metrics);
        Arc::new(Self {
            client: client.clone(),
            cluster: Arc::clone(cluster),
            settings: settings.clone(),
            events,
            metrics: metrics.clone(),
            meter: metrics.controller(name, u32::from(workers)),
            stop: stop.clone(),
            name,
            workers,
        })
    }

    /// A further controller of the same context, with as many passes at the same time.
    pub(crate) fn further(&self, name: &'static str, sources: Vec<Source>) -> Controller {
        let workers = Workers::new(self.workers, self.stop.clone());
        Controller::new(name, workers, self.metrics.controller(name, u32::from(self.workers)), sources)
    }

    /// The controller that these sources wake, to be run by [`olm_runtime::controller::run`].
    pub(crate) fn controller(&self, sources: Vec<Source>) -> Controller {
        let workers = Workers::new(self.workers, self.stop.clone());
        Controller::new(self.name, workers, self.meter.clone(), sources)
    }
}

/// The end of a pass.
pub(crate) fn ended(result: kube::Result<Requeue>) -> (Requeue, Outcome) {
    match result {
        Ok(requeue) => (requeue, Outcome::Success),
        Err(error) => match classify(&error) {
            // the change that was in the way wakes another pass
            ErrorClass::Conflict | ErrorClass::NotFound => (Requeue::Backoff, Outcome::Requeue),
            _ => {
                tracing::warn!(error = message(&error), "pass failed");
                (Requeue::Backoff, Outcome::Error)
            }
        },
    }
}
