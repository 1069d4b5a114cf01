//! The entry of `managedFields` that the create of an object left, and its conversion into one of an apply.
//!
//! Rule: decisions 1 and 20.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use olm_core::Object;
use serde_json::{Map, Value};

use crate::fields::{self, Entry, Step, entries};
use crate::keys;

/// Must the entry that the create left be converted before an apply that drops fields, or they would have two owners: ours with both
/// operations (decision 20), or ours and those of the Helm release that the object came from, and what a later version drops would
/// stay (decision 1)?
pub(crate) fn needs_conversion(live: &Object) -> bool {
    entries(live).any(|entry| wrote_first(live, &entry))
}

/// Is it the entry of the create, ours or a Helm release's?
pub(crate) fn wrote_first(live: &Object, entry: &Entry<'_>) -> bool {
    let by_helm = || {
        entry.manager == keys::HELM_FIELD_MANAGER && live.annotations().contains_key(keys::HELM_RELEASE_NAME)
    };
    entry.operation == "Update"
        && entry.subresource.is_empty()
        && (entry.manager == keys::FIELD_MANAGER || by_helm())
}

/// The managed fields with the create's entry turned into one of an apply (merged with such a one, if there is any).
/// `None` when nothing is to be converted.
pub fn converted(live: &Object) -> Option<Vec<Value>> {
    if !needs_conversion(live) {
        return None;
    }
    let list = live.metadata()?.get("managedFields")?.as_array()?;
    let first = |entry: &Value| Entry::parse(entry).is_some_and(|entry| wrote_first(live, &entry));
    let applied = |entry: &Value| {
        Entry::parse(entry).is_some_and(|entry| {
            entry.manager == keys::FIELD_MANAGER && entry.subresource.is_empty() && entry.operation == "Apply"
        })
    };
    let mut kept: Vec<Value> = list.iter().filter(|entry| !first(entry)).cloned().collect();
    for created in list.iter().filter(|entry| first(entry)) {
        match kept.iter_mut().find(|entry| applied(entry)) {
            Some(applied) => {
                if let (Some(into), Some(from)) = (applied.get_mut("fieldsV1"), created.get("fieldsV1")) {
                    merge(into, from);
                }
            }
            None => {
                let mut entry = created.clone();
                if let Some(members) = entry.as_object_mut() {
                    members.insert("manager".into(), keys::FIELD_MANAGER.into());
                    members.insert("operation".into(), "Apply".into());
                }
                kept.push(entry);
            }
        }
    }
    Some(kept)
}

/// The managed fields without the entry of our create, if an apply of ours has an entry, too: that has all fields which are desired, and
/// others of the create were dropped before it or defaulted. `None` when there is nothing to take out.
pub(crate) fn without_created(live: &Object) -> Option<Vec<Value>> {
    let ours = |operation: &str| {
        entries(live).any(|entry| {
            entry.manager == keys::FIELD_MANAGER
                && entry.subresource.is_empty()
                && entry.operation == operation
        })
    };
    if !ours("Apply") || !ours("Update") {
        return None;
    }
    let list = live.metadata()?.get("managedFields")?.as_array()?;
    let is_created = |entry: &Value| {
        Entry::parse(entry)
            .is_some_and(|entry| entry.manager == keys::FIELD_MANAGER && wrote_first(live, &entry))
    };
    Some(list.iter().filter(|entry| !is_created(entry)).cloned().collect())
}

fn merge(into: &mut Value, from: &Value) {
    if let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) {
        for (key, value) in from {
            match into.get_mut(key) {
                Some(member) => merge(member, value),
                None => {
                    into.insert(key.clone(), value.clone());
                }
            }
        }
    }
}

/// Hash of the names of all fields of a manifest, those in lists included, and of its API version; values do not count. Within this
/// process only.
#[must_use]
pub fn field_names(manifest: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    manifest.0.get("apiVersion").and_then(Value::as_str).hash(&mut hasher);
    hash_members(&manifest.0, &mut hasher);
    hasher.finish()
}

fn hash_members(members: &Map<String, Value>, hasher: &mut DefaultHasher) {
    // no name ends a level
    for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
        name.hash(hasher);
        hash_value(value, hasher);
    }
    0xff_u8.hash(hasher);
}

fn hash_value(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(members) => hash_members(members, hasher),
        Value::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| hash_value(item, hasher));
        }
        _ => {}
    }
}

/// Does the desired object have all list items that the entry of our create names by key or value? Of a Helm release's nothing is
/// known.
#[must_use]
pub fn keeps_items(desired: &Object, live: &Object) -> bool {
    let has_all = |fields: &Map<String, Value>| {
        fields.iter().all(|(key, below)| match Step::parse(key) {
            // one that the manifest never had was defaulted
            Step::Member(name) => desired.0.get(name).is_none_or(|value| has_items(below, value)),
            Step::Here | Step::Item(_) | Step::Value(_) | Step::Other => false,
        })
    };
    let mut created = entries(live).filter(|entry| wrote_first(live, entry));
    created.all(|entry| entry.manager == keys::FIELD_MANAGER && has_all(entry.fields))
}

fn has_items(fields: &Value, desired: &Value) -> bool {
    fields.as_object().into_iter().flatten().all(|(key, below)| match Step::parse(key) {
        Step::Here => true,
        Step::Member(name) => desired.get(name).is_none_or(|value| has_items(below, value)),
        step @ (Step::Item(_) | Step::Value(_)) => {
            fields::below(&step, desired).is_some_and(|item| has_items(below, item))
        }
        Step::Other => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    #[test]
    fn conversion_takes_entries_of_a_helm_release() {
        let entry = |manager: &str, operation: &str| json!({"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {}}});
        let object = |marked: bool| {
            let annotations = if marked { json!({"meta.helm.sh/release-name": "e"}) } else { json!({}) };
            object(json!({"metadata": {"annotations": annotations, "managedFields": [
                entry("operator-controller", "Update"), entry("kubectl", "Update"),
            ]}}))
        };
        let want = [entry("kubectl", "Update"), entry("olm.operatorframework.io", "Apply")];
        assert_eq!(converted(&object(true)).unwrap(), want);
        assert!(!needs_conversion(&object(false)), "another program of that name");
    }

    #[test]
    fn conversion_merges_two_entries_of_ours() {
        let entry = |operation: &str, fields: Value| json!({"manager": "olm.operatorframework.io", "operation": operation, "fieldsV1": fields});
        let live = object(json!({"metadata": {"managedFields": [
            entry("Apply", json!({"f:a": {"f:b": {}}})),
            entry("Update", json!({"f:a": {"f:c": {}}, "f:d": {}})),
        ]}}));
        assert_eq!(
            converted(&live).unwrap(),
            [entry("Apply", json!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}}))]
        );
    }

    #[test]
    fn conversion_takes_out_what_an_apply_replaced() {
        let entry = |operation: &str, subresource: &str| {
            json!({"manager": "olm.operatorframework.io", "operation": operation,
            "subresource": subresource, "fieldsV1": {"f:spec": {}}})
        };
        let live = |entries: Value| object(json!({"metadata": {"managedFields": entries}}));
        let (created, applied, status) = (entry("Update", ""), entry("Apply", ""), entry("Update", "status"));
        let both = live(json!([created, status, applied]));
        assert_eq!(without_created(&both), Some(vec![status.clone(), applied.clone()]));
        assert_eq!(without_created(&live(json!([created]))), None);
        assert_eq!(without_created(&live(json!([applied, status]))), None);
    }

    #[test]
    fn field_names_ignore_values_and_nulls() {
        let names = |spec: Value| field_names(&object(json!({"apiVersion": "v1", "spec": spec})));
        let was = names(json!({"a": 1, "b": {"c": "x"}, "list": [{"name": "one", "image": "i:1"}]}));
        assert_eq!(
            was,
            names(json!({"a": 2, "b": {"c": "y"}, "list": [{"name": "one", "image": "i:2"}], "d": null}))
        );
        for other in [
            json!({"a": 1, "b": {}, "c": "x", "list": [{"name": "one", "image": "i:1"}]}),
            json!({"a": 1, "b": {"c": "x"}, "list": [{"name": "one"}]}),
            json!({"a": 1, "b": {"c": "x"}, "list": []}),
            json!({"a": 1, "b": {"c": "x", "list": [{"name": "one", "image": "i:1"}]}}),
        ] {
            assert_ne!(was, names(other.clone()), "{other}");
        }
        assert_ne!(
            field_names(&object(json!({"apiVersion": "v1"}))),
            field_names(&object(json!({"apiVersion": "v2"})))
        );
    }

    #[test]
    fn items_of_the_create_must_be_desired() {
        let live = object(json!({"metadata": {"managedFields": [
            {"manager": "olm.operatorframework.io", "operation": "Update", "fieldsV1": {
                "f:metadata": {"f:finalizers": {".": {}, r#"v:"a""#: {}}},
                "f:spec": {"f:replicas": {}, "f:ports": {".": {}, r#"k:{"port":80,"protocol":"TCP"}"#: {"f:port": {}}}}}}]}}));
        let desired = |finalizers: Value, ports: Value| {
            object(json!({"metadata": {"finalizers": finalizers}, "spec": {"ports": ports}}))
        };
        assert!(
            keeps_items(&desired(json!(["a", "b"]), json!([{"port": 80}])), &live),
            "a default of the protocol"
        );
        assert!(!keeps_items(&desired(json!(["b"]), json!([{"port": 80}])), &live));
        assert!(!keeps_items(&desired(json!(["a"]), json!([{"port": 81}])), &live));
        assert!(!keeps_items(&desired(json!(["a"]), json!([])), &live));
    }
}
