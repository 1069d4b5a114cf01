//! The approval of plans.

use std::sync::Arc;

use olm_api::classic::Subscription;

olm_core::words! {
    /// How a plan is approved (classic-apis §4 row 9).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Approval {
        Automatic = "Automatic",
        Manual = "Manual",
    }
}

impl Approval {
    /// The apiserver accepts any word. Unlike the reference, a word that is none of the two waits for a person: a typing error starts
    /// nothing.
    pub fn of_subscription(subscription: &Subscription) -> Self {
        match subscription.spec.install_plan_approval.as_str() {
            "" | "Automatic" => Self::Automatic,
            _ => Self::Manual,
        }
    }

    /// One Subscription that waits for approval makes all wait.
    pub(crate) fn of_namespace(subscriptions: &[Arc<Subscription>]) -> Self {
        if subscriptions.iter().any(|it| Self::of_subscription(it) == Self::Manual) {
            Self::Manual
        } else {
            Self::Automatic
        }
    }
}
