//! Reading catalogs, for the controllers and kubectl-olm: served by catalogd, in an image, in a directory, or by a registry of OLM
//! Classic over gRPC.
//!
//! It does not choose among bundles and installs nothing.

pub mod access;
mod catalog;
pub mod catalogd;
pub mod image;
pub mod image_store;
mod local;
pub mod package_store;
pub mod reader;
pub mod registry;
pub mod route;
mod selector;
pub mod served;

pub use access::{AccessError, ClusterAccess};
pub use catalog::{CatalogFacts, Unserved, available, select, selected};
pub use image::CatalogImageError;
pub use image_store::{CatalogImage, CatalogImages};
pub use kube::core::Selector;
pub use package_store::PackageStore;
pub use reader::{CatalogReader, Fetching, PackageContent, ReadError};
pub use route::Route;
pub use selector::parse_selector;
