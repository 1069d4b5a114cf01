//! The ClusterCatalog controller.
pub mod plan;
pub mod queue;
pub mod readiness;
pub mod status;
