//! operator-controller: installs what ClusterExtensions ask for and keeps it installed.
//!
//! Two controllers in one process meet only in ClusterObjectSets: [`extension`] decides which revision is wanted and
//! writes it, `objectset` rolls revisions out. [`catalogs`] reads what there is to choose from, [`bundles`] brings a
//! chosen bundle here and renders it, [`accounts`] knows as whom objects are written, [`certificates`] issues what
//! webhooks serve with where nobody else does.

pub mod accounts;
pub mod args;
pub mod bundles;
pub mod catalogs;
pub mod certificates;
pub mod crds;
pub mod credentials;
pub mod extension;
mod inventory;
pub mod kept;
mod kinds;
pub mod objectset;
pub mod revisions;
pub mod run;
#[cfg(test)]
mod testing;
pub mod watch;
pub mod workers;

/// Version of this program; part of what a revision is rendered from.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
