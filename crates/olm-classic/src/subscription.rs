//! Subscriptions: states, conditions, and when a namespace gets a new install plan.
