//! A catalog in a ConfigMap: packages, ClusterServiceVersions and CustomResourceDefinitions as three YAML lists.
//!
//! Rule: classic-apis §2.1 (`configmap`, `internal`).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use olm_api::classic::ClusterServiceVersion;
use olm_core::Object;
use olm_resolver::{ChannelEntry, Property};
use olm_solver::{BundleDraft, ChannelDraft, PackageDraft};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::snapshot::BundleContent;

/// The content of the ConfigMap.
#[derive(Debug, Default)]
pub(crate) struct ConfigMapCatalog {
    pub(super) packages: Vec<PackageDraft>,
    bundles: BTreeMap<String, BundleContent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Package {
    package_name: String,
    #[serde(default)]
    default_channel: String,
    #[serde(default)]
    channels: Vec<Channel>,
}

#[derive(Deserialize)]
struct Channel {
    name: String,
    #[serde(rename = "currentCSV")]
    current_csv: String,
}

impl ConfigMapCatalog {
    /// Reads the lists.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub(crate) fn read(config_map: &ConfigMap) -> Result<Self, String> {
        let packages: Vec<Package> = list(config_map, "packages")?;
        let csvs: Vec<Value> = list(config_map, "clusterServiceVersions")?;
        let crds: Vec<Value> = list(config_map, "customResourceDefinitions")?;
        let object = |value: Value| Object::from_value(value).map_err(|error| error.to_string());
        let crds = crds.into_iter().map(object).collect::<Result<Vec<_>, _>>()?;
        let mut by_name = BTreeMap::new();
        for value in csvs {
            let csv = object(value)?;
            let typed: ClusterServiceVersion = serde_json::from_value(csv.to_value())
                .map_err(|error| format!("ClusterServiceVersion {}: {error}", csv.name()))?;
            by_name.insert(csv.name().to_owned(), (csv, typed));
        }
        let mut catalog = Self::default();
        for package in packages {
            catalog.add(package, &by_name, &crds);
        }
        Ok(catalog)
    }

    pub(super) fn bundle(&self, name: &str) -> Option<BundleContent> {
        self.bundles.get(name).cloned()
    }

    fn add(
        &mut self,
        package: Package,
        csvs: &BTreeMap<String, (Object, ClusterServiceVersion)>,
        crds: &[Object],
    ) {
        let mut draft = PackageDraft { name: package.package_name, ..PackageDraft::default() };
        // the only channel is the default
        draft.default_channel = match (package.default_channel, package.channels.as_slice()) {
            (name, [only]) if name.is_empty() => only.name.clone(),
            (name, _) => name,
        };
        let mut added = BTreeSet::new();
        for channel in package.channels {
            let (mut entries, mut next, mut seen) = (Vec::new(), channel.current_csv, BTreeSet::new());
            // a circle of versions ends where it began
            while let Some((csv, typed)) = csvs.get(&next).filter(|_| seen.insert(next.clone())) {
                let annotations = typed.metadata.annotations.as_ref();
                entries.push(ChannelEntry {
                    name: next.clone(),
                    replaces: typed.spec.replaces.clone(),
                    skips: typed.spec.skips.clone(),
                    skip_range: annotations
                        .and_then(|it| it.get("olm.skipRange"))
                        .cloned()
                        .unwrap_or_default(),
                });
                if added.insert(next.clone()) {
                    let content = content(&draft.name, csv, typed, crds);
                    draft.bundles.push(BundleDraft {
                        name: next.clone(),
                        version: typed.spec.version.clone(),
                        properties: content.properties.clone(),
                        ..BundleDraft::default()
                    });
                    self.bundles.insert(next.clone(), content);
                }
                next.clone_from(&typed.spec.replaces);
            }
            draft.channels.push(ChannelDraft { name: channel.name, entries });
        }
        self.packages.push(draft);
    }
}

fn content(package: &str, csv: &Object, typed: &ClusterServiceVersion, crds: &[Object]) -> BundleContent {
    let property = |kind: &str, value: Value| Property { kind: kind.into(), value: value.to_string().into() };
    let mut properties =
        vec![property("olm.package", json!({"packageName": package, "version": typed.spec.version}))];
    let definitions = typed.spec.custom_resource_definitions.clone().unwrap_or_default();
    let api = |name: &str, version: &str, kind: &str| {
        let group = name.split_once('.').map_or("", |(_, group)| group);
        json!({"group": group, "kind": kind, "version": version})
    };
    for crd in &definitions.owned {
        properties.push(property("olm.gvk", api(&crd.name, &crd.version, &crd.kind)));
    }
    for crd in &definitions.required {
        properties.push(property("olm.gvk.required", api(&crd.name, &crd.version, &crd.kind)));
    }
    let is_owned = |crd: &&Object| definitions.owned.iter().any(|owned| owned.name == crd.name());
    let objects = std::iter::once(csv).chain(crds.iter().filter(is_owned)).cloned().collect();
    BundleContent { properties, image: String::new(), objects }
}

fn list<T: DeserializeOwned>(config_map: &ConfigMap, key: &str) -> Result<Vec<T>, String> {
    let text =
        config_map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str).unwrap_or_default();
    let mut items = Vec::new();
    for document in olm_yaml::Documents::from_bytes(text.as_bytes(), olm_yaml::Limits::default()) {
        let document = document.map_err(|error| format!("{key}: {error}"))?;
        let read: Option<Vec<T>> =
            serde_json::from_slice(&document).map_err(|error| format!("{key}: {error}"))?;
        items.extend(read.into_iter().flatten());
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map(packages: &str) -> ConfigMap {
        let csv = |version: &str, replaces: &str| {
            format!(
                "- {{apiVersion: operators.coreos.com/v1alpha1, kind: ClusterServiceVersion, metadata: {{name: p.v{version}}}, \
                 spec: {{displayName: p, version: {version}, replaces: {replaces:?}, install: {{strategy: deployment}}, \
                 customresourcedefinitions: {{owned: [{{name: as.g.test, version: v1, kind: A}}]}}}}}}\n"
            )
        };
        let data = [
            ("packages", packages.to_owned()),
            ("clusterServiceVersions", csv("1.0.0", "") + &csv("2.0.0", "p.v1.0.0")),
            (
                "customResourceDefinitions",
                "- metadata: {name: as.g.test}\n- metadata: {name: bs.g.test}\n".to_owned(),
            ),
        ];
        let data = data.map(|(key, text)| (key.to_owned(), text)).into();
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    #[test]
    fn config_map_catalog_follows_replaces() {
        let text = "- packageName: p\n  channels: [{name: stable, currentCSV: p.v2.0.0}]\n";
        let catalog = ConfigMapCatalog::read(&config_map(text)).unwrap();
        let [package] = catalog.packages.as_slice() else { panic!("{:?}", catalog.packages) };
        assert_eq!((package.name.as_str(), package.default_channel.as_str()), ("p", "stable"));
        let entries: Vec<&str> = package.channels[0].entries.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(entries, ["p.v2.0.0", "p.v1.0.0"]);
        let bundle = catalog.bundle("p.v2.0.0").unwrap();
        let names: Vec<&str> = bundle.objects.iter().map(Object::name).collect();
        assert_eq!(names, ["p.v2.0.0", "as.g.test"]);
        assert!(bundle.properties.iter().any(|it| &*it.kind == "olm.gvk"));
        assert!(catalog.bundle("q").is_none());
    }

    #[test]
    fn config_map_catalog_errors_name_the_key() {
        assert!(ConfigMapCatalog::read(&config_map("a: b")).unwrap_err().starts_with("packages: "));
        assert!(ConfigMapCatalog::read(&ConfigMap::default()).unwrap().packages.is_empty());
    }
}
