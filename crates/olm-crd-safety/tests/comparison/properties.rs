//! Properties that hold for any two schemas. Rule: crd-upgrade-safety §11.

use olm_core::Object;
use olm_crd_safety::{ExistingObjects, Fit, Policy, Profile, compare};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn crd(spec: &Value) -> Object {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let value = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ws.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        "status": {"storedVersions": ["v1"]},
    });
    Object::from_value(value).unwrap_or_default()
}

/// Several versions, listed in an order that is not that of findings.
fn several(one: &Value, other: &Value) -> Object {
    let version = |name: &str, schema: &Value| json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}});
    let mut crd = crd(one);
    crd.0["spec"]["versions"] = json!([version("v2", one), version("v1alpha1", other), version("v1", one)]);
    crd.0["status"] = json!({"storedVersions": ["v2", "v1alpha1", "v1"]});
    crd
}

/// A branch of `allOf` or `anyOf`.
fn branch() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"required": ["a"]})),
        Just(json!({"properties": {"a": {"maxLength": 1}}})),
        Just(json!({"required": ["a"], "properties": {"a": {"enum": ["a"]}}})),
    ]
}

/// A schema as a CRD may have it.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"type": "string", "enum": ["a", "b"], "nullable": true})),
        Just(json!({"type": "string", "pattern": "^[a-z]*$", "maxLength": 5, "default": "a"})),
        Just(json!({"type": "integer", "minimum": 1, "maximum": 9, "exclusiveMaximum": true})),
        Just(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})),
        Just(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
        Just(json!({"type": "boolean", "description": "d", "x-kubernetes-validations": [{"rule": "self"}]})),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::btree_map("[a-f]", inner.clone(), 1..4).prop_map(|members| {
                let required: Vec<_> = members.keys().take(1).cloned().collect();
                json!({"type": "object", "properties": members, "required": required})
            }),
            (prop::collection::btree_map("[a-f]", inner.clone(), 1..4), branch(), prop::sample::select(vec!["allOf", "anyOf"]))
                .prop_map(|(members, branch, keyword)| json!({"type": "object", "properties": members, keyword: [branch]})),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items, "maxItems": 4})),
            inner.clone().prop_map(|values| json!({"type": "object", "additionalProperties": values})),
            (inner.clone(), inner).prop_map(|(a, b)| json!({"type": "object", "oneOf": [a, b]})),
        ]
    })
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zü(]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = prop_oneof![
            "[a-f]",
            prop::sample::select(vec![
                "type",
                "properties",
                "items",
                "enum",
                "default",
                "required",
                "pattern"
            ])
            .prop_map(str::to_owned),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::btree_map(name, inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The same value with the members of every object in the opposite order, where the representation keeps one.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            Value::Object(members.iter().rev().map(|(k, v)| (k.clone(), reversed(v))).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(reversed).collect()),
        other => other.clone(),
    }
}

const BOUNDS: [&str; 7] =
    ["maxLength", "pattern", "enum", "maximum", "minimum", "required", "x-kubernetes-validations"];

/// The schema without this bound, wherever it stands.
fn without(schema: &Value, bound: &str) -> Value {
    match schema {
        Value::Object(members) => Value::Object(
            members
                .iter()
                .filter(|(k, _)| *k != bound)
                .map(|(k, v)| (k.clone(), without(v, bound)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(|item| without(item, bound)).collect()),
        other => other.clone(),
    }
}

/// Object schemas below `schema` that have properties, as JSON pointers; not inside `oneOf`, where wider is not safer.
fn objects(schema: &Value, at: &str, found: &mut Vec<String>) {
    if schema.get("properties").is_some() {
        found.push(at.to_owned());
    }
    for (name, value) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        objects(value, &format!("{at}/properties/{name}"), found);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(value) = schema.get(keyword) {
            objects(value, &format!("{at}/{keyword}"), found);
        }
    }
}

/// The value as the apiserver stores it under `schema`: without fields that the schema does not know.
fn pruned(schema: &Value, value: &Value) -> Value {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return value.clone();
    }
    let of_field = |name: &str| schema["properties"].get(name).or(schema.get("additionalProperties"));
    match value {
        Value::Object(members) => Value::Object(
            members
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), pruned(of_field(name)?, value))))
                .collect(),
        ),
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| pruned(&schema["items"], item)).collect())
        }
        other => other.clone(),
    }
}

/// Whether an object can exist under the schema.
fn admits(schema: &Value, object: &Value) -> bool {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    match ExistingObjects::new(&crd(&anything), &crd(schema)) {
        Ok(Some(existing)) => !matches!(existing.check(object), Fit::Broken(_)),
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn compare_equal_schemas_has_no_findings(schema in schema()) {
        for profile in [Profile::Parity, Profile::Corrected] {
            prop_assert_eq!(compare(&crd(&schema), &crd(&reversed(&schema)), Policy { profile }), []);
        }
        prop_assert!(ExistingObjects::new(&crd(&schema), &crd(&reversed(&schema))).is_ok_and(|found| found.is_none()));
    }

    #[test]
    fn compare_allows_new_optional_fields_not_their_removal(schema in schema(), position in any::<prop::sample::Index>()) {
        let mut found = Vec::new();
        objects(&schema, "", &mut found);
        if found.is_empty() {
            return Ok(());
        }
        let mut wider = schema.clone();
        if let Some(node) = wider.pointer_mut(position.get(found.as_slice()).as_str()) {
            node["properties"]["zz"] = json!({"type": "string"});
        }
        prop_assert_eq!(compare(&crd(&schema), &crd(&wider), Policy::default()), []);
        for profile in [Profile::Parity, Profile::Corrected] {
            let removed = compare(&crd(&wider), &crd(&schema), Policy { profile });
            prop_assert!(removed.iter().any(|finding| finding.check == "existingFieldRemoval"), "{removed:?}");
        }
    }

    #[test]
    fn any_change_is_survived_and_sorted(old in any_json(), new in any_json(), object in any_json()) {
        for profile in [Profile::Parity, Profile::Corrected] {
            let found = compare(&crd(&old), &crd(&new), Policy { profile });
            prop_assert!(found.is_sorted());
            prop_assert_eq!(&found, &compare(&crd(&reversed(&old)), &crd(&reversed(&new)), Policy { profile }));
        }
        // versions that go, change and contradict each other
        for (before, after) in [(several(&old, &new), crd(&new)), (several(&old, &old), several(&new, &old))] {
            let found = compare(&before, &after, Policy::default());
            prop_assert!(found.is_sorted(), "{found:?}");
        }
        if let Ok(Some(existing)) = ExistingObjects::new(&crd(&old), &crd(&new)) {
            let object = json!({"apiVersion": "example.com/v1", "kind": "W", "spec": object});
            let fit = existing.check(&object);
            prop_assert!(!matches!(fit, Fit::Broken(problems) if problems.is_empty()));
        }
    }

    /// What the comparison of schemas allows breaks no object that can exist; this is what the corrected profile promises.
    #[test]
    fn compare_allows_only_what_breaks_no_object(
        (old, new) in (schema(), schema(), any::<bool>(), 0..BOUNDS.len()).prop_map(|(old, other, related, bound)| {
            let new = if related { without(&old, BOUNDS[bound]) } else { other };
            (old, new)
        }),
        object in any_json(),
    ) {
        if !compare(&crd(&old), &crd(&new), Policy::default()).is_empty() {
            return Ok(());
        }
        if let Ok(Some(existing)) = ExistingObjects::new(&crd(&old), &crd(&new)) {
            let object = json!({"apiVersion": "example.com/v1", "kind": "W", "spec": pruned(&old, &object)});
            let fit = existing.check(&object);
            prop_assert!(!matches!(fit, Fit::Broken(_)) || !admits(&old, &object), "{fit:?}");
        }
    }
}
