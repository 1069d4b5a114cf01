//! Recorded scenarios, and the bundles that their catalogs hold.

use olm_core::Object;
use olm_resolver::{ChannelEntry, DeprecatedScope, Property};
use olm_solver::{BundleDraft, ChannelDraft, PackageDraft};
use serde_json::{Value, json};

use crate::lab::{Names, merge, records};

pub(crate) struct Scenario {
    pub(crate) id: String,
    pub(crate) input: Value,
    pub(crate) outcome: Value,
}

/// The recorded scenarios with their outcomes.
pub(crate) fn scenarios() -> Option<Vec<Scenario>> {
    let scenario = |mut record: Value| Scenario {
        id: record["id"].as_str().unwrap().to_owned(),
        input: record["input"].take(),
        outcome: record["outcome"].take(),
    };
    Some(records()?.into_iter().map(scenario).collect())
}

/// A bundle of a catalog.
#[derive(Clone)]
pub(crate) struct Bundle {
    pub(crate) name: String,
    /// The ClusterServiceVersion first.
    pub(crate) objects: Vec<Object>,
    pub(crate) properties: Vec<Property>,
    /// If the bundle is an image.
    pub(crate) image: Option<String>,
    pub(crate) is_missing: bool,
}

/// The content of a catalog.
#[derive(Clone, Default)]
pub(crate) struct Content {
    pub(crate) packages: Vec<PackageDraft>,
    pub(crate) bundles: Vec<Bundle>,
    pub(crate) deprecations: Vec<(String, DeprecatedScope, String)>,
}

fn entries(channel: &Value) -> Vec<Value> {
    let entry = |it: &Value| if it.is_object() { it.clone() } else { json!({"v": it}) };
    channel.as_array().unwrap().iter().map(entry).collect()
}

fn version_of(entry: &Value) -> String {
    entry["v"].as_str().unwrap().to_owned()
}

fn property(kind: &str, value: &Value) -> Property {
    Property { kind: kind.into(), value: value.to_string().into() }
}

pub(crate) fn content(names: &Names, catalog: &Value) -> Content {
    let mut content = Content::default();
    let catalog = names.substitute(catalog);
    let is_image = catalog["bundles"] == "image";
    for (key, package) in catalog["packages"].as_object().into_iter().flatten() {
        let name = names.package(key);
        let channels = package["channels"].as_object().unwrap();
        let mut draft = PackageDraft {
            name: name.clone(),
            default_channel: package["defaultChannel"]
                .as_str()
                .unwrap_or_else(|| channels.keys().next().unwrap())
                .to_owned(),
            ..PackageDraft::default()
        };
        let mut versions: Vec<String> = Vec::new();
        for (channel, list) in channels {
            let csv = |version: &Value| names.csv(version.as_str().unwrap(), key);
            let list = entries(list);
            versions.extend(list.iter().map(version_of));
            let entry = |entry: &Value| ChannelEntry {
                name: csv(&entry["v"]),
                replaces: entry.get("replaces").map(csv).unwrap_or_default(),
                skips: entry["skips"].as_array().into_iter().flatten().map(csv).collect(),
                skip_range: entry["skipRange"].as_str().unwrap_or_default().to_owned(),
            };
            draft
                .channels
                .push(ChannelDraft { name: channel.clone(), entries: list.iter().map(entry).collect() });
        }
        versions.sort();
        versions.dedup();
        for version in versions {
            let mut spec =
                if package["content"].is_object() { package["content"].clone() } else { json!({}) };
            merge(&mut spec, package["bundles"].get(&version).unwrap_or(&json!({})));
            let mut bundle = bundle(names, key, &version, &spec);
            if is_image {
                bundle.image = Some(format!("<registry>/bundles/{name}:v{version}"));
            }
            bundle.is_missing = spec["fault"] == "missing";
            draft.bundles.push(BundleDraft {
                name: bundle.name.clone(),
                version: version.clone(),
                properties: bundle.properties.clone(),
                ..BundleDraft::default()
            });
            content.bundles.push(bundle);
        }
        for entry in package["deprecations"].as_array().into_iter().flatten() {
            let of = entry["name"].as_str().unwrap_or_default();
            let scope = match entry["schema"].as_str().unwrap() {
                "olm.channel" => DeprecatedScope::Channel(of.into()),
                "olm.bundle" => DeprecatedScope::Bundle(names.csv(of, key).into()),
                _ => DeprecatedScope::Package,
            };
            content.deprecations.push((name.clone(), scope, entry["message"].as_str().unwrap().to_owned()));
        }
        content.packages.push(draft);
    }
    content
}

fn object(value: Value) -> Object {
    Object::from_value(value).unwrap()
}

fn crd(spec: &Value, group: &str) -> Value {
    let group = spec["group"].as_str().unwrap_or(group);
    let kind = spec["kind"].as_str().unwrap();
    let plural = format!("{}s", kind.to_lowercase());
    let fields = spec.get("fields").cloned().unwrap_or_else(|| json!({"size": {"type": "integer"}}));
    let versions = spec.get("versions").cloned().unwrap_or_else(|| json!([{"name": "v1"}]));
    let version = |it: &Value| {
        let fields = it.get("fields").unwrap_or(&fields);
        json!({
            "name": it["name"], "served": it.get("served").unwrap_or(&json!(true)),
            "storage": it.get("storage").unwrap_or(&json!(true)),
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": fields},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}},
        })
    };
    let versions: Vec<Value> = versions.as_array().unwrap().iter().map(version).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": versions,
        },
    })
}

/// As the lab makes its bundles.
pub(crate) fn bundle(names: &Names, key: &str, version: &str, spec: &Value) -> Bundle {
    let (package, group) = (names.package(key), names.group());
    let list = |member: &str, default: Value| spec.get(member).cloned().unwrap_or(default);
    let crds = list("crds", json!([{"kind": "Widget"}]));
    let mut crds: Vec<Value> = crds.as_array().unwrap().iter().map(|it| crd(it, &group)).collect();
    let account = format!("{package}-sa");
    let deployments = list("deployments", json!([{"name": format!("{package}-ctrl")}]));
    let deployment = |it: &Value| {
        let labels = json!({"app": it["name"]});
        json!({"name": it["name"], "spec": {
            "replicas": it.get("replicas").unwrap_or(&json!(1)), "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "serviceAccountName": it.get("sa").unwrap_or(&json!(account)), "containers": [],
            }},
        }})
    };
    let deployments: Vec<Value> = deployments.as_array().unwrap().iter().map(deployment).collect();
    let mut install = json!({"deployments": deployments});
    for (member, rule) in [
        ("clusterPermissions", json!({"apiGroups": [group], "resources": ["*"], "verbs": ["*"]})),
        (
            "permissions",
            json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create"]}),
        ),
    ] {
        let permissions = list(member, json!([{"serviceAccountName": account, "rules": [rule]}]));
        if permissions.as_array().is_some_and(|it| !it.is_empty()) {
            install[member] = permissions;
        }
    }
    let name = names.csv(version, key);
    let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
    let modes: Vec<Value> = modes.iter().map(|mode| json!({"type": mode, "supported": true})).collect();
    let owned = |crd: &Value| json!({"name": crd["metadata"]["name"], "kind": crd["spec"]["names"]["kind"], "version": crd["spec"]["versions"][0]["name"]});
    let mut csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": name, "annotations": list("csvAnnotations", json!({}))},
        "spec": {
            "displayName": package, "description": "lab bundle", "version": version, "provider": {"name": "lab"},
            "maturity": "alpha", "installModes": modes, "install": {"strategy": "deployment", "spec": install},
            "customresourcedefinitions": {"owned": crds.iter().map(owned).collect::<Vec<_>>()},
        },
    });
    merge(&mut csv, &list("csvPatch", json!({})));
    let mut properties = vec![property("olm.package", &json!({"packageName": package, "version": version}))];
    for crd in &crds {
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let gvk = json!({"group": crd["spec"]["group"], "kind": crd["spec"]["names"]["kind"], "version": version["name"]});
            properties.push(property("olm.gvk", &gvk));
        }
    }
    for dependency in spec["dependencies"].as_array().into_iter().flatten() {
        let value = &dependency["value"];
        properties.push(match dependency["type"].as_str().unwrap() {
            "olm.package" => property(
                "olm.package.required",
                &json!({"packageName": value["packageName"], "versionRange": value["version"]}),
            ),
            "olm.gvk" => property("olm.gvk.required", value),
            other => property(other, value),
        });
    }
    for extra in spec["fbcProperties"].as_array().into_iter().flatten() {
        properties.push(property(extra["type"].as_str().unwrap(), &extra["value"]));
    }
    crds.sort_by_key(|crd| crd["metadata"]["name"].to_string());
    let extra = spec["extra"].as_array().cloned().unwrap_or_default();
    let objects = [csv].into_iter().chain(crds).chain(extra).map(object).collect();
    Bundle { name, objects, properties, image: None, is_missing: false }
}
