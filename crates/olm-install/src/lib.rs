//! What a bundle comes to in this cluster: the request of a ClusterExtension, the bundle that it resolves to, the bundle's
//! content and dependencies, the safety of its CRDs, and its revision.
//!
//! Shared by operator-controller, which acts on it, and kubectl-olm, which shows it. It does not reconcile and writes no
//! status. Decisions are made by the pure crates that it feeds.

pub mod bundle;
pub mod dependencies;
pub mod desired;
pub mod issuer;
pub mod preflight;
pub mod resolution;

pub use bundle::{BundleError, BundleFetcher, PulledBundle, ReadBundle};
