//! What operator-controller and kubectl-olm share: reading packages, fetching bundles, asking the resolver.
//!
//! It does not reconcile and writes no status. Decisions are made by the pure crates that it feeds.

pub mod bundle;
pub mod catalogd;
pub mod image;
pub mod resolution;

pub use bundle::{BundleError, BundleFetcher};
