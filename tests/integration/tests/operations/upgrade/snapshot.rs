//! The cluster's objects, the programs' cache folders and the registry's blob requests at one moment, and what differs later.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use olm_api::{annotations, condition, labels};
use olm_integration::inventory::{self, KUBERNETES};
use serde_json::Value;

/// The longest line about one difference.
const LINE: usize = 300;

/// Every object, by `<apiVersion> <kind> <namespace>/<name>`.
pub(crate) struct Snapshot(BTreeMap<String, DynamicObject>);

/// What was written between two snapshots.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// One for each object: what happened, by which field managers, and the fields.
    pub(crate) lines: Vec<String>,
    /// Objects that only Kubernetes' own controllers wrote.
    pub(crate) by_kubernetes: usize,
    /// Secrets with a revision's content that got its account or its deletion policy, and nothing else: older versions did not record
    /// them.
    pub(crate) recorded: BTreeSet<String>,
}

impl Snapshot {
    pub(crate) async fn take(client: &kube::Client) -> Result<Self> {
        Ok(Self(inventory::objects(client).await?))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Objects of this kind.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.of_kind(kind).count()
    }

    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &DynamicObject> {
        self.0.values().filter(move |object| object.types.as_ref().is_some_and(|types| types.kind == kind))
    }

    /// What `later` has otherwise.
    pub(crate) fn changes(&self, later: &Self) -> Changes {
        let mut changes = Changes::default();
        for (key, before) in &self.0 {
            let Some(after) = later.0.get(key) else {
                changes.lines.push(format!("{key}: deleted"));
                continue;
            };
            if before.uid() != after.uid() {
                changes
                    .lines
                    .push(format!("{key}: deleted and created again by {}", managers(after).join(", ")));
            } else if before.resource_version() != after.resource_version() {
                match difference(before, after) {
                    Some(_) if is_recorded(before, after) => {
                        changes.recorded.extend(after.metadata.name.clone());
                    }
                    Some(line) => changes.lines.push(format!("{key}: {line}")),
                    None => changes.by_kubernetes += 1,
                }
            }
        }
        let added = later.0.iter().filter(|(key, _)| !self.0.contains_key(*key));
        changes
            .lines
            .extend(added.map(|(key, after)| format!("{key}: created by {}", managers(after).join(", "))));
        changes
    }

    /// Objects that should be Ready, Serving or Available and are not.
    pub(crate) fn unhealthy(&self) -> Vec<String> {
        const EXPECTED: [(&str, &[(&str, &str)]); 4] = [
            ("ClusterExtension", &[(condition::INSTALLED, "True"), (condition::READY, "True")]),
            ("ClusterCatalog", &[(condition::SERVING, "True"), (condition::PROGRESSING, "True")]),
            ("ClusterObjectSet", &[(condition::AVAILABLE, "True"), (condition::SUCCEEDED, "True")]),
            ("ClusterOperator", &[("Available", "True"), ("Degraded", "False"), ("Upgradeable", "True")]),
        ];
        let mut lines = Vec::new();
        for (kind, conditions) in EXPECTED {
            let archived = |object: &&DynamicObject| {
                object.data.pointer("/spec/lifecycleState") == Some(&"Archived".into())
            };
            for object in self.of_kind(kind).filter(|object| !archived(object)) {
                for (type_, status) in conditions {
                    let found = olm_kit::condition(object, type_);
                    if found.as_ref().is_none_or(|found| found.status != *status) {
                        lines.push(format!(
                            "{kind} {}: {type_} is not {status} but {found:?}",
                            object.name_any()
                        ));
                    }
                }
            }
        }
        lines
    }

    /// The serving certificates of the built-in issuer, by Secret.
    pub(crate) fn certificates(&self) -> BTreeMap<&str, &Value> {
        let issued = |object: &DynamicObject| {
            object
                .labels()
                .get(labels::WEBHOOK_CERTIFICATE)
                .is_some_and(|value| value == labels::WEBHOOK_CERTIFICATE_BUILT_IN)
        };
        let all = self.0.iter().filter(|(_, object)| issued(object));
        all.filter_map(|(key, object)| Some((key.as_str(), object.data.pointer("/data/tls.crt")?))).collect()
    }
}

/// The names of the field managers that wrote an object, in an order.
fn managers(object: &DynamicObject) -> Vec<String> {
    let fields = object.metadata.managed_fields.iter().flatten();
    let mut names: Vec<String> = fields.filter_map(|entry| entry.manager.clone()).collect();
    names.sort();
    names.dedup();
    names
}

/// How an object with another resourceVersion differs; `None` if only Kubernetes' own controllers wrote it.
fn difference(before: &DynamicObject, after: &DynamicObject) -> Option<String> {
    let entries = |object: &DynamicObject| object.metadata.managed_fields.clone().unwrap_or_default();
    let (old, new) = (entries(before), entries(after));
    let written = new
        .iter()
        .filter(|entry| !old.contains(entry))
        .chain(old.iter().filter(|entry| !new.contains(entry)));
    let mut writers: Vec<String> = written
        .map(|entry| {
            let status = if entry.subresource.as_deref() == Some("status") { " (status)" } else { "" };
            format!("{}{status}", entry.manager.as_deref().unwrap_or("unknown"))
        })
        .collect();
    writers.sort();
    writers.dedup();
    let kubernetes = |writer: &String| KUBERNETES.contains(&writer.split(' ').next().unwrap_or_default());
    if !writers.is_empty() && writers.iter().all(kubernetes) {
        return None;
    }
    let mut fields = Vec::new();
    inventory::compare("", &without_versions(before), &without_versions(after), &mut fields);
    let version = |object: &DynamicObject| object.resource_version().unwrap_or_default();
    let (before, after) = (version(before), version(after));
    let (writers, fields) = (writers.join(", "), fields.join("; ").replace('\n', " "));
    let text = format!("resourceVersion {before} -> {after}, written by [{writers}]: {fields}");
    Some(text.chars().take(LINE).collect())
}

/// Whether a Secret only has got annotations that are recorded once.
fn is_recorded(before: &DynamicObject, after: &DynamicObject) -> bool {
    let without = |object: &DynamicObject| {
        let mut object = object.clone();
        for annotation in [annotations::SERVICE_ACCOUNT, annotations::DELETION_POLICY] {
            if !before.annotations().contains_key(annotation) {
                object.annotations_mut().remove(annotation);
            }
        }
        object.metadata.annotations = object.metadata.annotations.filter(|it| !it.is_empty());
        without_versions(&object)
    };
    after.types.as_ref().is_some_and(|types| types.kind == "Secret") && without(before) == without(after)
}

fn without_versions(object: &DynamicObject) -> Value {
    let mut object = object.clone();
    object.metadata.resource_version = None;
    object.metadata.managed_fields = None;
    serde_json::to_value(object).unwrap_or_default()
}

/// The files below a cache folder: path to digest, inode and time of creation, so that a file that was written again is noticed
/// whatever its content; its time of change may only record that it was used. Locks and what is being written are left out.
#[derive(Debug, Default)]
pub(crate) struct Files(BTreeMap<String, (String, u64, Option<SystemTime>)>);

/// What happened to the files of a cache folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FileChanges {
    pub(crate) kept: usize,
    pub(crate) added: Vec<String>,
    /// Files that were written again or removed.
    pub(crate) lost: Vec<String>,
}

impl FileChanges {
    /// What was rebuilt: the first two parts of the paths (`content/<digest>`).
    pub(crate) fn rebuilt(&self) -> Vec<&str> {
        let second = |path: &str| path.match_indices('/').nth(1).map_or(path.len(), |(at, _)| at);
        let mut groups: Vec<&str> = self.lost.iter().map(|path| &path[..second(path)]).collect();
        groups.dedup();
        groups
    }
}

impl Files {
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut open = vec![(folder.to_owned(), String::new())];
        while let Some((folder, prefix)) = open.pop() {
            for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if name == "staging" || name.contains("lock") {
                    continue;
                }
                let path = format!("{prefix}{name}");
                let metadata = entry.metadata()?;
                if metadata.is_dir() {
                    open.push((entry.path(), format!("{path}/")));
                } else {
                    let digest = olm_kit::image::sha256(&std::fs::read(entry.path())?);
                    files.insert(path, (digest, metadata.ino(), metadata.created().ok()));
                }
            }
        }
        Ok(Self(files))
    }

    pub(crate) fn changes(&self, later: &Self) -> FileChanges {
        let mut changes = FileChanges::default();
        for (path, before) in &self.0 {
            if later.0.get(path) == Some(before) {
                changes.kept += 1;
            } else {
                changes.lost.push(path.clone());
            }
        }
        changes.added = later.0.keys().filter(|path| !self.0.contains_key(*path)).cloned().collect();
        changes
    }
}

/// Blob downloads by repository in a part of the registry's access log.
pub(crate) fn blob_gets(log: &str) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for line in log.lines() {
        let request = line.split("\"GET /v2/").nth(1).and_then(|rest| rest.split_once("/blobs/"));
        if let Some((repository, _)) = request.filter(|(repository, _)| !repository.contains(' ')) {
            *all.entry(repository.to_owned()).or_default() += 1;
        }
    }
    all
}

/// The present time, for messages.
pub(crate) fn now() -> String {
    Timestamp::now().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn snapshot(version: &str, writers: &[(&str, &str)], label: &str) -> Snapshot {
        let fields: Vec<Value> = writers
            .iter()
            .map(|(manager, time)| json!({"manager": manager, "operation": "Apply", "time": time}))
            .collect();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "1",
            "resourceVersion": version, "managedFields": fields, "labels": {"l": label}}});
        Snapshot([("v1 ConfigMap ns/a".to_owned(), serde_json::from_value(object).unwrap())].into())
    }

    #[test]
    fn upgrade_snapshot_lets_secrets_record_an_account_once() {
        let secret = |kind: &str, version: &str, account: Option<&str>, data: &str| {
            let annotations = account.map(|account| json!({(annotations::SERVICE_ACCOUNT): account}));
            let object = json!({"apiVersion": "v1", "kind": kind, "data": data, "metadata": {"name": "a", "uid": "1",
                "resourceVersion": version, "annotations": annotations}});
            Snapshot([("v1 Secret ns/a".to_owned(), serde_json::from_value(object).unwrap())].into())
        };
        let recorded = |kind: &str, account: Option<&str>, data: &str| {
            let changes = secret(kind, "1", account, "x").changes(&secret(kind, "2", Some("ns/b"), data));
            assert_eq!(changes.recorded.len() + changes.lines.len(), 1);
            !changes.recorded.is_empty()
        };
        assert!(recorded("Secret", None, "x"));
        assert!(!recorded("Secret", None, "y"), "the content changed, too");
        assert!(!recorded("Secret", Some("ns/a"), "x"), "it had another account");
        assert!(!recorded("ConfigMap", None, "x"));
    }

    #[test]
    fn upgrade_snapshot_names_object_writer_and_field() {
        let (early, late) = ("2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z");
        let before = snapshot("1", &[("ours", early), ("kube-controller-manager", early)], "x");
        assert_eq!(before.changes(&before), Changes::default());
        let kubernetes = snapshot("2", &[("ours", early), ("kube-controller-manager", late)], "x");
        assert_eq!(before.changes(&kubernetes), Changes { by_kubernetes: 1, ..Changes::default() });
        let ours = snapshot("2", &[("ours", late), ("kube-controller-manager", late)], "y");
        let line = "v1 ConfigMap ns/a: resourceVersion 1 -> 2, written by [kube-controller-manager, ours]: \
            -  .metadata .labels .l: \"x\" +  .metadata .labels .l: \"y\"";
        assert_eq!(before.changes(&ours).lines, [line]);
        // a write that only the resourceVersion shows
        let touched = snapshot("2", &[("ours", early), ("kube-controller-manager", early)], "x");
        assert_eq!(before.changes(&touched).lines.len(), 1);
        assert_eq!(before.changes(&Snapshot(BTreeMap::new())).lines, ["v1 ConfigMap ns/a: deleted"]);
        assert_eq!(Snapshot(BTreeMap::new()).changes(&ours).lines.len(), 1);
    }

    #[test]
    fn upgrade_files_written_again_are_grouped() {
        let files = |all: &[(&str, u64)]| {
            Files(
                all.iter().map(|(path, inode)| ((*path).to_owned(), (String::new(), *inode, None))).collect(),
            )
        };
        let before = files(&[("content/d1/a", 1), ("content/d1/b", 2), ("content/d2/a", 3), ("names/n", 4)]);
        let changes = before.changes(&files(&[
            ("content/d1/a", 9),
            ("content/d2/a", 3),
            ("content/d2/marker", 8),
            ("names/n", 4),
        ]));
        assert_eq!((changes.kept, &changes.added), (2, &vec!["content/d2/marker".to_owned()]));
        assert_eq!(changes.rebuilt(), ["content/d1"]);
    }

    #[test]
    fn upgrade_blob_downloads_are_counted_by_repository() {
        let line = |request: &str| {
            format!("127.0.0.1 - - [1/Jan/2020:00:00:00 +0000] \"{request} HTTP/2.0\" 200 1 \"\" \"ua\"\n")
        };
        let log = line("GET /v2/catalogs/a/blobs/sha256:1")
            + &line("HEAD /v2/catalogs/a/blobs/sha256:1")
            + &line("GET /v2/catalogs/a/manifests/latest")
            + &line("GET /v2/catalogs/a/blobs/sha256:2");
        assert_eq!(blob_gets(&log), [("catalogs/a".to_owned(), 2)].into());
    }
}
