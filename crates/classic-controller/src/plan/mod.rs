//! The controller of InstallPlans: approval, the steps, retries.
//!
//! Rule: classic-apis §5.

mod live_objects;
pub(crate) mod metrics;
mod request;
mod run;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use olm_api::classic::{InstallPlan, InstallPlanStatus};
use olm_classic::install_plan::{
    PlanNext, PlanObserved, PlanPhase, PlanRun, REQUEUE, WAITING_EVENT, next_phase, plan_account, plan_wait,
};
use olm_classic::operator::is_announced;
use olm_runtime::apply;
use olm_runtime::controller::{self, Requeue};
use olm_runtime::events::NewEvent;
use olm_runtime::metrics::Outcome;
use olm_runtime::watched::Object;
use olm_runtime::{client, write_status};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;

use self::run::Run;
use crate::cluster::without_manifests;
use crate::context::{Context, MANAGER};
use crate::controllers;
use crate::subscription::Unpacks;

/// Its name in logs and metrics.
pub(crate) const NAME: &str = "installplan";
/// Passes at the same time.
pub(crate) const WORKERS: u16 = 8;

/// How often a status is written, if others write labels or annotations of the plan meanwhile.
const TRIES: usize = 3;

/// What a pass needs.
struct Plans {
    context: Arc<Context>,
    unpacks: Arc<Unpacks>,
    /// Plans in whose namespace rights changed since their last pass.
    rights_changed: Arc<Mutex<BTreeSet<String>>>,
    warnings: Counter,
}

/// Runs until the process stops.
pub(crate) async fn controller(context: Arc<Context>, unpacks: Arc<Unpacks>) {
    let rights_changed = Arc::default();
    let warnings = metrics::register(&context.metrics, &context.cluster);
    let runner = context.controller(controllers::plan_sources(&context.cluster, &rights_changed));
    let cluster = Arc::clone(&context.cluster);
    let plans = Arc::new(Plans { context, unpacks, rights_changed, warnings });
    controller::run(runner, cluster.wait_until_listed(), |key| {
        let plan = cluster.plans.find(key)?;
        let (plans, key) = (Arc::clone(&plans), key.to_owned());
        Some(async move {
            match plans.reconcile(&key, &plan).await {
                Ok(Requeue::After(wait)) => (Requeue::After(wait), Outcome::RequeueAfter),
                Ok(requeue) => (requeue, Outcome::Success),
                Err(error) => {
                    tracing::warn!(plan = key, error, "cannot reconcile an InstallPlan");
                    (Requeue::Backoff, Outcome::Error)
                }
            }
        })
    })
    .await;
}

/// A plan that changed while its status was written is tried again soon: what changed may wake no pass.
fn after(written: &Option<InstallPlan>, requeue: Requeue) -> Requeue {
    match written {
        Some(_) => requeue,
        None => Requeue::Backoff,
    }
}

/// Whether a plan has the specification and the status of another one, so that only its metadata was written: the steps that were executed
/// need not be executed again.
fn decides_the_same(found: &InstallPlan, stored: &InstallPlan) -> bool {
    let of = |plan: &InstallPlan| (plan.metadata.uid.clone(), plan.metadata.generation);
    of(found) == of(stored) && found.status == stored.status
}

impl Plans {
    /// One pass. That rights have changed counts until a pass has ended well.
    async fn reconcile(&self, key: &str, plan: &InstallPlan) -> Result<Requeue, String> {
        let rights_changed = self.rights_changed.lock().remove(key);
        let ended = self.execute(plan, rights_changed).await;
        if rights_changed && !matches!(ended, Ok(requeue) if requeue != Requeue::Backoff) {
            self.rights_changed.lock().insert(key.to_owned());
        }
        ended
    }

    async fn execute(&self, plan: &InstallPlan, rights_changed: bool) -> Result<Requeue, String> {
        let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
        let subscriptions = self.context.cluster.subscriptions.in_namespace(namespace);
        if !is_announced(plan, subscriptions.iter().map(|it| &**it)) {
            return Ok(Requeue::Unfinished);
        }
        let groups = self.context.cluster.groups.in_namespace(namespace);
        let mut stored = plan.clone();
        let mut rights_changed = rights_changed;
        loop {
            let mut observed = PlanObserved {
                account: plan_account(&groups),
                rights_changed,
                run: None,
                retry_window: self.context.settings.plan_retry_window,
            };
            rights_changed = false;
            let decision = next_phase(&stored, &observed, Timestamp::now());
            let phase = |plan: &InstallPlan| plan.status.as_ref().map(|status| status.phase.clone());
            let mut decided = stored.clone();
            if decision.status.is_some() {
                decided.status = decision.status;
            }
            match decision.next {
                PlanNext::Rest => {
                    return self.write(stored, decided).await.map(|it| after(&it, Requeue::OnChange));
                }
                PlanNext::Requeue(wait) => {
                    return self.write(stored, decided).await.map(|it| after(&it, Requeue::After(wait)));
                }
                PlanNext::RunSteps if phase(&stored) != phase(&decided) => {
                    match self.write(stored, decided).await? {
                        Some(written) => stored = written,
                        None => return Ok(Requeue::Backoff),
                    }
                }
                PlanNext::RunSteps => {
                    let run = self.run(&decided, &observed).await;
                    observed.run = Some(&run);
                    let decision = next_phase(&decided, &observed, Timestamp::now());
                    if decision.status.is_some() {
                        decided.status = decision.status;
                    }
                    let written = self.write(stored, decided).await?;
                    let requeue = match decision.next {
                        PlanNext::Rest => Requeue::OnChange,
                        PlanNext::RunSteps => Requeue::Unfinished,
                        PlanNext::Requeue(wait) => Requeue::After(wait),
                    };
                    return Ok(after(&written, requeue));
                }
            }
        }
    }

    async fn run(&self, plan: &InstallPlan, observed: &PlanObserved<'_>) -> PlanRun {
        let Some(status) = &plan.status else { return PlanRun { steps: Vec::new(), error: None } };
        let acting: Client = match &observed.account {
            Ok(Some(account)) => {
                let namespace = account.namespace.as_deref().unwrap_or_default();
                let name = account.name.as_deref().unwrap_or_default();
                let user = format!("system:serviceaccount:{namespace}:{name}");
                client::impersonating(&self.context.client, &user)
            }
            Ok(None) | Err(_) => self.context.client.clone(),
        };
        Run::new(self, plan, acting).all(status).await
    }

    /// Writes the status of `decided` over that of `stored`. `None`: the plan changed meanwhile, or is gone.
    async fn write(&self, stored: InstallPlan, decided: InstallPlan) -> Result<Option<InstallPlan>, String> {
        let namespace = stored.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<InstallPlan> = Api::namespaced(self.context.client.clone(), namespace);
        let note = waits(&stored, &decided, Timestamp::now());
        let Some(status) = decided.status else { return Ok(Some(stored)) };
        let Some(written) = self.write_status(&api, stored, &status).await? else { return Ok(None) };
        if let Some(note) = &note {
            let event = NewEvent { warning: false, reason: WAITING_EVENT, action: "Apply", note };
            self.context.events.publish(&written.object_ref(&()), event).await;
        }
        Ok(Some(written))
    }

    /// `None`: the plan is gone, or another plan than the one that was decided about.
    async fn write_status(
        &self,
        api: &Api<InstallPlan>,
        mut stored: InstallPlan,
        status: &InstallPlanStatus,
    ) -> Result<Option<InstallPlan>, String> {
        for _ in 0..TRIES {
            match write_status(api, &stored, status.clone(), MANAGER).await {
                Ok(Some(written)) => {
                    let key = olm_runtime::watched::key(&written.metadata);
                    let cached = Object::new(without_manifests(written.clone()));
                    self.context.cluster.plans.update(key, cached);
                    return Ok(Some(written));
                }
                Ok(None) => return Ok(Some(stored)),
                Err(error) if error.is_gone() => {
                    let key = olm_runtime::watched::key(&stored.metadata);
                    self.context.cluster.plans.remove(&key);
                    return Ok(None);
                }
                Err(error) if error.is_conflict() => {
                    let found = api.get_opt(&stored.name_any()).await;
                    match found.map_err(|error| apply::message(&error))? {
                        Some(found) if decides_the_same(&found, &stored) => stored = found,
                        Some(_) | None => return Ok(None),
                    }
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(None)
    }
}

/// What the event of a plan reports: what it waits for, once that is something else. While its steps run, most waits are over at the next
/// attempt; those that are not are reported.
fn waits(stored: &InstallPlan, decided: &InstallPlan, now: Timestamp) -> Option<String> {
    let wait = plan_wait(decided)?;
    let status = decided.status.as_ref()?;
    let is_due = match PlanPhase::from_plan(decided)? {
        PlanPhase::Installing => {
            let since = status.start_time.as_ref().map(|start| now.duration_since(start.0).unsigned_abs());
            since.is_none_or(|since| since >= REQUEUE)
        }
        PlanPhase::None
        | PlanPhase::Planning
        | PlanPhase::RequiresApproval
        | PlanPhase::Complete
        | PlanPhase::Failed => plan_wait(stored).as_ref() != Some(&wait),
    };
    is_due.then_some(wait)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use olm_bundle::BundleLimits;
    use serde::Deserialize as _;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::Cluster;
    use crate::image_source::ImageSource;
    use crate::images::Images;
    use crate::testing::{self, Apiserver, failure};

    /// What a pass needs, with an empty cluster, and the directory of its images.
    pub(super) fn plans(apiserver: &Apiserver) -> (Plans, tempfile::TempDir) {
        let (cluster, cache) = (Cluster::new(), tempfile::tempdir().unwrap());
        let limits = (olm_oci::Limits::bundle(), BundleLimits::default());
        let images =
            Images::open(apiserver.client(), cache.path(), olm_oci::Config::default(), limits).unwrap();
        let images: Arc<dyn ImageSource> = Arc::new(images);
        let context = testing::context(NAME, apiserver, &cluster);
        let warnings = metrics::register(&context.metrics, &cluster);
        (Plans { context, unpacks: Unpacks::new(&images), rights_changed: Arc::default(), warnings }, cache)
    }

    #[test]
    fn plan_reports_waits_that_last_or_change() {
        let start = "2024-01-01T00:00:00Z";
        let plan = |phase: &str, message: &str, started: Option<&str>| -> InstallPlan {
            let mut status = json!({"phase": phase, "message": message, "catalogSources": []});
            status["startTime"] = started.map_or(Value::Null, Value::from);
            serde_json::from_value(json!({
                "metadata": {"name": "p"}, "status": status,
                "spec": {"clusterServiceVersionNames": [], "approval": "Automatic", "approved": true},
            }))
            .unwrap()
        };
        let installing = |message: &str| plan("Installing", message, Some(start));
        let failed = plan("Failed", "no", Some(start));
        for (stored, decided, second, want) in [
            (installing(""), installing("waiting"), 4, None),
            (installing("waiting"), installing("waiting"), 5, Some("waiting")),
            (installing("waiting"), installing(""), 5, None),
            (installing(""), plan("Installing", "no account", None), 0, Some("no account")),
            (
                plan("", "", None),
                plan("RequiresApproval", "", None),
                0,
                Some("waiting for approval; set spec.approved to true"),
            ),
            (installing("no"), failed.clone(), 60, plan_wait(&failed).as_deref()),
            (failed.clone(), failed.clone(), 60, None),
        ] {
            let now: Timestamp = start.parse::<Timestamp>().unwrap() + Duration::from_secs(second);
            assert_eq!(waits(&stored, &decided, now).as_deref(), want, "{decided:?}");
        }
    }

    #[tokio::test]
    async fn plan_that_is_complete_is_cached_without_manifests() {
        let resource = json!({"sourceName": "c", "sourceNamespace": "ns", "group": "", "version": "v1",
            "kind": "Secret", "name": "s", "manifest": "{}"});
        let plan = |version: &str, phase: &str| {
            let step = json!({"resolving": "a.v1", "status": "Created", "resource": resource});
            json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "InstallPlan",
                "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": version},
                "spec": {"clusterServiceVersionNames": [], "approval": "Automatic", "approved": true},
                "status": {"phase": phase, "catalogSources": [], "plan": [step]},
            })
        };
        let typed = |plan: &Value| InstallPlan::deserialize(plan).unwrap();
        let (stored, complete) = (typed(&plan("1", "Installing")), plan("2", "Complete"));
        let status = typed(&complete).status.unwrap();
        let apiserver = Apiserver::new(move |_, _| (200, complete.clone()));
        let (plans, _cache) = plans(&apiserver);
        let cached = &plans.context.cluster.plans;
        cached.insert("ns/p".to_owned(), Object::new(stored.clone()));
        let api = Api::namespaced(apiserver.client(), "ns");
        let written = plans.write_status(&api, stored, &status).await.unwrap().unwrap();
        assert_eq!(written.status, Some(status));
        let cached = cached.find("ns/p").unwrap();
        assert_eq!(cached.status.as_ref().unwrap().plan[0].resource.manifest, "");
    }

    #[tokio::test]
    async fn plan_keeps_that_rights_changed_until_it_is_written() {
        for (code, is_kept) in [(500, true), (200, false)] {
            let plan = json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "InstallPlan",
                "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
                "spec": {"clusterServiceVersionNames": [], "approval": "Automatic", "approved": true},
                "status": {"phase": "Failed", "message": "forbidden", "catalogSources": [], "startTime": "2026-01-01T00:00:00Z",
                    "attenuatedServiceAccountRef": {"name": "a"}},
            });
            let stored = plan.clone();
            let apiserver = Apiserver::new(move |_, _| match code {
                200 => (200, stored.clone()),
                _ => failure(code, "InternalError"),
            });
            let (plans, _cache) = plans(&apiserver);
            plans.rights_changed.lock().insert("ns/p".to_owned());
            let plan: InstallPlan = serde_json::from_value(plan).unwrap();
            let ended = plans.reconcile("ns/p", &plan).await;
            assert_eq!(ended.is_err(), is_kept, "{ended:?}");
            assert_eq!(plans.rights_changed.lock().contains("ns/p"), is_kept, "{code}");
        }
    }
}
