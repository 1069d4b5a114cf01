//! What operator-controller and kubectl-olm share: reading packages, fetching bundles, asking the resolver, and what a
//! bundle comes to in this cluster: its dependencies, its CRDs, its revision.
//!
//! It does not reconcile and writes no status. Decisions are made by the pure crates that it feeds.

pub mod access;
pub mod bundle;
pub mod catalogd;
pub mod dependencies;
pub mod desired;
pub mod image;
pub mod image_store;
pub mod issuer;
mod local;
pub mod package_store;
pub mod preflight;
pub mod reader;
pub mod resolution;
pub mod route;
pub mod served;

pub use access::{AccessError, ClusterAccess};
pub use bundle::{BundleError, BundleFetcher, PulledBundle, ReadBundle};
pub use image_store::{CatalogImage, CatalogImages, ImageError};
pub use package_store::PackageStore;
pub use reader::{CatalogReader, Fetching, PackageContent, ReadError};
pub use route::Route;
