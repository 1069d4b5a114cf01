//! Field ownership: what `metadata.managedFields` becomes with each write, and server-side apply.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::fields::FieldSet;
use super::schema::Node;
use super::typed;

/// Fields that no manager owns.
static SYSTEM: LazyLock<FieldSet> = LazyLock::new(|| {
    #[rustfmt::skip]
    let names = [
        "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields", "resourceVersion",
    ];
    let mut paths: Vec<Vec<&str>> = vec![vec!["apiVersion"], vec!["kind"], vec!["metadata"]];
    paths.extend(names.iter().map(|name| vec!["metadata", *name]));
    FieldSet::of_names(&paths.iter().map(Vec::as_slice).collect::<Vec<_>>())
});

/// The manager that a write is attributed to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) is_apply: bool,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

impl Manager {
    /// Appliers are the same manager in all versions.
    fn is(&self, other: &Self) -> bool {
        (&self.name, self.is_apply, &self.subresource) == (&other.name, other.is_apply, &other.subresource)
            && (self.is_apply || self.api_version == other.api_version)
    }

    fn print(&self) -> String {
        let mut out = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            out += &format!(" with subresource {:?}", self.subresource);
        }
        if !self.is_apply {
            out += &format!(" using {}", self.api_version);
        }
        out
    }
}

/// An entry of `managedFields`.
#[derive(Debug, Clone)]
struct Entry {
    manager: Manager,
    time: Value,
    fields: FieldSet,
}

/// How a write is to be attributed.
pub(crate) struct Attribution<'a> {
    pub(crate) manager: Manager,
    pub(crate) node: &'a Node,
    /// Fields that a request of this subresource cannot write.
    pub(crate) reset: &'a FieldSet,
    pub(crate) now: String,
}

/// Fields that another manager owns.
#[derive(Debug)]
pub(crate) struct Conflict {
    /// As the error message prints it.
    pub(crate) manager: String,
    pub(crate) paths: Vec<String>,
}

fn read(object: &Value) -> Vec<Entry> {
    decode(&object["metadata"]["managedFields"])
}

fn decode(managed: &Value) -> Vec<Entry> {
    managed.as_array().into_iter().flatten().map(decode_entry).collect()
}

fn decode_entry(entry: &Value) -> Entry {
    Entry {
        manager: manager(entry),
        time: entry["time"].clone(),
        fields: FieldSet::decode(&entry["fieldsV1"]),
    }
}

fn manager(entry: &Value) -> Manager {
    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    Manager {
        name: text("manager"),
        is_apply: entry["operation"] == "Apply",
        api_version: text("apiVersion"),
        subresource: text("subresource"),
    }
}

/// Writes the entries, and those that are as they were, in the order of the apiserver.
fn write(object: &mut Value, entries: Vec<Entry>, unchanged: Vec<Value>) {
    let Some(meta) = object["metadata"].as_object_mut() else { return };
    if entries.is_empty() && unchanged.is_empty() {
        meta.remove("managedFields");
        return;
    }
    let encode = |entry: Entry| {
        let Manager { name, is_apply, api_version, subresource } = entry.manager;
        let mut out = json!({"manager": name, "operation": if is_apply { "Apply" } else { "Update" },
            "apiVersion": api_version, "time": entry.time, "fieldsType": "FieldsV1",
            "fieldsV1": entry.fields.encode()});
        if !subresource.is_empty() {
            out["subresource"] = subresource.into();
        }
        out
    };
    let mut all: Vec<Value> = entries.into_iter().map(encode).chain(unchanged).collect();
    all.sort_by(|one, other| {
        fn key(entry: &Value) -> (bool, [Option<&str>; 4]) {
            let texts = ["time", "manager", "apiVersion", "subresource"].map(|name| entry[name].as_str());
            (entry["operation"] != "Apply", texts)
        }
        key(one).cmp(&key(other))
    });
    meta.insert("managedFields".to_owned(), all.into());
}

/// A copy of the object without its managed fields.
pub(crate) fn bare(object: &Value) -> Value {
    let Value::Object(map) = object else { return object.clone() };
    let copy = |(name, value): (&String, &Value)| match value {
        Value::Object(meta) if name == "metadata" => {
            let fields = meta.iter().filter(|(name, _)| *name != "managedFields");
            (name.clone(), fields.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        _ => (name.clone(), value.clone()),
    };
    map.iter().map(copy).collect()
}

fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// A list without content: one empty entry clears the ownership of all fields.
fn is_reset(managed: &Value) -> bool {
    managed.as_array().is_some_and(|list| {
        list.len() == 1 && list[0].as_object().is_some_and(|entry| entry.values().all(Value::is_null))
    })
}

/// The managed fields of `new` after a request that is no apply. `live` is the empty object of the kind when it is created.
pub(crate) fn update(live: &Value, new: &mut Value, by: &Attribution<'_>) {
    let is_creation = live.pointer("/metadata/uid").is_none();
    let requested = take(new).unwrap_or_default();
    let mut stored = &live["metadata"]["managedFields"];
    let mut entries = Vec::new();
    if by.manager.subresource.is_empty() && requested != *stored {
        if is_reset(&requested) {
            stored = &Value::Null;
        } else {
            entries = decode(&requested);
            if !entries.is_empty() {
                stored = &Value::Null;
            }
        }
    }
    let stored = stored.as_array().map(Vec::as_slice).unwrap_or_default();
    // what is not tracked stays so until the first apply
    if entries.is_empty() && stored.is_empty() && !is_creation {
        write(new, entries, Vec::new());
        return;
    }
    // that `new` has no managed fields now is no change: no manager owns them
    let changes = typed::compare(Some(live), Some(new), by.node).without(by.reset);
    // most entries have nothing to do with a write: they need not be read
    let (touched, unchanged): (Vec<&Value>, Vec<&Value>) =
        stored.iter().partition(|entry| is_touched(entry, &changes, by));
    entries.extend(touched.into_iter().map(decode_entry));
    track(&changes, &mut entries, by);
    write(new, entries, unchanged.into_iter().cloned().collect());
}

/// Whether the entry is the manager's own, or may lose fields to it.
fn is_touched(entry: &Value, changes: &typed::Comparison, by: &Attribution<'_>) -> bool {
    let has_any = |set: &FieldSet| set.children.keys().any(|step| entry["fieldsV1"].get(step).is_some());
    [&changes.added, &changes.modified, &changes.removed].into_iter().any(has_any)
        || manager(entry).is(&by.manager)
}

/// Gives the manager the fields that it has changed.
fn track(changes: &typed::Comparison, entries: &mut Vec<Entry>, by: &Attribution<'_>) {
    let mut own = changes.added.clone().union(&changes.modified);
    for entry in entries.iter_mut() {
        entry.fields.subtract(&own);
        entry.fields.subtract(&changes.removed);
    }
    own.subtract(&SYSTEM);
    if !own.is_empty() {
        match entries.iter_mut().find(|entry| entry.manager.is(&by.manager)) {
            Some(entry) => {
                entry.fields = std::mem::take(&mut entry.fields).union(&own);
                entry.time = by.now.clone().into();
            }
            None => {
                entries.push(Entry { manager: by.manager.clone(), time: by.now.clone().into(), fields: own })
            }
        }
    }
    entries.retain(|entry| !entry.fields.is_empty());
}

/// Applies a configuration over the live object, which has no uid when it is created.
/// The error is the conflicts, unless `force`.
pub(crate) fn apply(
    live: &Value,
    applied: &Value,
    force: bool,
    by: &Attribution<'_>,
) -> Result<Value, Vec<Conflict>> {
    let bare = bare(live);
    let mut entries = read(live);
    if entries.is_empty() && live.pointer("/metadata/uid").is_some() {
        let (name, api_version) = ("before-first-apply".to_owned(), by.manager.api_version.clone());
        let manager = Manager { name, api_version, ..Manager::default() };
        let before = Attribution { manager, now: by.now.clone(), ..*by };
        let empty = json!({"metadata": {}});
        let changes = typed::compare(Some(&empty), Some(&bare), by.node).without(by.reset);
        track(&changes, &mut entries, &before);
    }
    let before = entries.clone();
    let position = entries.iter().position(|entry| entry.manager.is(&by.manager));
    let last = position.map(|at| entries[at].fields.clone());
    let mut set = typed::set_of(applied, by.node);
    set.subtract_below(by.reset);
    // what it applied last time is applied again: there is nothing to remove
    let last = last.filter(|last| !set.contains(last));
    let time = position.map_or(Value::Null, |at| entries[at].time.clone());
    let own = Entry { manager: by.manager.clone(), time, fields: set };
    match position {
        Some(at) => entries[at] = own,
        None => entries.push(own),
    }
    let mut merged = bare.clone();
    typed::merge(&mut merged, applied, by.node);
    let new = match last {
        Some(last) => prune(&merged, &last, &entries, by.node),
        None => merged,
    };

    let changes = typed::compare(Some(&bare), Some(&new), by.node).without(by.reset);
    let written = changes.added.clone().union(&changes.modified);
    let mut conflicts = Vec::new();
    for entry in entries.iter_mut().filter(|entry| !entry.manager.is(&by.manager)) {
        let taken = entry.fields.intersection(&written);
        if !taken.is_empty() {
            conflicts.push(Conflict { manager: entry.manager.print(), paths: taken.paths() });
        }
        entry.fields.subtract(&taken);
        entry.fields.subtract(&changes.removed);
    }
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    for entry in &mut entries {
        if entry.manager.is(&by.manager) {
            entry.fields.subtract(&SYSTEM);
        }
    }
    entries.retain(|entry| !entry.fields.is_empty());
    let are_same = |one: &Entry, other: &Entry| one.manager == other.manager && one.fields == other.fields;
    let is_same = before.len() == entries.len()
        && before.iter().all(|entry| entries.iter().any(|other| are_same(entry, other)));
    let is_changed = new != bare || !is_same;
    if let Some(entry) = entries.iter_mut().find(|entry| entry.manager.is(&by.manager) && is_changed) {
        entry.time = by.now.clone().into();
    }
    let mut new = new;
    write(&mut new, entries, Vec::new());
    Ok(new)
}

/// Removes what the manager applied last time, does not apply now, and no other manager owns.
fn prune(merged: &Value, last: &FieldSet, entries: &[Entry], node: &Node) -> Value {
    let named = |value: &Value| typed::set_of(value, node).with_named_parents(node);
    let all = named(merged);
    let last = last.with_named_parents(node);
    let managed = entries
        .iter()
        .fold(FieldSet::default(), |all, entry| all.union(&entry.fields))
        .with_named_parents(node);
    let pruned = typed::remove(merged, &last, node);
    let pruned = typed::remove(merged, &all.difference(&named(&pruned).union(&managed)), node);
    typed::remove(merged, &all.difference(&named(&pruned)).intersection(&last), node)
}
