//! Whether the live object already has our fields as we apply them. Decided from `managedFields`, without a request.
//!
//! It errs towards "changed" only, for values that the apiserver stores in another form (`cpu: "0.1"` as `100m`): an
//! apply then changes nothing. Fields that we do not declare are never compared. Rule: feasibility §2, revisions §7.5.

use olm_core::{Object, go};
use serde_json::{Map, Number, Value};

use crate::fields::{self, Entry, Step, entries, item, owns};
use crate::keys;

/// How the live object differs from the desired one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Drift {
    /// Not at all.
    None,
    /// Fields of ours have other values or are missing; no other manager owns them.
    Changed,
    /// Another manager owns fields that we want, or our own bookkeeping is gone.
    Taken,
}

/// Members of a desired object that name the object instead of describing it.
pub(crate) fn is_identity(path: &[&str]) -> bool {
    matches!(
        path,
        ["apiVersion" | "kind" | "status"]
            | [
                "metadata",
                "name"
                    | "namespace"
                    | "creationTimestamp"
                    | "selfLink"
                    | "uid"
                    | "clusterName"
                    | "generation"
                    | "managedFields"
                    | "resourceVersion"
            ]
    )
}

/// Our entry in the object's managed fields: that of an apply, else that of the create.
pub(crate) fn our_entry(live: &Object) -> Option<Entry<'_>> {
    let ours = |operation: &'static str| {
        entries(live).find(|entry| {
            entry.manager == keys::FIELD_MANAGER
                && entry.subresource.is_empty()
                && entry.operation == operation
        })
    };
    ours("Apply").or_else(|| ours("Update"))
}

/// What of the live object is ours: our field sets and the values they name, in a fixed order. Whatever others do to
/// fields of theirs leaves it as it is, and so does the conversion of the create's entry ([`converted`](crate::converted)), which a
/// predecessor would otherwise take for another manager's change. `None` when we have no field set.
pub fn owned(live: &Object) -> Option<Vec<String>> {
    let mut owned = vec![];
    let ours = |entry: &Entry<'_>| entry.manager == keys::FIELD_MANAGER && entry.subresource.is_empty();
    for entry in entries(live).filter(ours) {
        if entry.fields.is_empty() {
            owned.push(go::json_object(&live.0));
        }
        // at the top there are members only
        for (key, below) in entry.fields {
            let found = match Step::parse(key) {
                Step::Member(name) => live.0.get(name),
                Step::Here | Step::Item(_) | Step::Value(_) | Step::Other => None,
            };
            collect_below(key, below, found, &mut owned);
        }
    }
    (!owned.is_empty()).then_some(owned)
}

fn collect(fields: &Map<String, Value>, live: Option<&Value>, out: &mut Vec<String>) {
    if fields.is_empty() {
        out.push(live.map_or_else(String::new, go::json_string));
        return;
    }
    for (key, below) in fields {
        let found = live.and_then(|live| fields::below(&Step::parse(key), live));
        collect_below(key, below, found, out);
    }
}

fn collect_below(key: &str, below: &Value, found: Option<&Value>, out: &mut Vec<String>) {
    out.push(key.to_owned());
    if let (Some(below), false) = (below.as_object(), key == ".") {
        collect(below, found, out);
    }
}

/// Compares the desired object (as it would be applied) with the live object.
pub(crate) fn drift(desired: &Object, live: &Object) -> Drift {
    let Some(ours) = our_entry(live) else { return Drift::Taken };
    let mut walk = Walk { strict: ours.operation == "Apply", changed: false, missing: vec![], path: vec![] };
    walk.object(Some(ours.fields), &desired.0, &live.0, &mut vec![]);
    if !walk.changed && walk.missing.is_empty() {
        return Drift::None;
    }
    let is_other =
        |entry: &Entry<'_>| !std::ptr::eq(entry.fields, ours.fields) && entry.subresource != "status";
    let taken = walk
        .missing
        .iter()
        .any(|path| entries(live).any(|entry| is_other(&entry) && owns(entry.fields, path)));
    if taken { Drift::Taken } else { Drift::Changed }
}

/// Field paths of the desired object (keys as in `fieldsV1`) that our entry does not own; all, when we have no entry.
pub(crate) fn unowned(desired: &Object, live: &Object) -> Vec<Vec<String>> {
    let ours = our_entry(live);
    let mut walk = Walk { strict: false, changed: false, missing: vec![], path: vec![] };
    walk.object(ours.map(|entry| entry.fields), &desired.0, &live.0, &mut vec![]);
    walk.missing
}

struct Walk {
    /// Fields that we own but no longer want count as a change. Not after a create, which owns defaulted fields too.
    strict: bool,
    changed: bool,
    missing: Vec<Vec<String>>,
    path: Vec<String>,
}

impl Walk {
    fn object<'a>(
        &mut self,
        fields: Option<&Map<String, Value>>,
        desired: &'a Map<String, Value>,
        live: &Map<String, Value>,
        names: &mut Vec<&'a str>,
    ) {
        for (name, value) in desired {
            names.push(name);
            let identity = names.len() <= 2 && is_identity(names);
            if !identity && !value.is_null() {
                let key = format!("f:{name}");
                let owned = fields.and_then(|fields| fields.get(&key)).and_then(Value::as_object);
                self.step(key, owned, value, live.get(name), names);
            }
            names.pop();
        }
        if self.strict {
            let unwanted = fields.into_iter().flat_map(Map::keys).any(|key| match Step::parse(key) {
                Step::Member(name) => desired.get(name).is_none_or(Value::is_null),
                Step::Here => false,
                Step::Item(_) | Step::Value(_) | Step::Other => true,
            });
            self.changed |= unwanted;
        }
    }

    fn step<'a>(
        &mut self,
        key: String,
        owned: Option<&Map<String, Value>>,
        value: &'a Value,
        live: Option<&Value>,
        names: &mut Vec<&'a str>,
    ) {
        self.path.push(key);
        match (owned, value, live) {
            (None, Value::Object(desired), Some(Value::Object(live))) if !desired.is_empty() => {
                self.object(None, desired, live, names);
            }
            (None, ..) => self.missing.push(self.path.clone()),
            (Some(fields), _, live) if fields.is_empty() => {
                self.changed |= !live.is_some_and(|live| same(value, live));
            }
            (Some(fields), Value::Object(desired), Some(Value::Object(live))) => {
                self.object(Some(fields), desired, live, names);
            }
            (Some(fields), Value::Array(desired), Some(Value::Array(live))) => {
                self.list(fields, desired, live)
            }
            (Some(_), ..) => self.changed = true,
        }
        self.path.pop();
    }

    fn list(&mut self, fields: &Map<String, Value>, desired: &[Value], live: &[Value]) {
        let mut matched = 0;
        for (key, owned) in fields {
            match Step::parse(key) {
                Step::Here => {}
                Step::Item(keys) => match (item(desired, &keys), item(live, &keys)) {
                    (Some(value), Some(live)) => {
                        matched += 1;
                        let owned = owned.as_object();
                        self.step(key.clone(), owned, value, Some(live), &mut vec!["", "", ""]);
                    }
                    (Some(_), None) => {
                        matched += 1;
                        self.changed = true;
                    }
                    (None, _) => self.changed |= self.strict,
                },
                Step::Value(value) => {
                    if desired.contains(&value) {
                        matched += 1;
                        self.changed |= !live.contains(&value);
                    } else {
                        self.changed |= self.strict;
                    }
                }
                Step::Member(_) | Step::Other => self.changed = true,
            }
        }
        if matched < desired.len() {
            self.missing.push(self.path.clone());
        }
    }
}

/// Equal values; nulls of the desired object are absent, numbers compare by value. The live value may have members that it lacks:
/// defaults of the apiserver within what is owned as a whole (`scope` of a webhook's rule, `apiVersion` of a `fieldRef`). When
/// another manager adds one, the whole is no longer ours; and we drop a member only with the next revision, which is applied.
fn same(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => desired
            .iter()
            .all(|(key, value)| value.is_null() || live.get(key).is_some_and(|live| same(value, live))),
        (Value::Array(desired), Value::Array(live)) => {
            desired.len() == live.len() && desired.iter().zip(live).all(|(desired, live)| same(desired, live))
        }
        (Value::Number(desired), Value::Number(live)) => same_number(desired, live),
        _ => desired == live,
    }
}

/// Equal numbers; a field of the type `float64` (`maximum` of a CRD) keeps only some digits of an integer.
fn same_number(desired: &Number, live: &Number) -> bool {
    match (desired.as_i64(), live.as_i64()) {
        (Some(desired), Some(live)) => desired == live || go::json_number(desired as f64) == live.to_string(),
        _ => desired.as_f64() == live.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversion::{converted, needs_conversion};
    use serde_json::json;

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    /// A live Deployment as the apiserver stores it after our apply of [`desired`], with defaults.
    fn live() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "d", "namespace": "n", "uid": "u", "resourceVersion": "5", "generation": 1,
                "labels": {"app": "x"},
                "managedFields": [
                    {"manager": "olm.operatorframework.io", "operation": "Apply", "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:app": {}}},
                        "f:spec": {
                            "f:selector": {},
                            "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"m\"}": {
                                ".": {}, "f:name": {}, "f:image": {},
                                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                                "f:args": {},
                            }}}},
                        },
                    }},
                    {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "fieldsV1": {
                        "f:status": {"f:replicas": {}},
                    }},
                ],
            },
            "spec": {
                "replicas": 1, "progressDeadlineSeconds": 600, "selector": {"matchLabels": {"app": "x"}},
                "template": {"spec": {"restartPolicy": "Always", "containers": [
                    {"name": "m", "image": "i", "imagePullPolicy": "Always", "args": ["a"],
                     "ports": [{"containerPort": 80, "protocol": "TCP"}]},
                ]}},
            },
            "status": {"replicas": 1},
        })
    }

    fn desired() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "n", "labels": {"app": "x"}},
            "spec": {
                "selector": {"matchLabels": {"app": "x"}},
                "template": {"spec": {"containers": [
                    {"name": "m", "image": "i", "args": ["a"], "ports": [{"containerPort": 80}]},
                ]}},
            },
        })
    }

    fn with_member(mut value: Value, pointer: &str, member: Value) -> Value {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = value.pointer_mut(parent).unwrap();
        match parent {
            Value::Object(members) if member.is_null() => drop(members.remove(name)),
            Value::Object(members) => drop(members.insert(name.replace('~', "/"), member)),
            Value::Array(items) => items[name.parse::<usize>().unwrap()] = member,
            _ => panic!("no parent"),
        }
        value
    }

    const CONTAINER: &str = "/spec/template/spec/containers/0";

    #[test]
    #[rustfmt::skip]
    fn drift_ignores_fields_of_others() {
        for (case, live) in [
            ("as applied", live()),
            ("status", with_member(live(), "/status/replicas", json!(7))),
            ("foreign label", with_member(live(), "/metadata/labels/mine", json!("a"))),
            ("foreign annotation", with_member(live(), "/metadata/annotations", json!({"mine": "a"}))),
            ("scaled", with_member(live(), "/spec/replicas", json!(5))),
            ("restarted", with_member(live(), "/spec/template/metadata", json!({"annotations": {"restartedAt": "now"}}))),
            (
                "foreign container",
                with_member(
                    live(),
                    "/spec/template/spec/containers",
                    json!([
                        {"name": "side", "image": "j"},
                        live().pointer(CONTAINER).unwrap(),
                    ]),
                ),
            ),
        ] {
            assert_eq!(drift(&object(desired()), &object(live)), Drift::None, "{case}");
        }
    }

    #[test]
    fn drift_ignores_defaults_within_an_atomic_value() {
        let rule = json!({"apiGroups": ["g"], "operations": ["CREATE"]});
        let configuration = |rule: Value| {
            json!({"kind": "ValidatingWebhookConfiguration", "metadata": {
            "name": "c", "managedFields": [{"manager": "olm.operatorframework.io", "operation": "Apply", "fieldsV1": {
                "f:webhooks": {"k:{\"name\":\"w\"}": {".": {}, "f:name": {}, "f:rules": {}}}}}]},
            "webhooks": [{"name": "w", "rules": [rule]}]})
        };
        let desired = object(configuration(rule.clone()));
        for (case, live, want) in [
            ("scope is defaulted", with_member(rule.clone(), "/scope", json!("*")), Drift::None),
            ("a value", with_member(rule.clone(), "/operations", json!(["DELETE"])), Drift::Changed),
            ("a member is gone", with_member(rule, "/apiGroups", Value::Null), Drift::Changed),
        ] {
            assert_eq!(drift(&desired, &object(configuration(live))), want, "{case}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn drift_finds_changes_of_our_fields() {
        for (case, live) in [
            ("value", with_member(live(), &format!("{CONTAINER}/image"), json!("evil"))),
            ("atomic", with_member(live(), "/spec/selector", json!({"matchLabels": {"app": "y"}}))),
            ("removed", with_member(live(), &format!("{CONTAINER}/args"), Value::Null)),
            ("label removed", with_member(live(), "/metadata/labels", Value::Null)),
            ("container removed", with_member(live(), "/spec/template/spec/containers", json!([]))),
            ("port changed", with_member(live(), &format!("{CONTAINER}/ports"), json!([{"containerPort": 81, "protocol": "TCP"}]))),
        ] {
            assert_eq!(drift(&object(desired()), &object(live)), Drift::Changed, "{case}");
        }
        for (case, desired) in [
            ("new label", with_member(desired(), "/metadata/labels/new", json!("1"))),
            ("new member", with_member(desired(), &format!("{CONTAINER}/command"), json!(["x"]))),
            ("new container",
                with_member(desired(), "/spec/template/spec/containers", json!([desired().pointer(CONTAINER).unwrap(), {"name": "z"}]))),
            ("dropped member", with_member(desired(), &format!("{CONTAINER}/args"), Value::Null)),
            ("dropped labels", with_member(desired(), "/metadata/labels", Value::Null)),
        ] {
            assert_eq!(drift(&object(desired), &object(live())), Drift::Changed, "{case}");
        }
    }

    #[test]
    fn drift_finds_fields_that_another_manager_took() {
        let mut stolen = live();
        let entry = |fields: Value| json!({"manager": "lab-user", "operation": "Update", "fieldsV1": fields});
        stolen["metadata"]["managedFields"][0]["fieldsV1"].as_object_mut().unwrap().remove("f:metadata");
        stolen["metadata"]["labels"]["app"] = json!("other");
        stolen["metadata"]["managedFields"]
            .as_array_mut()
            .unwrap()
            .push(entry(json!({"f:metadata": {"f:labels": {"f:app": {}}}})));
        assert_eq!(drift(&object(desired()), &object(stolen.clone())), Drift::Taken);
        assert_eq!(
            unowned(&object(desired()), &object(stolen)),
            [["f:metadata", "f:labels", "f:app"].map(str::to_owned)]
        );
        let mut without_managers = live();
        without_managers["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(drift(&object(desired()), &object(without_managers)), Drift::Taken);
    }

    #[test]
    fn drift_ignores_fields_defaulted_at_the_create() {
        let mut created = live();
        let entry = &mut created["metadata"]["managedFields"][0];
        entry["operation"] = json!("Update");
        entry["fieldsV1"]["f:spec"]["f:replicas"] = json!({});
        assert_eq!(drift(&object(desired()), &object(created.clone())), Drift::None);
        assert!(needs_conversion(&object(created.clone())));
        let converted = converted(&object(created.clone())).unwrap();
        assert_eq!(converted.len(), 2);
        assert_eq!(converted[1]["operation"], "Apply");
        assert_eq!(converted[1]["fieldsV1"], created["metadata"]["managedFields"][0]["fieldsV1"]);
        created["metadata"]["managedFields"] = json!(converted);
        assert!(!needs_conversion(&object(created.clone())));
        assert_eq!(
            drift(&object(desired()), &object(created)),
            Drift::Changed,
            "the apply gives the defaulted field up"
        );
    }

    #[test]
    fn owned_changes_only_with_our_fields() {
        let was = owned(&object(live())).unwrap();
        for (case, live, same) in [
            ("scaled", with_member(live(), "/spec/replicas", json!(5)), true),
            ("foreign annotation", with_member(live(), "/metadata/annotations", json!({"mine": "a"})), true),
            ("image", with_member(live(), &format!("{CONTAINER}/image"), json!("evil")), false),
            ("port", with_member(live(), &format!("{CONTAINER}/ports"), json!([])), false),
            ("selector", with_member(live(), "/spec/selector", json!({})), false),
            ("label", with_member(live(), "/metadata/labels/app", json!("y")), false),
        ] {
            assert_eq!(owned(&object(live)).unwrap() == was, same, "{case}");
        }
        let mut stolen = live();
        stolen["metadata"]["managedFields"][0]["fieldsV1"].as_object_mut().unwrap().remove("f:metadata");
        assert_ne!(owned(&object(stolen)).unwrap(), was);
        assert_eq!(owned(&object(json!({"metadata": {}}))), None);
        let mut created = live();
        created["metadata"]["managedFields"][0]["operation"] = json!("Update");
        let entries = converted(&object(created.clone())).unwrap();
        let after = with_member(created.clone(), "/metadata/managedFields", json!(entries));
        assert_ne!(after, created);
        assert_eq!(owned(&object(after)), owned(&object(created)), "a conversion is no change");
    }

    #[test]
    fn drift_ignores_nulls_and_forms_of_numbers() {
        assert!(same(&json!({"a": null, "b": 1.0}), &json!({"b": 1})));
        assert!(!same(&json!({"b": 1, "c": 2}), &json!({"b": 1})));
        assert!(!same(&json!([1]), &json!([1, 2])));
        for (desired, live, is_same) in [
            ("9223372036854775807", "9223372036854775807", true),
            ("9223372036854775807", "9223372036854775806", false),
            ("9223372036854775807", "9223372036854776000", true),
            ("-9223372036854775808", "-9223372036854776000", true),
            ("9007199254740993", "9007199254740992", true),
            ("9007199254740993", "9007199254740994", false),
            ("9007199254740992", "9007199254740993", false),
            ("4611686018427387903", "4611686018427388000", true),
            ("4611686018427387903", "4611686018427387904", false),
            ("18446744073709551615", "18446744073709552000", true),
        ] {
            let value = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
            assert_eq!(same(&value(desired), &value(live)), is_same, "{desired} {live}");
        }
    }
}
