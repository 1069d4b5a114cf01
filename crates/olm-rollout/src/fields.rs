//! `managedFields` without a schema: which manager owns which field, and how field paths are written.
//!
//! `fieldsV1` is a tree whose keys have prefixes: `f:` a member, `k:` a list item by keys, `v:` a set's value, `i:` an
//! index, `.` the node itself. Rule: feasibility §2, revisions §7.5.

use std::collections::BTreeMap;

use olm_core::{Object, go};
use serde_json::{Map, Value};

/// One entry of `metadata.managedFields`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) manager: &'a str,
    pub(crate) operation: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) fields: &'a Map<String, Value>,
}

/// All entries that have a readable field set.
pub(crate) fn entries(object: &Object) -> impl Iterator<Item = Entry<'_>> {
    let list = object.metadata().and_then(|metadata| metadata.get("managedFields")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Entry::parse)
}

impl<'a> Entry<'a> {
    /// `None` without a readable field set.
    pub(crate) fn parse(entry: &'a Value) -> Option<Self> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        Some(Self {
            manager: text("manager"),
            operation: text("operation"),
            subresource: text("subresource"),
            fields: entry.get("fieldsV1")?.as_object()?,
        })
    }
}

/// What a key of `fieldsV1` stands for.
pub(crate) enum Step<'a> {
    /// The node itself.
    Here,
    /// A member of an object.
    Member(&'a str),
    /// A list item with these key members.
    Item(Map<String, Value>),
    /// A value of a set.
    Value(Value),
    /// Something else, not understood.
    Other,
}

impl<'a> Step<'a> {
    pub(crate) fn parse(key: &'a str) -> Self {
        match key.split_once(':') {
            None if key == "." => Self::Here,
            Some(("f", name)) => Self::Member(name),
            Some(("k", json)) => serde_json::from_str(json).map_or(Self::Other, Self::Item),
            Some(("v", json)) => serde_json::from_str(json).map_or(Self::Other, Self::Value),
            _ => Self::Other,
        }
    }
}

/// The part of `value` that a step below it names.
pub(crate) fn below<'v>(step: &Step<'_>, value: &'v Value) -> Option<&'v Value> {
    match (step, value) {
        (Step::Member(name), Value::Object(members)) => members.get(*name),
        (Step::Item(keys), Value::Array(list)) => item(list, keys),
        (Step::Value(value), Value::Array(list)) => list.iter().find(|found| *found == value),
        _ => None,
    }
}

/// The item of `list` that a `k:` step names. An exact match wins; else the first whose missing key members can have
/// been defaulted.
pub(crate) fn item<'v>(list: &'v [Value], keys: &Map<String, Value>) -> Option<&'v Value> {
    list.get(item_at(list, keys)?)
}

/// Where that item is.
pub(crate) fn item_at(list: &[Value], keys: &Map<String, Value>) -> Option<usize> {
    list.iter().position(|item| keys.iter().all(|(key, value)| item.get(key) == Some(value))).or_else(|| {
        list.iter()
            .position(|item| keys.iter().all(|(key, value)| item.get(key).is_none_or(|found| found == value)))
    })
}

/// Does the field set contain this path of `fieldsV1` keys, or an ancestor that is owned as a whole?
pub(crate) fn owns(fields: &Map<String, Value>, path: &[String]) -> bool {
    let mut node = fields;
    for (depth, key) in path.iter().enumerate() {
        match node.get(key).and_then(Value::as_object) {
            Some(child) => node = child,
            None => return depth > 0 && node.is_empty(),
        }
    }
    true
}

/// A set of field paths, printed as server-side apply does: at each level the fields themselves first, then what lies
/// below them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PathSet {
    members: BTreeMap<String, Self>,
    leaf: bool,
}

impl PathSet {
    pub(crate) fn insert(&mut self, path: &[String]) {
        let mut node = self;
        for step in path {
            node = node.members.entry(step.clone()).or_default();
        }
        node.leaf = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The paths as text, at most `limit`.
    pub(crate) fn print(&self, limit: usize) -> Vec<String> {
        let mut out = vec![];
        self.walk("", limit, &mut out);
        out
    }

    fn walk(&self, prefix: &str, limit: usize, out: &mut Vec<String>) {
        for (step, child) in &self.members {
            if child.leaf && out.len() < limit {
                out.push(format!("{prefix}{step}"));
            }
        }
        for (step, child) in &self.members {
            if out.len() < limit {
                child.walk(&format!("{prefix}{step}"), limit, out);
            }
        }
    }
}

/// One step as field paths print it: `.name`, `[key="value"]`, `[="value"]`.
pub(crate) fn print_step(key: &str) -> String {
    match Step::parse(key) {
        Step::Here => String::new(),
        Step::Member(name) => format!(".{name}"),
        Step::Item(keys) => {
            let keys: Vec<String> =
                keys.iter().map(|(key, value)| format!("{key}={}", go::json_string(value))).collect();
            format!("[{}]", keys.join(","))
        }
        Step::Value(value) => format!("[={}]", go::json_string(&value)),
        Step::Other => format!("[{key}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_print_as_paths() {
        for (key, want) in [
            ("f:spec", ".spec"),
            ("f:olm.operatorframework.io/owner-name", ".olm.operatorframework.io/owner-name"),
            (r#"k:{"uid":"1"}"#, r#"[uid="1"]"#),
            (r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"[containerPort=80,protocol="TCP"]"#),
            (r#"v:"x""#, r#"[="x"]"#),
            (".", ""),
        ] {
            assert_eq!(print_step(key), want);
        }
    }

    #[test]
    fn fields_list_leaves_first() {
        let mut set = PathSet::default();
        for path in [".spec.names.kind", ".spec.group", ".spec.names.plural", ".spec.versions"] {
            let path: Vec<String> = path.split('.').skip(1).map(|step| format!(".{step}")).collect();
            set.insert(&path);
        }
        assert_eq!(
            set.print(10),
            [".spec.group", ".spec.versions", ".spec.names.kind", ".spec.names.plural"]
        );
        assert_eq!(set.print(3).len(), 3);
    }

    #[test]
    fn fields_ownership_of_a_whole_covers_its_parts() {
        let fields = json!({"f:spec": {"f:versions": {}, "f:names": {"f:kind": {}}}});
        let fields = fields.as_object().unwrap();
        let path = |text: &str| text.split('/').map(|step| format!("f:{step}")).collect::<Vec<_>>();
        for (text, want) in [
            ("spec/versions", true),
            ("spec/versions/deep", true),
            ("spec/names", true),
            ("spec/names/plural", false),
            ("status", false),
        ] {
            assert_eq!(owns(fields, &path(text)), want, "{text}");
        }
        assert!(!owns(&Map::new(), &path("spec")));
    }

    #[test]
    fn fields_items_match_exactly_before_defaulted() {
        let list = [json!({"containerPort": 80}), json!({"containerPort": 80, "protocol": "UDP"})];
        let keys =
            |protocol: &str| json!({"containerPort": 80, "protocol": protocol}).as_object().unwrap().clone();
        assert_eq!(item(&list, &keys("UDP")), Some(&list[1]));
        assert_eq!(item(&list, &keys("TCP")), Some(&list[0]));
        assert_eq!(item(&list[1..], &keys("TCP")), None);
    }
}
