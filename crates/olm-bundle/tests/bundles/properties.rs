//! Whatever a bundle holds: no panic, no half answer, the same answer twice.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use olm_bundle::{CertProvider, RegistryV1, RenderOptions, inspect, lint, render_with_report};
use olm_yaml::{Documents, Limits};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A rich CSV, to be damaged.
fn csv() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/bundles/cases/webhooks/bundle/manifests/ferry.clusterserviceversion.yaml");
    let bytes = std::fs::read(path).expect("the committed case");
    let json =
        Documents::from_bytes(&bytes, Limits::default()).next().expect("a document").expect("which parses");
    serde_json::from_slice(&json).expect("JSON")
}

fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                places(member, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof![
            Just(String::new()),
            Just("ferry.controller".to_owned()),
            Just("AllNamespaces".to_owned()),
            Just("ConversionWebhook".to_owned()),
            Just("ü".repeat(40)),
            "[a-z.-]{0,70}",
            any::<String>(),
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::btree_map("[a-zA-Z]{0,10}", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn check(bundle: &RegistryV1, options: &RenderOptions) {
    let first = render_with_report(bundle, options);
    assert_eq!(first, render_with_report(bundle, options), "rendering is a function");
    let _ = (inspect(bundle), lint(bundle));
    match first {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(rendered) => {
            let mut keys = BTreeSet::new();
            for object in &rendered.objects {
                assert!(!object.kind().is_empty() && !object.api_version().is_empty(), "{}", object.key());
                assert!(keys.insert(object.key()), "{} is there twice", object.key());
                assert!(object.0.get("status").is_none() || object.kind() != "CustomResourceDefinition");
            }
        }
    }
}

static FERRY: LazyLock<Value> = LazyLock::new(csv);
static KILN: LazyLock<RegistryV1> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bundles/cases/overrides/bundle");
    RegistryV1::load_dir(&folder).expect("the committed case")
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn bundle_with_a_damaged_csv_does_not_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any_json()), 1..4),
        namespace in "[a-z]{0,63}",
        watch in prop::option::of("[a-z]{0,3}"),
    ) {
        let mut csv = FERRY.clone();
        for (place, value) in damage {
            let mut found = Vec::new();
            places(&csv, "", &mut found);
            let at = place.get(&found).clone();
            if let Some(target) = csv.pointer_mut(&at) {
                *target = value;
            }
        }
        let annotations = "annotations: {operators.operatorframework.io.bundle.package.v1: p}";
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                         "metadata": {"name": "boats.ferry.example.com"}, "spec": {}});
        let files = [
            ("metadata/annotations.yaml", annotations.to_owned()),
            ("manifests/csv.yaml", csv.to_string()),
            ("manifests/crd.yaml", crd.to_string()),
        ];
        if let Ok(bundle) = RegistryV1::from_files(files) {
            let mut options = RenderOptions::new(namespace);
            options.config = watch.map(|watch| json!({"watchNamespace": watch}));
            check(&bundle, &options);
            options.config = None;
            options.cert_provider = Some(CertProvider::CertManager);
            check(&bundle, &options);
        }
    }

    #[test]
    fn any_configuration(config in any_json(), env in any_json()) {
        for config in [config.clone(), json!({"deploymentConfig": config}), json!({"deploymentConfig": {"env": [env]}})] {
            check(&KILN, &RenderOptions { config: Some(config), ..RenderOptions::new("i") });
        }
    }

    #[test]
    fn any_files(files in prop::collection::vec((
        prop_oneof![
            Just("metadata/annotations.yaml".to_owned()),
            Just("metadata/properties.yaml".to_owned()),
            "manifests/[a-z/.]{0,8}",
            any::<String>(),
        ],
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            Just(b"kind: ClusterServiceVersion\nspec: {}\n".to_vec()),
            Just(b"annotations: {a: b}\n---\nkind: ConfigMapList\nitems: [{}, {items: []}]\n".to_vec()),
        ],
    ), 0..5)) {
        match RegistryV1::from_files(files) {
            Ok(bundle) => check(&bundle, &RenderOptions::new("i")),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
