//! From a rendered manifest to the content of a revision: what is kept, what is stamped.
//!
//! The revision number, the managed-by label and the owner reference are *not* content; they are put on by
//! [`crate::desired`] when the object is applied. Rule: bundle-rendering §14, revisions §3.

use olm_core::Object;
use serde_json::Value;

use crate::keys;

/// What the objects of a revision are marked with.
#[derive(Debug, Clone, Copy)]
pub struct Stamp<'a> {
    /// Name of the owning extension.
    pub extension: &'a str,
    /// Package of the bundle; nothing is stamped when empty.
    pub package: &'a str,
    /// Version of the bundle; nothing is stamped when empty.
    pub version: &'a str,
}

/// Metadata that content may have.
const METADATA_MEMBERS: [&str; 4] = ["annotations", "labels", "name", "namespace"];

/// Makes content of a manifest: drops `status`, all metadata but name, namespace, labels and annotations, and kubectl's
/// bookkeeping; stamps owner labels and bundle annotations.
pub fn sanitise(mut object: Object, stamp: Stamp<'_>) -> Object {
    object.0.remove("status");
    let metadata = object.metadata_mut();
    metadata.retain(|key, _| METADATA_MEMBERS.contains(&key.as_str()));
    for map in ["labels", "annotations"] {
        if metadata.get(map).is_some_and(|value| !value.is_object()) {
            metadata.remove(map);
        }
    }
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove(keys::LAST_APPLIED);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    object.set_label(keys::OWNER_KIND, keys::OWNER_KIND_VALUE);
    object.set_label(keys::OWNER_NAME, stamp.extension);
    for (key, value) in [(keys::BUNDLE_VERSION, stamp.version), (keys::PACKAGE_NAME, stamp.package)] {
        if !value.is_empty() {
            object.set_annotation(key, value);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const STAMP: Stamp<'_> = Stamp { extension: "ext", package: "pkg", version: "1.0.0" };

    fn run(value: Value, stamp: Stamp<'_>) -> Value {
        sanitise(Object::from_value(value).unwrap(), stamp).into_value()
    }

    #[test]
    fn sanitise_keeps_four_members_of_metadata() {
        let got = run(
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "status": {"x": 1}, "data": {"a": "b"},
                "metadata": {
                    "name": "c", "namespace": "n", "creationTimestamp": null, "uid": "1", "finalizers": ["f"],
                    "generateName": "g", "ownerReferences": [],
                    "labels": {"mine": "a", "olm.operatorframework.io/owner-name": "forged"},
                    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "k": "v"},
                },
            }),
            STAMP,
        );
        assert_eq!(
            got,
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
                "metadata": {
                    "name": "c", "namespace": "n",
                    "labels": {
                        "mine": "a",
                        "olm.operatorframework.io/owner-kind": "ClusterExtension",
                        "olm.operatorframework.io/owner-name": "ext",
                    },
                    "annotations": {
                        "k": "v",
                        "olm.operatorframework.io/bundle-version": "1.0.0",
                        "olm.operatorframework.io/package-name": "pkg",
                    },
                },
            })
        );
    }

    /// rule: revisions §17 row 29
    #[test]
    fn sanitise_marks_objects_with_the_version() {
        let of = |version: &str| {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
            let stamped = run(map, Stamp { version, ..STAMP });
            stamped["metadata"]["annotations"]["olm.operatorframework.io/bundle-version"].clone()
        };
        assert_eq!((of("1.0.0"), of("1.1.0")), (json!("1.0.0"), json!("1.1.0")));
    }

    #[test]
    fn sanitise_removes_empty_maps() {
        let got = run(
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "c", "labels": null, "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            }),
            Stamp { extension: "ext", package: "", version: "" },
        );
        let labels = json!({keys::OWNER_KIND: "ClusterExtension", keys::OWNER_NAME: "ext"});
        assert_eq!(got["metadata"], json!({"name": "c", "labels": labels}));
    }
}
