//! Deployment overrides from `deploymentConfig`, field by field in a fixed order. Rule: bundle-rendering §11.
//!
//! Containers means `spec.template.spec.containers`; init and ephemeral containers are never touched.

use std::collections::HashMap;

use olm_core::Object;
use serde_json::{Map, Value};

use crate::config::DeploymentConfig;
use olm_core::member_map as member;

/// Changes a Deployment as configured.
pub fn override_deployment(config: &DeploymentConfig, deployment: &mut Object) {
    if *config == DeploymentConfig::default() {
        return;
    }
    let template = member(member(&mut deployment.0, "spec"), "template");
    let pod = member(template, "spec");
    each_container(pod, |container| merge_by_name(container, "env", &config.env));
    each_container(pod, |container| append_absent(container, "envFrom", &config.env_from));
    merge_by_name(pod, "volumes", &config.volumes);
    each_container(pod, |container| merge_by_name(container, "volumeMounts", &config.volume_mounts));
    append_absent(pod, "tolerations", &config.tolerations);
    if let Some(resources) = &config.resources {
        each_container(pod, |container| {
            container.insert("resources".to_owned(), resources.clone());
        });
    }
    match &config.node_selector {
        None => {}
        Some(empty) if empty.is_empty() => {
            pod.remove("nodeSelector");
        }
        Some(selector) => {
            pod.insert("nodeSelector".to_owned(), Value::Object(selector.clone()));
        }
    }
    if let Some(affinity) = &config.affinity {
        override_affinity(pod, affinity);
    }
    if !config.annotations.is_empty() {
        let absent = |annotations: &mut Map<String, Value>| {
            for (key, value) in &config.annotations {
                annotations.entry(key.as_str()).or_insert_with(|| value.as_str().into());
            }
        };
        absent(member(member(template, "metadata"), "annotations"));
        absent(member(deployment.metadata_mut(), "annotations"));
    }
}

fn each_container(pod: &mut Map<String, Value>, mut change: impl FnMut(&mut Map<String, Value>)) {
    if let Some(Value::Array(containers)) = pod.get_mut("containers") {
        containers.iter_mut().filter_map(Value::as_object_mut).for_each(&mut change);
    }
}

/// Entries of the same name are replaced where they are, others are appended. Places are looked up once: a new name that
/// is given twice is appended twice.
fn merge_by_name(parent: &mut Map<String, Value>, list: &str, entries: &[Value]) {
    let Some(items) = items(parent, list, entries) else { return };
    let name = |entry: &Value| entry.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let places: HashMap<String, usize> =
        items.iter().enumerate().map(|(index, item)| (name(item), index)).collect();
    for entry in entries {
        match places.get(&name(entry)) {
            Some(&index) => items[index] = entry.clone(),
            None => items.push(entry.clone()),
        }
    }
}

/// Entries are appended unless an equal one is there.
fn append_absent(parent: &mut Map<String, Value>, list: &str, entries: &[Value]) {
    let Some(items) = items(parent, list, entries) else { return };
    for entry in entries {
        if !items.contains(entry) {
            items.push(entry.clone());
        }
    }
}

fn items<'a>(
    parent: &'a mut Map<String, Value>,
    list: &str,
    entries: &[Value],
) -> Option<&'a mut Vec<Value>> {
    if entries.is_empty() {
        return None;
    }
    parent.entry(list).or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
}

/// No sub-field removes the affinity; a sub-field without content removes that of the bundle; one with content replaces it.
fn override_affinity(pod: &mut Map<String, Value>, config: &Map<String, Value>) {
    const PARTS: [&str; 3] = ["nodeAffinity", "podAffinity", "podAntiAffinity"];
    if !PARTS.iter().any(|part| config.contains_key(*part)) {
        pod.remove("affinity");
        return;
    }
    let affinity = member(pod, "affinity");
    for part in PARTS {
        match config.get(part) {
            None => {}
            Some(value) if is_empty(part, value) => {
                affinity.remove(part);
            }
            Some(value) => {
                affinity.insert(part.to_owned(), value.clone());
            }
        }
    }
    if PARTS.iter().all(|part| affinity.get(*part).is_none_or(|value| is_empty(part, value))) {
        pod.remove("affinity");
    }
}

/// Whether a part of an affinity asks for nothing.
fn is_empty(part: &str, value: &Value) -> bool {
    let required = value.get("requiredDuringSchedulingIgnoredDuringExecution");
    let preferred = value.get("preferredDuringSchedulingIgnoredDuringExecution");
    let none = |list: Option<&Value>| list.and_then(Value::as_array).is_none_or(Vec::is_empty);
    let required = if part == "nodeAffinity" {
        required.and_then(|terms| terms.get("nodeSelectorTerms"))
    } else {
        required
    };
    none(required) && none(preferred)
}
