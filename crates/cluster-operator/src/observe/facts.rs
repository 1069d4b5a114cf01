//! The facts of one object. A missing or invalid member is part of the fact, so that one broken object hides no other.

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use olm_api::{annotations, labels};
use olm_core::openshift::{Bundle, Lifecycle, Revision};
use serde_json::Value;

use crate::deployment::Deployment;

/// A ClusterExtension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extension {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The bundle that its status calls installed.
    pub(crate) installed: Option<String>,
}

/// A revision that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The extension that it belongs to.
    pub(crate) extension: String,
    /// Name of the ClusterObjectSet.
    pub(crate) name: String,
    pub(crate) cause: String,
}

/// A revision, or why it cannot be read.
pub(crate) type RevisionFact = Result<Revision, Broken>;

pub(super) fn extension(object: &DynamicObject) -> Extension {
    Extension {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        installed: text(object, "/status/install/bundle/name"),
    }
}

pub(super) fn revision(object: &DynamicObject) -> Option<RevisionFact> {
    let label = |key: &str| object.labels().get(key);
    if label(labels::OWNER_KIND).map(String::as_str) != Some(labels::OWNER_KIND_CLUSTER_EXTENSION) {
        return None;
    }
    let extension = label(labels::OWNER_NAME)?.clone();
    let annotation = |key: &str| object.annotations().get(key).cloned();
    let broken = |cause: &str| {
        Err(Broken { extension: extension.clone(), name: object.name_any(), cause: cause.to_owned() })
    };
    let lifecycle = match text(object, "/spec/lifecycleState").as_deref() {
        Some("Active") => Lifecycle::Active,
        Some("Archived") => Lifecycle::Archived,
        Some(_) | None => return Some(broken("spec.lifecycleState is neither Active nor Archived")),
    };
    let Some(number) = object.data.pointer("/spec/revision").and_then(Value::as_i64) else {
        return Some(broken("spec.revision is no number"));
    };
    Some(Ok(Revision {
        extension: extension.clone(),
        number,
        lifecycle,
        bundle: annotation(annotations::BUNDLE_NAME).unwrap_or_default(),
        properties: annotation(annotations::PROPERTIES),
    }))
}

/// A ClusterServiceVersion is the bundle itself.
pub(super) fn csv(object: &DynamicObject) -> Bundle {
    let annotations = object.annotations();
    Bundle::from_csv(&object.namespace().unwrap_or_default(), &object.name_any(), |key| annotations.get(key))
}

pub(super) fn deployment(object: &DynamicObject) -> Deployment {
    let number = |path: &str| object.data.pointer(path).and_then(Value::as_i64);
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let progressing = conditions.into_iter().flatten().find(|condition| condition["type"] == "Progressing");
    let reason = progressing.and_then(|condition| condition["reason"].as_str());
    Deployment {
        generation: object.metadata.generation.unwrap_or_default(),
        observed_generation: number("/status/observedGeneration").unwrap_or_default(),
        // as the apiserver defaults it
        desired: number("/spec/replicas").unwrap_or(1),
        updated: number("/status/updatedReplicas").unwrap_or_default(),
        available: number("/status/availableReplicas").unwrap_or_default(),
        unavailable: number("/status/unavailableReplicas").unwrap_or_default(),
        progressing_reason: reason.unwrap_or_default().to_owned(),
    }
}

/// The ClusterOperator with a status in each condition that [`olm_api::ConditionStatus`] has: OpenShift's schema takes any text, and one
/// that a user mistypes must not make the whole object unreadable. It counts as Unknown.
pub(super) fn operator(object: &DynamicObject) -> DynamicObject {
    let mut object = object.clone();
    let conditions = object.data.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if let Some(status) = condition.get_mut("status")
            && !matches!(status.as_str(), Some("True" | "False" | "Unknown"))
        {
            *status = Value::from("Unknown");
        }
    }
    object
}

pub(super) fn version(object: &DynamicObject) -> Option<String> {
    text(object, "/status/desired/version")
}

fn text(object: &DynamicObject, path: &str) -> Option<String> {
    object.data.pointer(path).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::observe::table::from_metadata;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn facts_about_csvs_are_in_their_metadata() {
        let whole = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": "a.v1", "namespace": "n", "annotations": {
                "olm.properties": r#"[{"type": "olm.maxOpenShiftVersion", "value": "4.20"}]"#}},
            "spec": {"displayName": "a"}, "status": {"phase": "Succeeded"},
        });
        let metadata = from_metadata(serde_json::from_value(whole.clone()).unwrap());
        assert_eq!(metadata.data, Value::Null);
        assert_eq!(csv(&metadata), csv(&object(whole)));
    }

    #[test]
    #[rustfmt::skip]
    fn facts_are_read_from_revisions_of_extensions_only() {
        let set = |labels: Value, spec: Value| {
            revision(&object(json!({
                "metadata": {"name": "e-1", "labels": labels, "annotations": {
                    "olm.operatorframework.io/bundle-name": "b.v1", "olm.properties": "[]"}},
                "spec": spec,
            })))
        };
        let ours = json!({"olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": "e"});
        let good = set(ours.clone(), json!({"lifecycleState": "Active", "revision": 3}));
        let want = Revision {
            extension: "e".to_owned(),
            number: 3,
            lifecycle: Lifecycle::Active,
            bundle: "b.v1".to_owned(),
            properties: Some("[]".to_owned()),
        };
        assert_eq!(good, Some(Ok(want)));
        for (labels, spec) in [
            (json!({}), json!({"lifecycleState": "Active", "revision": 3})),
            (json!({"olm.operatorframework.io/owner-name": "e"}), json!({})),
            (json!({"olm.operatorframework.io/owner-kind": "Other", "olm.operatorframework.io/owner-name": "e"}), json!({})),
        ] {
            assert_eq!(set(labels.clone(), spec), None, "case 37: {labels}");
        }
        for (spec, cause) in [
            (json!({"revision": 1}), "spec.lifecycleState is neither Active nor Archived"),
            (json!({"lifecycleState": "Paused", "revision": 1}), "spec.lifecycleState is neither Active nor Archived"),
            (json!({"lifecycleState": "Active", "revision": "1"}), "spec.revision is no number"),
        ] {
            let found = set(ours.clone(), spec.clone()).unwrap().unwrap_err();
            assert_eq!(
                (found.extension.as_str(), found.name.as_str(), found.cause.as_str()),
                ("e", "e-1", cause)
            );
        }
    }

    #[test]
    fn facts_of_a_mistyped_condition_are_unknown() {
        use olm_api::openshift::ClusterOperator;

        let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let given = object(json!({
            "apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": {"name": "olm"}, "spec": {},
            "status": {"conditions": [condition("Available", "true"), condition("Degraded", "False"), condition("Foreign", "")]},
        }));
        assert!(given.clone().try_parse::<ClusterOperator>().is_err());
        let read: ClusterOperator = operator(&given).try_parse().unwrap();
        let found: Vec<_> = read.status.unwrap().conditions.iter().map(|it| it.status.as_str()).collect();
        assert_eq!(found, ["Unknown", "False", "Unknown"]);
        let without = object(json!({"metadata": {"name": "olm"}, "spec": {}}));
        assert_eq!(operator(&without), without);
    }

    #[test]
    fn facts_are_read_from_deployments_and_extensions() {
        let found = deployment(&object(json!({
            "metadata": {"generation": 4},
            "spec": {"replicas": 2},
            "status": {"observedGeneration": 4, "updatedReplicas": 2, "availableReplicas": 1, "unavailableReplicas": 1,
                       "conditions": [{"type": "Progressing", "reason": "ReplicaSetUpdated"}]}
        })));
        let want = Deployment {
            generation: 4,
            observed_generation: 4,
            desired: 2,
            updated: 2,
            available: 1,
            unavailable: 1,
            progressing_reason: "ReplicaSetUpdated".to_owned(),
        };
        assert_eq!(found, want);
        assert_eq!(
            deployment(&object(json!({"metadata": {}}))),
            Deployment { desired: 1, ..Deployment::default() }
        );
        let invalid = extension(&object(json!({"metadata": {"name": "e", "uid": "u"}, "status": 5})));
        assert_eq!(invalid, Extension { name: "e".to_owned(), uid: "u".to_owned(), installed: None });
    }
}
