//! The bundle's other manifests. Rule: bundle-rendering §9.5.
//!
//! Namespaced kinds go to the install namespace whatever their namespace is; nothing else changes.

use olm_core::Object;
use serde_json::Value;

use super::Context;
use crate::kinds::{self, Scope};

pub(super) fn additional(context: &Context<'_>, others: Vec<Object>) -> Vec<Object> {
    others.into_iter().map(|object| in_namespace(context, object)).collect()
}

fn in_namespace(context: &Context<'_>, mut object: Object) -> Object {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::fixture::bundle;
    use crate::options::RenderOptions;
    use crate::render::render;

    #[test]
    fn additional_namespaced_objects_get_the_namespace() {
        let kinds = [
            ("v1", "ConfigMap", Some("other"), Some("i")),
            ("v1", "Service", None, Some("i")),
            ("serving.knative.dev/v1", "Service", Some("other"), Some("i")),
            ("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", None, Some("i")),
            ("rbac.authorization.k8s.io/v1", "ClusterRole", Some("stray"), Some("stray")),
            ("scheduling.k8s.io/v1", "PriorityClass", None, None),
        ];
        let manifests: Vec<_> = kinds
            .iter()
            .enumerate()
            .map(|(index, (api_version, kind, namespace, _))| {
                let mut metadata =
                    json!({"name": format!("n{index}"), "creationTimestamp": null, "labels": {"a": "b"}});
                if let Some(namespace) = namespace {
                    metadata["namespace"] = (*namespace).into();
                }
                json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "value": 1})
            })
            .collect();
        let objects = render(&bundle(&json!({}), &manifests).unwrap(), &RenderOptions::new("i")).unwrap();
        for (index, (api_version, kind, _, want)) in kinds.iter().enumerate() {
            let name = format!("n{index}");
            let found = objects.iter().find(|object| object.name() == name).unwrap();
            let mut metadata = json!({"name": name, "labels": {"a": "b"}});
            if let Some(namespace) = want {
                metadata["namespace"] = (*namespace).into();
            }
            let want = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "value": 1});
            assert_eq!(found.to_value(), want);
        }
    }
}
