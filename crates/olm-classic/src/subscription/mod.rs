//! Subscriptions: states, conditions, and when a namespace gets a new install plan.
//!
//! One pass over a namespace is [`begin_pass`], then [`resolve`] with [`solver_namespace`], then [`conclude_pass`]; the statuses are those
//! of [`next_state`] and [`conditions`]. With unchanged inputs the second pass changes nothing.
//! Rules: classic-apis §3, §4; update-graph §2, §7.

mod conditions;
mod confirm;
mod deprecation;
mod generated;
mod health;
mod history;
mod pass;
mod resolve;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod unreadable;

pub use conditions::{
    CONDITION_TYPES, ConditionFacts, PlanFact, ResolutionFact, UnpackFact, conditions, resolution_failure,
};
pub use confirm::{is_confirmed, needs_confirmation};
pub use deprecation::{PackageDeprecations, deprecation_messages};
pub use generated::{generated_name, generated_subscription, subscribes};
pub use health::{CatalogFact, CatalogsHealth, catalog_health};
pub use history::{MAX_DELETIONS, MAX_PLANS, expired_plans, next_generation};
pub use pass::{
    Conclusion, NamespaceFacts, PASS_ROWS, Pass, PassError, PassRow, PassRule, begin_pass, conclude_pass,
    is_awaiting, new_bundles, new_status, planned_statuses,
};
pub use resolve::{solver_namespace, waiting};
pub use state::{
    STATE_ROWS, StateDecision, StateRow, StateRule, StatusValues, SubscriptionState, next_state,
};
pub use status::{PassOutcome, next_status, subscription_wait};
pub use unreadable::{Resolution, resolve};
