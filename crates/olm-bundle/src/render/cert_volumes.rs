//! The serving certificate's Secret in the pods that serve webhooks. Rule: bundle-rendering §9.6, certificate volumes.
//!
//! Two volumes, where the operator's frameworks look for them. What the bundle has under the same names or at the same
//! paths gives way, in init containers too where their volume is gone (bundle-rendering §16 row 24).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

struct Protected {
    volume: &'static str,
    path: &'static str,
    certificate: &'static str,
    key: &'static str,
}

const PROTECTED: [Protected; 2] = [
    Protected {
        volume: "webhook-cert",
        path: "/tmp/k8s-webhook-server/serving-certs",
        certificate: "tls.crt",
        key: "tls.key",
    },
    Protected {
        volume: "apiservice-cert",
        path: "/apiserver.local.config/certificates",
        certificate: "apiserver.crt",
        key: "apiserver.key",
    },
];

/// Mounts the Secret in every container of a pod.
pub(super) fn mount(pod: &mut Map<String, Value>, secret: &str) {
    let mut replaced: BTreeSet<String> = PROTECTED.iter().map(|one| one.volume.to_owned()).collect();
    for container in list(pod.get("containers")) {
        for mount in list(container.get("volumeMounts")) {
            let path = mount.get("mountPath").and_then(Value::as_str).unwrap_or_default();
            if PROTECTED.iter().any(|one| one.path == path) {
                replaced.insert(name_of(mount).to_owned());
            }
        }
    }

    let volumes = list_mut(pod, "volumes");
    volumes.retain(|volume| !replaced.contains(name_of(volume)));
    volumes.extend(PROTECTED.iter().map(|one| {
        json!({
            "name": one.volume,
            "secret": {
                "secretName": secret,
                "items": [{"key": "tls.crt", "path": one.certificate}, {"key": "tls.key", "path": one.key}],
            }
        })
    }));

    if let Some(Value::Array(containers)) = pod.get_mut("containers") {
        for container in containers.iter_mut().filter_map(Value::as_object_mut) {
            let mounts = list_mut(container, "volumeMounts");
            mounts.retain(|mount| !replaced.contains(name_of(mount)));
            mounts.extend(PROTECTED.iter().map(|one| json!({"name": one.volume, "mountPath": one.path})));
        }
    }

    for one in &PROTECTED {
        replaced.remove(one.volume); // these volumes are there, so their mounts hold
    }
    if let Some(Value::Array(containers)) = pod.get_mut("initContainers") {
        for container in containers {
            if let Some(Value::Array(mounts)) = container.get_mut("volumeMounts") {
                mounts.retain(|mount| !replaced.contains(name_of(mount)));
            }
        }
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn list_mut<'a>(parent: &'a mut Map<String, Value>, name: &str) -> &'a mut Vec<Value> {
    let value = parent.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(items) => items,
        _ => unreachable!("made a list just above"),
    }
}

fn name_of(value: &Value) -> &str {
    value.get("name").and_then(Value::as_str).unwrap_or_default()
}
