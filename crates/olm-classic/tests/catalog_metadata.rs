//! Published metadata of CSVs, and generated CSVs in the shapes of published ones, through the typed kinds: nothing is lost.
//!
//! Rule: classic-apis §6.1; shapes: real-world.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic, and prints what it skips"
)]

use std::path::{Path, PathBuf};

use olm_api::classic::ClusterServiceVersion;
use olm_api::classic::package_manifest::CsvDescription;
use olm_fbc::property::CSV_METADATA;
use olm_fbc::{Bundle, IngestLimits, load_dir_leniently, schema};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Without what Go leaves out: empty text, lists and maps, null.
fn without_empty(value: &Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    match value {
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| (key.clone(), without_empty(value)));
            members.filter(|(_, value)| !is_empty(value)).collect()
        }
        Value::Array(items) => items.iter().map(without_empty).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// The value after a typed read and write.
fn through<T: DeserializeOwned + Serialize>(value: &Value) -> Value {
    let typed: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"));
    serde_json::to_value(typed).unwrap()
}

/// The members of `olm.csv.metadata` under the names that a kind has for them.
fn renamed(metadata: &Value, native_apis: &str) -> Map<String, Value> {
    let names = |key: &str| match key {
        "crdDescriptions" => "customresourcedefinitions".to_owned(),
        "apiServiceDefinitions" => "apiservicedefinitions".to_owned(),
        "nativeAPIs" => native_apis.to_owned(),
        other => other.to_owned(),
    };
    metadata.as_object().unwrap().iter().map(|(key, value)| (names(key), value.clone())).collect()
}

/// The folder of published catalogs; without it there is none, and that is printed.
#[expect(clippy::disallowed_methods, reason = "the one setting of tests")]
fn published() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let data = std::env::var_os("OLM_SHARED").map_or_else(beside, PathBuf::from).join("data");
    if !data.is_dir() {
        println!("SKIPPED: published metadata of CSVs: no sample data (set OLM_SHARED)");
        return None;
    }
    Some(data)
}

#[test]
fn metadata_of_published_csvs_loses_nothing() {
    let Some(data) = published() else { return };
    let mut count = 0;
    for folder in ["catalog", "bundles-catalog"] {
        let (catalog, _) = load_dir_leniently(&data.join(folder), IngestLimits::default()).unwrap();
        let query = olm_fbc::Query { schema: schema::BUNDLE, package: "", name: "" };
        for meta in catalog.find(&query) {
            let bundle = Bundle::from_json(&meta.blob).unwrap();
            for property in bundle.properties_of(CSV_METADATA) {
                let metadata = property.value.as_ref().unwrap().to_value();
                let shown = Value::Object(renamed(&metadata, "nativeApis"));
                assert_eq!(
                    without_empty(&through::<CsvDescription>(&shown)),
                    without_empty(&shown),
                    "{}",
                    bundle.name
                );
                let mut spec = renamed(&metadata, "nativeAPIs");
                spec.insert("install".to_owned(), json!({ "strategy": "deployment" }));
                spec.entry("displayName").or_insert_with(|| "".into());
                let csv = json!({
                    "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
                    "metadata": { "name": bundle.name }, "spec": spec,
                });
                let written = through::<ClusterServiceVersion>(&csv);
                assert_eq!(without_empty(&written), without_empty(&csv), "{}", bundle.name);
                count += 1;
            }
        }
    }
    println!("{count} values of olm.csv.metadata");
    assert!(count >= 120, "{count} values of olm.csv.metadata");
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,8}", "\\PC{1,12}", Just("multi\n\tline: \"text\"\n".to_owned())]
}

/// Install modes in all mixtures, a misspelt and a repeated one.
fn modes() -> impl Strategy<Value = Value> {
    let mode = prop::sample::select(vec![
        "OwnNamespace",
        "SingleNamespace",
        "MultiNamespace",
        "AllNamespaces",
        "OwnNamespacejl",
    ]);
    prop::collection::vec((mode, any::<bool>()), 0..6).prop_map(|all| {
        all.into_iter().map(|(mode, supported)| json!({ "type": mode, "supported": supported })).collect()
    })
}

/// Up to 53 owned kinds, with descriptors and references.
fn kinds() -> impl Strategy<Value = Value> {
    let kind = (word(), word(), any::<bool>()).prop_map(|(name, text, is_described)| {
        let mut kind = json!({ "name": format!("{name}.x.io"), "version": "v1", "kind": "K" });
        if is_described {
            kind["displayName"] = text.clone().into();
            kind["resources"] =
                json!([{ "kind": "Pod", "version": "v1" }, { "name": name, "kind": "S", "version": "v1" }]);
            kind["specDescriptors"] =
                json!([{ "path": "a.b", "x-descriptors": ["urn:x"], "value": { "any": [1, text] } }]);
        }
        kind
    });
    prop::collection::vec(kind, 0..54).prop_map(Value::from)
}

/// Up to 86 webhooks, with ports as numbers and names.
fn webhooks() -> impl Strategy<Value = Value> {
    let port = prop_oneof![Just(Value::Null), (1..65536).prop_map(Value::from), Just(Value::from("https"))];
    let kind = prop::sample::select(vec![
        "ValidatingAdmissionWebhook",
        "MutatingAdmissionWebhook",
        "ConversionWebhook",
    ]);
    let webhook = (word(), kind, port).prop_map(|(name, kind, port)| {
        json!({
            "generateName": name, "type": kind, "deploymentName": "d", "containerPort": 443, "targetPort": port,
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "conversionCRDs": ["as.x.io"],
            "rules": [{ "apiGroups": ["x.io"], "operations": ["*"], "scope": "*" }], "timeoutSeconds": 10,
            "objectSelector": { "matchExpressions": [{ "key": "a", "operator": "Exists" }] },
        })
    });
    prop::collection::vec(webhook, 0..87).prop_map(Value::from)
}

/// Up to hundreds of rules, with resources or with URLs.
fn permissions() -> impl Strategy<Value = Value> {
    let rule = (word(), any::<bool>()).prop_map(|(text, is_url)| {
        if is_url {
            json!({ "nonResourceURLs": ["/metrics"], "verbs": ["get"] })
        } else {
            json!({ "apiGroups": ["", text], "resources": ["*"], "resourceNames": ["a"], "verbs": ["*"] })
        }
    });
    (word(), prop::collection::vec(rule, 0..40))
        .prop_map(|(account, rules)| json!([{ "serviceAccountName": account, "rules": rules }]))
}

fn any_csv() -> impl Strategy<Value = Value> {
    let version = prop::sample::select(vec![
        "0.0.3-v1.2.3.final",
        "42.33.0-beta.1",
        "1.11.20+xdb5ed32",
        "0.2.3+0.1655383639.p",
        "1.0.0",
    ]);
    let lowest = prop::sample::select(vec!["", "v1.17.0", "1.19.0-0", "1.20.0"]);
    let skips = prop::collection::vec(word(), 0..200);
    let annotations = prop::collection::btree_map(word(), word(), 0..6);
    let unknown = prop::option::of(word());
    let parts = (version, lowest, skips, annotations, unknown);
    let install = (permissions(), permissions(), 0..3_usize);
    (word(), modes(), kinds(), webhooks(), parts, install).prop_map(
        |(name, modes, kinds, webhooks, (version, lowest, skips, annotations, unknown), (own, cluster, count))| {
            let deployments: Vec<Value> = (0..count)
                .map(|index| json!({ "name": format!("d{index}"), "label": { "a": "b" }, "spec": { "replicas": index, "new": { "deep": [name] } } }))
                .collect();
            let mut csv = json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
                "metadata": { "name": "demo", "annotations": annotations, "labels": { "operatorframework.io/arch.arm64": "supported" } },
                "spec": {
                    "displayName": name, "version": version, "minKubeVersion": lowest, "skips": skips, "installModes": modes,
                    "customresourcedefinitions": { "owned": kinds }, "webhookdefinitions": webhooks,
                    "nativeAPIs": [{ "group": "g", "version": "v1", "kind": "K" }],
                    "relatedImages": [{ "name": "", "image": "q.io/a@sha256:00" }], "provider": { "name": name },
                    "icon": [{ "base64data": "AAAA", "mediatype": "image/png" }],
                    "install": { "strategy": "deployment", "spec": { "deployments": deployments, "permissions": own, "clusterPermissions": cluster } },
                },
            });
            if let Some(text) = unknown {
                csv["spec"]["support"] = text.clone().into();
                csv["spec"]["install"]["spec"]["new"] = json!({ "kept": text });
            }
            csv
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn generated_csvs_lose_nothing(csv in any_csv()) {
        let written = through::<ClusterServiceVersion>(&csv);
        prop_assert_eq!(without_empty(&written), without_empty(&csv));
        prop_assert_eq!(through::<ClusterServiceVersion>(&written), written);
    }
}
