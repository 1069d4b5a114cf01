//! The way from a ClusterExtension to its next revision: the request, the target bundle, its content and dependencies, the checks of
//! CRDs and of the ServiceAccount, and the [`plan`].
//!
//! Shared by operator-controller, which executes the plan, and kubectl-olm, which prints it. It does not reconcile, and writes
//! nothing to the cluster.

pub mod account;
pub mod bundle;
pub mod cluster;
pub mod content;
pub mod dependencies;
pub mod desired;
pub mod issuer;
pub mod pages;
pub mod plan;
pub mod preflight;
pub mod probes;
pub mod release;
pub mod render;
pub mod resolution;
mod work;

pub use bundle::{BundleError, BundleFetcher, PulledBundle, ReadBundle};
/// The namespace of OLM if no flag names another one.
pub use olm_runtime::namespace::DEFAULT as SYSTEM_NAMESPACE;
