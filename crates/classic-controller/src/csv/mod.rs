//! The controller of ClusterServiceVersions.
//!
//! A pass observes the cluster ([`observe`]), takes one step of the phase machine of [`olm_classic::csv`], carries out its actions
//! ([`install`] has the largest), writes the status, and repeats that until a step changes nothing. Copies in target namespaces are the
//! business of [`crate::group`].
//!
//! Rules: classic-apis §6, §9.

mod certificates;
mod cleanup;
mod discovery;
pub(crate) mod edits;
mod install;
mod installs;
pub(crate) mod metrics;
mod observe;
pub(crate) mod rights;
mod sources;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Resource as _, ResourceExt as _};
use olm_api::classic::{ClusterServiceVersion, Time};
use olm_certificates::Executor;
use olm_classic::csv::{Action, Phase, Reason, Step, decide};
use olm_classic::install_plan::WAITING_EVENT;
use olm_classic::operator_group::{is_copy, keys};
use olm_runtime::apply::{ErrorClass, classify, message};
use olm_runtime::controller::{self, Requeue};
use olm_runtime::events::NewEvent;
use olm_runtime::watched::Object;
use olm_runtime::write_status;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tracing::{Instrument as _, info_span};

use crate::context::{Context, MANAGER, ended};
use crate::write::{ObjectWriter, named};
use discovery::Discovery;
use edits::Edits;
use installs::Installs;

/// Its name in logs and metrics.
pub(crate) const NAME: &str = "csv";
/// Passes at the same time.
pub(crate) const WORKERS: u16 = 4;

/// Delays the deletion of a CSV until the objects that only labels bind to it are gone.
const FINALIZER: &str = "operators.coreos.com/csv-cleanup";
/// Steps of one pass, at most. From a new CSV to Installing it takes six.
const MAX_STEPS: usize = 16;
/// How long an installed CSV may wait for its Deployments before the status reports it: most are there by then.
const WAITING_GRACE: Duration = Duration::from_secs(1);

/// What passes share.
pub(crate) struct Csvs {
    context: Arc<Context>,
    writer: ObjectWriter,
    installs: Installs,
    edits: Edits,
    discovery: Discovery,
    executor: Executor,
    upgrades: Counter,
}

/// Runs until the process stops.
pub(crate) async fn controller(context: Arc<Context>) {
    let csvs = Arc::new(Csvs::new(context));
    let sources = sources::sources(&csvs.context.cluster);
    controller::run(csvs.context.controller(sources), csvs.context.cluster.wait_until_listed(), |key| {
        let csv = csvs.context.cluster.csvs.find(key);
        if csv.is_none() {
            csvs.installs.evict(key);
            csvs.edits.evict(key);
            if !csvs.has_rights(key) {
                return None;
            }
        }
        let (pass, name) = (Arc::clone(&csvs), key.to_owned());
        let pass = async move {
            ended(match csv {
                Some(csv) => pass.reconcile(csv).await,
                None => pass.revoke(&name).await,
            })
        };
        Some(pass.instrument(info_span!("csv", csv = key)))
    })
    .await;
}

/// The name of a CSV in the caches.
pub(crate) fn key(csv: &ClusterServiceVersion) -> String {
    olm_runtime::watched::key(&csv.metadata)
}

/// The name in the caches of the CSV that the labels of an object name as its owner.
pub(crate) fn labelled_owner(meta: &ObjectMeta) -> Option<String> {
    let label = |key: &str| meta.labels.as_ref()?.get(key).filter(|value| !value.is_empty());
    let (name, namespace) = (label(keys::OWNER)?, label(keys::OWNER_NAMESPACE)?);
    let is_csv = label(keys::OWNER_KIND)? == "ClusterServiceVersion";
    is_csv.then(|| format!("{namespace}/{name}"))
}

fn has_finalizer(csv: &ClusterServiceVersion) -> bool {
    csv.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// A CSV as the target of a patch.
fn target(csv: &ClusterServiceVersion) -> olm_core::Object {
    let namespace = csv.namespace().unwrap_or_default();
    named("operators.coreos.com/v1alpha1", "ClusterServiceVersion", Some(&namespace), &csv.name_any())
}

impl Csvs {
    fn new(context: Arc<Context>) -> Self {
        let edits = Edits::default();
        Self {
            writer: ObjectWriter::new(context.client.clone()),
            installs: Installs::default(),
            discovery: Discovery::new(context.client.clone()),
            executor: Executor::new(context.client.clone(), MANAGER).slow_when_disputed(),
            upgrades: metrics::register(&context.metrics, &context.cluster, &edits),
            edits,
            context,
        }
    }

    async fn reconcile(&self, csv: Arc<ClusterServiceVersion>) -> kube::Result<Requeue> {
        if csv.metadata.deletion_timestamp.is_some() {
            let released = self.release(&csv).await;
            if let Err(error) = &released {
                self.report_deletion(&csv, error).await;
            }
            return released;
        }
        if is_copy(&csv) {
            return Ok(Requeue::OnChange);
        }
        let mut csv = csv;
        let (mut wait, first) = (None, Phase::read(&csv));
        // before pods get another certificate, callers trust it
        let mut recheck = self.keep_certificates(&csv).await;
        for _ in 0..MAX_STEPS {
            let observed = self.observe(&csv).await?;
            let now = Time(Timestamp::now());
            let step = decide(&csv, &observed, &now);
            let is_early = self.is_early(&csv, &step);
            let phase = Phase::read(&csv);
            let mut has_changed = false;
            for action in &step.actions {
                has_changed |= match action {
                    Action::RequeueAfter(after) => {
                        wait = Some(wait.map_or(*after, |wait: Duration| wait.min(*after)));
                        false
                    }
                    // after the status has it
                    Action::EmitEvent { .. } | Action::CountUpgrade | Action::Report(_) => false,
                    Action::WriteAnnotations(annotations) => {
                        csv = self.annotate(&csv, &json!(annotations)).await?;
                        true
                    }
                    Action::ApplyStrategy if !has_finalizer(&csv) => {
                        // what is written now outlives a CSV that goes without it
                        csv = self.annotate(&csv, &json!({})).await?;
                        self.execute(&csv, action).await?
                    }
                    other => self.execute(&csv, other).await?,
                };
            }
            if step.actions.contains(&Action::DeleteCsv) {
                break;
            }
            if is_early {
                wait = Some(WAITING_GRACE);
                break;
            }
            if !step.keeps_status() {
                csv = self.write(csv, &step, &now).await?;
                has_changed = true;
            }
            self.report(&csv, &step).await;
            let next = Phase::read(&csv);
            self.installs.phase_changed(&key(&csv), phase, next);
            // its Deployments were just written: their events come
            let is_begun = phase == Phase::InstallReady && next == Phase::Installing;
            if !has_changed || is_begun {
                break;
            }
        }
        if Phase::read(&csv) != first {
            recheck = self.keep_certificates(&csv).await;
        }
        let repair = self.keep_deployments(&csv).await?;
        let retry = self.installs.retry_in(&key(&csv));
        let wait = [wait, recheck, repair, retry].into_iter().flatten().min();
        let requeue = match Phase::read(&csv) {
            Phase::Succeeded => Requeue::OnChange,
            Phase::New
            | Phase::Pending
            | Phase::InstallReady
            | Phase::Installing
            | Phase::Failed
            | Phase::Replacing
            | Phase::Deleting
            | Phase::Unknown => Requeue::Unfinished,
        };
        Ok(requeue.within(wait))
    }

    /// Whether the step only reports that Deployments are not there yet, right after they were written.
    fn is_early(&self, csv: &ClusterServiceVersion, step: &Step) -> bool {
        let waits = step.transition.as_ref().is_some_and(|to| to.reason == Reason::InstallWaiting);
        let age = self.installs.age(&key(csv));
        waits
            && Reason::read(csv) != Some(Reason::InstallWaiting)
            && age.is_some_and(|age| age < WAITING_GRACE)
    }

    /// Carries an action out. Returns whether the next step may be another one for it.
    async fn execute(&self, csv: &ClusterServiceVersion, action: &Action) -> kube::Result<bool> {
        let namespace = csv.namespace().unwrap_or_default();
        match action {
            Action::ApplyStrategy => {
                let result = self.install(csv).await;
                if let Err(error) = &result {
                    tracing::warn!(error = error.message, "install failed");
                }
                // that of an installing one was just written: its events come
                let is_awaited = result.is_ok() && Phase::read(csv) == Phase::Installing;
                self.installs.record(&key(csv), self.inputs(csv), result);
                Ok(!is_awaited)
            }
            Action::SetProvidedApis(apis) => {
                self.set_provided_apis(&namespace, apis).await?;
                Ok(true)
            }
            Action::DeleteDeployments => {
                for deployment in self.deployments_of(csv) {
                    self.writer.delete(&deployment).await?;
                    self.context.cluster.deployments.remove(&format!("{namespace}/{}", deployment.name()));
                }
                Ok(false)
            }
            Action::DeleteCsv => {
                self.writer.delete(&crate::write::object(csv)).await?;
                Ok(false)
            }
            Action::WriteAnnotations(_)
            | Action::EmitEvent { .. }
            | Action::CountUpgrade
            | Action::Report(_)
            | Action::RequeueAfter(_) => Ok(false),
        }
    }

    /// Adds annotations, and the finalizer with the same write.
    async fn annotate(
        &self,
        csv: &ClusterServiceVersion,
        annotations: &Value,
    ) -> kube::Result<Arc<ClusterServiceVersion>> {
        let mut finalizers = csv.metadata.finalizers.clone().unwrap_or_default();
        if !has_finalizer(csv) {
            finalizers.push(FINALIZER.to_owned());
        }
        let patch = json!({ "metadata": {
            "annotations": annotations, "finalizers": finalizers, "resourceVersion": csv.resource_version(),
        } });
        let written = self.writer.patch(&target(csv), &patch).await?;
        Ok(self.cache(serde_json::from_value(written.into_value()).map_err(kube::Error::SerdeError)?))
    }

    async fn write(
        &self,
        csv: Arc<ClusterServiceVersion>,
        step: &Step,
        now: &Time,
    ) -> kube::Result<Arc<ClusterServiceVersion>> {
        let api: Api<ClusterServiceVersion> =
            Api::namespaced(self.context.client.clone(), &csv.namespace().unwrap_or_default());
        let status = step.apply(csv.status.as_ref(), now);
        match write_status(&api, &*csv, status, MANAGER).await {
            Ok(Some(written)) => Ok(self.cache(written)),
            Ok(None) => Ok(csv),
            Err(error) => Err(error.0),
        }
    }

    /// Shows a CSV as the apiserver answered it, before the watch does.
    fn cache(&self, csv: ClusterServiceVersion) -> Arc<ClusterServiceVersion> {
        let csv = Arc::new(olm_runtime::watched::slim(csv));
        self.context.cluster.csvs.update(key(&csv), Object(Ok(Arc::clone(&csv))));
        csv
    }

    /// Emits the events of a step that the status has, and counts the upgrade that it begins.
    async fn report(&self, csv: &ClusterServiceVersion, step: &Step) {
        for action in &step.actions {
            match action {
                Action::EmitEvent { is_warning, reason, message } => {
                    let event = NewEvent {
                        warning: *is_warning,
                        reason: reason.as_str(),
                        action: "Reconcile",
                        note: message,
                    };
                    self.context.events.publish_whole(&csv.object_ref(&()), event).await;
                }
                Action::CountUpgrade => {
                    self.upgrades.inc();
                }
                Action::Report(note) => self.report_wait(csv, note).await,
                Action::WriteAnnotations(_)
                | Action::SetProvidedApis(_)
                | Action::ApplyStrategy
                | Action::DeleteDeployments
                | Action::DeleteCsv
                | Action::RequeueAfter(_) => {}
            }
        }
    }

    async fn report_wait(&self, csv: &ClusterServiceVersion, note: &str) {
        let event = NewEvent { warning: false, reason: WAITING_EVENT, action: "Reconcile", note };
        self.context.events.publish(&csv.object_ref(&()), event).await;
    }

    /// Reports what keeps a CSV from going, unless it may go with the next attempt.
    async fn report_deletion(&self, csv: &ClusterServiceVersion, error: &kube::Error) {
        if matches!(classify(error), ErrorClass::Forbidden | ErrorClass::Invalid) {
            let note =
                format!("waiting until what only labels bind to it can be deleted: {}", message(error));
            self.report_wait(csv, &note).await;
        }
    }

    async fn set_provided_apis(&self, namespace: &str, apis: &str) -> kube::Result<()> {
        for group in self.context.cluster.groups.in_namespace(namespace) {
            crate::group::set_provided_apis(&self.context, &group, apis).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use crate::testing::{Apiserver, context, failure_with};

    #[tokio::test]
    async fn csv_that_cannot_be_released_has_an_event() {
        for (code, reason, is_event) in [(403, "Forbidden", true), (500, "InternalError", false)] {
            let apiserver = Apiserver::new(move |method, uri| match method {
                "DELETE" => failure_with(code, reason, "no r"),
                "GET" if uri.contains("/clusterroles?") => {
                    (200, json!({"metadata": {}, "items": [{"metadata": {"name": "r", "uid": "1"}}]}))
                }
                "GET" => (200, json!({"metadata": {}, "items": []})),
                _ => (201, json!({"metadata": {"name": "e"}})),
            });
            let csvs = Csvs::new(context(NAME, &apiserver, &Cluster::new()));
            let csv: ClusterServiceVersion = serde_json::from_value(json!({
                "metadata": {"name": "a.v1", "namespace": "ns", "finalizers": [FINALIZER],
                    "deletionTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"displayName": "a", "install": {"strategy": "deployment"}},
            }))
            .unwrap();
            assert!(csvs.reconcile(Arc::new(csv)).await.is_err(), "{code}");
            let requests = apiserver.requests();
            let is_wait = |line: &String| line.contains(r#""reason":"Waiting""#) && line.contains("no r");
            assert_eq!(requests.iter().any(is_wait), is_event, "{code}: {requests:?}");
        }
    }

    #[tokio::test]
    async fn csv_wait_without_a_status_is_an_event() {
        let apiserver = Apiserver::new(|_, _| (201, json!({"metadata": {"name": "e"}})));
        let csvs = Csvs::new(context(NAME, &apiserver, &Cluster::new()));
        let spec = json!({"displayName": "demo", "install": {"strategy": "deployment"}});
        let csv = json!({"metadata": {"namespace": "ns", "name": "demo.v2"}, "spec": spec});
        let csv: ClusterServiceVersion = serde_json::from_value(csv).unwrap();
        let step = Step { actions: vec![Action::Report("waiting for x".to_owned())], ..Step::default() };
        for _ in 0..2 {
            csvs.report(&csv, &step).await;
        }
        let requests = apiserver.requests();
        let [event] = requests.as_slice() else { panic!("{requests:?}") };
        assert!(event.starts_with("POST /apis/events.k8s.io/v1/namespaces/ns/events"), "{event}");
        for part in [r#""reason":"Waiting""#, r#""type":"Normal""#, r#""note":"waiting for x""#] {
            assert!(event.contains(part), "{event}");
        }
    }
}
