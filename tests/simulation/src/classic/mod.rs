//! The scenario of OLM Classic: Subscriptions, InstallPlans and ClusterServiceVersions in two namespaces.

pub mod content;
pub mod harness;
pub mod invariants;
pub mod scenario;
pub mod schedule;
mod state;
