//! The changes of an object, field by field, as text.
//!
//! Items of lists are identified by the members that name them (`name`, ports by number and protocol, mounts by path); lists
//! whose items have no name are compared as bags. Bookkeeping of the apiserver and of revisions is left out: it changes with
//! every write. Pure; where the two sides come from is the caller's business.

use olm_core::Object;
use serde_json::{Map, Value};

use crate::keys;

/// One field that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldChange {
    /// Where, for example `spec.template.spec.containers[main].image`.
    pub path: String,
    /// The value before; `None` when the field is new.
    pub old: Option<Value>,
    /// The value after; `None` when the field goes.
    pub new: Option<Value>,
}

/// Members that name the items of a list, the first set that fits all items counts.
const NAMES: [&[&str]; 7] = [
    &["name"],
    &["containerPort", "protocol"],
    &["containerPort"],
    &["port", "protocol"],
    &["port"],
    &["mountPath"],
    &["uid"],
];
/// Metadata that the apiserver or a revision keeps for itself.
const BOOKKEEPING: [&str; 9] = [
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "ownerReferences",
];

/// Fields that differ, in the order of their paths. Status and bookkeeping are left out.
#[must_use]
pub fn changes(old: &Object, new: &Object) -> Vec<FieldChange> {
    let mut found = Vec::new();
    members(&mut String::new(), &content(old), &content(new), &mut found);
    found
}

/// The object without status and bookkeeping.
fn content(object: &Object) -> Map<String, Value> {
    let mut content = object.0.clone();
    content.remove("status");
    if let Some(Value::Object(metadata)) = content.get_mut("metadata") {
        metadata.retain(|key, _| !BOOKKEEPING.contains(&key.as_str()));
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove(keys::REVISION);
            annotations.remove(keys::LAST_APPLIED);
        }
    }
    content
}

fn any(path: &mut String, old: &Value, new: &Value, found: &mut Vec<FieldChange>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => members(path, old, new, found),
        (Value::Array(old), Value::Array(new)) => items(path, old, new, found),
        (old, new) if old == new => {}
        (old, new) => {
            found.push(FieldChange { path: path.clone(), old: Some(old.clone()), new: Some(new.clone()) })
        }
    }
}

/// Runs `inner` with a longer path.
fn below(path: &mut String, step: &str, inner: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push_str(step);
    inner(path);
    path.truncate(length);
}

fn members(
    path: &mut String,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    found: &mut Vec<FieldChange>,
) {
    let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in keys {
        below(path, &member(path, key), |path| match (old.get(key), new.get(key)) {
            (Some(old), Some(new)) => any(path, old, new, found),
            (old, new) => one_side(path, old, new, found),
        });
    }
}

fn member(path: &str, key: &str) -> String {
    let plain = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    match (plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!(".{key}"),
        (false, _) => format!("[{key}]"),
    }
}

/// Something that is there on one side only. Empty values are as good as absent.
fn one_side(path: &str, old: Option<&Value>, new: Option<&Value>, found: &mut Vec<FieldChange>) {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    if old.or(new).is_some_and(|value| !empty(value)) {
        found.push(FieldChange { path: path.to_owned(), old: old.cloned(), new: new.cloned() });
    }
}

fn items(path: &mut String, old: &[Value], new: &[Value], found: &mut Vec<FieldChange>) {
    let Some(names) = naming(old, new) else { return bag(path, old, new, found) };
    for item in old {
        let name = name(item, names);
        let other = new.iter().find(|other| self::name(other, names) == name);
        below(path, &format!("[{name}]"), |path| match other {
            Some(other) => any(path, item, other, found),
            None => one_side(path, Some(item), None, found),
        });
    }
    for item in new {
        let name = name(item, names);
        if !old.iter().any(|other| self::name(other, names) == name) {
            below(path, &format!("[{name}]"), |path| one_side(path, None, Some(item), found));
        }
    }
}

/// The members that identify the items of both lists.
fn naming(old: &[Value], new: &[Value]) -> Option<&'static [&'static str]> {
    let fits = |list: &[Value], names: &[&str]| {
        let mut seen = std::collections::BTreeSet::new();
        list.iter().all(|item| {
            names.iter().all(|key| item.get(key).is_some_and(|value| value.is_string() || value.is_number()))
                && seen.insert(name(item, names))
        })
    };
    let all = |names: &&&[&str]| fits(old, names) && fits(new, names);
    (!old.is_empty() || !new.is_empty()).then_some(())?;
    NAMES.iter().find(all).copied()
}

fn name(item: &Value, names: &[&str]) -> String {
    let part = |key: &&str| match item.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    names.iter().map(part).collect::<Vec<_>>().join("/")
}

/// Items without names: what one list has and the other has not. Another order is a change only where nothing else is.
fn bag(path: &mut String, old: &[Value], new: &[Value], found: &mut Vec<FieldChange>) {
    let mut left: Vec<(usize, &Value)> = Vec::new();
    let mut added: Vec<(usize, &Value)> = new.iter().enumerate().collect();
    for (at, item) in old.iter().enumerate() {
        match added.iter().position(|(_, other)| *other == item) {
            Some(same) => {
                added.remove(same);
            }
            None => left.push((at, item)),
        }
    }
    if left.is_empty() && added.is_empty() && old != new {
        let whole = |list: &[Value]| Some(Value::Array(list.to_vec()));
        found.push(FieldChange { path: path.clone(), old: whole(old), new: whole(new) });
        return;
    }
    // objects that changed in place
    if left.len() == added.len()
        && left.iter().zip(&added).all(|((a, old), (b, new))| a == b && old.is_object() && new.is_object())
    {
        for ((at, old), (_, new)) in left.into_iter().zip(added) {
            below(path, &format!("[{at}]"), |path| any(path, old, new, found));
        }
        return;
    }
    for (at, item) in left {
        below(path, &format!("[{at}]"), |path| one_side(path, Some(item), None, found));
    }
    for (at, item) in added {
        below(path, &format!("[{at}]"), |path| one_side(path, None, Some(item), found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn described(old: Value, new: Value) -> Vec<String> {
        let object = |value: Value| Object::from_value(json!({"spec": value})).unwrap();
        let side = |value: Option<Value>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        let found = changes(&object(old), &object(new));
        found.into_iter().map(|c| format!("{} {} {}", c.path, side(c.old), side(c.new))).collect()
    }

    #[test]
    #[rustfmt::skip]
    fn changes_name_the_field_of_each_kind_of_change() {
        for (old, new, want) in [
            (json!({"a": 1}), json!({"a": 1}), vec![]),
            (json!({"a": 1}), json!({"a": 2, "b": "x"}), vec!["spec.a 1 2", "spec.b - \"x\""]),
            (json!({"a": {"b": 1}}), json!({"a": {}}), vec!["spec.a.b 1 -"]),
            (json!({"a": []}), json!({}), vec![]),
            (json!({"containers": [{"name": "a", "image": "x"}, {"name": "b"}]}),
                json!({"containers": [{"name": "b"}, {"name": "a", "image": "y"}]}), vec!["spec.containers[a].image \"x\" \"y\""]),
            (json!({"env": [{"name": "A", "value": "1"}, {"name": "B"}]}), json!({"env": [{"name": "A", "value": "1"}]}),
                vec!["spec.env[B] {\"name\":\"B\"} -"]),
            (json!({"ports": [{"containerPort": 80, "protocol": "TCP"}]}),
                json!({"ports": [{"containerPort": 80, "protocol": "TCP", "hostPort": 1}]}), vec!["spec.ports[80/TCP].hostPort - 1"]),
            (json!({"args": ["a", "b"]}), json!({"args": ["a", "c"]}), vec!["spec.args[1] \"b\" -", "spec.args[1] - \"c\""]),
            (json!({"args": ["a", "b"]}), json!({"args": ["b", "a"]}), vec!["spec.args [\"a\",\"b\"] [\"b\",\"a\"]"]),
            (json!({"rules": [{"verbs": ["get"]}, {"verbs": ["list"]}]}),
                json!({"rules": [{"verbs": ["get", "watch"]}, {"verbs": ["list"]}]}), vec!["spec.rules[0].verbs[1] - \"watch\""]),
            (json!({"rules": [{"verbs": ["get"]}, {"verbs": ["list"]}]}), json!({"rules": [{"verbs": ["list"]}]}),
                vec!["spec.rules[0] {\"verbs\":[\"get\"]} -"]),
            (json!({"a.b/c": 1}), json!({"a.b/c": 2}), vec!["spec[a.b/c] 1 2"]),
            (json!({"a": "1"}), json!({"a": 1}), vec!["spec.a \"1\" 1"]),
        ] {
            assert_eq!(described(old.clone(), new.clone()), want, "{old} -> {new}");
        }
    }

    #[test]
    fn changes_ignore_bookkeeping() {
        let object = |revision: &str, version: &str| {
            Object::from_value(json!({
                "metadata": {
                    "name": "a", "resourceVersion": version, "generation": version.len(), "managedFields": [version],
                    "ownerReferences": [{"uid": version}],
                    "annotations": {"olm.operatorframework.io/revision": revision, "kept": "x"},
                },
                "status": {"observed": version},
            }))
            .unwrap()
        };
        assert_eq!(changes(&object("1", "1"), &object("2", "22")), []);
    }
}
