//! Catalog content for resolution: cached packages, read from catalogd.
//!
//! Memory follows the packages in use. A catalog that cannot be read now lends its last known content (decision 5).
//! It does not choose bundles. Rule: operator-controller §4.1.

pub mod cache;
pub mod client;
pub mod in_use;
pub mod source;

pub use cache::PackageCache;
pub use source::{Catalogd, PackageSource};
