//! The plans of a namespace: which number is next, which old ones are deleted.
//!
//! Rule: classic-apis §4 rows 2 and 10, §13.

use std::sync::Arc;

use olm_api::classic::{InstallPlan, Subscription};

use super::conditions::is_plan_unfinished;
use crate::install_plan::PlanPhase;

/// Plans that stay.
pub const MAX_PLANS: usize = 5;

/// Plans that one pass deletes.
pub const MAX_DELETIONS: usize = 5;

fn generation(plan: &InstallPlan) -> i64 {
    plan.spec.generation.unwrap_or(0)
}

/// Names of the plans to delete: the oldest, until five are left, at most five in one pass. A plan to which a Subscription refers stays
/// while that waits for its ClusterServiceVersion, and until it is complete and the conditions of the Subscription report so: one that
/// failed can be retried.
pub fn expired_plans<'a>(plans: &'a [Arc<InstallPlan>], subscriptions: &[Arc<Subscription>]) -> Vec<&'a str> {
    let is_needed = |plan: &InstallPlan| {
        let is_complete = PlanPhase::from_plan(plan) == Some(PlanPhase::Complete);
        subscriptions.iter().filter_map(|it| it.status.as_ref()).any(|status| {
            let of = status.install_plan_ref.as_ref().and_then(|reference| reference.name.as_ref());
            let is_awaited = status.state == "UpgradePending" || is_plan_unfinished(&status.conditions);
            of == plan.metadata.name.as_ref() && (is_awaited || !is_complete)
        })
    };
    let mut sorted: Vec<&InstallPlan> = plans.iter().map(|plan| &**plan).collect();
    sorted.sort_by_key(|plan| (generation(plan), plan.metadata.name.clone()));
    let surplus = sorted.len().saturating_sub(MAX_PLANS).min(MAX_DELETIONS);
    let oldest = sorted.into_iter().take(surplus).filter(|plan| !is_needed(plan));
    oldest.filter_map(|plan| plan.metadata.name.as_deref()).collect()
}

/// One more than any plan of the namespace has, or had as far as its Subscriptions know.
pub fn next_generation(plans: &[Arc<InstallPlan>], subscriptions: &[Arc<Subscription>]) -> i64 {
    let of_plans = plans.iter().map(|plan| generation(plan));
    let of_subscriptions = subscriptions.iter().filter_map(|it| it.status.as_ref()?.install_plan_generation);
    of_plans.chain(of_subscriptions).max().unwrap_or(0).max(0).saturating_add(1)
}
