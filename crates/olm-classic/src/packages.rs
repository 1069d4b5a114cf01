//! PackageManifests: the packages of catalog sources as their users list them.
//!
//! A package is shown in the namespace of its catalog source, and in all namespaces when that is the global catalog namespace. Its object is
//! made from the content of the catalog alone; what is malformed there is left out and reported.
//!
//! Rule: classic-apis §1; recorded behaviour of the reference.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::classic::CatalogSource;
use olm_api::classic::package_manifest::{
    API_VERSION, ChannelEntry, CsvDescription, Deprecation, PackageChannel, PackageManifest,
    PackageManifestStatus,
};
use olm_core::Version;
use olm_fbc::property::{BUNDLE_OBJECT, CSV_METADATA};
use olm_fbc::{Bundle, Channel, PackageContents, schema};
use serde_json::{Map, Value, json};

/// Members of a CSV's specification that a PackageManifest shows, by their names there.
const CSV_MEMBERS: [(&str, &str); 15] = [
    ("displayName", "displayName"),
    ("version", "version"),
    ("provider", "provider"),
    ("keywords", "keywords"),
    ("links", "links"),
    ("maintainers", "maintainers"),
    ("maturity", "maturity"),
    ("description", "description"),
    ("installModes", "installModes"),
    ("customresourcedefinitions", "customresourcedefinitions"),
    ("crdDescriptions", "customresourcedefinitions"),
    ("apiservicedefinitions", "apiservicedefinitions"),
    ("apiServiceDefinitions", "apiservicedefinitions"),
    ("nativeAPIs", "nativeApis"),
    ("minKubeVersion", "minKubeVersion"),
];

/// Prefixes of labels of a CSV that its package has too, and the label of a CSV without any.
const PLATFORMS: [(&str, &str); 2] = [
    ("operatorframework.io/arch.", "operatorframework.io/arch.amd64"),
    ("operatorframework.io/os.", "operatorframework.io/os.linux"),
];

/// Something in a catalog that a PackageManifest leaves out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("catalogsource {source_namespace}/{source_name}: package {package:?}: {problem}")]
pub struct PackageError {
    pub source_namespace: String,
    pub source_name: String,
    pub package: String,
    /// The channel or bundle, and what is wrong with it.
    pub problem: String,
}

/// A package as its users see it.
#[derive(Debug, Clone, PartialEq)]
pub struct PackageView {
    pub manifest: PackageManifest,
    /// What the manifest leaves out, in the order of the catalog.
    pub errors: Vec<PackageError>,
}

/// Whether the packages of a catalog source in `source` are shown in the namespace `asked`.
#[must_use]
pub fn is_visible(source: &str, asked: &str, global: &str) -> bool {
    source == asked || source == global
}

/// What of a CSV is shown, and its labels.
struct Head {
    description: CsvDescription,
    labels: BTreeMap<String, String>,
}

/// The PackageManifest of a package for the namespace `asked`.
///
/// A channel without a head, or whose head has no readable description, is left out. Without any channel the manifest has none.
#[must_use]
pub fn manifest(source: &CatalogSource, contents: &PackageContents, asked: &str) -> PackageView {
    let package = contents.package.as_ref();
    let name = package.map(|package| package.name.clone()).unwrap_or_default();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (source_name, source_namespace) = (text(&source.metadata.name), text(&source.metadata.namespace));
    let bundles: BTreeMap<&str, &Bundle> =
        contents.bundles.iter().map(|bundle| (bundle.name.as_str(), bundle)).collect();
    let (mut channels, mut errors) = (BTreeMap::new(), Vec::new());
    for channel in &contents.channels {
        match read_channel(channel, &bundles, contents) {
            Ok(read) => {
                channels.insert(channel.name.clone(), read);
            }
            Err(problem) => errors.push(PackageError {
                source_namespace: source_namespace.clone(),
                source_name: source_name.clone(),
                package: name.clone(),
                problem: format!("channel {:?}: {problem}", channel.name),
            }),
        }
    }
    let named = package.map(|package| package.default_channel.clone()).filter(|it| !it.is_empty());
    let default_channel = named.or_else(|| channels.keys().next().cloned()).unwrap_or_default();
    let default = channels.get(&default_channel).or_else(|| channels.values().next());
    let head = default.map(|(_, head)| head);
    let provider = head.map(|head| head.description.provider.clone()).unwrap_or_default();
    let mut labels = source.metadata.labels.clone().unwrap_or_default();
    labels.extend(platform_labels(head.map(|head| &head.labels)));
    let own = [
        ("catalog", &source_name),
        ("catalog-namespace", &source_namespace),
        ("provider", &provider.name),
        ("provider-url", &provider.url),
    ];
    labels.extend(own.into_iter().map(|(key, value)| (key.to_owned(), value.clone())));
    let mut manifest = PackageManifest {
        api_version: API_VERSION.to_owned(),
        kind: "PackageManifest".to_owned(),
        status: PackageManifestStatus {
            catalog_source: source_name,
            catalog_source_display_name: source.spec.display_name.clone(),
            catalog_source_publisher: source.spec.publisher.clone(),
            catalog_source_namespace: source_namespace,
            provider,
            package_name: name.clone(),
            deprecation: deprecation(contents, schema::PACKAGE, None),
            default_channel,
            channels: channels.into_values().map(|(channel, _)| channel).collect(),
            ..PackageManifestStatus::default()
        },
        ..PackageManifest::default()
    };
    manifest.metadata.name = Some(name);
    manifest.metadata.namespace = Some(asked.to_owned());
    manifest.metadata.labels = Some(labels);
    PackageView { manifest, errors }
}

/// The icon of a package: media type and bytes; `None` when the catalog has none.
#[must_use]
pub fn icon(contents: &PackageContents) -> Option<(&str, &[u8])> {
    let icon = contents.package.as_ref()?.icon.as_ref()?;
    (!icon.data.0.is_empty()).then_some((icon.media_type.as_str(), icon.data.0.as_slice()))
}

fn platform_labels(labels: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (prefix, usual) in PLATFORMS {
        let stated = labels.into_iter().flatten().filter(|(key, _)| key.starts_with(prefix));
        let before = found.len();
        found.extend(stated.map(|(key, value)| (key.clone(), value.clone())));
        if found.len() == before {
            found.insert(usual.to_owned(), "supported".to_owned());
        }
    }
    found
}

/// The message about a package, channel or bundle, if it is deprecated. A package has no name of its own there.
fn deprecation(contents: &PackageContents, schema: &str, name: Option<&str>) -> Option<Deprecation> {
    let mut entries = contents.deprecations.iter().flat_map(|deprecations| &deprecations.entries);
    let entry = entries.find(|entry| {
        entry.reference.schema == schema && name.is_none_or(|name| entry.reference.name == name)
    })?;
    Some(Deprecation { message: entry.message.clone(), ..Deprecation::default() })
}

fn read_channel(
    channel: &Channel,
    bundles: &BTreeMap<&str, &Bundle>,
    contents: &PackageContents,
) -> Result<(PackageChannel, Head), String> {
    let version = |name: &str| {
        let text = bundles.get(name).and_then(|bundle| bundle.package_property().ok()).map(|it| it.version);
        let text = text.unwrap_or_default();
        (text.parse::<Version>().ok(), text)
    };
    let below: BTreeSet<&str> = channel
        .entries
        .iter()
        .flat_map(|entry| entry.skips.iter().chain(std::iter::once(&entry.replaces)))
        .map(String::as_str)
        .collect();
    let heads = channel.entries.iter().filter(|entry| !below.contains(entry.name.as_str()));
    let head = heads
        .max_by_key(|entry| version(&entry.name).0)
        .ok_or("no entry that no other one replaces or skips; remove a replaces or skips to make a head")?;
    let bundle =
        bundles.get(head.name.as_str()).ok_or_else(|| format!("bundle {:?} is missing", head.name))?;
    let described = describe(bundle).map_err(|problem| format!("bundle {:?}: {problem}", bundle.name))?;
    let mut entries: Vec<(Option<Version>, ChannelEntry)> = channel
        .entries
        .iter()
        .map(|entry| {
            let (parsed, version) = version(&entry.name);
            let deprecation = deprecation(contents, schema::BUNDLE, Some(&entry.name));
            let name = entry.name.clone();
            (parsed, ChannelEntry { name, version, deprecation, ..ChannelEntry::default() })
        })
        .collect();
    entries.sort_by(|(a, _), (b, _)| b.cmp(a));
    let channel = PackageChannel {
        name: channel.name.clone(),
        current_csv: head.name.clone(),
        current_csv_description: described.description.clone(),
        entries: entries.into_iter().map(|(_, entry)| entry).collect(),
        deprecation: deprecation(contents, schema::CHANNEL, Some(&channel.name)),
        ..PackageChannel::default()
    };
    Ok((channel, described))
}

/// What a bundle shows: as `olm.csv.metadata` has it, else the CSV among its inline manifests.
fn describe(bundle: &Bundle) -> Result<Head, String> {
    if let Some(value) = bundle.properties_of(CSV_METADATA).find_map(|property| property.value.as_ref()) {
        let value = value.to_value();
        let images: Vec<Value> = bundle.related_images.iter().map(|it| it.image.as_str().into()).collect();
        let version = bundle.package_property()?.version;
        return head(&value, &value["annotations"], &value["labels"], images, Some(version));
    }
    let csv = inline_csv(bundle)?.ok_or("neither olm.csv.metadata nor an inline CSV; add one of them")?;
    let (metadata, spec) = (&csv["metadata"], &csv["spec"]);
    head(spec, &metadata["annotations"], &metadata["labels"], images(spec), None)
}

fn head(
    spec: &Value,
    annotations: &Value,
    labels: &Value,
    images: Vec<Value>,
    version: Option<String>,
) -> Result<Head, String> {
    let mut shown = Map::new();
    for (from, to) in CSV_MEMBERS {
        if let Some(value) = spec.get(from).filter(|value| !value.is_null()) {
            shown.insert(to.to_owned(), value.clone());
        }
    }
    if let Some(version) = version {
        shown.insert("version".to_owned(), version.into());
    }
    if !annotations.is_null() {
        shown.insert("annotations".to_owned(), annotations.clone());
    }
    shown.insert("relatedImages".to_owned(), images.into());
    let description = serde_json::from_value(Value::Object(shown)).map_err(|error| error.to_string())?;
    let labels = if labels.is_null() { json!({}) } else { labels.clone() };
    let labels = serde_json::from_value(labels).map_err(|error| format!("labels: {error}"))?;
    Ok(Head { description, labels })
}

/// The images of a CSV: those of its containers and its related ones, sorted, each once.
fn images(spec: &Value) -> Vec<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let deployments = list(&spec["install"]["spec"]["deployments"]);
    let containers = deployments.iter().flat_map(|deployment| {
        let pod = &deployment["spec"]["template"]["spec"];
        [list(&pod["initContainers"]), list(&pod["containers"])].concat()
    });
    let all = containers.chain(list(&spec["relatedImages"]));
    let texts: BTreeSet<String> = all.filter_map(|it| it["image"].as_str().map(str::to_owned)).collect();
    texts.into_iter().map(Value::from).collect()
}

fn inline_csv(bundle: &Bundle) -> Result<Option<Value>, String> {
    for (index, property) in bundle.properties.iter().enumerate() {
        if property.kind != BUNDLE_OBJECT {
            continue;
        }
        let manifest = property.read::<olm_fbc::property::BundleObject>(index)?.data.0;
        if !manifest.windows(21).any(|part| part == b"ClusterServiceVersion") {
            continue;
        }
        let mut json = Vec::new();
        olm_yaml::yaml_to_json(&manifest, &mut json, &olm_yaml::Limits::default())
            .map_err(|error| error.message)?;
        let value: Value = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
        if value["kind"] == "ClusterServiceVersion" {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> CatalogSource {
        let object = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
            "metadata": { "name": "main", "namespace": "olm", "labels": { "visible": "yes" } },
            "spec": { "sourceType": "grpc", "displayName": "Main", "publisher": "Lab" },
        });
        serde_json::from_value(object).unwrap()
    }

    fn contents(lines: &[Value]) -> PackageContents {
        let jsonl: Vec<String> = lines.iter().map(Value::to_string).collect();
        PackageContents::from_jsonl("demo", jsonl.join("\n").as_bytes()).unwrap().0
    }

    fn bundle(version: &str, metadata: Option<Value>) -> Value {
        let mut properties =
            vec![json!({ "type": "olm.package", "value": { "packageName": "demo", "version": version } })];
        properties.extend(metadata.map(|value| json!({ "type": "olm.csv.metadata", "value": value })));
        json!({
            "schema": "olm.bundle", "package": "demo", "name": format!("demo.v{version}"), "image": "q.io/demo",
            "properties": properties, "relatedImages": [{ "name": "a", "image": "q.io/a" }],
        })
    }

    fn channel(name: &str, entries: Value) -> Value {
        json!({ "schema": "olm.channel", "package": "demo", "name": name, "entries": entries })
    }

    #[test]
    fn package_shows_heads_versions_and_deprecations() {
        let metadata = json!({
            "displayName": "Demo", "provider": {"name": "Lab", "url": "https://lab.invalid"},
            "labels": {"operatorframework.io/arch.arm64": "supported", "other": "x"}, "annotations": {"categories": "Testing"},
            "crdDescriptions": {"owned": [{"name": "as.x.io", "version": "v1", "kind": "A"}]},
            "nativeAPIs": [{"group": "g", "version": "v1", "kind": "N"}],
        });
        let deprecations = json!({ "schema": "olm.deprecations", "package": "demo", "entries": [
            { "reference": { "schema": "olm.package" }, "message": "p" },
            { "reference": { "schema": "olm.channel", "name": "beta" }, "message": "c" },
            { "reference": { "schema": "olm.bundle", "name": "demo.v1.9.0" }, "message": "b" },
        ] });
        let contents = contents(&[
            json!({ "schema": "olm.package", "name": "demo", "defaultChannel": "stable" }),
            channel(
                "stable",
                json!([{ "name": "demo.v1.9.0" }, { "name": "demo.v1.10.0", "replaces": "demo.v1.9.0" }]),
            ),
            channel("beta", json!([{ "name": "demo.v1.10.0" }])),
            bundle("1.9.0", None),
            bundle("1.10.0", Some(metadata)),
            deprecations,
        ]);
        let view = manifest(&source(), &contents, "user");
        assert_eq!(view.errors, vec![]);
        let manifest = serde_json::to_value(view.manifest).unwrap();
        assert_eq!(
            manifest["metadata"],
            json!({
                "name": "demo", "namespace": "user",
                "labels": {
                    "visible": "yes", "catalog": "main", "catalog-namespace": "olm", "provider": "Lab",
                    "provider-url": "https://lab.invalid", "operatorframework.io/arch.arm64": "supported",
                    "operatorframework.io/os.linux": "supported",
                },
            })
        );
        let status = &manifest["status"];
        assert_eq!(status["deprecation"], json!({ "message": "p" }));
        let names: Vec<&Value> =
            status["channels"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
        assert_eq!(names, ["beta", "stable"]);
        assert_eq!(status["channels"][0]["deprecation"], json!({ "message": "c" }));
        let stable = &status["channels"][1];
        assert_eq!(stable["currentCSV"], "demo.v1.10.0");
        assert_eq!(
            stable["entries"],
            json!([
                { "name": "demo.v1.10.0", "version": "1.10.0" },
                { "name": "demo.v1.9.0", "version": "1.9.0", "deprecation": { "message": "b" } },
            ])
        );
        let shown = &stable["currentCSVDesc"];
        assert_eq!(shown["version"], "1.10.0");
        assert_eq!(shown["relatedImages"], json!(["q.io/a"]));
        assert_eq!(shown["nativeApis"], json!([{ "group": "g", "version": "v1", "kind": "N" }]));
        assert_eq!(shown["customresourcedefinitions"]["owned"][0]["kind"], "A");
    }

    #[test]
    fn package_reports_channels_that_it_leaves_out() {
        let contents = contents(&[
            json!({ "schema": "olm.package", "name": "demo", "defaultChannel": "gone" }),
            channel(
                "loop",
                json!([{ "name": "demo.v1.0.0", "replaces": "demo.v2.0.0" }, { "name": "demo.v2.0.0", "replaces": "demo.v1.0.0" }]),
            ),
            channel("empty", json!([])),
            channel("missing", json!([{ "name": "demo.v3.0.0" }])),
            channel("bare", json!([{ "name": "demo.v4.0.0" }])),
            channel("wrong", json!([{ "name": "demo.v5.0.0" }])),
            bundle("4.0.0", None),
            bundle("5.0.0", Some(json!({ "displayName": 5 }))),
        ]);
        let view = manifest(&source(), &contents, "user");
        assert_eq!(view.manifest.status.channels, vec![]);
        assert_eq!(view.manifest.status.default_channel, "gone");
        let errors: Vec<String> = view.errors.iter().map(ToString::to_string).collect();
        let no_head =
            "no entry that no other one replaces or skips; remove a replaces or skips to make a head";
        let start = "catalogsource olm/main: package \"demo\": channel";
        assert_eq!(
            errors,
            [
                format!("{start} \"loop\": {no_head}"),
                format!("{start} \"empty\": {no_head}"),
                format!("{start} \"missing\": bundle \"demo.v3.0.0\" is missing"),
                format!(
                    "{start} \"bare\": bundle \"demo.v4.0.0\": neither olm.csv.metadata nor an inline CSV; add one of them"
                ),
                format!(
                    "{start} \"wrong\": bundle \"demo.v5.0.0\": invalid type: integer `5`, expected a string"
                ),
            ]
        );
        assert!(
            is_visible("olm", "user", "olm") && is_visible("a", "a", "olm") && !is_visible("a", "b", "olm")
        );
    }
}
