//! The operations of server-side apply on values: their field sets, comparison, merge, and removal of fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields::FieldSet;
use super::schema::Node;

/// The fields that an object sets.
pub(crate) fn set_of(value: &Value, node: &Node) -> FieldSet {
    match value {
        Value::Object(map) if !node.is_atomic() => {
            let mut out = FieldSet::default();
            for (name, value) in map {
                let (below, is_named) = node.field(name);
                let mut child = set_of(value, below);
                child.is_member |= !is_named || is_empty_map(value);
                out.insert_child(format!("f:{name}"), child);
            }
            out
        }
        Value::Array(list) => match node.items() {
            Some(items) => {
                let mut out = FieldSet::default();
                for item in list {
                    let mut child = set_of(item, items);
                    child.is_member = true;
                    out.insert_child(node.item_step(item), child);
                }
                out
            }
            None => FieldSet::leaf(),
        },
        _ => FieldSet::leaf(),
    }
}

fn is_empty_map(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

/// What differs between two states of an object.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Comparison {
    fn insert(&mut self, step: impl Fn() -> String, child: Self) {
        for (set, child) in [
            (&mut self.added, child.added),
            (&mut self.modified, child.modified),
            (&mut self.removed, child.removed),
        ] {
            if !child.is_empty() {
                set.children.insert(step(), child);
            }
        }
    }

    /// Without the fields of a set and everything below them.
    pub(crate) fn without(mut self, ignored: &FieldSet) -> Self {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.subtract_below(ignored);
        }
        self
    }
}

/// Compares two states; an absent one is no value at all.
pub(crate) fn compare<'a>(before: Option<&'a Value>, after: Option<&'a Value>, node: &Node) -> Comparison {
    let mut out = Comparison::default();
    if before == after {
        return out;
    }
    if !node.is_atomic() && !mixed(before, after) {
        let (old, new) = (fields(before), fields(after));
        if old.clone().chain(new.clone()).next().is_some() {
            for (name, value) in old {
                let child = compare(Some(value), after.and_then(|after| after.get(name)), node.field(name).0);
                out.insert(|| format!("f:{name}"), child);
            }
            for (name, value) in new.filter(|(name, _)| before.and_then(|before| before.get(name)).is_none())
            {
                out.insert(|| format!("f:{name}"), compare(None, Some(value), node.field(name).0));
            }
            out.added.is_member = before.is_none();
            out.removed.is_member = after.is_none();
            return out;
        }
    }
    if let Some(items) = node.items()
        && !mixed(before, after)
    {
        let index = |list: Option<&'a Value>| -> BTreeMap<String, &'a Value> {
            let list = list.and_then(Value::as_array).into_iter().flatten();
            list.map(|item| (node.item_step(item), item)).collect()
        };
        let (old, new) = (index(before), index(after));
        if !(old.is_empty() && new.is_empty()) {
            for step in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
                let child = compare(old.get(step).copied(), new.get(step).copied(), items);
                out.insert(|| step.clone(), child);
            }
            out.added.is_member = before.is_none();
            out.removed.is_member = after.is_none();
            return out;
        }
    }
    match (before, after) {
        (None, _) => out.added.is_member = true,
        (_, None) => out.removed.is_member = true,
        _ => out.modified.is_member = true,
    }
    out
}

/// Two values of different shapes; null fits any.
fn mixed(one: Option<&Value>, other: Option<&Value>) -> bool {
    let shape = |value: Option<&Value>| match value {
        None | Some(Value::Null) => None,
        Some(Value::Object(_)) => Some(1),
        Some(Value::Array(_)) => Some(2),
        Some(_) => Some(3),
    };
    shape(one).zip(shape(other)).is_some_and(|(one, other)| one != other)
}

/// The fields of a map; none of any other value.
fn fields(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> + Clone {
    value.and_then(Value::as_object).into_iter().flatten()
}

/// Merges the applied configuration over the live object.
pub(crate) fn merge(live: &mut Value, applied: &Value, node: &Node) {
    match (&mut *live, applied) {
        (Value::Object(old), Value::Object(new)) if !node.is_atomic() => {
            for (name, value) in new {
                match old.get_mut(name) {
                    Some(live) => merge(live, value, node.field(name).0),
                    None => drop(old.insert(name.clone(), value.clone())),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) => match node.items() {
            Some(items) => *old = merge_lists(old, new, node, items),
            None => old.clone_from(new),
        },
        _ => live.clone_from(applied),
    }
}

fn merged(live: &Value, applied: &Value, node: &Node) -> Value {
    let mut out = live.clone();
    merge(&mut out, applied, node);
    out
}

/// Merges lists by the steps to their items. The order of the applied list holds among items of both; items of the live list alone
/// stay behind the items that they follow.
fn merge_lists(old: &[Value], new: &[Value], node: &Node, items: &Node) -> Vec<Value> {
    let old: Vec<(String, &Value)> = old.iter().map(|item| (node.item_step(item), item)).collect();
    let new: Vec<(String, &Value)> = new.iter().map(|item| (node.item_step(item), item)).collect();
    let in_old: BTreeMap<&str, &Value> = old.iter().map(|(step, item)| (step.as_str(), *item)).collect();
    let in_new: BTreeSet<&str> = new.iter().map(|(step, _)| step.as_str()).collect();
    let mut shared = new.iter().map(|(step, _)| step.as_str()).filter(|step| in_old.contains_key(step));
    let mut next_shared = shared.next();
    let mut done = BTreeSet::new();
    let (mut left, mut right) = (0, 0);
    let mut out = Vec::new();
    while left < old.len() || right < new.len() {
        if let (Some((step, live)), Some((new_step, applied))) = (old.get(left), new.get(right)) {
            if step == new_step {
                done.insert(step.as_str());
                out.push(merged(live, applied, items));
                (left, right) = (left + 1, right + 1);
                next_shared = shared.next();
                continue;
            }
            if in_new.contains(step.as_str()) && next_shared.is_some_and(|next| next != step) {
                left += 1;
                continue;
            }
        }
        if let Some((step, live)) = old.get(left) {
            if !in_new.contains(step.as_str()) {
                out.push((*live).clone());
                left += 1;
                continue;
            }
            if done.contains(step.as_str()) {
                left += 1;
            }
        }
        if let Some((step, applied)) = new.get(right) {
            done.insert(step.as_str());
            out.push(match in_old.get(step.as_str()) {
                Some(live) => merged(live, applied, items),
                None => (*applied).clone(),
            });
            right += 1;
            if next_shared == Some(step.as_str()) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// The value without the fields of the set; null when nothing of a map or list is left.
pub(crate) fn remove(value: &Value, removed: &FieldSet, node: &Node) -> Value {
    let part = |step: String, value: &Value, below: &Node| -> Option<Value> {
        match removed.children.get(&step) {
            Some(child) if child.is_member => None,
            Some(child) if !child.is_empty() => Some(remove(value, child, below)),
            _ => Some(value.clone()),
        }
    };
    match value {
        Value::Object(map) if !node.is_atomic() => {
            let left = map.iter().filter_map(|(name, value)| {
                Some((name.clone(), part(format!("f:{name}"), value, node.field(name).0)?))
            });
            let left: Map<String, Value> = left.collect();
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        Value::Array(list) => match node.items() {
            Some(items) => {
                let left = list.iter().filter_map(|item| part(node.item_step(item), item, items));
                let left: Vec<Value> = left.collect();
                if left.is_empty() { Value::Null } else { Value::Array(left) }
            }
            None => Value::Null,
        },
        _ => Value::Null,
    }
}
