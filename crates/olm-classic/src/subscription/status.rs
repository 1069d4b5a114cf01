//! The status of one Subscription after a pass over its namespace.
//!
//! Rule: classic-apis §3.2, §3.3.

use std::collections::BTreeMap;

use olm_api::classic::subscription::SubscriptionStatus;
use olm_api::classic::{InstallPlan, Subscription};
use olm_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use olm_api::k8s_openapi::jiff::Timestamp;
use olm_api::{ConditionStatus, classic};
use olm_solver::Catalog;

use super::conditions::{ConditionFacts, PlanFact, ResolutionFact, UnpackFact, conditions};
use super::deprecation::{PackageDeprecations, deprecation_messages};
use super::health::{TARGETED, catalog_health};
use super::pass::{NamespaceFacts, new_status};
use super::resolve::{held_upgrade, stuck_upgrade, unfinished_upgrade};
use super::state::{StatusValues, is_plan_of};
use crate::install_plan::failed_wait;

/// What a pass came to.
#[derive(Debug, Clone, Copy)]
pub struct PassOutcome<'a> {
    pub facts: &'a NamespaceFacts<'a>,
    pub resolution: &'a ResolutionFact,
    /// Why Subscriptions were left out of it, by name.
    pub left_out: &'a BTreeMap<String, String>,
    pub unpack: &'a UnpackFact,
    /// The plan that was made; the facts do not have it.
    pub made: Option<&'a InstallPlan>,
}

impl PassOutcome<'_> {
    /// `catalog` is the one that the Subscription names, if it can be read.
    fn resolution_of(&self, subscription: &Subscription, catalog: Option<&Catalog>) -> ResolutionFact {
        let name = subscription.metadata.name.as_deref().unwrap_or_default();
        if let Some(problem) = self.left_out.get(name) {
            return ResolutionFact::Failed { reason: "ErrorPreventedResolution", message: problem.clone() };
        }
        let held = match self.resolution {
            ResolutionFact::Failed { .. } => None,
            ResolutionFact::NotTried => stuck_upgrade(subscription, self.facts),
            ResolutionFact::Resolved => stuck_upgrade(subscription, self.facts).or_else(|| match catalog {
                Some(catalog) => held_upgrade(subscription, self.facts, catalog),
                // what its catalog has is not known: what was reported stays
                None => unfinished_upgrade(subscription, self.facts).map(|_| ResolutionFact::NotTried),
            }),
        };
        held.unwrap_or_else(|| self.resolution.clone())
    }
}

/// The status of a Subscription of the namespace, or `None` if it stays as it is. `values` are new ones, if the pass has some;
/// `deprecated` are the deprecations of its package, `None` if the catalog was not read.
pub fn next_status(
    subscription: &Subscription,
    values: Option<&StatusValues>,
    outcome: &PassOutcome<'_>,
    deprecated: Option<PackageDeprecations<'_>>,
    now: Timestamp,
) -> Option<SubscriptionStatus> {
    let mut status = subscription.status.clone().unwrap_or_else(|| new_status(now));
    if let Some(values) = values {
        values.clone().write_to(&mut status);
    }
    // also of those that the OperatorGroup leaves out of resolution, as in the reference
    let health = catalog_health(subscription, outcome.facts.catalogs, now);
    let updated = Subscription {
        metadata: subscription.metadata.clone(),
        spec: subscription.spec.clone(),
        status: Some(status.clone()),
    };
    let derived = ConditionFacts {
        health: &health,
        plan: referenced(&status, outcome),
        missing_csv: missing_csv(&status, outcome.facts),
        resolution: outcome.resolution_of(&updated, deprecated.map(|it| it.catalog)),
        unpack: outcome.unpack.clone(),
        deprecations: deprecated.map(|it| deprecation_messages(&updated, it)),
    };
    status.conditions = conditions(&status.conditions, &derived, now);
    status.catalog_health = health.entries;
    if subscription.status.as_ref() == Some(&status) {
        return None;
    }
    status.last_updated = Time(now);
    Some(status)
}

/// The plan to which a status refers.
fn referenced<'a>(status: &SubscriptionStatus, outcome: &PassOutcome<'a>) -> PlanFact<'a> {
    let Some(reference) = &status.install_plan_ref else { return PlanFact::None };
    let mut plans = outcome.made.into_iter().chain(outcome.facts.plans.iter().map(|plan| &**plan));
    plans.find(|plan| is_plan_of(reference, plan)).map_or(PlanFact::Missing, PlanFact::Present)
}

/// The ClusterServiceVersion that was installed, is the newest known, and does not exist.
pub(super) fn missing_csv<'a>(status: &'a SubscriptionStatus, facts: &NamespaceFacts<'_>) -> Option<&'a str> {
    let csv = status.installed_csv.as_str();
    let exists = facts.csvs.iter().any(|it| it.metadata.name.as_deref() == Some(csv));
    (!csv.is_empty() && status.current_csv == csv && !exists).then_some(csv)
}

/// What a Subscription waits for, and what to do; `None` if it does not wait.
///
/// It is the note of the event [`crate::install_plan::WAITING_EVENT`].
pub fn subscription_wait(status: &SubscriptionStatus) -> Option<String> {
    let is_true = |type_: &str| -> Option<&classic::subscription::SubscriptionCondition> {
        let mut conditions = status.conditions.iter();
        conditions.find(|it| it.type_ == type_ && it.status == ConditionStatus::True)
    };
    let reference = status.install_plan_ref.as_ref().and_then(|reference| reference.name.as_deref());
    let plan = reference.unwrap_or_default();
    let message = |type_: &str| is_true(type_).map(|condition| condition.message.clone());
    let approval = is_true("InstallPlanPending").filter(|it| it.reason == "RequiresApproval");
    let approval =
        approval.map(|_| format!("InstallPlan {plan} waits for approval; set spec.approved of it to true"));
    let failed = is_true("InstallPlanFailed")
        .map(|condition| format!("InstallPlan {plan} failed: {}", failed_wait(&condition.message)));
    approval
        .or(failed)
        .or_else(|| message("InstalledCSVMissing"))
        // a catalog that it does not name holds nothing up once it has a state
        .or_else(|| {
            let unhealthy = message("CatalogSourcesUnhealthy");
            unhealthy.filter(|text| status.state.is_empty() || text.starts_with(TARGETED))
        })
        .or_else(|| message("ResolutionFailed"))
        .or_else(|| message("BundleUnpackFailed"))
        .or_else(|| message("BundleUnpacking"))
}
