//! Schemas of what is kept as JSON.

pub(super) use crate::schema::selector;

use schemars::{Schema, SchemaGenerator, json_schema};

/// An object of any content.
pub(super) fn object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A list of objects of any content.
pub(super) fn objects(generator: &mut SchemaGenerator) -> Schema {
    let item = object(generator);
    json_schema!({ "type": "array", "items": item })
}

/// Any JSON.
pub(super) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// A number, or the name of a port.
pub(super) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] })
}

/// A quantity of Kubernetes, such as `50Mi`.
pub(super) fn quantity(_: &mut SchemaGenerator) -> Schema {
    let pattern = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": pattern
    })
}

/// How strict the security context of a pod is.
pub(super) fn security_context(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["legacy", "restricted"] })
}

/// Whether a failed version may be replaced.
pub(super) fn upgrade_strategy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Default", "TechPreviewUnsafeFailForward"], "default": "Default" })
}
