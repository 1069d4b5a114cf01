//! The statuses of the Subscriptions of a namespace, derived from what a pass came to.
//!
//! Rule: classic-apis §3.2, §3.3.

use k8s_openapi::jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use olm_api::classic::{Subscription, SubscriptionStatus, Time};
use olm_classic::subscription::{
    ConditionFacts, NamespaceFacts, PlanFact, catalog_health, conditions, deprecation_messages, new_status,
};
use olm_runtime::watched::{self, Object};
use olm_runtime::write_status;

use super::Subscriptions;
use super::observed::Observed;
use super::pass::Attempt;
use crate::context::MANAGER;

/// How often a status that a plan changed is written, if others change the Subscription meanwhile.
const TRIES: u8 = 5;

impl Subscriptions {
    /// Writes the statuses that differ.
    pub(super) async fn write(
        &self,
        observed: &Observed,
        facts: &NamespaceFacts<'_>,
        attempt: Attempt,
    ) -> Result<(), String> {
        let api: Api<Subscription> = Api::namespaced(self.context.client.clone(), &observed.namespace);
        let now = Timestamp::now();
        let visible = facts.visible_catalogs();
        for (index, seen) in observed.subscriptions.iter().enumerate() {
            let values = attempt.values.get(&index);
            let mut live: Option<Subscription> = None;
            for left in (0..TRIES).rev() {
                let subscription = live.as_ref().unwrap_or(seen);
                let mut status = subscription.status.clone().unwrap_or_else(|| new_status(now));
                if let Some(values) = values {
                    values.clone().write_to(&mut status);
                }
                let health = catalog_health(subscription, &visible, now);
                let derived = ConditionFacts {
                    health: &health,
                    plan: plan(&status, observed, &attempt),
                    resolution: attempt.resolution.clone(),
                    unpack: attempt.unpack.clone(),
                    deprecations: self.deprecations(observed, subscription, &status),
                };
                status.conditions = conditions(&status.conditions, &derived, now);
                status.catalog_health = health.entries.clone();
                if subscription.status.as_ref() == Some(&status) {
                    break;
                }
                status.last_updated = Time(now);
                match write_status(&api, subscription, status, MANAGER).await {
                    Ok(Some(written)) => {
                        let key = watched::key(&written.metadata);
                        self.context.cluster.subscriptions.update(key, Object::new(written));
                    }
                    Ok(None) => {}
                    // no later pass knows what a plan was made for
                    Err(error) if error.is_conflict() && values.is_some() && left > 0 => {
                        live = api.get_opt(&subscription.name_any()).await.map_err(|it| it.to_string())?;
                        if live.is_some() {
                            continue;
                        }
                    }
                    // the change itself leads to another pass
                    Err(error) if error.is_conflict() || error.is_gone() => {}
                    Err(error) => return Err(error.to_string()),
                }
                break;
            }
        }
        Ok(())
    }

    /// `None`: the catalog was not read.
    fn deprecations(
        &self,
        observed: &Observed,
        subscription: &Subscription,
        status: &SubscriptionStatus,
    ) -> Option<Vec<(&'static str, String)>> {
        let spec = &subscription.spec;
        let source = observed.catalog(&spec.source_namespace, &spec.source)?;
        let snapshot = self.catalogs.cached(source)?;
        let updated = Subscription {
            metadata: subscription.metadata.clone(),
            spec: spec.clone(),
            status: Some(status.clone()),
        };
        Some(deprecation_messages(&updated, snapshot.deprecations(&spec.package)))
    }
}

/// The plan to which a status refers.
fn plan<'a>(status: &SubscriptionStatus, observed: &'a Observed, attempt: &'a Attempt) -> PlanFact<'a> {
    let Some(reference) = &status.install_plan_ref else { return PlanFact::None };
    let mut plans = attempt.plan.iter().chain(&observed.plans);
    match plans.find(|plan| plan.metadata.name == reference.name) {
        Some(plan) => PlanFact::Present(plan),
        None => PlanFact::Missing,
    }
}
