//! A way down into an object that is being changed.

use serde_json::{Map, Value};

/// The object member of that name, made where it is missing.
pub(super) fn member<'a>(parent: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let value = parent.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(members) => members,
        _ => unreachable!("made an object just above"),
    }
}
