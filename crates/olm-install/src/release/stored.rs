//! Helm releases as the reference stores them, as values: the one in force, and its objects. Pure.
//!
//! A release is gzipped JSON, cut into chunks that lie in Secrets; the first of them, the index, names the others. Everything
//! is read under limits. Rule: operator-controller §6.2 (release storage), §6.7; revisions §4.6.

use std::collections::BTreeMap;
use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use k8s_openapi::api::core::v1::Secret;
use kube::core::ObjectMeta;
use olm_api::{annotations, labels, secret_types};
use olm_core::Object;
use serde::Deserialize;

use crate::resolution::BundleFacts;

/// Chunks of one release, the index included.
const MAX_CHUNKS: usize = 11;
/// Bytes of one chunk. The reference writes 1,040,384; a Secret holds 1 MiB.
const MAX_CHUNK_BYTES: usize = 1 << 20;
/// Bytes of a release after decompression: chart and manifest hold the same objects, one of them in base64.
pub(super) const MAX_BYTES: u64 = 32 << 20;
/// Objects of a release; a revision cannot hold more.
const MAX_OBJECTS: usize = 1000;
/// What the chunked driver calls a release that is in force.
const DEPLOYED: &str = "deployed";

/// What is wrong with a release. The caller names the Secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReleaseError {
    #[error("label {0:?} is missing or makes no sense")]
    Label(&'static str),
    #[error("it has no {0:?} in its data")]
    NoData(&'static str),
    #[error("its extraChunks are no JSON list of Secret names: {0}")]
    Chunks(String),
    #[error("it has {0} chunks, and a release has at most {MAX_CHUNKS}")]
    TooManyChunks(usize),
    #[error("chunk {0:?} is missing")]
    NoChunk(String),
    #[error("chunk {0:?} is of another release or of another type than {kind}", kind = secret_types::HELM_CHUNK)]
    ForeignChunk(String),
    #[error("a chunk is larger than {MAX_CHUNK_BYTES} bytes")]
    LargeChunk,
    #[error("it cannot be decompressed: {0}")]
    Gzip(String),
    #[error("it is larger than {limit} bytes when decompressed", limit = MAX_BYTES)]
    TooLarge,
    #[error("it is no release: {0}")]
    Json(String),
    #[error("it holds version {version} of release {name:?} with status {status:?}, which its labels deny")]
    Another { name: String, version: i64, status: String },
    #[error("the release has no label {0:?}, which would name its bundle")]
    NoBundle(&'static str),
    #[error("the release has no manifest")]
    NoManifest,
    #[error("line {line} of the manifest is no object: {problem}")]
    Manifest { line: usize, problem: String },
    #[error("the manifest has more than {MAX_OBJECTS} objects")]
    TooManyObjects,
}

/// The index Secret of one release, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Index {
    /// Name of the Secret.
    pub(super) secret: String,
    /// Number of the release.
    pub(super) version: i64,
    /// `deployed`, `failed`, `superseded`, `pending-install`, …
    pub(super) status: String,
}

impl Index {
    /// Reads the labels. `None` when the release belonged to a former extension of the same name, which the garbage collector is
    /// about to notice.
    pub(super) fn read(metadata: &ObjectMeta, uid: &str) -> Result<Option<Self>, ReleaseError> {
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let mut extensions = owners.iter().filter(|owner| owner.kind == "ClusterExtension").peekable();
        if extensions.peek().is_some() && !extensions.any(|owner| owner.uid == uid) {
            return Ok(None);
        }
        let label = |key: &'static str| {
            let found = metadata.labels.as_ref().and_then(|labels| labels.get(key));
            found.filter(|value| !value.is_empty()).ok_or(ReleaseError::Label(key))
        };
        let version = label("version")?.parse().map_err(|_| ReleaseError::Label("version"))?;
        let secret = metadata.name.clone().unwrap_or_default();
        Ok(Some(Self { secret, version, status: label("status")?.clone() }))
    }
}

/// The release that is in force: the newest deployed one. Failed and pending ones that are newer do not count.
pub(super) fn deployed(releases: &[Index]) -> Option<&Index> {
    releases.iter().filter(|release| release.status == DEPLOYED).max_by_key(|release| release.version)
}

/// Names of the Secrets with the other chunks, in order.
pub(super) fn further_chunks(index: &Secret) -> Result<Vec<String>, ReleaseError> {
    let Some(list) = index.data.as_ref().and_then(|data| data.get("extraChunks")) else {
        return Ok(Vec::new());
    };
    let names: Option<Vec<String>> =
        serde_json::from_slice(&list.0).map_err(|error| ReleaseError::Chunks(error.to_string()))?;
    let names = names.unwrap_or_default();
    if names.len() >= MAX_CHUNKS {
        return Err(ReleaseError::TooManyChunks(names.len() + 1));
    }
    Ok(names)
}

/// Puts the chunks together. `further` are the Secrets that [`further_chunks`] names, with their names.
pub(super) fn payload(index: &Secret, further: &[(String, Option<Secret>)]) -> Result<Vec<u8>, ReleaseError> {
    let label = |secret: &Secret, key: &str| {
        secret.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned()
    };
    let mut whole = chunk(index)?.to_vec();
    for (name, secret) in further {
        let secret = secret.as_ref().ok_or_else(|| ReleaseError::NoChunk(name.clone()))?;
        let same = secret.type_.as_deref() == Some(secret_types::HELM_CHUNK)
            && label(secret, "owner") == label(index, "owner")
            && label(secret, "key") == label(index, "key");
        if !same {
            return Err(ReleaseError::ForeignChunk(name.clone()));
        }
        whole.extend_from_slice(chunk(secret)?);
    }
    Ok(whole)
}

fn chunk(secret: &Secret) -> Result<&[u8], ReleaseError> {
    let bytes = secret.data.as_ref().and_then(|data| data.get("chunk"));
    let bytes = bytes.map(|bytes| bytes.0.as_slice()).ok_or(ReleaseError::NoData("chunk"))?;
    if bytes.len() > MAX_CHUNK_BYTES {
        return Err(ReleaseError::LargeChunk);
    }
    Ok(bytes)
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Release {
    /// The installed bundle.
    pub(super) bundle: BundleFacts,
    /// The bundle's `olm.properties`, which the chart carries.
    pub(super) properties: Option<String>,
    /// The installed objects.
    pub(super) objects: Vec<Object>,
}

/// The fields of a release that are read.
#[derive(Deserialize, Default)]
#[serde(default)]
struct ReleaseJson {
    name: String,
    version: i64,
    info: Info,
    manifest: String,
    labels: Option<BTreeMap<String, String>>,
    chart: Option<Chart>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Info {
    status: String,
}

#[derive(Deserialize)]
struct Chart {
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    annotations: Option<BTreeMap<String, String>>,
}

impl Release {
    /// Reads the release `index` of `extension` from its joined chunks.
    pub(super) fn read(extension: &str, index: &Index, payload: &[u8]) -> Result<Self, ReleaseError> {
        let stored = inflate(payload, MAX_BYTES)?;
        let stored: ReleaseJson =
            serde_json::from_slice(&stored).map_err(|error| ReleaseError::Json(error.to_string()))?;
        if stored.name != extension || stored.version != index.version || stored.info.status != index.status {
            let status = stored.info.status;
            return Err(ReleaseError::Another { name: stored.name, version: stored.version, status });
        }
        let known = stored.labels.unwrap_or_default();
        let label = |key: &'static str| {
            let found = known.get(key).filter(|value| !value.is_empty());
            found.cloned().ok_or(ReleaseError::NoBundle(key))
        };
        let bundle = BundleFacts {
            name: label(labels::BUNDLE_NAME)?,
            package: label(labels::PACKAGE_NAME)?,
            version: label(labels::BUNDLE_VERSION)?,
            release: known.get(labels::BUNDLE_RELEASE).cloned(),
            reference: label(labels::BUNDLE_REFERENCE)?,
        };
        let annotated = stored.chart.and_then(|chart| chart.metadata?.annotations).unwrap_or_default();
        let mut objects = objects(&stored.manifest)?;
        if let Some(release) = &bundle.release {
            for object in &mut objects {
                object.set_annotation(annotations::BUNDLE_RELEASE, release);
            }
        }
        Ok(Self { bundle, properties: annotated.get(annotations::PROPERTIES).cloned(), objects })
    }
}

/// At most `limit` bytes of what `gzipped` inflates to.
fn inflate(gzipped: &[u8], limit: u64) -> Result<Vec<u8>, ReleaseError> {
    let mut plain = Vec::new();
    let read = MultiGzDecoder::new(gzipped).take(limit + 1).read_to_end(&mut plain);
    if plain.len() as u64 > limit {
        return Err(ReleaseError::TooLarge);
    }
    read.map_err(|error| ReleaseError::Gzip(error.to_string()))?;
    Ok(plain)
}

/// One JSON object a line, as the reference's renderer writes them; separators and Helm's comments between them are passed over.
fn objects(manifest: &str) -> Result<Vec<Object>, ReleaseError> {
    let mut objects = Vec::new();
    for (at, line) in manifest.lines().enumerate() {
        let text = line.trim();
        if text.is_empty() || text == "---" || text.starts_with('#') {
            continue;
        }
        let object = object(text).map_err(|problem| ReleaseError::Manifest { line: at + 1, problem })?;
        objects.push(object);
        if objects.len() > MAX_OBJECTS {
            return Err(ReleaseError::TooManyObjects);
        }
    }
    if objects.is_empty() {
        return Err(ReleaseError::NoManifest);
    }
    Ok(objects)
}

fn object(text: &str) -> Result<Object, String> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let object = Object::from_value(value).map_err(|error| error.to_string())?;
    for (what, found) in
        [("apiVersion", object.api_version()), ("kind", object.kind()), ("metadata.name", object.name())]
    {
        if found.is_empty() {
            return Err(format!("it has no {what}"));
        }
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::{Value, json};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    fn release_json() -> Value {
        json!({
            "name": "demo", "version": 2, "namespace": "demo",
            "info": {"status": "deployed", "description": "Upgrade complete"},
            "chart": {"metadata": {"name": "", "annotations": {"olm.properties": "[]", "other": "x"}}, "files": [{"name": "f", "data": "e30="}]},
            "config": {},
            "manifest": "---\n# Source: object-1.json\n{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\",\"namespace\":\"demo\"}}\n\n\
                         {\"apiVersion\":\"v1\",\"kind\":\"ServiceAccount\",\"metadata\":{\"name\":\"b\",\"namespace\":\"demo\"}}\n",
            "labels": {
                "olm.operatorframework.io/bundle-name": "demo.v1.0.0", "olm.operatorframework.io/package-name": "demo",
                "olm.operatorframework.io/bundle-version": "1.0.0", "olm.operatorframework.io/bundle-reference": "registry/demo@sha256:0",
            },
        })
    }

    fn index() -> Index {
        Index { secret: "sh.helm.release.v1.demo.v2".to_owned(), version: 2, status: "deployed".to_owned() }
    }

    fn read(stored: &Value) -> Result<Release, ReleaseError> {
        Release::read("demo", &index(), &gzip(stored.to_string().as_bytes()))
    }

    #[test]
    fn release_has_bundle_and_objects() {
        let release = read(&release_json()).unwrap();
        assert_eq!(release.bundle.name, "demo.v1.0.0");
        assert_eq!(release.bundle.reference, "registry/demo@sha256:0");
        assert_eq!(release.bundle.release, None);
        assert_eq!(release.properties.as_deref(), Some("[]"));
        let names: Vec<_> = release.objects.iter().map(|object| (object.kind(), object.name())).collect();
        assert_eq!(names, [("ConfigMap", "a"), ("ServiceAccount", "b")]);
        assert!(release.objects[0].annotations().is_empty());
    }

    #[test]
    fn release_keeps_an_empty_bundle_release() {
        for text in ["2", ""] {
            let mut stored = release_json();
            stored["labels"]["olm.operatorframework.io/bundle-release"] = json!(text);
            let release = read(&stored).unwrap();
            assert_eq!(release.bundle.release.as_deref(), Some(text));
            let marked = release.objects[1].annotations();
            assert_eq!(marked.get(annotations::BUNDLE_RELEASE), Some(&text));
        }
    }

    #[test]
    #[rustfmt::skip]
    fn release_errors_name_the_problem() {
        let without = |key: &str| {
            let mut stored = release_json();
            stored["labels"].as_object_mut().unwrap().remove(key);
            stored
        };
        let with = |key: &str, value: Value| {
            let mut stored = release_json();
            stored[key] = value;
            stored
        };
        for (case, stored, want) in [
            ("no manifest", with("manifest", json!("")), "the release has no manifest"),
            ("a manifest in YAML", with("manifest", json!("apiVersion: v1\nkind: ConfigMap\n")),
                "line 1 of the manifest is no object: expected value at line 1 column 1"),
            ("half an object", with("manifest", json!("---\n{\"kind\":\"A\",\"apiVersion\":\"v1\"}")),
                "line 2 of the manifest is no object: it has no metadata.name"),
            ("of another extension", with("name", json!("other")),
                "it holds version 2 of release \"other\" with status \"deployed\", which its labels deny"),
            ("its labels lie", with("info", json!({"status": "failed"})),
                "it holds version 2 of release \"demo\" with status \"failed\", which its labels deny"),
            ("no package", without("olm.operatorframework.io/package-name"),
                "the release has no label \"olm.operatorframework.io/package-name\", which would name its bundle"),
            ("wrong type", with("manifest", json!(7)), "it is no release: invalid type: integer `7`, expected a string"),
        ] {
            let error = read(&stored).unwrap_err().to_string();
            assert!(error.starts_with(want), "{case}: {error}");
        }
        let many = "{\"apiVersion\":\"v1\",\"kind\":\"C\",\"metadata\":{\"name\":\"a\"}}\n".repeat(1001);
        assert_eq!(read(&with("manifest", json!(many))), Err(ReleaseError::TooManyObjects));
    }

    #[test]
    fn release_bytes_are_rejected_within_limits() {
        let good = gzip(release_json().to_string().as_bytes());
        let read = |bytes: &[u8]| Release::read("demo", &index(), bytes).unwrap_err();
        assert!(matches!(read(b"no gzip at all"), ReleaseError::Gzip(_)));
        assert!(matches!(read(&good[..good.len() / 2]), ReleaseError::Gzip(_)));
        assert!(matches!(read(&gzip(b"7")), ReleaseError::Json(_)));
        assert!(matches!(read(&gzip(b"")), ReleaseError::Json(_)));
        let bomb = gzip(&vec![b' '; usize::try_from(MAX_BYTES).unwrap() + 1]);
        assert!(bomb.len() < 100_000, "{}", bomb.len());
        assert_eq!(read(&bomb), ReleaseError::TooLarge);
    }

    fn secret(data: Value, labels: Value, type_: &str) -> Secret {
        serde_json::from_value(
            json!({"metadata": {"name": "s", "labels": labels}, "type": type_, "data": data}),
        )
        .unwrap()
    }

    #[test]
    #[rustfmt::skip]
    fn release_chunks_are_joined_in_order() {
        let (a, b, c) = ("YQ==", "Yg==", "Yw==");
        let ours = json!({"owner": "operator-controller", "key": "k"});
        // ["x","y"]
        let index = secret(
            json!({"chunk": a, "extraChunks": "WyJ4IiwieSJd"}),
            ours.clone(),
            secret_types::HELM_INDEX,
        );
        assert_eq!(further_chunks(&index), Ok(vec!["x".to_owned(), "y".to_owned()]));
        let part = |data: &str, labels: &Value, type_: &str| {
            Some(secret(json!({"chunk": data}), labels.clone(), type_))
        };
        let x = ("x".to_owned(), part(b, &ours, secret_types::HELM_CHUNK));
        let y = ("y".to_owned(), part(c, &ours, secret_types::HELM_CHUNK));
        assert_eq!(payload(&index, &[x.clone(), y]), Ok(b"abc".to_vec()));
        let theirs = json!({"owner": "operator-controller", "key": "another"});
        for (case, second, want) in [
            ("gone", None, ReleaseError::NoChunk("y".to_owned())),
            ("of another release", part(c, &theirs, secret_types::HELM_CHUNK), ReleaseError::ForeignChunk("y".to_owned())),
            ("of another type", part(c, &ours, "Opaque"), ReleaseError::ForeignChunk("y".to_owned())),
            ("empty", Some(secret(json!({}), ours.clone(), secret_types::HELM_CHUNK)), ReleaseError::NoData("chunk")),
        ] {
            assert_eq!(payload(&index, &[x.clone(), ("y".to_owned(), second)]), Err(want), "{case}");
        }
        let eleven = "WyIxIiwiMiIsIjMiLCI0IiwiNSIsIjYiLCI3IiwiOCIsIjkiLCIxMCIsIjExIl0=";
        let index =
            secret(json!({"chunk": a, "extraChunks": eleven}), ours.clone(), secret_types::HELM_INDEX);
        assert_eq!(further_chunks(&index), Err(ReleaseError::TooManyChunks(12)));
        let index = secret(json!({"chunk": a, "extraChunks": "e30="}), ours, secret_types::HELM_INDEX);
        assert!(matches!(further_chunks(&index), Err(ReleaseError::Chunks(_))));
    }

    #[test]
    fn release_in_force_is_the_newest_deployed() {
        let of =
            |version: i64, status: &str| Index { secret: String::new(), version, status: status.to_owned() };
        for (releases, want) in [
            (vec![], None),
            (vec![of(1, "deployed")], Some(1)),
            (vec![of(1, "superseded"), of(10, "deployed"), of(9, "deployed")], Some(10)),
            (
                vec![of(1, "superseded"), of(2, "deployed"), of(3, "failed"), of(4, "pending-upgrade")],
                Some(2),
            ),
            (vec![of(1, "failed")], None),
        ] {
            assert_eq!(deployed(&releases).map(|release| release.version), want, "{releases:?}");
        }
    }

    #[test]
    fn release_index_by_labels_and_owners() {
        let read = |labels: Value, owners: Value| {
            let metadata = json!({"name": "r", "labels": labels, "ownerReferences": owners});
            Index::read(&serde_json::from_value(metadata).unwrap(), "u1")
                .map(|index| index.map(|index| index.version))
        };
        let owner = |kind: &str, uid: &str| json!([{"apiVersion": "g/v1", "kind": kind, "name": "x", "uid": uid, "controller": true}]);
        let labels = json!({"status": "deployed", "version": "3"});
        for (case, labels, owners, want) in [
            ("ours", labels.clone(), owner("ClusterExtension", "u1"), Ok(Some(3))),
            ("without an owner, as a backup restores it", labels.clone(), json!([]), Ok(Some(3))),
            ("of another kind", labels.clone(), owner("Node", "u9"), Ok(Some(3))),
            ("of a former extension", labels, owner("ClusterExtension", "u0"), Ok(None)),
            ("no status", json!({"version": "3"}), json!([]), Err(ReleaseError::Label("status"))),
            (
                "no number",
                json!({"status": "deployed", "version": "three"}),
                json!([]),
                Err(ReleaseError::Label("version")),
            ),
        ] {
            assert_eq!(read(labels, owners), want, "{case}");
        }
    }
}
