//! The IO that operator-controller and kubectl-olm share: reading packages from catalogd, fetching bundles.
//!
//! It does not reconcile and writes no status. Decisions are made by the pure crates that it feeds.

pub mod bundle;
pub mod catalogd;

pub use bundle::{BundleError, BundleFetcher};
