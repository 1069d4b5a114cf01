//! Lists of a pod that server-side apply takes for maps must not repeat a key, though pods may: published bundles repeat
//! environment variables and ports. What the API server would reject is listed once, with the entry that the kubelet would use.

use std::collections::{HashMap, HashSet, hash_map};

use serde_json::{Map, Value};

use crate::csv::{short, warn};

/// Removes repeated variables and ports of every container; returns a warning for each variable, and for each port with two names.
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
                let repeated = merged(ports);
                warn(
                    &mut warnings,
                    repeated.iter().map(|(port, first, other)| {
                        format!(
                            "{place}: port {port} has the names {first:?} and {other:?}; the first one counts"
                        )
                    }),
                );
            }
        }
    }
    warnings
}

/// Ports of a container with two names that are reported.
const MAX_RENAMED: usize = 100;

/// Makes one of the ports with the same number and protocol: the first, with the members that only others have. Returns the ports that had
/// another name, each with both.
fn merged(ports: &mut Vec<Value>) -> Vec<(String, String, String)> {
    let mut places: HashMap<(String, String), usize> = HashMap::new();
    let mut kept: Vec<Value> = Vec::with_capacity(ports.len());
    let mut renamed = Vec::new();
    for port in ports.drain(..) {
        let Some(number) = port.get("containerPort") else {
            kept.push(port);
            continue;
        };
        let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
        match places.entry((number.to_string(), short(protocol).to_owned())) {
            hash_map::Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(port);
            }
            hash_map::Entry::Occupied(place) => {
                let (Some(first), Value::Object(port)) = (kept[*place.get()].as_object_mut(), port) else {
                    continue;
                };
                let name = |port: &Map<String, Value>| {
                    port.get("name").and_then(Value::as_str).map(|name| short(name).to_owned())
                };
                if let (Some(one), Some(other)) = (name(first), name(&port))
                    && one != other
                    && renamed.len() < MAX_RENAMED
                {
                    let (number, protocol) = place.key();
                    renamed.push((format!("{number}/{protocol}"), one, other));
                }
                for (member, value) in port {
                    first.entry(member).or_insert(value);
                }
            }
        }
    }
    *ports = kept;
    renamed
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
                 "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "name": "web"},
                           {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 80, "name": "other"}]},
                {"name": "d"},
            ],
            "initContainers": [{"name": "i", "env": [{"name": "X"}, {"name": "X"}, {"name": "X"}]}],
        });
        let warnings = tidy("dep", pod.as_object_mut().unwrap());
        assert_eq!(
            warnings,
            [
                "deployment \"dep\", container \"c\": environment variable \"A\" is given more than once; the last one counts",
                "deployment \"dep\", container \"c\": port 80/TCP has the names \"web\" and \"other\"; the first one counts",
                "deployment \"dep\", container \"i\": environment variable \"X\" is given more than once; the last one counts",
            ]
        );
        assert_eq!(
            pod,
            json!({
                "containers": [
                    {"name": "c", "env": [{"name": "A", "value": "2"}, {"name": "B"}],
                     "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}, {"containerPort": 80, "protocol": "UDP"}]},
                    {"name": "d"},
                ],
                "initContainers": [{"name": "i", "env": [{"name": "X"}]}],
            })
        );
    }

    #[test]
    fn unique_entries_warnings_are_short_and_limited() {
        let env: Vec<Value> = (0..2_000).flat_map(|at| vec![json!({"name": format!("v{at}")}); 2]).collect();
        let mut pod = json!({"containers": [{"name": "c".repeat(2_000), "env": env}]});
        let warnings = tidy("dep", pod.as_object_mut().unwrap());
        assert_eq!(warnings.len(), 1_000);
        let start = format!("deployment \"dep\", container \"{}\": ", "c".repeat(253));
        assert!(warnings.iter().all(|warning| warning.starts_with(&start)), "{}", warnings[0]);
    }
}
