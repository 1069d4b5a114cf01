//! Sets of field paths, as `managedFields` holds them (`fieldsV1`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::schema::Node;

/// The paths at and below one path. Steps are written as in `fieldsV1`: `f:name`, `k:{"name":"a"}`, `v:"x"`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// The path itself is in the set.
    pub(crate) is_member: bool,
    pub(crate) children: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    pub(crate) fn leaf() -> Self {
        Self { is_member: true, children: BTreeMap::new() }
    }

    /// The set of the paths, each a list of field names.
    pub(crate) fn of_names(paths: &[&[&str]]) -> Self {
        let mut all = Self::default();
        for path in paths {
            let mut at = &mut all;
            for name in *path {
                at = at.children.entry(format!("f:{name}")).or_default();
            }
            at.is_member = true;
        }
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.is_member && self.children.values().all(Self::is_empty)
    }

    pub(crate) fn insert_child(&mut self, step: String, child: Self) {
        if !child.is_empty() {
            self.children.insert(step, child);
        }
    }

    fn zip(&self, other: &Self, both: fn(&Self, &Self) -> Self, alone: fn(&Self) -> Self) -> Self {
        let mut out = Self::default();
        for (step, child) in &self.children {
            let joined = match other.children.get(step) {
                Some(others) => both(child, others),
                None => alone(child),
            };
            out.insert_child(step.clone(), joined);
        }
        out
    }

    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.subtract(other);
        out
    }

    /// Removes the paths of `other`.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.is_member &= !other.is_member;
        for (step, others) in &other.children {
            if let Some(child) = self.children.get_mut(step) {
                child.subtract(others);
                if child.is_empty() {
                    self.children.remove(step);
                }
            }
        }
    }

    /// Removes the paths of `other` and everything below them.
    pub(crate) fn subtract_below(&mut self, other: &Self) {
        if other.is_member {
            *self = Self::default();
            return;
        }
        for (step, others) in &other.children {
            if let Some(child) = self.children.get_mut(step) {
                child.subtract_below(others);
                if child.is_empty() {
                    self.children.remove(step);
                }
            }
        }
    }

    /// Whether all paths of `other` are in the set.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        let holds = |(step, others): (&String, &Self)| match self.children.get(step) {
            Some(child) => child.contains(others),
            None => others.is_empty(),
        };
        (self.is_member || !other.is_member) && other.children.iter().all(holds)
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut out = self.zip(other, Self::intersection, |_| Self::default());
        out.is_member = self.is_member && other.is_member;
        out
    }

    pub(crate) fn union(mut self, other: &Self) -> Self {
        self.is_member |= other.is_member;
        for (step, others) in &other.children {
            match self.children.get_mut(step) {
                Some(child) => *child = std::mem::take(child).union(others),
                None => self.insert_child(step.clone(), others.clone()),
            }
        }
        self
    }

    /// With each field that has a name of its own in the schema, when anything below it is in the set.
    pub(crate) fn with_named_parents(&self, node: &Node) -> Self {
        let mut out = Self { is_member: self.is_member, children: BTreeMap::new() };
        for (step, child) in &self.children {
            let (below, is_named) = node.step(step);
            let mut child = child.with_named_parents(below);
            child.is_member |= is_named && !child.is_empty();
            out.insert_child(step.clone(), child);
        }
        out
    }

    /// As `fieldsV1` writes it.
    pub(crate) fn encode(&self) -> Value {
        let mut out = Map::new();
        if self.is_member && !self.children.is_empty() {
            out.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (step, child) in &self.children {
            out.insert(step.clone(), child.encode());
        }
        Value::Object(out)
    }

    /// Reads `fieldsV1`; the root is no member.
    pub(crate) fn decode(value: &Value) -> Self {
        let mut all = Self::read(value);
        all.is_member = false;
        all
    }

    fn read(value: &Value) -> Self {
        let Some(map) = value.as_object() else { return Self::default() };
        let mut out = Self { is_member: map.is_empty() || map.contains_key("."), children: BTreeMap::new() };
        for (step, child) in map.iter().filter(|(step, _)| *step != ".") {
            // the order of keys in a step is not part of its identity
            let step = match step.strip_prefix("k:").and_then(|keys| serde_json::from_str(keys).ok()) {
                Some(keys) => key_step(&keys),
                None => step.clone(),
            };
            out.children.insert(step, Self::read(child));
        }
        out
    }

    /// The paths as conflicts print them: `.spec.containers[name="a"].image`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.print("", &mut out);
        out
    }

    fn print(&self, prefix: &str, out: &mut Vec<String>) {
        if self.is_member {
            out.push(prefix.to_owned());
        }
        for (step, child) in &self.children {
            let text = match step.split_once(':') {
                Some(("f", name)) => format!(".{name}"),
                Some(("v", value)) => format!("[={value}]"),
                Some(("k", keys)) => {
                    let keys: BTreeMap<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                    let keys: Vec<String> =
                        keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                    format!("[{}]", keys.join(","))
                }
                _ => step.clone(),
            };
            child.print(&format!("{prefix}{text}"), out);
        }
    }
}

/// The step to an item of a list of maps.
pub(crate) fn key_step(keys: &BTreeMap<String, Value>) -> String {
    format!("k:{}", serde_json::to_string(keys).unwrap_or_default())
}
