//! Lists of a pod that server-side apply takes for maps must not repeat a key, though pods may: published bundles repeat
//! environment variables and ports. What the API server would reject is listed once, with the entry that the kubelet would use.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::csv::{short, warn};

/// Removes repeated variables and ports of every container; returns a warning for each variable.
pub(super) fn tidy(deployment: &str, pod: &mut Map<String, Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    for list in ["containers", "initContainers"] {
        let Some(Value::Array(containers)) = pod.get_mut(list) else { continue };
        for container in containers.iter_mut().filter_map(Value::as_object_mut) {
            let name = short(container.get("name").and_then(Value::as_str).unwrap_or_default()).to_owned();
            let place = format!("deployment {deployment:?}, container {name:?}");
            if let Some(Value::Array(env)) = container.get_mut("env") {
                let repeated = last_wins(env);
                warn(&mut warnings, repeated.iter().map(|variable| {
                    format!("{place}: environment variable {variable:?} is given more than once; the last one counts")
                }));
            }
            if let Some(Value::Array(ports)) = container.get_mut("ports") {
                let mut seen = HashSet::new();
                ports.retain(|port| seen.insert(port.clone()));
            }
        }
    }
    warnings
}

/// Keeps the last entry of each name where the first one is; returns the names that were repeated.
fn last_wins(entries: &mut Vec<Value>) -> Vec<String> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut kept: Vec<Value> = Vec::with_capacity(entries.len());
    let mut repeated: Vec<String> = Vec::new();
    let mut listed: HashSet<String> = HashSet::new();
    for entry in entries.drain(..) {
        let name = entry.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        match places.get(&name) {
            Some(&place) => {
                kept[place] = entry;
                if listed.insert(name.clone()) {
                    repeated.push(name);
                }
            }
            None => {
                places.insert(name, kept.len());
                kept.push(entry);
            }
        }
    }
    *entries = kept;
    repeated
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unique_entries_removes_variables_and_ports() {
        let mut pod = json!({
            "containers": [
                {"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}],
                 "ports": [{"containerPort": 80}, {"containerPort": 80}, {"containerPort": 80, "name": "web"}]},
                {"name": "d"},
            ],
            "initContainers": [{"name": "i", "env": [{"name": "X"}, {"name": "X"}, {"name": "X"}]}],
        });
        let warnings = tidy("dep", pod.as_object_mut().unwrap());
        assert_eq!(
            warnings,
            [
                "deployment \"dep\", container \"c\": environment variable \"A\" is given more than once; the last one counts",
                "deployment \"dep\", container \"i\": environment variable \"X\" is given more than once; the last one counts",
            ]
        );
        assert_eq!(
            pod,
            json!({
                "containers": [
                    {"name": "c", "env": [{"name": "A", "value": "2"}, {"name": "B"}],
                     "ports": [{"containerPort": 80}, {"containerPort": 80, "name": "web"}]},
                    {"name": "d"},
                ],
                "initContainers": [{"name": "i", "env": [{"name": "X"}]}],
            })
        );
    }
}
