//! Additions of the apiserver to objects before they are stored: defaults of built-in kinds, and pruning and defaults of custom resources.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::kinds::{Kind, Version};

/// The object as the apiserver decodes it.
pub(crate) fn decode(object: &mut Value, kind: &Kind, version: &Version) {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.retain(|_, value| !is_empty(value));
    }
    match &version.schema {
        Some(schema) => {
            prune_root(object, schema);
            fill(object, schema);
        }
        None => {
            drop_empty(object);
            under(object, &kind.zero);
            built_in(object, &kind.kind);
        }
    }
}

/// A value that Go's `omitempty` leaves out.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Removes what Go's types of built-in kinds do not print: empty lists, and empty maps (structs are printed).
fn drop_empty(value: &mut Value) {
    #[rustfmt::skip]
    const MAPS: [&str; 9] = [
        "labels", "annotations", "data", "binaryData", "stringData", "nodeSelector", "matchLabels", "limits", "requests",
    ];
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(drop_empty);
            map.retain(|name, value| match value {
                Value::Object(inner) => !inner.is_empty() || !MAPS.contains(&name.as_str()),
                Value::Array(list) => !list.is_empty(),
                other => !other.is_null(),
            });
        }
        Value::Array(list) => list.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// Adds the fields of a zero value that are absent.
fn under(object: &mut Value, zero: &Value) {
    let (Some(map), Some(zero)) = (object.as_object_mut(), zero.as_object()) else { return };
    for (name, value) in zero {
        let present = map.entry(name.clone()).or_insert_with(|| value.clone());
        if present.is_null() {
            present.clone_from(value);
        }
        under(present, value);
    }
}

fn prune_root(object: &mut Value, schema: &Value) {
    let Some(map) = object.as_object_mut() else { return };
    let system: Vec<(String, Value)> =
        ["apiVersion", "kind", "metadata"].iter().filter_map(|name| map.remove_entry(*name)).collect();
    prune(object, schema);
    if let Some(map) = object.as_object_mut() {
        map.extend(system);
    }
}

fn prune(value: &mut Value, schema: &Value) {
    match value {
        Value::Array(list) => {
            if let Some(items) = schema.get("items") {
                list.iter_mut().for_each(|item| prune(item, items));
            }
        }
        Value::Object(map) => {
            let preserves = schema["x-kubernetes-preserve-unknown-fields"] == true;
            let is_embedded = schema["x-kubernetes-embedded-resource"] == true;
            let others = schema.get("additionalProperties");
            let properties = &schema["properties"];
            map.retain(|name, value| match (properties.get(name), others) {
                (Some(schema), _) => {
                    prune(value, schema);
                    true
                }
                (None, Some(schema)) => {
                    prune(value, schema);
                    schema != false
                }
                (None, None) => {
                    preserves || is_embedded && matches!(name.as_str(), "apiVersion" | "kind" | "metadata")
                }
            });
        }
        _ => {}
    }
}

/// The path of the first null that the schema does not allow: `.spec.list[0]`.
pub(crate) fn first_null(value: &Value, schema: &Value) -> Option<String> {
    match value {
        Value::Null => (schema["nullable"] != true && schema.get("type").is_some()).then(String::new),
        Value::Array(list) => {
            let items = schema.get("items")?;
            let mut found = list.iter().enumerate();
            found.find_map(|(at, item)| Some(format!("[{at}]{}", first_null(item, items)?)))
        }
        Value::Object(map) => {
            let (properties, others) = (&schema["properties"], schema.get("additionalProperties"));
            map.iter().find_map(|(name, value)| {
                let below = properties.get(name).or(others)?;
                Some(format!(".{name}{}", first_null(value, below)?))
            })
        }
        _ => None,
    }
}

fn fill(value: &mut Value, schema: &Value) {
    match value {
        Value::Array(list) => {
            if let Some(items) = schema.get("items") {
                list.iter_mut().for_each(|item| fill(item, items));
            }
        }
        Value::Object(map) => {
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = schema.get("default")
                    && map.get(name).is_none_or(|value| value.is_null() && schema["nullable"] != true)
                {
                    map.insert(name.clone(), default.clone());
                }
                if let Some(value) = map.get_mut(name) {
                    fill(value, schema);
                }
            }
            if let Some(others) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
                map.values_mut().for_each(|value| fill(value, others));
            }
        }
        _ => {}
    }
}

fn built_in(object: &mut Value, kind: &str) {
    match kind {
        "Secret" => {
            if let Some(Value::Object(texts)) =
                object.as_object_mut().and_then(|map| map.remove("stringData"))
            {
                for (name, text) in texts {
                    let text = STANDARD.encode(text.as_str().unwrap_or_default());
                    object["data"][name] = text.into();
                }
            }
            missing(object, json!({"type": "Opaque"}));
        }
        "Namespace" => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            missing(object, json!({"status": {"phase": "Active"}}));
        }
        "Deployment" => {
            missing(
                &mut object["spec"],
                json!({"replicas": 1, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10}),
            );
            let strategy = &mut object["spec"]["strategy"];
            missing(strategy, json!({"type": "RollingUpdate"}));
            if strategy["type"] == "RollingUpdate" {
                missing(strategy, json!({"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}));
            }
            pod(&mut object["spec"]["template"]["spec"]);
            for condition in
                object["status"].get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten()
            {
                missing(condition, json!({"lastTransitionTime": null, "lastUpdateTime": null}));
            }
        }
        "DaemonSet" | "StatefulSet" | "ReplicaSet" => {
            missing(&mut object["spec"], json!({"revisionHistoryLimit": 10}));
            pod(&mut object["spec"]["template"]["spec"]);
        }
        "Pod" => pod(&mut object["spec"]),
        "Service" => {
            let spec = &mut object["spec"];
            missing(
                spec,
                json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "clusterIP": "10.0.0.10", "clusterIPs": ["10.0.0.10"]}),
            );
            for port in spec["ports"].as_array_mut().into_iter().flatten() {
                let target = port["port"].clone();
                missing(port, json!({"protocol": "TCP", "targetPort": target}));
            }
        }
        "ClusterRoleBinding" | "RoleBinding" => {
            let group = "rbac.authorization.k8s.io";
            if object["roleRef"]["apiGroup"] == "" {
                object["roleRef"]["apiGroup"] = group.into();
            }
            for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
                if subject["kind"] != "ServiceAccount" {
                    missing(subject, json!({"apiGroup": group}));
                }
            }
        }
        "CustomResourceDefinition" => {
            let kind = object["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
            let names = json!({"singular": kind.to_lowercase(), "listKind": format!("{kind}List")});
            missing(&mut object["spec"]["names"], names);
            missing(&mut object["spec"], json!({"conversion": {"strategy": "None"}}));
        }
        _ => {}
    }
}

fn pod(spec: &mut Value) {
    missing(
        spec,
        json!({"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
        "securityContext": {}, "terminationGracePeriodSeconds": 30}),
    );
    if let Some(account) = spec.get("serviceAccountName").or(spec.get("serviceAccount")).cloned() {
        missing(spec, json!({"serviceAccountName": account, "serviceAccount": account}));
    }
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container_defaults(container);
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        for source in ["secret", "configMap", "projected", "downwardAPI"] {
            if let Some(source) = volume.get_mut(source) {
                missing(source, json!({"defaultMode": 420}));
            }
        }
    }
}

fn container_defaults(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let is_latest = !image.contains('@') && (!name.contains(':') || name.ends_with(":latest"));
    let policy = if is_latest { "Always" } else { "IfNotPresent" };
    missing(
        container,
        json!({"imagePullPolicy": policy, "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}),
    );
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        missing(port, json!({"protocol": "TCP"}));
    }
    for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(reference) = variable.pointer_mut("/valueFrom/fieldRef") {
            missing(reference, json!({"apiVersion": "v1"}));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe) else { continue };
        missing(
            probe,
            json!({"failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1}),
        );
        if let Some(get) = probe.get_mut("httpGet") {
            missing(get, json!({"scheme": "HTTP"}));
        }
    }
}

/// Sets the fields that are absent.
fn missing(object: &mut Value, defaults: Value) {
    if object.is_null() {
        *object = Value::Object(Map::new());
    }
    let (Some(map), Value::Object(defaults)) = (object.as_object_mut(), defaults) else { return };
    for (name, value) in defaults {
        map.entry(name).or_insert(value);
    }
}
