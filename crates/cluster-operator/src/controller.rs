//! The controller of the ClusterOperator: derives the status when something changed, and writes it if it differs.
//!
//! Rule: cluster-operator §9, §16 step 2 (at most one write a second), §16 step 3 (no retry later than a minute).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client};
use olm_api::field_managers::CLUSTER_OPERATOR as MANAGER;
use olm_api::openshift::{CLUSTER_OPERATOR, ClusterOperator, ClusterOperatorStatus};
use olm_runtime::apply::{ErrorClass, classify, message};
use olm_runtime::controller::{self, Controller, Requeue, Source, Workers};
use olm_runtime::events::Events;
use olm_runtime::metrics::{Metrics, Outcome};
use olm_runtime::{Shutdown, write_status};
use tokio::sync::Mutex;

use crate::events::{self, ExtensionEvents};
use crate::inner::Memory;
use crate::metrics::StatusMetrics;
use crate::observe::{EXTENSION_KIND, Extension, REVISION_KIND, State, Table, World};
use crate::owner::{Elsewhere, Manage, elsewhere};
use crate::status::{Derived, Observed, changes, derive};
use crate::upgradeable::Installed;
use crate::version::Given;

/// The name in metrics and events.
pub(crate) const NAME: &str = "cluster-operator";
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(1);
const MAX_RETRY_WAIT: Duration = Duration::from_secs(60);

/// The dependencies of a pass.
pub(crate) struct Context {
    pub(crate) client: Client,
    /// The namespace of the Deployments.
    pub(crate) namespace: String,
    pub(crate) deployments: Vec<String>,
    /// What is set about the version.
    pub(crate) given: Given,
    pub(crate) manage: Manage,
    pub(crate) events: Events,
}

/// Reports until `stop`. Nothing is asked of the apiserver before it is polled.
pub(crate) async fn run(context: Context, metrics: &Metrics, stop: Shutdown) {
    let (world, context, status_metrics) = (World::default(), Arc::new(context), StatusMetrics::default());
    status_metrics.register(metrics);
    let reporter = Arc::new(Mutex::new(Reporter {
        context: Arc::clone(&context),
        operators: world.operators.clone(),
        status_metrics: status_metrics.clone(),
        memory: None,
        extension_events: ExtensionEvents::default(),
        reported_elsewhere: None,
    }));
    let reason = "an extension, a revision, a Deployment, ClusterVersion or the ClusterOperator changed";
    let sources = vec![Source::new(reason, world.waker.names(), |name| [name])];
    let controller = Controller {
        backoff: retry_wait,
        min_interval: MIN_WRITE_INTERVAL,
        ..Controller::new(NAME, Workers::new(1, stop), metrics.controller(NAME, 1), sources)
    };
    let passes = controller::run(controller, std::future::ready(()), |_| {
        let Some(snapshot) = snapshot(&world, &context) else {
            status_metrics.clear();
            return None;
        };
        let reporter = Arc::clone(&reporter);
        Some(async move { reporter.lock().await.reconcile(snapshot).await })
    });
    tokio::select! {
        () = world.follow(&context.client, &context.namespace) => {}
        () = passes => {}
    }
}

/// The wait after this many earlier failures in a row.
fn retry_wait(earlier: u32) -> Duration {
    MIN_WRITE_INTERVAL.saturating_mul(2 << earlier.min(5)).min(MAX_RETRY_WAIT)
}

/// The state of the cluster at one moment.
struct Snapshot {
    observed: Observed,
    extensions: Vec<Extension>,
    /// The ClusterOperator, if there is one.
    object: Option<DynamicObject>,
}

struct Reporter {
    context: Arc<Context>,
    operators: Table<DynamicObject>,
    status_metrics: StatusMetrics,
    /// `None` until the first snapshot.
    memory: Option<Memory>,
    extension_events: ExtensionEvents,
    reported_elsewhere: Option<Elsewhere>,
}

impl Reporter {
    async fn reconcile(&mut self, snapshot: Snapshot) -> (Requeue, Outcome) {
        match self.pass(snapshot).await {
            Ok(None) => (Requeue::OnChange, Outcome::Success),
            Ok(Some(wait)) => (Requeue::After(wait), Outcome::RequeueAfter),
            Err(error) => {
                tracing::warn!(%error, "will try again");
                (Requeue::Backoff, Outcome::Error)
            }
        }
    }

    /// Returns when to derive the status again although nothing changed.
    async fn pass(&mut self, snapshot: Snapshot) -> Result<Option<Duration>, Error> {
        let now = Timestamp::now();
        let memory = self.memory.get_or_insert_with(|| Memory::recall(&snapshot.observed.stored));
        let derived = derive(&snapshot.observed, memory, now);
        let metadata = snapshot.object.as_ref().map(|object| &object.metadata);
        let other = elsewhere(self.context.manage, metadata);
        self.status_metrics.decided(&derived.status, derived.report.as_ref(), other.as_ref());
        let new_events = derived
            .report
            .as_ref()
            .map(|report| self.extension_events.update(report, &snapshot.observed.stored));
        let again = derived.again.map(|due| wait_for(due, now));
        let written = match other {
            Some(other) => {
                self.leave(other, metadata.and_then(|it| it.uid.clone())).await;
                Ok(())
            }
            None => {
                self.reported_elsewhere = None;
                self.write(&snapshot, &derived).await
            }
        };
        // also if the cluster could not be updated, the extensions' owners get their events
        events::publish_extensions(
            &self.context.events,
            &new_events.unwrap_or_default(),
            &snapshot.extensions,
        )
        .await;
        written.map(|()| again)
    }

    /// Writes the status if it differs; creates the object if it is not there.
    async fn write(&self, snapshot: &Snapshot, derived: &Derived) -> Result<(), Error> {
        let api: Api<ClusterOperator> = Api::all(self.context.client.clone());
        let stored = match &snapshot.object {
            Some(object) => {
                object.clone().try_parse().map_err(|error| Error::Unreadable(error.to_string()))?
            }
            None => self.create(&api).await?,
        };
        let events = &self.context.events;
        let uid = stored.metadata.uid.clone();
        let before = stored.status.clone().unwrap_or_default();
        let written = match write_status(&api, &stored, derived.status.clone(), MANAGER).await {
            Ok(written) => written,
            // the watch brings the present object
            Err(error) if error.is_conflict() || error.is_gone() => return Ok(()),
            Err(error) => {
                events::publish_operator(events, uid, true, "StatusFailed", &error.to_string()).await;
                return Err(Error::Status(error));
            }
        };
        let Some(object) = written else { return Ok(()) };
        self.status_metrics.written();
        let after = object.status.clone().unwrap_or_default();
        let changes = changes(&before, &after);
        tracing::info!(changes = changes.join("; "), "wrote the status of the ClusterOperator");
        self.operators.put(CLUSTER_OPERATOR.to_owned(), snapshot.object.as_ref(), dynamic(&object));
        let note = format!("Status for clusteroperator/olm changed: {}", changes.join(","));
        events::publish_operator(events, uid.clone(), false, "OperatorStatusChanged", &note).await;
        if before.operator_version() != after.operator_version() {
            let text =
                |status: &ClusterOperatorStatus| status.operator_version().unwrap_or_default().to_owned();
            let note = format!(
                "clusteroperator/olm version \"operator\" changed from {:?} to {:?}",
                text(&before),
                text(&after)
            );
            events::publish_operator(events, uid, false, "OperatorVersionChanged", &note).await;
        }
        Ok(())
    }

    async fn create(&self, api: &Api<ClusterOperator>) -> Result<ClusterOperator, Error> {
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let empty =
            ClusterOperator::new(CLUSTER_OPERATOR, olm_api::openshift::ClusterOperatorSpec::default());
        match api.create(&params, &empty).await {
            Ok(created) => Ok(created),
            Err(error) => {
                if classify(&error) != ErrorClass::AlreadyExists {
                    let note = message(&error);
                    events::publish_operator(&self.context.events, None, true, "StatusCreateFailed", &note)
                        .await;
                }
                Err(Error::Create(message(&error)))
            }
        }
    }

    /// Reports once that another manager writes the ClusterOperator.
    async fn leave(&mut self, other: Elsewhere, uid: Option<String>) {
        if self.reported_elsewhere.as_ref() == Some(&other) {
            return;
        }
        if let Elsewhere::Manager(manager) = &other {
            tracing::info!(manager, "the ClusterOperator is written by another manager; only reporting");
            let note = format!(
                "{manager} writes the conditions of this ClusterOperator, so cluster-operator only reports by metrics and events; \
                 --manage=always takes it over"
            );
            events::publish_operator(&self.context.events, uid, false, "ManagedElsewhere", &note).await;
        }
        self.reported_elsewhere = Some(other);
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot create the ClusterOperator olm: {0}")]
    Create(String),
    #[error("cannot read the ClusterOperator olm: {0}")]
    Unreadable(String),
    #[error(transparent)]
    Status(olm_runtime::status::StatusError),
}

/// The state of the cluster, if there is an API to report to and every table is complete.
fn snapshot(world: &World, context: &Context) -> Option<Snapshot> {
    let State::Complete(mut operators) = world.operators.state() else { return None };
    let State::Complete(mut found) = world.deployments.state() else { return None };
    let cluster_version = match world.versions.state() {
        State::Unknown => return None,
        State::NotServed => None,
        State::Complete(all) => all.into_values().next().flatten(),
    };
    let csvs = match world.csvs.state() {
        State::Unknown => return None,
        State::NotServed => Vec::new(),
        State::Complete(all) => all.into_values().collect(),
    };
    let (installed, extensions) = match (world.extensions.state(), world.revisions.state()) {
        (State::Unknown, _) | (_, State::Unknown) => return None,
        (State::NotServed, _) => (Installed::NotServed(EXTENSION_KIND), Vec::new()),
        (_, State::NotServed) => (Installed::NotServed(REVISION_KIND), Vec::new()),
        (State::Complete(extensions), State::Complete(revisions)) => {
            let extensions: Vec<Extension> = extensions.into_values().collect();
            let revisions = revisions.into_values().flatten().collect();
            (Installed::Observed { extensions: extensions.clone(), revisions, csvs }, extensions)
        }
    };
    let object = operators.remove(CLUSTER_OPERATOR);
    let stored = object.as_ref().and_then(|it| serde_json::from_value(it.data["status"].clone()).ok());
    let deployments: BTreeMap<_, _> =
        context.deployments.iter().map(|name| (name.clone(), found.remove(name))).collect();
    let observed = Observed {
        current: context.given.current(cluster_version.as_deref()),
        installed,
        deployments,
        namespace: context.namespace.clone(),
        stored: stored.unwrap_or_default(),
    };
    Some(Snapshot { observed, extensions, object })
}

/// The object as the watch would deliver it.
fn dynamic(object: &ClusterOperator) -> DynamicObject {
    let value = serde_json::to_value(object).unwrap_or_default();
    serde_json::from_value(value).unwrap_or_else(|_| {
        let resource = kube::api::ApiResource::erase::<ClusterOperator>(&());
        DynamicObject::new(CLUSTER_OPERATOR, &resource)
    })
}

fn wait_for(due: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(due.duration_since(now)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// rule: cluster-operator §16 step 3
    #[test]
    fn retries_wait_a_minute_at_most() {
        let waits = [0, 1, 2, 3, 4, 5, 6, u32::MAX].map(|earlier| retry_wait(earlier).as_secs());
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
