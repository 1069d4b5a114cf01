//! The bundle's other manifests. Rule: bundle-rendering §9.5.
//!
//! Namespaced kinds go to the install namespace whatever they say; nothing else changes.

use olm_core::Object;
use serde_json::Value;

use super::Context;
use crate::kinds::{self, Scope};

pub(super) fn additional(context: &Context<'_>) -> Vec<Object> {
    context.bundle.others.iter().map(|object| one(context, object)).collect()
}

fn one(context: &Context<'_>, object: &Object) -> Object {
    let mut object = object.clone();
    if kinds::scope(object.kind()) == Some(Scope::Namespaced) {
        object.set_namespace(context.namespace());
    }
    if let Some(Value::Object(metadata)) = object.0.get_mut("metadata")
        && metadata.get("creationTimestamp").is_some_and(Value::is_null)
    {
        metadata.remove("creationTimestamp");
    }
    object
}
