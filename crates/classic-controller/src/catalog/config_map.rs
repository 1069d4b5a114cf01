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

/// A ConfigMap has up to 1 MiB, but aliases, a CRD that many versions own, and channels with the same versions repeat parts of it.
const LIMITS: olm_yaml::Limits = olm_yaml::Limits {
    document_bytes: 8 << 20,
    stream_bytes: 8 << 20,
    documents: 1_000,
    alias_bytes: 1 << 20,
    key_bytes: 1 << 20,
    depth: 1_000,
    document_nodes: 200_000,
    stream_nodes: 200_000,
};

/// Bytes of the manifests of all bundles, and about as many of memory of the entries of all channels.
const MAX_BYTES: usize = 32 << 20;

/// The content of the ConfigMap.
#[derive(Debug, Default)]
pub(crate) struct ConfigMapCatalog {
    pub(super) packages: Vec<PackageDraft>,
    bundles: BTreeMap<String, BundleContent>,
    bytes: usize,
}

/// A manifest and its length.
type Manifest = (Object, usize);

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
        let sized = |value: Value| {
            let length = value.to_string().len();
            Ok::<_, String>((object(value)?, length))
        };
        let crds = crds.into_iter().map(sized).collect::<Result<Vec<_>, _>>()?;
        let mut by_name = BTreeMap::new();
        for value in csvs {
            let csv = sized(value)?;
            let typed: ClusterServiceVersion = serde_json::from_value(csv.0.to_value())
                .map_err(|error| format!("ClusterServiceVersion {}: {error}", csv.0.name()))?;
            by_name.insert(csv.0.name().to_owned(), (csv, typed));
        }
        let mut catalog = Self::default();
        for package in packages {
            catalog.add(package, &by_name, &crds)?;
        }
        Ok(catalog)
    }

    pub(super) fn bundle(&self, name: &str) -> Option<BundleContent> {
        self.bundles.get(name).cloned()
    }

    fn add(
        &mut self,
        package: Package,
        csvs: &BTreeMap<String, (Manifest, ClusterServiceVersion)>,
        crds: &[Manifest],
    ) -> Result<(), String> {
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
                let entry = ChannelEntry {
                    name: next.clone(),
                    replaces: typed.spec.replaces.clone(),
                    skips: typed.spec.skips.clone(),
                    skip_range: annotations
                        .and_then(|it| it.get("olm.skipRange"))
                        .cloned()
                        .unwrap_or_default(),
                };
                self.take(olm_solver::entry_memory(&entry))?;
                entries.push(entry);
                if added.insert(next.clone()) {
                    let definitions = typed.spec.custom_resource_definitions.as_ref();
                    let owned: BTreeSet<&str> =
                        definitions.iter().flat_map(|it| &it.owned).map(|it| it.name.as_str()).collect();
                    let owned: Vec<&Manifest> =
                        crds.iter().filter(|(crd, _)| owned.contains(crd.name())).collect();
                    self.take(csv.1 + owned.iter().map(|(_, length)| length).sum::<usize>())?;
                    let objects =
                        std::iter::once(csv).chain(owned).map(|(object, _)| object.clone()).collect();
                    let content = content(&draft.name, typed, objects);
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
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes;
        if self.bytes > MAX_BYTES {
            return Err(format!("its bundles and entries have more than the limit of {MAX_BYTES} bytes"));
        }
        Ok(())
    }
}

fn content(package: &str, typed: &ClusterServiceVersion, objects: Vec<Object>) -> BundleContent {
    let property = |kind: &str, value: Value| Property { kind: kind.into(), value: value.to_string().into() };
    let mut properties =
        vec![property("olm.package", json!({"packageName": package, "version": typed.spec.version}))];
    let definitions = typed.spec.custom_resource_definitions.clone().unwrap_or_default();
    let services = typed.spec.api_service_definitions.clone().unwrap_or_default();
    let api =
        |group: &str, version: &str, kind: &str| json!({"group": group, "kind": kind, "version": version});
    for (type_, crds, services) in [
        ("olm.gvk", definitions.owned, services.owned),
        ("olm.gvk.required", definitions.required, services.required),
    ] {
        for crd in crds {
            let group = crd.name.split_once('.').map_or("", |(_, group)| group);
            properties.push(property(type_, api(group, &crd.version, &crd.kind)));
        }
        for service in services {
            properties.push(property(type_, api(&service.group, &service.version, &service.kind)));
        }
    }
    BundleContent { properties, image: String::new(), objects }
}

fn list<T: DeserializeOwned>(config_map: &ConfigMap, key: &str) -> Result<Vec<T>, String> {
    let text =
        config_map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str).unwrap_or_default();
    let mut items = Vec::new();
    for document in olm_yaml::Documents::from_bytes(text.as_bytes(), LIMITS).with_exact_integers() {
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
                 customresourcedefinitions: {{owned: [{{name: as.g.test, version: v1, kind: A}}]}}, apiservicedefinitions: {{\
                 owned: [{{name: bs, group: s.test, version: v1, kind: B, deploymentName: d}}], \
                 required: [{{name: cs, group: s.test, version: v2, kind: C}}]}}}}}}\n"
            )
        };
        let data = [
            ("packages", packages.to_owned()),
            ("clusterServiceVersions", csv("1.0.0", "") + &csv("2.0.0", "p.v1.0.0")),
            (
                "customResourceDefinitions",
                "- metadata: {name: as.g.test}\n  spec: {default: 9223372036854775807}\n- metadata: {name: bs.g.test}\n".to_owned(),
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
        assert_eq!(bundle.objects[1].0["spec"], json!({"default": i64::MAX}));
        let apis = bundle.properties[1..].iter().map(|it| format!("{} {}", &*it.kind, &*it.value));
        assert_eq!(
            apis.collect::<Vec<_>>(),
            [
                r#"olm.gvk {"group":"g.test","kind":"A","version":"v1"}"#,
                r#"olm.gvk {"group":"s.test","kind":"B","version":"v1"}"#,
                r#"olm.gvk.required {"group":"s.test","kind":"C","version":"v2"}"#,
            ]
        );
        assert!(catalog.bundle("q").is_none());
    }

    #[test]
    fn config_map_catalog_is_limited_in_memory() {
        let crd = format!("- metadata: {{name: as.g.test, annotations: {{a: {}}}}}\n", "x".repeat(900_000));
        let csv = |at: usize| {
            format!(
                "- {{metadata: {{name: v{at}}}, spec: {{displayName: p, version: 1.0.0, replaces: v{}, install: {{strategy: deployment}}, \
                 customresourcedefinitions: {{owned: [{{name: as.g.test, version: v1, kind: A}}]}}}}}}\n",
                at + 1
            )
        };
        for (csvs, is_read) in [(30, true), (40, false)] {
            let data = [
                ("packages", "- packageName: p\n  channels: [{name: stable, currentCSV: v0}]\n".to_owned()),
                ("clusterServiceVersions", (0..csvs).map(csv).collect()),
                ("customResourceDefinitions", crd.clone()),
            ];
            let data = data.map(|(key, text)| (key.to_owned(), text)).into();
            let read = ConfigMapCatalog::read(&ConfigMap { data: Some(data), ..ConfigMap::default() });
            let limit = "its bundles and entries have more than the limit of 33554432 bytes";
            assert_eq!(read.err().as_deref(), (!is_read).then_some(limit), "{csvs}");
        }
        let lists = (0..9).fold("a0: &a0 [1]".to_owned(), |text, at| {
            format!("{text}\na{}: &a{} [{}]", at + 1, at + 1, vec![format!("*a{at}"); 8].join(", "))
        });
        let nested = config_map(&format!("- {}", lists.replace('\n', "\n  ")));
        assert!(ConfigMapCatalog::read(&nested).unwrap_err().starts_with("packages: "));
        let many = config_map(&format!("- packageName: p\n  more: [{}0]\n", "0, ".repeat(200_000)));
        let error = ConfigMapCatalog::read(&many).unwrap_err();
        assert!(error.contains("more than the limit of 200000 nodes"), "{error}");
    }

    #[test]
    fn config_map_catalog_errors_name_the_key() {
        assert!(ConfigMapCatalog::read(&config_map("a: b")).unwrap_err().starts_with("packages: "));
        assert!(ConfigMapCatalog::read(&ConfigMap::default()).unwrap().packages.is_empty());
    }
}
