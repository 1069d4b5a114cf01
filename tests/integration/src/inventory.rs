//! Everything that a cluster holds, in a form in which two runs of the same operations are equal.
//!
//! Objects that OLM writes are compared as a whole, field managers included; of all others only their existence counts. Left
//! out are values that differ from run to run: identities, times, certificates, and what Kubernetes itself makes of a Deployment.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, DynamicObject, ListParams, TypeMeta};
use kube::discovery::{Discovery, verbs};
use kube::{Client, ResourceExt as _};
use olm_api::labels;
use serde_json::Value;

/// Kinds that Kubernetes itself creates and deletes.
#[rustfmt::skip]
const PASSING: [&str; 9] = [
    "Event", "Lease", "Pod", "ReplicaSet", "Endpoints", "EndpointSlice", "ControllerRevision", "IPAddress", "ComponentStatus",
];
/// Field managers of Kubernetes itself.
pub const KUBERNETES: [&str; 5] =
    ["kube-controller-manager", "kube-apiserver", "kube-scheduler", "kwok", "kwok-controller"];

/// Every object of the cluster by `<apiVersion> <kind> <namespace>/<name>`, without the kinds that Kubernetes itself creates and deletes.
pub async fn objects(client: &Client) -> Result<BTreeMap<String, DynamicObject>> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let kinds =
        discovery.groups().flat_map(|group| group.recommended_resources()).filter(|(resource, able)| {
            able.supports_operation(verbs::LIST) && !PASSING.contains(&resource.kind.as_str())
        });
    let lists = futures::stream::iter(kinds).map(|(resource, _)| async move {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let found = match api.list(&ListParams::default()).await {
            Ok(found) => found.items,
            // a CRD that has just gone
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(problem) => return Err(problem),
        };
        Ok(found.into_iter().map(move |mut object| {
            object.types.get_or_insert_with(|| TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            });
            let place = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
            (format!("{} {} {place}", resource.api_version, resource.kind), object)
        }))
    });
    let all: Vec<_> = lists.buffer_unordered(8).try_collect().await?;
    Ok(all.into_iter().flatten().collect())
}

/// Objects by kind, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inventory(BTreeMap<String, Value>);

impl Inventory {
    /// What is there now.
    pub async fn take(client: &Client) -> Result<Self> {
        let all = objects(client).await?.into_iter().map(|(key, object)| {
            let types = object.types.clone().unwrap_or_default();
            let group = types.api_version.split_once('/').map_or("", |(group, _)| group);
            let ours = group == olm_api::GROUP && types.kind != "ClusterCatalog";
            let compared = ours || object.labels().contains_key(labels::OWNER_NAME);
            let content = if compared { normal(&object, ours) } else { Value::Null };
            (key, content)
        });
        Ok(Self(all.collect()))
    }

    /// What `select` makes of each object: a name and a content, without identities, times and certificates. Objects of the same name are
    /// numbered.
    pub async fn take_selected(
        client: &Client,
        select: impl Fn(&DynamicObject) -> Option<(String, Value)>,
    ) -> Result<Self> {
        let mut all = BTreeMap::new();
        for (name, mut content) in objects(client).await?.values().filter_map(select) {
            scrub(&mut content);
            let name = without_uids(&name);
            let number = (2..).find(|number| !all.contains_key(&format!("{name} {number}")));
            let key = match number.filter(|_| all.contains_key(&name)) {
                Some(number) => format!("{name} {number}"),
                None => name,
            };
            all.insert(key, content);
        }
        Ok(Self(all))
    }

    /// Waits until the cluster holds exactly this.
    /// It fails with the differences.
    pub async fn reached(&self, client: &Client, within: Duration) -> Result<()> {
        olm_kit::eventually("exactly the objects of an undisturbed run", within, || async {
            self.is(&Self::take(client).await?)
        })
        .await
    }

    /// What is there, as `<apiVersion> <kind> <namespace>/<name>`.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether the other is the same.
    /// It fails with the differences.
    pub fn is(&self, found: &Self) -> Result<()> {
        let differences = self.differences(found);
        ensure!(differences.is_empty(), "- expected, + found:\n{}", differences.join("\n"));
        Ok(())
    }

    fn differences(&self, found: &Self) -> Vec<String> {
        let mut all = Vec::new();
        for (key, content) in &self.0 {
            match found.0.get(key) {
                None => all.push(format!("- {key}")),
                Some(other) => compare(key, content, other, &mut all),
            }
        }
        all.extend(found.0.keys().filter(|key| !self.0.contains_key(*key)).map(|key| format!("+ {key}")));
        all
    }
}

/// Adds a line for each value that differs, with its path below `at`.
pub fn compare(at: &str, expected: &Value, found: &Value, all: &mut Vec<String>) {
    if expected == found {
        return;
    }
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            for key in expected.keys().chain(found.keys().filter(|key| !expected.contains_key(*key))) {
                let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                compare(&format!("{at} .{key}"), &of(expected), &of(found), all);
            }
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
                compare(&format!("{at}[{index}]"), expected, found, all);
            }
        }
        _ => all.push(format!("- {at}: {expected}\n+ {at}: {found}")),
    }
}

/// The object without what differs from run to run.
fn normal(object: &DynamicObject, with_status: bool) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    // whether the entry of the first write is converted already depends on later applies (of a caBundle, for example)
    let has_webhooks = object.data.get("webhooks").is_some();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for volatile in ["uid", "resourceVersion", "creationTimestamp"] {
            metadata.remove(volatile);
        }
        if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
            entries.retain(|entry| {
                !KUBERNETES.contains(&entry["manager"].as_str().unwrap_or_default())
                    && (with_status || entry["subresource"] != "status")
            });
            if has_webhooks {
                entries.iter_mut().filter_map(Value::as_object_mut).for_each(|entry| {
                    entry.remove("operation");
                    entry.remove("fieldsV1");
                });
            }
            entries.sort_by_key(|entry| {
                format!("{}{}{}", entry["manager"], entry["operation"], entry["subresource"])
            });
        }
    }
    if !with_status && let Some(whole) = value.as_object_mut() {
        whole.remove("status");
    }
    scrub(&mut value);
    value
}

/// Replaces identities, times and certificates wherever they are.
fn scrub(value: &mut Value) {
    match value {
        Value::Object(members) => {
            let old = std::mem::take(members);
            for (key, mut member) in old {
                match key.as_str() {
                    "time" | "lastTransitionTime" | "clusterIP" | "clusterIPs" => continue,
                    // counts the ReplicaSets that Kubernetes made; after a restart of the apiserver it may make two of one template
                    "deployment.kubernetes.io/revision" => continue,
                    "caBundle" | "tls.crt" | "tls.key" | "ca.crt" if member.is_string() => {
                        member = "<certificate>".into()
                    }
                    _ => scrub(&mut member),
                }
                members.insert(without_uids(&key), member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(scrub),
        Value::String(text) => *text = without_uids(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The text with `<uid>` for everything that looks like one.
fn without_uids(text: &str) -> String {
    const LENGTH: usize = 36;
    let is_uid = |part: &[u8]| {
        part.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let mut rest = text;
    let mut clean = String::new();
    while let Some(at) = rest.as_bytes().windows(LENGTH).position(is_uid) {
        clean.push_str(&rest[..at]);
        clean.push_str("<uid>");
        rest = &rest[at + LENGTH..];
    }
    clean + rest
}

#[test]
fn inventory_ignores_volatile_fields_and_lists_differences() {
    use serde_json::json;
    let object = |uid: &str, time: &str, size: u8| {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "uid": uid, "managedFields": [
                {"manager": "kube-controller-manager", "operation": "Update", "time": time},
                {"manager": "ours", "operation": "Apply", "time": time, "fieldsV1": {(format!("k:{{\"uid\":\"{uid}\"}}")): {}}},
            ]},
            "data": {"size": size, "tls.crt": uid}, "status": {"at": uid},
        });
        normal(&serde_json::from_value(object).unwrap(), false)
    };
    let one = object("c2b1f0e4-0000-4000-8000-0123456789ab", "2020-01-01T00:00:00Z", 1);
    assert_eq!(one, object("c2b1f0e4-ffff-4fff-8fff-0123456789ab", "2021-01-01T00:00:00Z", 1));
    assert_eq!(one["metadata"]["managedFields"].as_array().map(Vec::len), Some(1));
    let inventory = |entries: &[(&str, &Value)]| {
        Inventory(entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).clone())).collect())
    };
    let two = object("x", "2022-01-01T00:00:00Z", 2);
    let (left, right) =
        (inventory(&[("a", &one), ("gone", &one)]), inventory(&[("a", &two), ("extra", &one)]));
    let lines = left.differences(&right);
    assert!(lines.iter().any(|line| line == "- a .data .size: 1\n+ a .data .size: 2"), "{lines:?}");
    assert!(lines.contains(&"- gone".to_owned()) && lines.contains(&"+ extra".to_owned()), "{lines:?}");
}
