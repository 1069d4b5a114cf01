//! What the selected catalogs hold of a package: read from catalogd once per image digest, shared by all extensions.
//!
//! Memory follows the packages in use. A catalog that cannot be read now lends its last known content (decision 5).
//! It does not choose bundles. Rule: operator-controller §4.1.

pub mod cache;
pub mod client;
pub mod in_use;

pub use cache::PackageCache;
