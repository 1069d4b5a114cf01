//! The probes that the extension controller writes into each revision. Clients see them, so they stay exactly these.
//!
//! Rule: revisions §8.4.

use super::{Assertion, Probe, Selector};

/// The default probes, in the order in which they are written.
pub fn default_probes() -> Vec<Probe> {
    let condition =
        |condition: &str| Assertion::ConditionEqual { condition: condition.into(), status: "True".into() };
    let phase = |value: &str| Assertion::FieldValue { path: "status.phase".into(), value: value.into() };
    let updated =
        || Assertion::FieldsEqual { a: "status.updatedReplicas".into(), b: "status.replicas".into() };
    [
        ("apiextensions.k8s.io", "CustomResourceDefinition", vec![condition("Established")]),
        ("cert-manager.io", "Certificate", vec![condition("Ready")]),
        ("cert-manager.io", "Issuer", vec![condition("Ready")]),
        ("", "Namespace", vec![phase("Active")]),
        ("", "PersistentVolumeClaim", vec![phase("Bound")]),
        ("apps", "StatefulSet", vec![updated(), condition("Available")]),
        ("apps", "Deployment", vec![updated(), condition("Available")]),
    ]
    .into_iter()
    .map(|(group, kind, assertions)| Probe {
        selector: Selector::GroupKind { group: group.into(), kind: kind.into() },
        assertions,
    })
    .collect()
}
