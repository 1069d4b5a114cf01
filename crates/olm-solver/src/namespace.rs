//! The input of a resolution: a namespace with its catalogs, Subscriptions and CSVs.

use std::sync::Arc;

use olm_resolver::{ChannelEntry, GvkRef, Property};

use crate::catalog::Catalog;

/// All that decides the resolution of a namespace.
#[derive(Debug, Clone, Default)]
pub struct Namespace {
    pub name: String,
    /// Catalogs of this namespace are available too; `None` if the OperatorGroup opts out of it.
    pub global_namespace: Option<String>,
    /// Whether the OperatorGroup allows upgrades past CSVs that failed.
    pub fail_forward: bool,
    /// Catalogs of other namespaces are left out.
    pub catalogs: Vec<CatalogSource>,
    pub subscriptions: Vec<Subscription>,
    pub installed: Vec<InstalledCsv>,
}

#[derive(Debug, Clone)]
pub struct CatalogSource {
    pub name: String,
    pub namespace: String,
    /// Higher is preferred.
    pub priority: i32,
    /// The content, or why there is none.
    pub content: Result<Arc<Catalog>, String>,
}

impl CatalogSource {
    /// Sorts the catalogs that a namespace sees: preferred ones first (update-graph §7.3).
    pub fn preference(&self, namespace: &str) -> (i64, bool, &str) {
        (-i64::from(self.priority), self.namespace != namespace, &self.name)
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Subscription {
    pub name: String,
    pub package: String,
    /// Empty: every channel.
    pub channel: String,
    /// Empty together with the namespace: every catalog.
    pub catalog: String,
    pub catalog_namespace: String,
    /// Counts while nothing is installed.
    pub starting_csv: String,
    pub installed_csv: String,
}

/// A CSV of the namespace. One that is being replaced counts as installed: it is the caller's decision to leave it out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InstalledCsv {
    pub name: String,
    pub version: String,
    pub replaces: String,
    pub phase: String,
    /// Copied from another namespace; such CSVs are left out.
    pub is_copied: bool,
    /// The annotation `operatorframework.io/properties`, if it is there.
    pub properties: Option<Vec<Property>>,
    pub provided_apis: Vec<GvkRef>,
    pub required_apis: Vec<GvkRef>,
}

/// A package to make a [`Catalog`] from.
#[derive(Debug, Clone, Default)]
pub struct PackageDraft {
    pub name: String,
    pub default_channel: String,
    pub channels: Vec<ChannelDraft>,
    pub bundles: Vec<BundleDraft>,
}

#[derive(Debug, Clone, Default)]
pub struct ChannelDraft {
    pub name: String,
    pub entries: Vec<ChannelEntry>,
}

#[derive(Debug, Clone, Default)]
pub struct BundleDraft {
    pub name: String,
    pub version: String,
    pub properties: Vec<Property>,
    /// Of `dependencies.yaml`.
    pub dependencies: Vec<Property>,
    /// Of the CSV; counts without `properties`.
    pub provided_apis: Vec<GvkRef>,
    /// Of the CSV; counts without `dependencies`.
    pub required_apis: Vec<GvkRef>,
}
