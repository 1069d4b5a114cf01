//! Strategic merge patches: as JSON merge patches, but lists with a merge key are merged item by item. Only built-in kinds have them.

use serde_json::{Map, Value};

use super::status::Status;

const DIRECTIVE: &str = "$patch";
const DELETED_ITEMS: &str = "$deleteFromPrimitiveList/";

/// How the items of a list are found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Items {
    /// Scalars; a patch adds those that are absent.
    Scalars,
    /// Maps with this key.
    Keyed(&'static str),
}

/// The list of this name in an object of the kind, if patches merge it. Names of fields are enough: no kind has two lists of a name
/// with different rules.
fn items(kind: &str, field: &str) -> Option<Items> {
    let key = match field {
        "finalizers" if kind != "Namespace" => return Some(Items::Scalars),
        "ownerReferences" => "uid",
        "conditions" if kind != "CustomResourceDefinition" => "type",
        "ports" if kind == "Service" => "port",
        "ports" => "containerPort",
        "secrets" if kind == "ServiceAccount" => "name",
        "imagePullSecrets" if kind != "ServiceAccount" => "name",
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "webhooks"
        | "resourceClaims"
        | "schedulingGates" => "name",
        "volumeMounts" => "mountPath",
        "volumeDevices" => "devicePath",
        "hostAliases" => "ip",
        "topologySpreadConstraints" => "topologyKey",
        _ => return None,
    };
    Some(Items::Keyed(key))
}

/// Patches an object of a built-in kind.
/// It fails if an item of the patch lacks its merge key, or has a directive that is not simulated.
pub(crate) fn merge(object: &mut Value, patch: &Value, kind: &str) -> Result<(), Status> {
    match (object.as_object_mut(), patch.as_object()) {
        (Some(object), Some(patch)) => merge_map(object, patch, kind),
        _ => Err(Status::bad_request("the patch is no map")),
    }
}

fn merge_map(object: &mut Map<String, Value>, patch: &Map<String, Value>, kind: &str) -> Result<(), Status> {
    match patch.get(DIRECTIVE).map(Value::as_str) {
        None => {}
        Some(Some("delete")) => {
            object.clear();
            return Ok(());
        }
        Some(Some("replace")) => {
            *object = patch.clone();
            object.remove(DIRECTIVE);
            return Ok(());
        }
        Some(_) => return Err(unknown(&patch[DIRECTIVE])),
    }
    let (deletions, fields): (Vec<_>, Vec<_>) =
        patch.iter().partition(|(field, _)| field.starts_with(DELETED_ITEMS));
    for (field, value) in fields {
        if field.starts_with('$') {
            return Err(unknown(&field.as_str().into()));
        }
        if value.is_null() {
            object.remove(field);
            continue;
        }
        match (object.get_mut(field), value) {
            (Some(Value::Object(live)), Value::Object(value)) => merge_map(live, value, kind)?,
            (Some(Value::Array(live)), Value::Array(value)) => match items(kind, field) {
                Some(Items::Scalars) => *live = merge_scalars(live, value),
                Some(Items::Keyed(key)) => *live = merge_items(live, value, key, kind)?,
                None => live.clone_from(value),
            },
            // a directive is about a map that is there: a new one with a directive is left out
            (None, value) if value.get(DIRECTIVE).is_some() => {}
            _ => drop(object.insert(field.clone(), without_directives(value))),
        }
    }
    // after the lists are merged; the apiserver does either first, by chance
    for (field, value) in deletions {
        let list = &field[DELETED_ITEMS.len()..];
        if let (Some(live), Some(deleted)) =
            (object.get_mut(list).and_then(Value::as_array_mut), value.as_array())
        {
            live.retain(|item| !deleted.contains(item));
        }
    }
    Ok(())
}

fn merge_scalars(live: &[Value], patch: &[Value]) -> Vec<Value> {
    let rest = live.iter().filter(|item| !patch.contains(item)).cloned().collect();
    let mut patched: Vec<Value> = Vec::new();
    for item in patch {
        if !patched.contains(item) {
            patched.push(item.clone());
        }
    }
    in_order(patched, rest, |item| live.iter().position(|other| other == item))
}

fn merge_items(live: &[Value], patch: &[Value], key: &'static str, kind: &str) -> Result<Vec<Value>, Status> {
    let mut rest = live.to_vec();
    let mut replaces = false;
    let mut given = Vec::new();
    for item in patch {
        match item.get(DIRECTIVE).map(Value::as_str) {
            None => given.push(item),
            Some(Some("replace")) => replaces = true,
            Some(Some("delete")) => {
                let deleted = key_of(item, key)?;
                rest.retain(|other| other.get(key) != Some(deleted));
            }
            Some(_) => return Err(unknown(&item[DIRECTIVE])),
        }
    }
    if replaces {
        return Ok(given.into_iter().cloned().collect());
    }
    let mut patched: Vec<Value> = Vec::new();
    for item in given {
        let name = key_of(item, key)?;
        let same = |other: &Value| other.get(key) == Some(name);
        if let Some(at) = rest.iter().position(same) {
            let mut merged = rest.remove(at);
            merge(&mut merged, item, kind)?;
            patched.push(merged);
        } else if let Some(merged) = patched.iter_mut().find(|other| same(other)) {
            merge(merged, item, kind)?;
        } else {
            patched.push(without_directives(item));
        }
    }
    Ok(in_order(patched, rest, |item| live.iter().position(|other| other.get(key) == item.get(key))))
}

fn key_of<'a>(item: &'a Value, key: &str) -> Result<&'a Value, Status> {
    item.get(key).ok_or_else(|| {
        let why = format!("map: {item} does not contain declared merge key: {key}");
        Status::new(500, "", why)
    })
}

/// Joins the items of the patch, in its order, with those of the live list alone. Before an item that the live list has go those that
/// precede it there; an item that is new goes before all that are left.
fn in_order(patched: Vec<Value>, rest: Vec<Value>, at: impl Fn(&Value) -> Option<usize>) -> Vec<Value> {
    let mut out = Vec::with_capacity(patched.len() + rest.len());
    let mut rest = rest.into_iter().peekable();
    for item in patched {
        let place = at(&item);
        while let Some(other) = rest.next_if(|other| at(other) < place) {
            out.push(other);
        }
        out.push(item);
    }
    out.extend(rest);
    out
}

/// A new value, without the directives of how it is merged.
fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.iter().filter(|(name, value)| {
                !name.starts_with('$') && !value.is_null() && value.get(DIRECTIVE).is_none()
            });
            fields.map(|(name, value)| (name.clone(), without_directives(value))).collect()
        }
        Value::Array(list) => {
            let items = list.iter().filter(|item| item.get(DIRECTIVE).is_none());
            items.map(without_directives).collect()
        }
        other => other.clone(),
    }
}

fn unknown(directive: &Value) -> Status {
    Status::bad_request(format!("directive {directive} is not simulated"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    #[rustfmt::skip]
    fn strategic_patch_merges_by_the_keys_of_lists() {
        for (what, kind, live, patch, want) in [
            ("maps", "Secret", json!({"data": {"a": "1", "b": "2"}}), json!({"data": {"a": null, "c": "3"}}),
                json!({"data": {"b": "2", "c": "3"}})),
            ("a new map", "Secret", json!({}), json!({"data": {"a": null, "c": "3"}}), json!({"data": {"c": "3"}})),
            ("map deleted", "Secret", json!({"data": {"a": "1"}}), json!({"data": {"$patch": "delete"}}), json!({"data": {}})),
            ("map replaced", "Secret", json!({"data": {"a": "1"}}), json!({"data": {"$patch": "replace", "b": "2"}}),
                json!({"data": {"b": "2"}})),
            ("owners", "Secret", json!({"ownerReferences": [{"uid": "1", "name": "x"}, {"uid": "2"}]}),
                json!({"ownerReferences": [{"uid": "1", "controller": true}, {"uid": "3"}]}),
                json!({"ownerReferences": [{"uid": "1", "name": "x", "controller": true}, {"uid": "3"}, {"uid": "2"}]})),
            ("new owners first", "Secret", json!({"ownerReferences": [{"uid": "1"}, {"uid": "2"}, {"uid": "3"}]}),
                json!({"ownerReferences": [{"uid": "4"}, {"uid": "2"}, {"uid": "5"}]}),
                json!({"ownerReferences": [{"uid": "4"}, {"uid": "1"}, {"uid": "2"}, {"uid": "5"}, {"uid": "3"}]})),
            ("new map with a directive", "Secret", json!({}), json!({"data": {"$patch": "replace", "b": "2"}}), json!({})),
            ("added and deleted", "Secret", json!({"finalizers": ["b"]}),
                json!({"finalizers": ["a"], "$deleteFromPrimitiveList/finalizers": ["a"]}), json!({"finalizers": ["b"]})),
            ("owner deleted", "Secret", json!({"ownerReferences": [{"uid": "1"}, {"uid": "2"}]}),
                json!({"ownerReferences": [{"uid": "1", "$patch": "delete"}]}), json!({"ownerReferences": [{"uid": "2"}]})),
            ("owners replaced", "Secret", json!({"ownerReferences": [{"uid": "1"}, {"uid": "2"}]}),
                json!({"ownerReferences": [{"uid": "3"}, {"$patch": "replace"}]}), json!({"ownerReferences": [{"uid": "3"}]})),
            ("finalizers", "Secret", json!({"finalizers": ["a", "b"]}),
                json!({"finalizers": ["c", "b"], "$deleteFromPrimitiveList/finalizers": ["a"]}), json!({"finalizers": ["c", "b"]})),
            ("list without a key", "Deployment", json!({"args": ["a", "b"]}), json!({"args": ["c"]}), json!({"args": ["c"]})),
            ("containers", "Deployment", json!({"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}),
                json!({"containers": [{"name": "b", "image": "2"}, {"name": "c", "env": [{"name": "E", "value": null}]}]}),
                json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c", "env": [{"name": "E"}]}]})),
            ("ports of a Service", "Service", json!({"ports": [{"port": 1}]}), json!({"ports": [{"port": 1, "name": "x"}]}),
                json!({"ports": [{"port": 1, "name": "x"}]})),
        ] {
            let mut object = live;
            merge(&mut object, &patch, kind).unwrap();
            assert_eq!(object, want, "{what}");
        }
    }

    #[test]
    fn strategic_patch_rejects_unknown_directives() {
        for (patch, code) in [
            (json!({"ownerReferences": [{"name": "x"}]}), 500),
            (json!({"$retainKeys": ["a"]}), 400),
            (json!({"data": {"$patch": "merge"}}), 400),
        ] {
            let mut object = json!({"ownerReferences": [{"uid": "1"}], "data": {}});
            let refused = merge(&mut object, &patch, "Secret").map_err(|status| status.code);
            assert_eq!(refused, Err(code), "{patch}");
        }
    }
}
