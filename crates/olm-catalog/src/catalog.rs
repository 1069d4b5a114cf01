//! The properties of a ClusterCatalog that resolution uses.

use std::collections::BTreeMap;

use kube::core::{Selector, SelectorExt as _};
use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::{ClusterCatalog, condition};
use olm_core::CatalogName;
use olm_resolver::CatalogReadError;

use crate::catalogd::Endpoint;

/// The properties of a ClusterCatalog that resolution uses. Two equal values resolve alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CatalogFacts {
    /// `metadata.name`.
    pub name: CatalogName,
    /// The labels, among them the name even before catalogd has put it there (decision 14).
    pub labels: BTreeMap<String, String>,
    /// `spec.priority`.
    pub priority: i32,
    /// `spec.availabilityMode` is not `Unavailable`.
    pub available: bool,
    /// The address of its content, or why it is not served.
    pub endpoint: Result<Endpoint, Unserved>,
}

/// The reason why a catalog is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unserved {
    /// `Serving` is not True.
    NotServing,
    /// No `status.resolvedSource`.
    NoSource,
    /// No `status.urls`.
    NoUrls,
}

impl Unserved {
    /// An error message.
    #[must_use]
    pub fn describe(self, catalog: &CatalogName) -> String {
        match self.problem(catalog) {
            CatalogReadError::Other(text) => text,
            _ => "is not served; look at its conditions".to_owned(),
        }
    }

    /// The error that the resolver reports.
    #[must_use]
    pub fn problem(self, catalog: &CatalogName) -> CatalogReadError {
        let field = match self {
            Self::NotServing => return CatalogReadError::NotServing,
            Self::NoSource => "resolvedSource",
            Self::NoUrls => "urls",
        };
        CatalogReadError::Other(format!("error: catalog \"{catalog}\" has a nil status.{field} value"))
    }
}

impl CatalogFacts {
    /// Reads a ClusterCatalog; `None` for one without a name.
    #[must_use]
    pub fn from_catalog(catalog: &ClusterCatalog) -> Option<Self> {
        let name: CatalogName = catalog.metadata.name.as_deref()?.parse().ok()?;
        let mut labels = catalog.metadata.labels.clone().unwrap_or_default();
        labels.entry(olm_api::labels::METADATA_NAME.to_owned()).or_insert_with(|| name.to_string());
        let status = catalog.status.as_ref();
        let serving = status.is_some_and(|status| condition::is_true(&status.conditions, condition::SERVING));
        let source = status.and_then(|status| status.resolved_source.as_ref());
        let urls = status.and_then(|status| status.urls.as_ref());
        let endpoint = match (serving, source, urls) {
            (false, _, _) => Err(Unserved::NotServing),
            (true, None, _) => Err(Unserved::NoSource),
            (true, Some(_), None) => Err(Unserved::NoUrls),
            (true, Some(source), Some(urls)) => Ok(Endpoint {
                catalog: name.clone(),
                base: urls.base.clone(),
                resolved: source.image.reference.clone(),
            }),
        };
        Some(Self {
            labels,
            priority: catalog.spec.priority,
            available: catalog.spec.availability_mode == AvailabilityMode::Available
                && catalog.metadata.deletion_timestamp.is_none(),
            endpoint,
            name,
        })
    }
}

/// The available catalogs that the selector matches, in name order.
#[must_use]
pub fn select<'a>(
    catalogs: impl IntoIterator<Item = &'a ClusterCatalog>,
    selector: &Selector,
) -> Vec<CatalogFacts> {
    selected(catalogs.into_iter().filter_map(CatalogFacts::from_catalog), selector)
}

/// The available catalogs, in name order.
#[must_use]
pub fn available<'a>(catalogs: impl IntoIterator<Item = &'a ClusterCatalog>) -> Vec<CatalogFacts> {
    select(catalogs, &Selector::default())
}

/// As [`select`], of facts.
#[must_use]
pub fn selected(catalogs: impl IntoIterator<Item = CatalogFacts>, selector: &Selector) -> Vec<CatalogFacts> {
    let matches = |facts: &CatalogFacts| facts.available && selector.matches(&facts.labels);
    let mut selected: Vec<CatalogFacts> = catalogs.into_iter().filter(matches).collect();
    selected.sort_by(|a, b| a.name.cmp(&b.name));
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalog_unserved_reason_is_reported() {
        let serving = serde_json::json!([{"type": "Serving", "status": "True", "reason": "Available", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let urls = serde_json::json!({"base": "https://catalogd.example/catalogs/c"});
        for (status, want) in [
            (serde_json::json!({}), "catalog \"c\" is not being served"),
            (
                serde_json::json!({"conditions": serving, "urls": urls}),
                "error: catalog \"c\" has a nil status.resolvedSource value",
            ),
            (
                serde_json::json!({"conditions": serving, "resolvedSource": {"type": "Image", "image": {"ref": "quay.io/c@sha256:1"}}}),
                "error: catalog \"c\" has a nil status.urls value",
            ),
        ] {
            let catalog: ClusterCatalog = serde_json::from_value(serde_json::json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "c"},
                "spec": {"source": {"type": "Image", "image": {"ref": "quay.io/c:v1"}}}, "status": status,
            }))
            .unwrap();
            let facts = CatalogFacts::from_catalog(&catalog).unwrap();
            let problem = facts.endpoint.unwrap_err().problem(&facts.name);
            assert_eq!(problem.describe(&facts.name, &"p".parse().unwrap()), want);
        }
    }
}
