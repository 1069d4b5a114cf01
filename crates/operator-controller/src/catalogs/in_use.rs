//! The packages and catalogs that extensions use: the others need not be kept in memory. Pure.

use std::collections::HashSet;

use kube::ResourceExt as _;
use olm_api::{ClusterCatalog, ClusterExtension};
use olm_core::{CatalogName, PackageName};

/// The packages that extensions name, and the catalogs that there are.
#[derive(Debug, Default)]
pub struct InUse {
    packages: HashSet<String>,
    catalogs: HashSet<String>,
}

impl InUse {
    /// What these ask for and what these hold.
    pub fn new<'a>(
        extensions: impl IntoIterator<Item = &'a ClusterExtension>,
        catalogs: impl IntoIterator<Item = &'a ClusterCatalog>,
    ) -> Self {
        let named =
            |extension: &ClusterExtension| Some(extension.spec.source.catalog.as_ref()?.package_name.clone());
        Self {
            packages: extensions.into_iter().filter_map(named).collect(),
            catalogs: catalogs.into_iter().map(|catalog| catalog.name_any()).collect(),
        }
    }

    /// Whether this package of this catalog is asked for.
    #[must_use]
    pub fn has(&self, catalog: &CatalogName, package: &PackageName) -> bool {
        self.catalogs.contains(catalog.as_str()) && self.packages.contains(package.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn packages_in_use_need_an_extension_and_a_catalog() {
        let extension: ClusterExtension = serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "x"},
            "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "blue"}}},
        }))
        .unwrap();
        let catalog: ClusterCatalog = serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "sky"},
            "spec": {"source": {"type": "Image", "image": {"ref": "r/c:1"}}},
        }))
        .unwrap();
        let in_use = InUse::new([&extension], [&catalog]);
        for (catalog, package, want) in
            [("sky", "blue", true), ("sky", "green", false), ("sea", "blue", false), ("sea", "green", false)]
        {
            let (at, name) = (catalog.parse().unwrap(), package.parse().unwrap());
            assert_eq!(in_use.has(&at, &name), want, "{package} of {catalog}");
        }
    }
}
