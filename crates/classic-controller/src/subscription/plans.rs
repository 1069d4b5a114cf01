//! The InstallPlans of a namespace: the plan of a pass is made, or used again; earlier ones are deleted.
//!
//! Rule: classic-apis §4 rows 2 and 10; decision 54.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Resource as _};
use olm_api::classic::{InstallPlan, InstallPlanStatus, Subscription};
use olm_classic::install_plan::{PlannedBundle, StepManifest, WAITING_EVENT, plan_wait};
use olm_classic::operator;
use olm_classic::subscription::{Conclusion, NamespaceFacts, StatusValues, expired_plans, planned_statuses};
use olm_runtime::apply::{self, ErrorClass};
use olm_runtime::events::NewEvent;
use olm_runtime::watched::{self, Object as Cached};
use olm_solver::Solution;

use super::Subscriptions;
use super::observed::Observed;
use crate::context::MANAGER;
use crate::unpacked;

/// Reason of the Normal event of an InstallPlan that was deleted for a newer one, and of the Subscriptions that referred to it.
const SUPERSEDED_EVENT: &str = "PlanSuperseded";

impl Subscriptions {
    /// Deletes plans of the history. One that cannot be deleted stops no pass; the next one tries again.
    pub(super) async fn delete_expired(&self, observed: &Observed) {
        let api: Api<InstallPlan> = Api::namespaced(self.context.client.clone(), &observed.namespace);
        for name in expired_plans(&observed.plans, &observed.subscriptions) {
            let plan = observed.plans.iter().find(|plan| plan.metadata.name.as_deref() == Some(name));
            let as_read = plan.map(|plan| Preconditions {
                uid: plan.metadata.uid.clone(),
                resource_version: plan.metadata.resource_version.clone(),
            });
            let params = DeleteParams { preconditions: as_read, ..DeleteParams::default() };
            match api.delete(name, &params).await {
                Ok(_) => {}
                // one that changed wakes the next pass
                Err(error)
                    if matches!(apply::classify(&error), ErrorClass::NotFound | ErrorClass::Conflict) => {}
                Err(error) => {
                    let (namespace, error) = (observed.namespace.as_str(), apply::message(&error));
                    tracing::warn!(
                        namespace,
                        plan = name,
                        error,
                        "cannot delete an InstallPlan of the history"
                    );
                }
            }
        }
    }

    /// Deletes plans whose steps have not begun, so that one for `versions` takes their place. `false`: one of them changed meanwhile; it may be approved.
    ///
    /// # Errors
    /// When one cannot be deleted.
    pub(super) async fn delete_superseded(
        &self,
        facts: &NamespaceFacts<'_>,
        names: &[String],
        versions: &str,
    ) -> Result<bool, String> {
        let note =
            format!("deleted before its steps began: a newer InstallPlan takes its place, for {versions}");
        let event = NewEvent { warning: false, reason: SUPERSEDED_EVENT, action: "Resolve", note: &note };
        let api: Api<InstallPlan> = Api::namespaced(self.context.client.clone(), facts.namespace);
        for plan in facts.plans {
            let Some(name) = plan.metadata.name.as_ref().filter(|name| names.contains(name)) else {
                continue;
            };
            let as_read = Preconditions {
                uid: plan.metadata.uid.clone(),
                resource_version: plan.metadata.resource_version.clone(),
            };
            match api.delete(name, &DeleteParams::background().preconditions(as_read)).await {
                Ok(_) => self.context.events.publish(&plan.object_ref(&()), event.clone()).await,
                Err(error) => match apply::classify(&error) {
                    ErrorClass::NotFound => {}
                    ErrorClass::Conflict => return Ok(false),
                    _ => {
                        let error = apply::message(&error);
                        return Err(format!(
                            "cannot delete InstallPlan {name}, which a newer one follows: {error}"
                        ));
                    }
                },
            }
            self.context.cluster.plans.remove(&watched::key(&plan.metadata));
        }
        Ok(true)
    }

    /// Creates the plan, or uses one that is there again.
    pub(super) async fn plan(
        &self,
        observed: &Observed,
        facts: &NamespaceFacts<'_>,
        solution: &Solution,
        bundles: &[PlannedBundle<'_>],
        conclusion: Conclusion,
    ) -> Result<(InstallPlan, BTreeMap<usize, StatusValues>), String> {
        let api: Api<InstallPlan> = Api::namespaced(self.context.client.clone(), &observed.namespace);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let failed = |error: kube::Error| apply::message(&error);
        let (plan, status) = match conclusion {
            Conclusion::Make { mut plan, .. } => {
                let status = plan.status.take();
                let planned = planned_statuses(facts, solution, &plan).into_iter();
                let packages = planned.map(|(index, _)| facts.subscriptions[index].spec.package.as_str());
                operator::announce(&mut plan, &observed.namespace, packages);
                self.write_manifests(observed, bundles, status.as_ref()).await?;
                (api.create(&params, &plan).await.map_err(failed)?, status)
            }
            Conclusion::UseAgain { name, status, .. } => {
                let found = facts.plans.iter().find(|plan| plan.metadata.name.as_ref() == Some(&name));
                let plan = found.ok_or_else(|| format!("InstallPlan {name} is gone"))?;
                (InstallPlan::clone(plan), status.map(|status| *status))
            }
            Conclusion::NothingNew => return Err("there is nothing to plan".to_owned()),
        };
        let plan = match status {
            Some(status) => {
                let name = plan.metadata.name.clone().unwrap_or_default();
                let mut with_status = InstallPlan { status: Some(status), ..plan };
                match api.replace_status(&name, &params, &with_status).await {
                    Err(error) if apply::classify(&error) == ErrorClass::Conflict => {
                        let found = api.get(&name).await.map_err(failed)?;
                        if found.metadata.uid != with_status.metadata.uid {
                            return Err(format!("InstallPlan {name} was deleted and created again"));
                        }
                        if found.status.is_some() {
                            // the answer to an earlier write was lost
                            found
                        } else {
                            with_status.metadata = found.metadata;
                            api.replace_status(&name, &params, &with_status).await.map_err(failed)?
                        }
                    }
                    written => written.map_err(failed)?,
                }
            }
            None => plan,
        };
        self.context.cluster.plans.insert(watched::key(&plan.metadata), Cached::new(plan.clone()));
        if let Some(note) = plan_wait(&plan) {
            let event = NewEvent { warning: false, reason: WAITING_EVENT, action: "Resolve", note: &note };
            self.context.events.publish(&plan.object_ref(&()), event).await;
        }
        let values = planned_statuses(facts, solution, &plan).into_iter().collect();
        Ok((plan, values))
    }

    /// Writes the ConfigMaps to which the steps of a plan refer.
    async fn write_manifests(
        &self,
        observed: &Observed,
        bundles: &[PlannedBundle<'_>],
        status: Option<&InstallPlanStatus>,
    ) -> Result<(), String> {
        let mut written = BTreeSet::new();
        for (index, step) in status.iter().flat_map(|status| &status.plan).enumerate() {
            let manifest = StepManifest::read(index, step).map_err(|error| error.to_string())?;
            let StepManifest::Reference(reference) = manifest else { continue };
            let bundle = bundles.iter().find(|bundle| bundle.chosen.name == step.resolving);
            let source =
                observed.catalog(&reference.catalog_source_namespace, &reference.catalog_source_name);
            if let (Some(bundle), Some(source)) = (bundle, source)
                && written.insert(reference.name.clone())
            {
                unpacked::write(&self.context.client, &reference, source, bundle.objects).await?;
            }
        }
        Ok(())
    }
}

/// One for each Subscription that waited for the approval of one of these plans, which were deleted.
pub(super) fn superseded_events(
    facts: &NamespaceFacts<'_>,
    values: &BTreeMap<usize, StatusValues>,
    superseded: &[String],
) -> Vec<(usize, &'static str, String)> {
    let of = |(index, subscription): (usize, &Arc<Subscription>)| {
        let status = subscription.status.as_ref().filter(|status| status.state == "UpgradePending")?;
        let plan =
            status.install_plan_ref.as_ref()?.name.as_ref().filter(|plan| superseded.contains(plan))?;
        let old = &status.current_csv;
        let note = match values.get(&index).map(|values| &values.current_csv) {
            Some(new) if new != old => format!("{new} takes the place of {old}, which waited for approval"),
            Some(_) | None => {
                format!(
                    "InstallPlan {plan} for {old} waited for approval, and was deleted: a newer one takes its place"
                )
            }
        };
        Some((index, SUPERSEDED_EVENT, note))
    };
    facts.subscriptions.iter().enumerate().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::json;

    use super::super::testing::subscriptions;
    use super::*;
    use crate::cluster::Cluster;
    use crate::testing::{Apiserver, failure, failure_with, put, success};

    /// The plan changes while its status is written, or is deleted and created again.
    #[tokio::test]
    async fn plan_that_was_created_again_gets_no_status() {
        let plan = |uid: &str, version: &str| {
            json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "InstallPlan",
                "metadata": {"namespace": "ns", "name": "p", "uid": uid, "resourceVersion": version},
                "spec": {"clusterServiceVersionNames": [], "approval": "Automatic", "approved": true, "generation": 1},
            })
        };
        for (live, writes) in [("u", 2), ("created again", 1)] {
            let (found, tried) = (plan(live, "2"), AtomicU32::new(0));
            let apiserver = Apiserver::new(move |method, _| match method {
                "PUT" if tried.fetch_add(1, Ordering::Relaxed) == 0 => failure(409, "Conflict"),
                _ => (200, found.clone()),
            });
            let cluster = Cluster::new();
            put(&cluster.plans, plan("u", "1"));
            let subscriptions = subscriptions(&apiserver, &cluster);
            let observed = Observed::read(&subscriptions.context, &subscriptions.catalogs, "ns");
            let catalogs = observed.catalog_facts();
            let facts = observed.facts("olm", &catalogs);
            let status = json!({"phase": "Installing", "catalogSources": []});
            let status = Some(Box::new(serde_json::from_value(status).unwrap()));
            let conclusion = Conclusion::UseAgain { name: "p".to_owned(), status, superseded: Vec::new() };
            let written = subscriptions.plan(&observed, &facts, &Solution::default(), &[], conclusion).await;
            assert_eq!(written.is_ok(), writes == 2, "{live}: {written:?}");
            let requests = apiserver.requests();
            let sent = requests.iter().filter(|line| line.starts_with("PUT ")).count();
            assert_eq!(sent, writes, "{live}: {requests:?}");
        }
    }

    #[tokio::test]
    async fn superseded_plan_that_cannot_be_deleted_is_reported() {
        let plan = |name: &str| -> InstallPlan {
            let spec = json!({"clusterServiceVersionNames": ["a.v1"], "approval": "Manual", "approved": false, "generation": 1});
            serde_json::from_value(
                json!({"metadata": {"namespace": "ns", "name": name, "uid": "u"}, "spec": spec}),
            )
            .unwrap()
        };
        let denied = "cannot delete InstallPlan old, which a newer one follows: denied";
        for ((code, answer), want) in [
            (success(), Ok(true)),
            (failure(404, "NotFound"), Ok(true)),
            (failure(409, "Conflict"), Ok(false)),
            (failure_with(403, "Forbidden", "denied"), Err(denied.to_owned())),
        ] {
            let apiserver = Apiserver::new(move |_, _| (code, answer.clone()));
            let cluster = Cluster::new();
            cluster.plans.insert("ns/old".to_owned(), Cached::new(plan("old")));
            let subscriptions = subscriptions(&apiserver, &cluster);
            let observed = Observed::read(&subscriptions.context, &subscriptions.catalogs, "ns");
            let catalogs = observed.catalog_facts();
            let facts = observed.facts("olm", &catalogs);
            let deleted = subscriptions.delete_superseded(&facts, &["old".to_owned()], "a.v1").await;
            assert_eq!(cluster.plans.find("ns/old").is_none(), want == Ok(true), "{code}");
            assert_eq!(deleted, want, "{code}");
        }
    }

    #[tokio::test]
    async fn plan_of_the_history_is_deleted_as_it_was_read() {
        for (answer, plans) in [
            (success(), 6),
            (failure(404, "NotFound"), 6),
            (failure(409, "Conflict"), 6),
            (failure(403, "Forbidden"), 7),
        ] {
            let apiserver = Apiserver::new(move |_, _| answer.clone());
            let cluster = Cluster::new();
            for number in 1..=plans {
                let plan = json!({
                    "metadata": {"namespace": "ns", "name": format!("p{number}"), "uid": format!("u{number}"), "resourceVersion": "7"},
                    "spec": {"clusterServiceVersionNames": [], "approval": "Automatic", "approved": true, "generation": number},
                    "status": {"phase": "Complete", "catalogSources": []},
                });
                put(&cluster.plans, plan);
            }
            let subscriptions = subscriptions(&apiserver, &cluster);
            let observed = Observed::read(&subscriptions.context, &subscriptions.catalogs, "ns");
            subscriptions.delete_expired(&observed).await;
            let requests = apiserver.requests();
            assert_eq!(requests.len(), plans - 5, "{requests:?}");
            assert!(requests.iter().all(|it| it.starts_with("DELETE ")), "{requests:?}");
            for part in ["/installplans/p1", r#""uid":"u1""#, r#""resourceVersion":"7""#] {
                assert!(requests[0].contains(part), "{part}: {requests:?}");
            }
        }
    }

    #[test]
    fn superseded_plan_is_an_event_of_each_subscription() {
        let subscription = |name: &str, state: &str, plan: &str| -> Arc<Subscription> {
            let spec = json!({"name": name, "source": "c", "sourceNamespace": "ns"});
            let status = json!({"state": state, "currentCSV": format!("{name}.v1"), "installPlanRef": {"name": plan},
                "lastUpdated": "2026-01-01T00:00:00Z"});
            let value =
                json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": status});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let subscriptions = [
            subscription("a", "UpgradePending", "p"),
            subscription("b", "UpgradePending", "p"),
            subscription("c", "UpgradePending", "other"),
            subscription("d", "AtLatestKnown", "p"),
        ];
        let facts = NamespaceFacts {
            namespace: "ns",
            global_namespace: None,
            groups: &[],
            subscriptions: &subscriptions,
            csvs: &[],
            plans: &[],
            catalogs: &[],
        };
        let values = StatusValues { current_csv: "a.v2".to_owned(), ..StatusValues::default() };
        let events = superseded_events(&facts, &BTreeMap::from([(0, values)]), &["p".to_owned()]);
        let notes: Vec<(usize, &str)> =
            events.iter().map(|(index, _, note)| (*index, note.as_str())).collect();
        let of_b = "InstallPlan p for b.v1 waited for approval, and was deleted: a newer one takes its place";
        assert_eq!(notes, [(0, "a.v2 takes the place of a.v1, which waited for approval"), (1, of_b)]);
    }
}
