//! The result of an apply, for a dry run that writes nothing.
//!
//! A revision converts the entry that a create (or a Helm release) left in `managedFields` before it first drops a field; after
//! that, fields which it no longer wants go. A dry run cannot convert, so its answer still has them, and they are taken out
//! here. Rule: decision 20, revisions §7.5.

use olm_core::Object;
use serde_json::{Map, Value};

use crate::conversion::{needs_conversion, wrote_first};
use crate::fields::{self, Step, entries, item_at, owns};
use crate::keys;

/// The object to apply for a forecast: content with the marks of revision `number` of `extension`, and the owners that `live` has.
/// Owners are the business of the revision that will exist then.
#[must_use]
pub fn forecast(content: &Object, extension: &str, number: i64, live: Option<&Object>) -> Object {
    let mut object = content.clone();
    object.set_label(keys::OWNER_NAME, extension);
    object.set_label(keys::MANAGED_BY, keys::MANAGED_BY_VALUE);
    object.set_annotation(keys::REVISION, &number.to_string());
    let owners = live.and_then(|live| live.metadata()?.get("ownerReferences")).cloned();
    object.metadata_mut().extend(owners.map(|owners| ("ownerReferences".to_owned(), owners)));
    object
}

/// What `answer`, the dry run's result for `desired`, will be without the fields that only the entry of a create on `live` holds.
/// `None` when there are none. The result is to be sent as an update (a dry run, too): some of the fields are defaulted again.
#[must_use]
pub fn relinquished(desired: &Object, live: &Object, answer: &Object) -> Option<Object> {
    if !needs_conversion(live) {
        return None;
    }
    let others: Vec<&Map<String, Value>> = entries(live)
        .filter(|entry| !wrote_first(live, entry))
        .filter(|entry| entry.manager != keys::FIELD_MANAGER || !entry.subresource.is_empty())
        .map(|entry| entry.fields)
        .collect();
    let mut left = Value::Object(answer.0.clone());
    let target = Value::Object(desired.0.clone());
    let mut any = false;
    for entry in entries(live).filter(|entry| wrote_first(live, entry)) {
        any |= take_out(entry.fields, &mut vec![], &mut left, Some(&target), &others);
    }
    if !any {
        return None;
    }
    let version = live.metadata()?.get("resourceVersion").cloned().unwrap_or_default();
    let mut object = Object::from_value(left).ok()?;
    object.metadata_mut().insert("resourceVersion".into(), version);
    object.metadata_mut().remove("managedFields");
    Some(object)
}

/// Takes the leaves of `fields` out of `at` that are not in `target` and that none of `others` owns. Returns whether any was.
fn take_out(
    fields: &Map<String, Value>,
    path: &mut Vec<String>,
    at: &mut Value,
    target: Option<&Value>,
    others: &[&Map<String, Value>],
) -> bool {
    let mut any = false;
    for (key, below) in fields {
        if key == "." {
            continue;
        }
        let identity = path.is_empty() && (key == "f:apiVersion" || key == "f:kind" || key == "f:status");
        if identity || (path.as_slice() == ["f:metadata"] && key == "f:ownerReferences") {
            continue;
        }
        path.push(key.clone());
        let step = Step::parse(key);
        let next = target.and_then(|target| fields::below(&step, target));
        let claimed = others.iter().any(|fields| owns(fields, path));
        if next.is_none() && !claimed {
            any |= remove(at, &step);
        } else if let Some(below) = below.as_object()
            && !below.is_empty()
            && let Some(child) = child(at, &step)
        {
            any |= take_out(below, path, child, next, others);
        }
        path.pop();
    }
    any
}

fn child<'v>(at: &'v mut Value, step: &Step<'_>) -> Option<&'v mut Value> {
    match (step, at) {
        (Step::Member(name), Value::Object(members)) => members.get_mut(*name),
        (Step::Item(keys), Value::Array(list)) => {
            let index = item_at(list, keys)?;
            list.get_mut(index)
        }
        _ => None,
    }
}

fn remove(at: &mut Value, step: &Step<'_>) -> bool {
    match (step, at) {
        (Step::Member(name), Value::Object(members)) => members.remove(*name).is_some(),
        (Step::Item(keys), Value::Array(list)) => match item_at(list, keys) {
            Some(index) => {
                list.remove(index);
                true
            }
            None => false,
        },
        (Step::Value(value), Value::Array(list)) => {
            let before = list.len();
            list.retain(|found| found != value);
            list.len() < before
        }
        _ => false,
    }
}

/// A stand-in for the revision that will be made, for questions about ownership: it owns nothing yet.
#[must_use]
pub fn future_revision(extension: &str, number: i64) -> crate::Revision {
    crate::Revision {
        api_version: "olm.operatorframework.io/v1".to_owned(),
        kind: "ClusterObjectSet".to_owned(),
        name: format!("{extension}-{number}"),
        uid: String::new(),
        number,
        extension: Some(extension.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    fn live(others: Value) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "resourceVersion": "7", "labels": {"old": "1"}, "managedFields": [
                {"manager": "olm.operatorframework.io", "operation": "Update", "fieldsV1": {
                    "f:metadata": {"f:labels": {".": {}, "f:old": {}}, "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}},
                    "f:spec": {"f:replicas": {}, "f:strategy": {"f:type": {}}, "f:containers": {"k:{\"name\":\"m\"}": {
                        ".": {}, "f:image": {}, "f:name": {}, "f:env": {".": {}, "k:{\"name\":\"A\"}": {".": {}, "f:name": {}},
                                                                        "k:{\"name\":\"B\"}": {".": {}, "f:name": {}}}}}}}},
                {"manager": "hpa", "operation": "Update", "fieldsV1": others},
            ]},
            "spec": {"replicas": 3, "strategy": {"type": "RollingUpdate"},
                     "containers": [{"name": "m", "image": "x", "env": [{"name": "A"}, {"name": "B"}]}]},
        })
    }

    fn desired() -> Object {
        object(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "m", "image": "y", "env": [{"name": "A"}]}]}}))
    }

    #[test]
    fn forecast_drops_fields_that_only_the_create_held() {
        let live = object(live(json!({"f:spec": {"f:replicas": {}}})));
        let mut answer = live.clone();
        answer.0["spec"]["containers"][0]["image"] = json!("y");
        let left = relinquished(&desired(), &live, &answer).unwrap().to_value();
        assert_eq!(
            left["spec"],
            json!({"replicas": 3, "containers": [{"name": "m", "image": "y", "env": [{"name": "A"}]}]})
        );
        assert_eq!(left["metadata"], json!({"name": "a", "resourceVersion": "7"}));
    }

    #[test]
    fn forecast_drops_nothing_after_an_apply() {
        let mut applied = live(json!({}));
        applied["metadata"]["managedFields"][0]["operation"] = json!("Apply");
        let applied = object(applied);
        assert_eq!(relinquished(&desired(), &applied, &applied), None);
    }

    #[test]
    fn forecast_keeps_owners() {
        let mut owned = live(json!({}));
        owned["metadata"]["ownerReferences"] = json!([{"uid": "u"}]);
        let got = forecast(&desired(), "e", 3, Some(&object(owned))).to_value();
        assert_eq!(got["metadata"]["ownerReferences"], json!([{"uid": "u"}]));
        assert_eq!(got["metadata"]["annotations"], json!({"olm.operatorframework.io/revision": "3"}));
        assert_eq!(forecast(&desired(), "e", 3, None).to_value()["metadata"].get("ownerReferences"), None);
    }
}
