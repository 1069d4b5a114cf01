//! Schemas that the derive macros cannot express: label selectors, string items with limits, embedded objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Rule, validate};
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::cel;

fn label_selector() -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "description": "Requirements on labels, all of which must hold.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "description": "One requirement on one label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "description": "The label's key.",
                            "type": "string"
                        },
                        "operator": {
                            "description": "In, NotIn, Exists or DoesNotExist.",
                            "type": "string"
                        },
                        "values": {
                            "description": "The values for In and NotIn; must be empty for Exists and DoesNotExist.",
                            "type": "array",
                            "items": { "type": "string" },
                            "x-kubernetes-list-type": "atomic"
                        }
                    }
                }
            },
            "matchLabels": {
                "description": "Labels that must be there with exactly these values.",
                "type": "object",
                "additionalProperties": { "type": "string" }
            }
        }
    })
}

/// An atomic label selector.
pub(crate) fn selector(_: &mut SchemaGenerator) -> Schema {
    label_selector()
}

/// An atomic label selector that uses exactly one of its two forms.
pub(crate) fn one_form_selector(_: &mut SchemaGenerator) -> Schema {
    with_rule(label_selector(), cel::one_selector())
}

/// Up to 256 channel names.
pub(crate) fn channels(_: &mut SchemaGenerator) -> Schema {
    let item = with_rule(json_schema!({ "type": "string", "maxLength": 253 }), cel::channel_subdomain());
    json_schema!({ "type": "array", "maxItems": 256, "items": item })
}

/// A non-empty JSON object of any content.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "minProperties": 1, "x-kubernetes-preserve-unknown-fields": true })
}

/// A whole Kubernetes object: the apiserver checks apiVersion, kind and metadata, the rest is kept as it is.
pub(crate) fn embedded_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true
    })
}

/// Minutes between polls: a whole number without an upper limit.
pub(crate) fn poll_minutes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "minimum": 1 })
}

/// Adds a CEL rule. A rule is plain data and always serialises; if it ever did not, the schema would lack it and the test
/// that counts rules would fail.
fn with_rule(mut schema: Schema, rule: Rule) -> Schema {
    let _ = validate(&mut schema, rule);
    schema
}

/// The label selector type of the Kubernetes API; re-exported so that users of a field need no other import.
pub(crate) type Selector = LabelSelector;
