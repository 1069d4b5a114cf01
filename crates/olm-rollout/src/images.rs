//! The images that objects run, by container.

use std::collections::BTreeMap;

use olm_core::Object;
use serde_json::Value;

/// Where the pod template of a kind is, below `spec`.
const TEMPLATES: [&str; 3] = ["/template/spec", "/jobTemplate/spec/template/spec", ""];

/// Image by container, for example `Deployment demo/main: manager` → `registry/manager:v1`. Init containers count.
#[must_use]
pub fn images(objects: &[Object]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for object in objects {
        let spec = object.0.get("spec");
        let pods = TEMPLATES.iter().filter_map(|at| spec?.pointer(at));
        let Some(pod) = pods.into_iter().find(|pod| pod.get("containers").is_some_and(Value::is_array))
        else {
            continue;
        };
        let place = match object.namespace() {
            Some(namespace) => format!("{} {namespace}/{}", object.kind(), object.name()),
            None => format!("{} {}", object.kind(), object.name()),
        };
        for list in ["initContainers", "containers"] {
            for container in pod.get(list).and_then(Value::as_array).into_iter().flatten() {
                let text = |key: &str| container.get(key).and_then(Value::as_str).unwrap_or_default();
                found.insert(format!("{place}: {}", text("name")), text("image").to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn images_of_all_containers_count() {
        let pod = json!({"initContainers": [{"name": "i", "image": "a"}], "containers": [{"name": "m", "image": "b"}]});
        let object = |kind: &str, spec: Value| {
            Object::from_value(
                json!({"kind": kind, "metadata": {"name": "x", "namespace": "n"}, "spec": spec}),
            )
            .unwrap()
        };
        let got = images(&[
            object("Deployment", json!({"template": {"spec": pod}})),
            object("CronJob", json!({"jobTemplate": {"spec": {"template": {"spec": pod}}}})),
            object("Service", json!({"ports": []})),
        ]);
        let want = [
            ("CronJob n/x: i", "a"),
            ("CronJob n/x: m", "b"),
            ("Deployment n/x: i", "a"),
            ("Deployment n/x: m", "b"),
        ];
        let got: Vec<_> = got.iter().map(|(key, image)| (key.as_str(), image.as_str())).collect();
        assert_eq!(got, want);
    }
}
