//! The statuses of the Subscriptions of a namespace, derived from what a pass came to.
//!
//! Rule: classic-apis §3.2, §3.3.

use k8s_openapi::jiff::Timestamp;
use kube::Api;
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

impl Subscriptions {
    /// Writes the statuses that differ.
    pub(super) async fn write(
        &self,
        observed: &Observed,
        facts: &NamespaceFacts<'_>,
        mut attempt: Attempt,
    ) -> Result<(), String> {
        let api: Api<Subscription> = Api::namespaced(self.context.client.clone(), &observed.namespace);
        let now = Timestamp::now();
        let visible = facts.visible_catalogs();
        for (index, subscription) in observed.subscriptions.iter().enumerate() {
            let mut status = subscription.status.clone().unwrap_or_else(|| new_status(now));
            if let Some(values) = attempt.values.remove(&index) {
                values.write_to(&mut status);
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
                continue;
            }
            status.last_updated = Time(now);
            match write_status(&api, subscription, status, MANAGER).await {
                Ok(Some(written)) => {
                    let key = watched::key(&written.metadata);
                    self.context.cluster.subscriptions.update(key, Object::new(written));
                }
                Ok(None) => {}
                // the change itself leads to another pass
                Err(error) if error.is_conflict() || error.is_gone() => {}
                Err(error) => return Err(error.to_string()),
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
